"""What surrounds ingest in the simulator: a web of files, a receiver of callbacks, an EZID, and the outfit of a process among them."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

from waybill import config
from waybill.apps.ingest import ezid, noid
from waybill.apps.ingest.inventory import Inventory
from waybill.apps.ingest.outfit import Outfit
from waybill.apps.ingest.storage import OcflStorage
from waybill.notify import Answer, NotPosted
from waybill.rules import Machines
from waybill.sim.objects import MemoryObjects
from waybill.sim.world import World
from waybill.transfer import Fetch, Fetched, Offer

KEPT_SHOULDER = "fk5"  # of ARKs that EZID keeps
SETTINGS = {"room": {"keep_free": 0, "unknown": 0, "every": 5.0}, "storage": {"algorithm": "sha256"}, "url": "http://waybill.test"}


class Web:
    """Files by URL; some are not there at first."""

    def __init__(self, world: World) -> None:
        self.world = world
        self.files: dict[str, bytes] = {}

    def download(self, requests: Iterable[Fetch], into: Path, *, stop: Any, **limits: Any) -> Iterator[Fetched]:
        into.mkdir(parents=True, exist_ok=True)
        for wanted in requests:
            self.world.point(f"before fetching {wanted.url}")
            if stop():
                yield Fetched(wanted.name, False, reason="told to stop", stopped=True)
                continue
            self.world.meet_trouble("the web")
            data = self.files.get(wanted.url)
            if data is None:
                yield Fetched(wanted.name, False, reason="404 Not Found", permanent=True)
                continue
            path = into / wanted.name
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_bytes(data)
            self.world.point(f"after fetching {wanted.url}")
            yield Fetched(wanted.name, True, len(data), hashlib.sha256(data).hexdigest())

    def post(self, url: str, body: bytes, headers: Any, **limits: Any) -> Answer:
        if self.world.trouble and self.world.chance(self.world.trouble):
            raise NotPosted("the receiver does not answer", permanent=False)
        self.world.happen("callback", url)
        return Answer(200, "OK")

    def look(self, requests: Iterable[Fetch], **limits: Any) -> Iterator[Offer]:
        for wanted in requests:
            self.world.point(f"asking for {wanted.url}")
            data = self.files.get(wanted.url)
            yield Offer(wanted.name, len(data) if data is not None else None)


class Registry:
    """An EZID: it keeps ARKs, some of which are somebody else's already."""

    def __init__(self, world: World) -> None:
        self.world = world
        self.known = {noid.mint(0, "99999", KEPT_SHOULDER): "somebody else"} if world.chance(0.5) else {}
        self.strangers = frozenset(self.known)

    def create(self, ark: str, request: str, description: Any) -> str:
        self.world.point(f"before telling EZID of {ark}")
        self.world.meet_trouble("EZID")
        if self.known.setdefault(ark, request) != request:
            raise ezid.Taken(f"{ark} is taken.")
        self.world.point(f"after telling EZID of {ark}")
        return ark

    def update(self, ark: str, description: Any) -> None:
        self.world.point(f"telling EZID more of {ark}")

    def close(self) -> None: ...


class SimulatedDepot:
    """What an outfit asks of the process it is in."""

    def __init__(self, settings: config.Config, host: str, root: Path, objects: MemoryObjects, machines: Machines) -> None:
        self.host, self.objects, self.machines = host, objects, machines
        self.config = replace(settings, app={"ingest": SETTINGS}, work=replace(settings.work, root=root, host=host))


class SimulatedOutfit(Outfit):
    def __init__(self, depot: Any, web: Web, registry: Registry, inventory: Any, now: Any) -> None:
        super().__init__(depot)
        self.download, self.look, self.post = web.download, web.look, web.post  # type: ignore[assignment]
        self._registry, self._inventory, self._now = registry, inventory, now

    def ezid(self, shoulder: Any) -> Any:
        return self._registry

    @property
    def storage(self) -> OcflStorage:
        told = self.settings.storage
        return OcflStorage(self.objects, told.prefix, self.sources, algorithm=told.algorithm, threads=1, now=self._now)

    @property
    def inventory(self) -> Inventory:
        return self._inventory  # type: ignore[no-any-return]
