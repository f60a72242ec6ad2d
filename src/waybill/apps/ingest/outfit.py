"""The outfit: what the steps, duties, routes and commands of ingest work with, put together once in each process.

Everything in it may be used from many threads: the inventory is a connection, so each thread has one of its own.
"""

from __future__ import annotations

import os
import secrets
import threading
from collections.abc import Callable
from functools import cached_property
from typing import TYPE_CHECKING, NamedTuple, cast
from urllib.parse import quote, urlsplit

from waybill.apps.ingest import mnemonics
from waybill.apps.ingest.ezid import Ezid
from waybill.apps.ingest.inventory import Inventory
from waybill.apps.ingest.minting import Blocks, Shoulder, connect
from waybill.apps.ingest.profile import Profile, from_document
from waybill.apps.ingest.room import Ledger
from waybill.apps.ingest.sealing import Seal
from waybill.apps.ingest.settings import Settings
from waybill.apps.ingest.settings import read as read_settings
from waybill.apps.ingest.storage import OcflStorage, StorageService
from waybill.apps.ingest.storage.http import TOKEN, HttpStorage
from waybill.apps.ingest.storage.sources import WorkingSources
from waybill.apps.ingest.submission import Submission
from waybill.notify import post
from waybill.objects import PART_LEAST, Objects
from waybill.record import NotFound, Store
from waybill.step import Context, Fail
from waybill.transfer import Connections, Reach, download, look

if TYPE_CHECKING:
    from waybill.depot import Depot
    from waybill.index import Index

FRESH = 5.0  # seconds for which a profile is taken as known


class Parts(NamedTuple):
    """When an archive goes in parts of its own: from so many bytes of content on, in parts of at least so many
    bytes.
    """

    content: int = 100 * 2**30
    least: int = PART_LEAST


class Outfit:
    download = staticmethod(download)  # a simulation has a web of its own
    look = staticmethod(look)
    post = staticmethod(post)
    draw = staticmethod(secrets.token_bytes)  # random bytes that nobody can guess
    parts = Parts()  # a simulation has small ones

    def __init__(self, depot: Depot) -> None:
        self.depot = depot
        self.settings: Settings = read_settings(depot.config.app.get("ingest", {}))
        self._profiles: dict[str, tuple[float, Profile]] = {}
        self._strange: set[str] = set()  # of those, the names of which nothing is known here
        self._mnemonics: tuple[float, dict[str, str]] | None = None
        self._mine = threading.local()
        self._lock = threading.Lock()
        self._opened: list[tuple[threading.Thread, Index]] = []
        self._seal: Seal | None = None
        self._ezids: dict[str, Ezid] = {}
        self.blocks = Blocks()
        self.connections = Connections()

    def address(self, *path: str) -> str:
        """Where users reach something of ingest's API."""
        base = self.settings.url.rstrip("/") or self.depot.address
        return "/".join((f"{base}/api/v1/ingest", *(quote(part, safe="") for part in path)))

    @property
    def shared(self) -> bool:
        """Whether services that know no tokens work on the same tree."""
        return urlsplit(self.depot.config.store).scheme == "zookeeper"

    def seal(self, call: Callable[[Callable[[Store], Seal]], Seal]) -> Seal:
        """What signs URLs of manifests; `call` asks the store, once in each process."""
        if self._seal is None:
            self._seal = call(lambda store: Seal.of(store, self.draw))
        return self._seal

    @property
    def objects(self) -> Objects:
        return self.depot.objects

    @cached_property
    def storage(self) -> StorageService:
        """Our own storage, or the service that the settings name."""
        told = self.settings.storage
        if told.url:
            return HttpStorage(told.url, os.environ.get(TOKEN, ""), self.sources)
        return OcflStorage(self.objects, told.prefix, self.sources, algorithm=told.algorithm)

    @cached_property
    def sources(self) -> WorkingSources:
        """Where storage reads from what it is given."""
        return WorkingSources(self.depot.config.work.root, self.objects)

    def ezid(self, shoulder: Shoulder) -> Ezid:
        """The client of the EZID that keeps a shoulder's ARKs."""
        with self._lock:
            if shoulder.ezid not in self._ezids:
                self._ezids[shoulder.ezid] = connect(shoulder)
            return self._ezids[shoulder.ezid]

    @cached_property
    def room(self) -> Ledger:
        return Ledger(self.depot.config.work.root, self.settings.room)

    @cached_property
    def reach(self) -> Reach:
        return self.settings.fetch.reach()

    def profile(self, ctx: Context, said: Submission) -> Profile:
        """The profile of a deposit, as it was within the last few seconds.

        Other services may name one that was never made here, or none: their deposits are done as those of a profile
        that says nothing. But one that was there when the deposit was taken in must not be gone: then nobody would be
        called, and EZID told of nothing.
        """
        name = said.profile
        if not name:
            return Profile(name="none")
        known = self._profiles.get(name)
        if known is None or not 0 <= ctx.now() - known[0] <= FRESH:
            try:
                profile = from_document(Profile, ctx.get("profile", name).docs["profile"])
                self._strange.discard(name)
            except NotFound:
                if said.checked:
                    raise Fail(
                        f"The profile {name} is gone: make it again (`waybill ingest profile add`), then resume."
                    ) from None
                profile = Profile(name=name)
                self._strange.add(name)
            known = self._profiles[name] = (ctx.now(), profile)
        return known[1]

    def stranger(self, ctx: Context, said: Submission) -> bool:
        """Whether a deposit is done as that of a profile that says nothing: it names none, or one that was never
        made here.
        """
        self.profile(ctx, said)
        return not said.profile or said.profile in self._strange

    def mnemonics(self, ctx: Context, profile: Profile) -> tuple[str, ...]:
        """Those of the profile's collections, as they were within the last few seconds."""
        if not profile.collections:
            return ()
        if self._mnemonics is None or not 0 <= ctx.now() - self._mnemonics[0] <= FRESH:
            self._mnemonics = (ctx.now(), mnemonics.by_ark(ctx.find))
        return mnemonics.of(profile, self._mnemonics[1])

    @property
    def inventory(self) -> Inventory:
        """This thread's connection."""
        found: Inventory | None = getattr(self._mine, "inventory", None)
        if found is None:
            index = self.depot.open_index()
            with self._lock:  # the threads of requests come and go, and nobody says when
                gone = [opened for thread, opened in self._opened if not thread.is_alive()]
                self._opened = [each for each in self._opened if each[0].is_alive()]
                self._opened.append((threading.current_thread(), index))
            for opened in gone:
                opened.close()
            found = self._mine.inventory = Inventory(index)
        return found

    def close(self) -> None:
        with self._lock:
            opened, self._opened = self._opened, []
            ezids, self._ezids = self._ezids, {}
        for _, index in opened:
            index.close()
        for client in ezids.values():
            client.close()
        self.connections.close()
        storage = self.__dict__.pop("storage", None)
        if isinstance(storage, HttpStorage):
            storage.close()
        self._mine = threading.local()


def outfit_of(ctx: Context) -> Outfit:
    return cast(Outfit, ctx.outfit)
