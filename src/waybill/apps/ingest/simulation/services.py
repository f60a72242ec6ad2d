"""The services around ingest in the simulator: a web server, a receiver of callbacks, EZID, storage, the inventory, and
the ingest resources of each simulated process.

Objects are in memory; every change of an object and every write to the inventory is a point at which a fault may be
injected. Storage is the real OCFL storage, over those objects, or over others behind a service of its own
(storage_service.py).
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
from waybill.apps.ingest.identifiers import noid
from waybill.apps.ingest.inventory import Inventory
from waybill.apps.ingest.resources import IngestResources
from waybill.apps.ingest.simulation.injected_faults import InjectedFaults
from waybill.apps.ingest.simulation.storage_service import SimulatedStorageService
from waybill.apps.ingest.storage import Deposit, OcflStorage, StorageService, StoredVersion
from waybill.apps.ingest.storage.sources import WorkingSources
from waybill.files.containers import UploadPartSizes
from waybill.machine import Machine
from waybill.notify import HttpPostAnswer, make_mail_machine
from waybill.record import Record
from waybill.rules import Machines
from waybill.sim.memory_objects import FolderMemoryObjects, MemoryObjects, MultipartMemoryObjects, ReplaceGuard
from waybill.sim.world import FaultInjectingProxy, SimulatedWorld, get_current_world
from waybill.step import Done, Outcome, StepContext
from waybill.transfer import DownloadRequest, DownloadResult, RemoteFileInfo, TransferError

EZID_SHOULDER = "fk5"  # of ARKs at EZID
SETTINGS: dict[str, Any] = {
    "disk_space": {"keep_free": 0, "unknown_size_bytes": 0, "poll_interval": 5.0},
    "storage": {"algorithm": "sha256"},
    "url": "http://waybill.test",
    "audit": {"days": 30 / 86400, "files_per_round": 6},  # read again after half a minute
    "notifications": {"admins": ["admin@example.org"]},
}
_SLOW_STATEMENTS = ("lower_head", "forget_version", "forget_contents")  # statements that take simulated time
OBSERVER = "observer"  # the process name outside of the simulation, for the checks at the end


class SimulatedWeb:
    """Files by URL; some do not exist at first."""

    def __init__(self, world: SimulatedWorld) -> None:
        self.world = world
        self.files: dict[str, bytes] = {}

    def download(
        self, requests: Iterable[DownloadRequest], into: Path, *, stop: Any, **limits: Any
    ) -> Iterator[DownloadResult]:
        into.mkdir(parents=True, exist_ok=True)
        for wanted in requests:
            self.world.reach_point(f"before fetching {wanted.url}")
            if stop():
                yield DownloadResult(wanted.name, False, reason="told to stop", is_stopped=True)
                continue
            self.world.inject_transient_error("the web")
            data = self.files.get(wanted.url)
            if data is None:
                yield DownloadResult(wanted.name, False, reason="404 Not Found", permanent=True)
                continue
            path = into / wanted.name
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_bytes(data)
            self.world.reach_point(f"after fetching {wanted.url}")
            yield DownloadResult(wanted.name, True, len(data), hashlib.sha256(data).hexdigest())

    def post(self, url: str, body: bytes, headers: Any, **limits: Any) -> HttpPostAnswer:
        if self.world.transient_error_rate and self.world.draw_chance(self.world.transient_error_rate):
            raise TransferError("the receiver does not answer")
        self.world.perform_effect("callback", url)
        return HttpPostAnswer(200, "OK")

    def ask_sizes(self, requests: Iterable[DownloadRequest], **limits: Any) -> Iterator[RemoteFileInfo]:
        for wanted in requests:
            self.world.reach_point(f"asking for {wanted.url}")
            data = self.files.get(wanted.url)
            yield RemoteFileInfo(wanted.name, len(data) if data is not None else None)


class SimulatedEzid:
    """EZID with its ARKs, some of which belong to somebody else."""

    def __init__(self, world: SimulatedWorld) -> None:
        self.world = world
        self.deposits_by_ark = {noid.mint(0, "99999", EZID_SHOULDER): "somebody else"} if world.draw_chance(0.5) else {}
        self.foreign_arks = frozenset(self.deposits_by_ark)

    def create(self, ark: str, request: str, description: Any) -> str:
        self.world.reach_point(f"before telling EZID of {ark}")
        self.world.inject_transient_error("EZID")
        if self.deposits_by_ark.setdefault(ark, request) != request:
            raise TransferError(f"{ark} is taken.", code="ark-taken")
        self.world.reach_point(f"after telling EZID of {ark}")
        return ark

    def update(self, ark: str, description: Any) -> None:
        self.world.reach_point(f"telling EZID more of {ark}")

    def close(self) -> None: ...


class FaultInjectingCatalogueTables:
    """The tables of the inventory, with fault points before and after each write; a transaction is one write."""

    def __init__(self, world: SimulatedWorld, tables: Any) -> None:
        self._world, self._tables, self._depth = world, tables, 0

    def __getattr__(self, name: str) -> Any:
        return getattr(self._tables, name)

    @contextmanager
    def transaction(self) -> Iterator[None]:
        if not self._depth:
            self._world.reach_point("before inventory.commit")
        self._depth += 1
        try:
            with self._tables.transaction():
                yield
        finally:
            self._depth -= 1
        if not self._depth:
            self._world.reach_point("after inventory.commit")

    def execute(self, statement: str, **values: Any) -> int:
        if self._depth:
            return int(self._tables.execute(statement, **values))
        self._world.reach_point(f"before inventory.{statement}")
        if statement in _SLOW_STATEMENTS and self._world.simulation.scheduler.current is not None:
            self._world.spend_time(3.0)
        count = int(self._tables.execute(statement, **values))
        self._world.reach_point(f"after inventory.{statement}")
        return count


class SimulatedInventory(Inventory):
    def __init__(self, world: SimulatedWorld, inventory: Inventory) -> None:
        self.catalogue, self.tables = inventory.catalogue, FaultInjectingCatalogueTables(world, inventory.tables)


class SimulatedEnvironment:
    """The environment that ingest resources need."""

    def __init__(
        self, settings: config.Config, host: str, root: Path, objects: MemoryObjects, machines: Machines
    ) -> None:
        self.host, self.objects, self.machines = host, objects, machines
        self.config = replace(settings, work=replace(settings.work, root=root, host=host))


class FaultCheckedStorage(OcflStorage):
    """OCFL storage that checks the result of each write against the injected faults."""

    def __init__(self, faults: InjectedFaults, *args: Any, **options: Any) -> None:
        super().__init__(*args, **options)
        self._faults = faults

    def write(self, deposit: Deposit, *, check: Callable[[], None] = lambda: None) -> StoredVersion:
        written: list[StoredVersion] = []
        with self._faults.check_write(self, deposit, written):
            written.append(super().write(deposit, check=check))
        return written[0]


class SimulatedResources(IngestResources):
    part_sizes = UploadPartSizes(1000, 200)

    def __init__(self, environment: Any, services: SimulatedServices) -> None:
        super().__init__(environment)
        web, world = services.web, services.world
        self.download, self.ask_sizes, self.post = web.download, web.ask_sizes, web.post  # type: ignore[assignment]
        self.draw_random_bytes = world.rng.randbytes  # type: ignore[assignment]
        self._services, self._inventory = (
            services,
            FaultInjectingProxy(world, SimulatedInventory(world, services.inventory), "inventory"),
        )

    def get_ezid_client(self, shoulder: Any) -> Any:
        return self._services.ezid

    @cached_property
    def storage(self) -> StorageService:
        remote = self._services.storage_service
        return remote.make_client(self.sources) if remote is not None else self._services.open_storage(self.sources)

    @property
    def inventory(self) -> Inventory:
        return self._inventory  # type: ignore[return-value]


class SimulatedServices:
    """All services of one simulation. `guard` is called before an object is replaced or removed; `remote_storage`: storage
    is a service of its own.
    """

    def __init__(
        self,
        world: SimulatedWorld,
        tables: Callable[[Mapping[str, Any]], tuple[Machine, ...]],
        settings: Mapping[str, Any],
        guard: ReplaceGuard = lambda name, data: None,
        *,
        remote_storage: bool = False,
    ) -> None:
        self.world, clock = world, world.simulation.scheduler
        self.now: Callable[[], datetime] = lambda: datetime.fromtimestamp(clock.now, UTC)
        self._guard = guard
        self.objects = self._make_objects()
        self.storage_objects = self._make_objects() if remote_storage else self.objects  # the objects of storage
        self.faults = InjectedFaults(self)
        self.storage_service = SimulatedStorageService(self, self.storage_objects) if remote_storage else None
        self.web, self.ezid = SimulatedWeb(world), SimulatedEzid(world)
        self.inventory = Inventory(index.open_index("sqlite:///:memory:"))
        mail = {"mail.url": "smtp://127.0.0.1:25", "mail.sender": "waybill@example.org"}
        ingest_settings = {**SETTINGS, **settings}
        self.settings = replace(
            config.load(env={}, overrides={"data": Path("unused"), **mail}), app={"ingest": ingest_settings}
        )
        mail_machine = make_mail_machine(self.settings.mail)
        mail_machine = replace(mail_machine, steps={mail_machine.initial_state: _send_mail})
        self.tables = (*tables(ingest_settings), mail_machine)
        self.machines = Machines.from_machines(self.tables)
        self._resources: dict[str, SimulatedResources] = {}

    def _make_objects(self) -> MemoryObjects:
        """Return objects that write in order, as whole folders, or large objects in parts."""
        kind: type[MemoryObjects] = self.world.rng.choice((MemoryObjects, FolderMemoryObjects, MultipartMemoryObjects))
        return kind(lambda: self.world.simulation.scheduler.now, self.world.reach_point, self._check_replacement)

    def _check_replacement(self, name: str, data: bytes | None) -> None:
        self._guard(name, data)
        self.faults.check_replacement(name, data)

    def open_storage(self, sources: Any = None) -> FaultCheckedStorage:
        """Open the storage; without sources for reading only."""
        read = sources or WorkingSources(Path("unused"), self.objects)
        return FaultCheckedStorage(
            self.faults, self.storage_objects, "ocfl", read, algorithm="sha256", threads=1, now=self.now
        )

    def list_unfinished(self) -> set[str]:
        """Return the objects whose upload in parts is unfinished, here and at the storage service."""
        return {*self.objects.list_unfinished(), *self.storage_objects.list_unfinished()}

    def get_resources(self) -> SimulatedResources:
        """Return the resources of the current process; its reserved numbers are lost with it."""
        simulation = self.world.simulation
        here = simulation.cluster.get_current_process() if simulation.scheduler.current is not None else None
        name, host = (here.name, here.host) if here is not None else (OBSERVER, "")
        if name not in self._resources:
            environment = SimulatedEnvironment(
                self.settings, host, simulation.root_of(host), self.objects, self.machines
            )
            self._resources[name] = SimulatedResources(environment, self)
        return self._resources[name]


def _send_mail(mail: Record, ctx: StepContext) -> Outcome:
    get_current_world().inject_transient_error("the mail server")
    get_current_world().perform_effect("mail", mail.id)
    return Done()
