"""Assemblies in the simulator: stored objects are requested, packed, fetched, deleted and expire, where any process may
die at any moment.

Invariants, besides those of all machines:

    an assembly is Completed when its archive exists, with exactly what was requested, and until it expires or is deleted
    a request returns an assembly that is open or ready, and its token leads to it
    a token gives that archive, complete, or an error; the routine deletes only what has expired
    nothing is packed from damaged content: the assembly fails and says what is damaged; intact objects never fail
    an audit finds what is damaged, and nothing else
    long after the end every assembly that was Completed or Failed is removed, with all its files
"""

from __future__ import annotations

import hashlib
import io
import tarfile
import zipfile
import zlib
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar

from waybill.apps.ingest.access import AssemblyRequest, request_assembly, tokens
from waybill.apps.ingest.application import build_machines
from waybill.apps.ingest.documents import ALL_VERSIONS, ArchiveContent, ArchiveForm, AssemblyOrder, PackedArchive
from waybill.apps.ingest.simulation import maintenance
from waybill.apps.ingest.simulation.services import SimulatedResources, SimulatedServices
from waybill.apps.ingest.storage import MANIFEST_PATH, Deposit, FileToStore
from waybill.apps.ingest.storage.sources import WorkingSources
from waybill.engine import Engine
from waybill.machine import Machine
from waybill.maintenance import MaintenanceRoutine
from waybill.manifests import record_lists
from waybill.objects import ObjectNotFound
from waybill.record import Change, Record, Ref, Store
from waybill.sim.invariant_checker import CheckedRecord, InvariantViolation
from waybill.sim.memory_objects import MemoryObjects
from waybill.sim.scenario import ClientScript, Scenario
from waybill.sim.world import SimulatedWorld
from waybill.step import New

if TYPE_CHECKING:
    from waybill.apps.ingest.inventory import Inventory


FileBodies = dict[str, bytes | None]  # by path; None: it exists, with unknown bytes
FORMS: tuple[ArchiveForm, ...] = ("zip", "zip-stored", "tar", "tar.gz")
CONTENTS: tuple[ArchiveContent, ...] = ("full", "producer")
LIVE_STATES = ("Pending", "Processing", "Completed")
FILE_CHOICES = (("producer/a.txt",), ("producer/a.txt", "producer/d/b.txt"), ("system/mrt-erc.txt",))


class AssemblyScenario(Scenario):
    name = "assemblies"
    description = (
        "Ingest's assemblies: objects are packed on request, fetched, deleted and expire, with faults at every point."
    )
    uses_real_files: ClassVar[bool] = True
    target_points: ClassVar[tuple[str, ...]] = (
        "progress",
        "before put ingest",
        "after put ingest",
        "before part",
        "before delete",
        "after delete",
    )

    def __init__(self, world: SimulatedWorld) -> None:
        super().__init__(world)
        self.archives: dict[str, tuple[Ref, float]] = {}  # of completed assemblies, by object name: record and expiry
        self.tokens: dict[str, None] = {}  # that requests have returned
        self.fetch_count = 0
        keep = self.rng.choice((10.0, 30.0, 600.0))
        self.services = SimulatedServices(
            world,
            _select_machines,
            {"access": {"small_bytes": 2000, "keep_seconds": keep, "bytes_per_second": 1000}},
            self._check_replacement,
        )
        self.stored_objects = SimulatedStoredObjects(self.services)

    def build_machines(self) -> tuple[Machine, ...]:
        return self.services.tables

    def build_submissions(self) -> Iterator[New]:
        yield from ()

    def open_objects(self) -> MemoryObjects:
        return self.services.objects

    def resources_of(self, kind: str) -> SimulatedResources:
        return self.services.get_resources()

    def build_maintenance_routines(self) -> tuple[MaintenanceRoutine, ...]:
        return (*maintenance.choose_routines(self.rng, maintenance.STORAGE_ROUTINES), maintenance.EXPIRY)

    def build_client_scripts(self) -> Iterator[ClientScript]:
        rng, arks = self.rng, list(self.stored_objects.versions)
        injects_faults = rng.random() < 0.3
        for _ in range(rng.choice((3, 6, 10))):
            request, add_version = self._draw_request(rng.choice(arks)), partial(self._add_version, rng.choice(arks))
            yield rng.choices((request, self._fetch, self._act, add_version, self._wait_a_while), (6, 5, 2, 1, 2))[0]
            if injects_faults and rng.random() < 0.4:
                yield self._restore_objects if rng.random() < 0.4 else partial(self._damage_object, rng.choice(arks))

    def _draw_request(self, ark: str) -> ClientScript:
        rng = self.rng
        files: tuple[str, ...] = rng.choice(FILE_CHOICES) if rng.random() < 0.3 else ()
        version = rng.choice((None, 1)) if files else rng.choice((None, 1, ALL_VERSIONS))
        form, content = rng.choice(FORMS), rng.choice(CONTENTS)
        return partial(
            self._request_assembly,
            AssemblyRequest(object=ark, version=version, form=form, content=content, files=files),
            rng.choice("ab"),
        )

    def _request_assembly(self, assembly_request: AssemblyRequest, owner: str, engine: Engine) -> None:
        started = engine.store.now()
        record, is_new = request_assembly(engine, self.services.get_resources(), assembly_request, owner=owner)
        has_ended = record.state not in LIVE_STATES or (
            record.state == "Completed" and record.document(PackedArchive).expires < started
        )
        if has_ended and not is_new:
            raise InvariantViolation(f"a request returns {record.ref}, which is {record.state} or has expired")
        self.tokens[tokens.token_of(record)] = None

    def _fetch(self, engine: Engine) -> None:
        """Fetch the archive of every token, as the route does."""
        simulation, objects = self.world.simulation, self.services.objects
        for token in self.tokens:
            record = tokens.find_assembly(engine.store, objects, token)
            if (
                record is None
                or record.state != "Completed"
                or record.document(PackedArchive).expires < engine.store.now()
            ):
                continue
            try:
                with objects.get(record.document(PackedArchive).name) as body:
                    data = body.read()
            except ObjectNotFound:
                now = simulation.checker.records.get(record.ref)
                if (
                    now is not None
                    and now.state == "Completed"
                    and record.document(PackedArchive).expires >= simulation.scheduler.now
                ):
                    raise InvariantViolation(
                        f"{record.ref} is Completed, has not expired, and cannot be fetched"
                    ) from None
                continue
            self.fetch_count += 1
            if problem := self._compare_archive(record, data):
                raise InvariantViolation(f"{record.ref} is fetched, and {problem}")

    def _wait_a_while(self, engine: Engine) -> None:
        """Let time pass, so that some expire."""
        self.world.simulation.pass_time(self.rng.random() * 40.0)

    def _act(self, engine: Engine) -> None:
        """Requeue what has failed; sometimes delete what is ready."""
        for kind in tokens.KINDS:
            for record in engine.store.find(kind, state="Failed").records:
                engine.act(record.ref, "requeue", who="visitor")
            for record in engine.store.find(kind, state="Completed").records:
                if self.world.draw_chance(0.5):
                    engine.act(record.ref, "delete", who="visitor", confirmed=True)

    def _add_version(self, ark: str, engine: Engine) -> None:
        if not any(where == ark for where, _ in self.stored_objects.damaged):
            self.stored_objects.add_version(ark, self.services.get_resources().inventory)

    def _damage_object(self, ark: str, engine: Engine) -> None:
        self.stored_objects.damage(ark)

    def _restore_objects(self, engine: Engine) -> None:
        self.stored_objects.restore()

    def check_change(self, change: Change, record: Record | None, entry: CheckedRecord) -> None:
        if record is None or record.kind not in tokens.KINDS:
            return
        if change.cause == "done" and record.state == "Completed":
            packed = record.document(PackedArchive)
            self.archives[packed.name] = (record.ref, packed.expires)
            if problem := self._check_archive(record):
                raise InvariantViolation(f"{record.ref} is Completed, and {problem}")
        if (
            change.who == f"maintenance {maintenance.EXPIRY.name}"
            and record.state == "Deleted"
            and change.before is not None
        ):
            self._check_expired(change.before)
        order = record.find_document(AssemblyOrder)
        if change.cause == "fail" and record.state == "Failed" and order is not None:
            if order.object not in self.stored_objects.ever_damaged:
                raise InvariantViolation(f"{record.ref} fails although {order.object} is intact: {change.why}")
            if order.object not in change.why:
                raise InvariantViolation(f"{record.ref} fails and does not say what is damaged: {change.why}")

    def _check_expired(self, before: Record) -> None:
        """The routine deletes only what has expired."""
        keep = self.services.get_resources().settings.access.keep_seconds
        expires = before.document(PackedArchive).expires if before.state == "Completed" else before.updated + keep
        if expires >= self.world.simulation.scheduler.now:
            raise InvariantViolation(f"{before.ref} is {before.state} and deleted before it has expired")

    def _check_replacement(self, name: str, data: bytes | None) -> None:
        """An archive that can be fetched is not replaced or removed."""
        simulation = self.world.simulation
        ref, expires = self.archives.get(name, (None, 0.0))
        entry = simulation.checker.records.get(ref) if ref is not None else None
        if entry is not None and entry.state == "Completed" and expires >= simulation.scheduler.now:
            raise InvariantViolation(
                f"the archive of {ref} is removed or replaced, and it is Completed and has not expired"
            )

    def _check_archive(self, record: Record) -> str | None:
        try:
            with self.services.objects.get(record.document(PackedArchive).name) as body:
                return self._compare_archive(record, body.read())
        except ObjectNotFound:
            return "its archive does not exist"

    def _compare_archive(self, record: Record, data: bytes) -> str | None:
        """Return what is wrong with an archive; None if it is what was requested."""
        order = record.find_document(AssemblyOrder)
        assert order is not None
        try:
            members = unpack_archive(order, data)
        except (zipfile.BadZipFile, tarfile.TarError, EOFError, zlib.error, OSError) as error:
            return f"its archive is broken: {error}"
        named = (
            frozenset(record_lists.read_list(self.services.objects, order.files, str))
            if order.files is not None
            else None
        )
        for wanted in self.stored_objects.iter_expected_members(order, named):
            if members.keys() == wanted.keys() and all(body in (None, members[name]) for name, body in wanted.items()):
                return None
        return f"its archive is not what was requested: it has {sorted(members)}"

    def find_problems(self, store: Store) -> Iterator[str]:
        now = self.world.simulation.scheduler.now
        for kind in tokens.KINDS:
            for record in store.each(kind, documents=True):
                if record.state == "Completed" and record.document(PackedArchive).expires >= now:
                    if problem := self._check_archive(record):
                        yield f"{record.ref} is Completed, and {problem}"
                    if tokens.find_assembly(store, self.services.objects, tokens.token_of(record)) is None:
                        yield f"{record.ref} is Completed, and its token does not lead to it"
        yield from maintenance.check_folders(self.services, store)
        yield from maintenance.find_staged_leftovers(self.services)
        yield from maintenance.run_long_after(self.services, store, maintenance.EXPIRY)
        for kind in tokens.KINDS:
            yield from (
                f"{record.ref} is {record.state} long after the end" for record in store.each(kind, documents=True)
            )
        yield from (f"{info.name} exists long after the end" for info in self.services.objects.list(tokens.ROOT))
        yield from maintenance.find_unfinished_uploads(self.services)
        yield from maintenance.compare_audit(self.services, store, self.stored_objects.damaged)


def _select_machines(settings: Any) -> tuple[Machine, ...]:
    return tuple(machine for machine in build_machines(settings) if machine.name in tokens.KINDS)


def unpack_archive(order: AssemblyOrder, data: bytes) -> dict[str, bytes]:
    if order.form.startswith("zip"):
        with zipfile.ZipFile(io.BytesIO(data)) as archive:
            return {info.filename: archive.read(info) for info in archive.infolist()}
    members: dict[str, bytes] = {}
    with tarfile.open(fileobj=io.BytesIO(data), mode="r:gz" if order.form == "tar.gz" else "r:") as tar:
        for member in tar:
            file = tar.extractfile(member)
            assert file is not None
            members[member.name] = file.read()
    return members


class SimulatedStoredObjects:
    """Objects that are in storage before anybody requests them; they get versions, are damaged and restored."""

    def __init__(self, services: SimulatedServices) -> None:
        self.services, self.rng = services, services.world.rng
        self.versions: dict[str, list[FileBodies]] = {}  # by object
        # by object and place: the object name and its bytes before
        self.damaged: dict[tuple[str, str], tuple[str, bytes]] = {}
        self.ever_damaged: dict[str, None] = {}  # objects that were damaged at any time
        for n in range(self.rng.choice((1, 1, 2))):
            for _ in range(self.rng.choice((1, 1, 2))):
                self.add_version(f"ark:/99999/fk4h{n}", services.inventory)

    def add_version(self, ark: str, inventory: Inventory) -> None:
        """Store and record another version as a job does: one file stays, one changes. Safe to repeat, by its request."""
        versions = self.versions.setdefault(ark, [])
        if not versions or versions[-1][MANIFEST_PATH] is not None:
            versions.append({**_make_files(ark, len(versions) + 1), MANIFEST_PATH: None})  # from now on it may exist
        number = len(versions)
        files = _make_files(ark, number)
        sources = WorkingSources(Path("unused"), self.services.objects)
        storage = self.services.open_storage(sources)
        with sources.lend_files(files) as lent:
            listed = [
                FileToStore(path, len(body), hashlib.sha256(body).hexdigest(), lent + path)
                for path, body in files.items()
            ]
            stored = storage.write(
                Deposit(object=ark, request=f"{ark} {number}", files=listed, about={"owner": "ark:/99999/owner"})
            )
        inventory.record(stored, storage)
        with storage.read(ark, stored.place) as body:
            versions[-1][MANIFEST_PATH] = body.read()

    def iter_expected_members(self, order: AssemblyOrder, named: frozenset[str] | None) -> Iterator[FileBodies]:
        """Yield the possible members of an archive of the order. An archive of all versions has those that existed when
        it was packed.
        """
        versions = self.versions[order.object]
        if order.version != ALL_VERSIONS:
            yield dict(_iter_wanted(order, named, versions[order.version - 1], ""))
            return
        for count in range(len(versions), 0, -1):
            parts = [_iter_wanted(order, named, files, f"v{n}/") for n, files in enumerate(versions[:count], 1)]
            yield {name: body for part in parts for name, body in part}

    def damage(self, ark: str) -> None:
        """Change a byte of some content, or remove it."""
        rows = [
            row
            for row in self.services.inventory.list_files(ark, 1, limit=1000).rows
            if (ark, row["place"]) not in self.damaged
        ]
        if not rows:
            return
        place = self.rng.choice(rows)["place"]
        with self.services.open_storage().read(ark, place) as body:
            name, data = body.info.name, body.read()
        self.damaged[ark, place] = name, data
        self.ever_damaged[ark] = None
        self.services.objects.corrupt_object(name, data[:-1] + b"?" if self.rng.random() < 0.7 else None)

    def restore(self) -> None:
        """Restore all damaged content."""
        for name, data in self.damaged.values():
            self.services.objects.put(name, data)
        self.damaged.clear()


def _make_files(ark: str, number: int) -> dict[str, bytes]:
    files = {"producer/a.txt": f"{ark} stays".encode(), "producer/d/b.txt": f"{ark} version {number}".encode() * 20}
    return {**files, "system/mrt-erc.txt": f"what: {ark}\n".encode()}


def _iter_wanted(
    order: AssemblyOrder, named: frozenset[str] | None, files: FileBodies, folder: str
) -> Iterator[tuple[str, bytes | None]]:
    for path, body in files.items():
        if path in named if named is not None else (order.content == "full" or path.startswith("producer/")):
            yield f"{order.top_folder}/{folder}{path}", body
