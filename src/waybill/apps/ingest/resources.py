"""The resources that steps, maintenance routines, routes and commands of ingest share; created once in each process.

Everything may be used from many threads. The inventory is a connection, so each thread has its own.
"""

from __future__ import annotations

import logging
import os
import secrets
import threading
from collections.abc import Callable
from functools import cached_property
from typing import TYPE_CHECKING, Any, cast
from urllib.parse import quote, urlsplit

from waybill.apps.ingest.identifiers.ezid import EzidClient
from waybill.apps.ingest.identifiers.minter import NumberBlocks, Shoulder, connect_ezid
from waybill.apps.ingest.inventory import Inventory, identity
from waybill.apps.ingest.merritt import mnemonics
from waybill.apps.ingest.profile import Profile, from_document
from waybill.apps.ingest.settings import IngestSettings
from waybill.apps.ingest.settings import read as read_settings
from waybill.apps.ingest.storage import OcflStorage, StorageService
from waybill.apps.ingest.storage.http_client import TOKEN_VARIABLE, HttpStorage
from waybill.apps.ingest.storage.sources import WorkingSources
from waybill.apps.ingest.submission import Submission
from waybill.disk_space import WorkingDisk
from waybill.errors import InputError
from waybill.files.containers import UploadPartSizes
from waybill.maintenance import memory_of
from waybill.notify import post
from waybill.objects import Objects
from waybill.record import RecordNotFound, Store
from waybill.signed_urls import UrlSigner
from waybill.step import Fail, StepContext
from waybill.transfer import AddressPolicy, FetcherCache, download, probe_sizes

if TYPE_CHECKING:
    from waybill.environment import Environment
    from waybill.index import Index

log = logging.getLogger("waybill.ingest")

CACHE_SECONDS = 5.0  # seconds for which profiles and mnemonics are cached


class IngestResources:
    download = staticmethod(download)  # the simulator replaces these five
    ask_sizes = staticmethod(probe_sizes)
    post = staticmethod(post)
    draw_random_bytes = staticmethod(secrets.token_bytes)  # unpredictable random bytes
    part_sizes = UploadPartSizes()

    def __init__(self, environment: Environment) -> None:
        self.environment = environment
        self.settings: IngestSettings = read_settings(environment.config.app.get("ingest", {}))
        if self.is_tree_shared and self.settings.takes_batches_of_others is None:
            raise InputError(
                "Merritt's services may share this ZooKeeper tree: say who processes the batches that they submit. Set "
                "app.ingest.takes_batches_of_others = true (Waybill, where it can read the payload) or false (their own consumer).",
                code="bad-application",
            )
        self._profiles: dict[str, tuple[float, Profile]] = {}
        self._unknown_profiles: set[str] = set()  # the names among them that do not exist here
        self._mnemonics: tuple[float, dict[str, str]] | None = None
        self._thread_local = threading.local()
        self._lock = threading.Lock()
        self._open_indexes: list[tuple[threading.Thread, Index]] = []
        self._manifest_signer: UrlSigner | None = None
        self._ezid_clients: dict[str, EzidClient] = {}
        self._inventory_id = ""  # the one that the store knows; empty until it was compared
        self.number_blocks = NumberBlocks()
        self.connections = FetcherCache()

    def api_url_of(self, *path: str) -> str:
        """The public URL of a path of ingest's API."""
        base = self.settings.url.rstrip("/") or self.environment.address
        return "/".join((f"{base}/api/v1/ingest", *(quote(part, safe="") for part in path)))

    @property
    def is_tree_shared(self) -> bool:
        """Whether services that have no tokens share the tree."""
        return urlsplit(self.environment.config.store).scheme == "zookeeper"

    def get_manifest_signer(self, run_on_store: Callable[[Callable[[Store], UrlSigner]], UrlSigner]) -> UrlSigner:
        """The signer of the URLs of manifests; its secret is read from the store once in each process.

        On a tree that is shared with other services, a job names the manifest of the stored version by its URL, for the
        service that records it, and those services have no tokens. Who can read the tree has the URL: it gives access
        to this manifest, to none of the files that it lists, and to no later version.
        """
        if self._manifest_signer is None:
            self._manifest_signer = run_on_store(
                lambda store: UrlSigner.from_store(store, "ingest-manifest", self.draw_random_bytes)
            )
        return self._manifest_signer

    @property
    def objects(self) -> Objects:
        return self.environment.objects

    @cached_property
    def storage(self) -> StorageService:
        """The built-in storage, or the service that the settings name."""
        settings = self.settings.storage
        if settings.url:
            return HttpStorage(settings.url, os.environ.get(TOKEN_VARIABLE, ""), self.sources)
        return OcflStorage(self.objects, settings.prefix, self.sources, algorithm=settings.algorithm)

    @cached_property
    def sources(self) -> WorkingSources:
        """From where storage reads the files of a deposit."""
        return WorkingSources(self.environment.config.work.root, self.objects)

    def get_ezid_client(self, shoulder: Shoulder) -> EzidClient:
        """The client of the EZID that registers a shoulder's ARKs."""
        with self._lock:
            if shoulder.ezid_url not in self._ezid_clients:
                self._ezid_clients[shoulder.ezid_url] = connect_ezid(shoulder, self.settings.minter.ezid_hosts)
            return self._ezid_clients[shoulder.ezid_url]

    @cached_property
    def working_disk(self) -> WorkingDisk:
        environment, settings = self.environment, self.settings
        return WorkingDisk(
            environment.config.work.root,
            environment.host,
            environment.machines,
            settings.disk_space,
            admins=settings.notifications.admins,
        )

    @cached_property
    def address_policy(self) -> AddressPolicy:
        return self.settings.fetch.build_address_policy()

    def get_profile(self, ctx: StepContext, submission: Submission) -> Profile:
        """The profile of a deposit, at most CACHE_SECONDS old.

        Other services may name a profile that never existed here, or none: their deposits get an empty profile. But a
        profile that existed when the deposit was submitted must not be missing: then there would be no callback, and the
        ARK would not be registered with EZID.
        """
        name = submission.profile
        if not name:
            return Profile(name="none")
        cached = self._profiles.get(name)
        if cached is None or not 0 <= ctx.now() - cached[0] <= CACHE_SECONDS:
            try:
                profile = from_document(Profile, ctx.get("profile", name).documents["profile"])
                self._unknown_profiles.discard(name)
            except RecordNotFound:
                if submission.is_profile_checked:
                    raise Fail(
                        f"The profile {name} no longer exists: add it again (`waybill ingest profile add`), then resume."
                    ) from None
                profile = Profile(name=name)
                self._unknown_profiles.add(name)
            cached = self._profiles[name] = (ctx.now(), profile)
        return cached[1]

    def is_unknown_profile(self, ctx: StepContext, submission: Submission) -> bool:
        """Whether a deposit gets an empty profile: it names none, or one that never existed here."""
        self.get_profile(ctx, submission)
        return not submission.profile or submission.profile in self._unknown_profiles

    def get_mnemonics(self, ctx: StepContext, profile: Profile) -> tuple[str, ...]:
        """The mnemonics of the profile's collections, at most CACHE_SECONDS old."""
        if not profile.collections:
            return ()
        if self._mnemonics is None or not 0 <= ctx.now() - self._mnemonics[0] <= CACHE_SECONDS:
            self._mnemonics = (ctx.now(), mnemonics.mnemonics_by_ark(ctx.find))
        return mnemonics.mnemonics_of(profile, self._mnemonics[1])

    def find_inventory_problem(self, run_on_store: Callable[[Callable[[Store], Any]], Any]) -> str:
        """Why objects may be missing in the inventory, so that nothing may be minted; empty if none is. The store is asked once
        in each process, the inventory each time.
        """
        inventory = self.inventory
        found = identity.read_identity(inventory)
        if self._inventory_id and found is not None:
            return identity.explain_identity(found, self._inventory_id)

        def remember(id: str) -> str:
            known: str = run_on_store(lambda store: store.remember(identity.NAME, id))
            return known

        epoch: int = run_on_store(read_inventory_epoch)
        problem = identity.find_problem(inventory, self.storage, remember, epoch, self.draw_random_bytes)
        found = identity.read_identity(inventory)
        assert found is not None
        self._inventory_id = remember(found.id)
        if problem:
            log.error("%s", problem)
        return problem

    @property
    def inventory(self) -> Inventory:
        """The connection of this thread."""
        found: Inventory | None = getattr(self._thread_local, "inventory", None)
        if found is None:
            index = self.environment.open_index()
            with self._lock:  # threads of requests end without notice: close their connections now
                abandoned = [index_of_thread for thread, index_of_thread in self._open_indexes if not thread.is_alive()]
                self._open_indexes = [each for each in self._open_indexes if each[0].is_alive()]
                self._open_indexes.append((threading.current_thread(), index))
            for index_of_thread in abandoned:
                index_of_thread.close()
            found = self._thread_local.inventory = Inventory(index)
        return found

    def close(self) -> None:
        with self._lock:
            opened, self._open_indexes = self._open_indexes, []
            clients, self._ezid_clients = self._ezid_clients, {}
        for _, index in opened:
            index.close()
        for client in clients.values():
            client.close()
        self.connections.close()
        storage = self.__dict__.pop("storage", None)
        if isinstance(storage, HttpStorage):
            storage.close()
        self._thread_local = threading.local()


def read_inventory_epoch(store: Store) -> int:
    """The epoch of the inventory that the store knows, by its maintenance routine."""
    try:
        return int(memory_of(store.get("maintenance", identity.NAME)).get("epoch", 0))
    except RecordNotFound:
        return 0


def resources_of(ctx: StepContext) -> IngestResources:
    return cast(IngestResources, ctx.resources)
