"""What surrounds ingest in the simulator: a web of files, a receiver of callbacks, an EZID, storage, an inventory, and
the outfits of processes among them.

Objects are in memory, and every change of them is a point at which anything may happen; so is every call of the
inventory. Storage is the OCFL storage itself, over those objects; or over others, behind a service of its own
(elsewhere.py).
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import replace
from datetime import UTC, datetime
from functools import cached_property
from pathlib import Path
from typing import Any

from waybill import config, index
from waybill.apps.ingest import ezid, noid
from waybill.apps.ingest.inventory import Inventory
from waybill.apps.ingest.outfit import Outfit, Parts
from waybill.apps.ingest.simulation.elsewhere import Elsewhere
from waybill.apps.ingest.simulation.illness import Illness
from waybill.apps.ingest.storage import Deposit, OcflStorage, StorageService, Stored
from waybill.apps.ingest.storage.sources import WorkingSources
from waybill.machine import Machine
from waybill.notify import Answer, NotPosted, letter_machine
from waybill.record import Record
from waybill.rules import Machines
from waybill.sim.objects import Guard, MemoryObjects, PartedMemoryObjects, WholeMemoryObjects
from waybill.sim.world import Porous, World, current
from waybill.step import Context, Done, Outcome
from waybill.transfer import Fetch, Fetched, Offer

KEPT_SHOULDER = "fk5"  # of ARKs that EZID keeps
SETTINGS: dict[str, Any] = {
    "room": {"keep_free": 0, "unknown": 0, "every": 5.0},
    "storage": {"algorithm": "sha256"},
    "url": "http://waybill.test",
    "audit": {"days": 30 / 86400, "portion": 6},  # read again after half a minute
    "tell": {"admins": ["admin@example.org"]},
}
_LONG = ("lower_head", "forget_version", "forget_contents")  # statements that take their time
NOBODY = "nobody"  # the process of whoever looks at the end


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


class PorousShelf:
    """The shelf of the inventory: a point before and after what is written, a transaction being one write."""

    def __init__(self, world: World, shelf: Any) -> None:
        self._world, self._shelf, self._depth = world, shelf, 0

    def __getattr__(self, name: str) -> Any:
        return getattr(self._shelf, name)

    @contextmanager
    def transaction(self) -> Iterator[None]:
        if not self._depth:
            self._world.point("before inventory.commit")
        self._depth += 1
        try:
            with self._shelf.transaction():
                yield
        finally:
            self._depth -= 1
        if not self._depth:
            self._world.point("after inventory.commit")

    def execute(self, statement: str, **values: Any) -> int:
        if self._depth:
            return int(self._shelf.execute(statement, **values))
        self._world.point(f"before inventory.{statement}")
        if statement in _LONG and self._world.simulation.hub.current is not None:
            self._world.takes(3.0)
        count = int(self._shelf.execute(statement, **values))
        self._world.point(f"after inventory.{statement}")
        return count


class SimulatedInventory(Inventory):
    def __init__(self, world: World, inventory: Inventory) -> None:
        self.catalogue, self.shelf = inventory.catalogue, PorousShelf(world, inventory.shelf)


class SimulatedDepot:
    """What an outfit asks of the process it is in."""

    def __init__(
        self, settings: config.Config, host: str, root: Path, objects: MemoryObjects, machines: Machines
    ) -> None:
        self.host, self.objects, self.machines = host, objects, machines
        self.config = replace(settings, work=replace(settings.work, root=root, host=host))


class WatchedStorage(OcflStorage):
    """Our own storage, with somebody who looks at what a write leaves."""

    def __init__(self, illness: Illness, *args: Any, **options: Any) -> None:
        super().__init__(*args, **options)
        self._illness = illness

    def write(self, deposit: Deposit, *, check: Callable[[], None] = lambda: None) -> Stored:
        made: list[Stored] = []
        with self._illness.writing(self, deposit, made):
            made.append(super().write(deposit, check=check))
        return made[0]


class SimulatedOutfit(Outfit):
    parts = Parts(1000, 200)

    def __init__(self, depot: Any, around: Surroundings) -> None:
        super().__init__(depot)
        web, world = around.web, around.world
        self.download, self.look, self.post = web.download, web.look, web.post  # type: ignore[assignment]
        self.draw = world.rng.randbytes  # type: ignore[assignment]
        self._around, self._porous = around, Porous(world, SimulatedInventory(world, around.catalogue), "inventory")

    def ezid(self, shoulder: Any) -> Any:
        return self._around.registry

    @cached_property
    def storage(self) -> StorageService:
        elsewhere = self._around.elsewhere
        return elsewhere.client(self.sources) if elsewhere is not None else self._around.storage(self.sources)

    @property
    def inventory(self) -> Inventory:
        return self._porous  # type: ignore[return-value]


class Surroundings:
    """All of it, for one seed. `guard` is asked before an object is replaced or goes; `elsewhere`: storage is
    another service.
    """

    def __init__(
        self,
        world: World,
        tables: Callable[[Mapping[str, Any]], tuple[Machine, ...]],
        settings: Mapping[str, Any],
        guard: Guard = lambda name, data: None,
        *,
        elsewhere: bool = False,
    ) -> None:
        self.world, clock = world, world.simulation.hub
        self.now: Callable[[], datetime] = lambda: datetime.fromtimestamp(clock.now, UTC)
        self._guard = guard
        self.objects = self._make_objects()
        self.kept = self._make_objects() if elsewhere else self.objects  # where storage lies
        self.illness = Illness(self)
        self.elsewhere = Elsewhere(self, self.kept) if elsewhere else None
        self.web, self.registry = Web(world), Registry(world)
        self.catalogue = Inventory(index.open_index("sqlite:///:memory:"))
        mail = {"mail.url": "smtp://127.0.0.1:25", "mail.sender": "waybill@example.org"}
        told = {**SETTINGS, **settings}
        self.settings = replace(config.load(env={}, overrides={"data": Path("unused"), **mail}), app={"ingest": told})
        letters = letter_machine(self.settings.mail)
        letters.steps["Waiting"] = _sent
        self.tables = (*tables(told), letters)
        self.machines = Machines.of(self.tables)
        self._outfits: dict[str, SimulatedOutfit] = {}

    def _make_objects(self) -> MemoryObjects:
        """A new object is written in order, or as one folder; or what is long part by part."""
        kind: type[MemoryObjects] = self.world.rng.choice((MemoryObjects, WholeMemoryObjects, PartedMemoryObjects))
        return kind(lambda: self.world.simulation.hub.now, self.world.point, self._replaced)

    def _replaced(self, name: str, data: bytes | None) -> None:
        self._guard(name, data)
        self.illness.guard(name, data)

    def storage(self, sources: Any = None) -> WatchedStorage:
        """Storage itself; for whoever only reads it, without sources."""
        read = sources or WorkingSources(Path("unused"), self.objects)
        return WatchedStorage(self.illness, self.kept, "ocfl", read, algorithm="sha256", threads=1, now=self.now)

    def unfinished(self) -> set[str]:
        """What is on its way, part by part, to ourselves or to the service elsewhere."""
        return {*self.objects.unfinished(), *self.kept.unfinished()}

    def outfit(self) -> SimulatedOutfit:
        """Of the process that asks: what it has drawn ahead goes with it."""
        simulation = self.world.simulation
        here = simulation.stage.here() if simulation.hub.current is not None else None
        name, host = (here.name, here.host) if here is not None else (NOBODY, "")
        if name not in self._outfits:
            depot = SimulatedDepot(self.settings, host, simulation.root_of(host), self.objects, self.machines)
            self._outfits[name] = SimulatedOutfit(depot, self)
        return self._outfits[name]


def _sent(letter: Record, ctx: Context) -> Outcome:
    current().meet_trouble("the mail server")
    current().happen("letter", letter.id)
    return Done()
