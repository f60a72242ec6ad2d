"""Deposits in the simulator: ingest's own steps, maintenance routines, storage and inventory, where any process may die
at any moment.

Files and containers are fetched by URL from a simulated web, or uploaded through the service. Working folders are real
and are lost with their host. Some deposits update existing objects. Now and then the inventory is rebuilt from storage.
Storing may be a state of its own, storage a service of its own (storage_service.py), and recording may be left to
another service. Stored content may be damaged (injected_faults.py); then deposits bring the same bytes again and again.

Invariants, besides those of all machines:

    a job keeps its ARK, and no two objects have the same
    no batch is reported while a job of it is open, and its report counts the jobs correctly
    an upload that is needed is not removed, nor a list or report whose record exists, nor the folder of an open job
    and those of deposit_checks.py, injected_faults.py and maintenance.py
"""

from __future__ import annotations

import gzip
import hashlib
import io
import tarfile
import zipfile
from collections.abc import Callable, Iterator, Mapping
from functools import partial
from random import Random
from typing import Any, ClassVar, NamedTuple

import msgspec

from waybill.apps.ingest import service
from waybill.apps.ingest.application import build_machines
from waybill.apps.ingest.maintenance.unneeded_objects import ENDED_STATES, list_owner_of
from waybill.apps.ingest.payload import UPLOADS_FOLDER
from waybill.apps.ingest.profile import Profile, ProfileCallback, ProfileMail, ProfileMinter, to_document
from waybill.apps.ingest.simulation import maintenance
from waybill.apps.ingest.simulation.deposit_checks import (
    CALLBACK_PROFILE,
    CALLBACK_URL,
    EZID_PROFILE,
    PROFILE,
    DepositChecker,
    RebuildChecker,
)
from waybill.apps.ingest.simulation.services import EZID_SHOULDER, SimulatedResources, SimulatedServices
from waybill.apps.ingest.storage.sources import OBJECT_SCHEME
from waybill.apps.ingest.submission import BatchSubmission, PayloadType, Submission
from waybill.engine import Engine
from waybill.errors import NotFound
from waybill.machine import Machine
from waybill.maintenance import MaintenanceRoutine
from waybill.record import Change, Record, RecordNotFound, Ref, Store
from waybill.rules import ActionRefused
from waybill.sim.audit import find_restless
from waybill.sim.invariant_checker import CheckedRecord, InvariantViolation
from waybill.sim.memory_objects import MemoryObjects
from waybill.sim.scenario import ClientScript, Scenario
from waybill.sim.world import SimulatedWorld
from waybill.step import New
from waybill.transfer import TransferError

MANY_FILES = 45  # files whose list does not fit into a document
PRODUCER_PREFIX = "producer/"
MAX_SEARCHES = 40  # searches of the inventory before a client gives up
SEARCH_INTERVAL = 5.0  # seconds between two searches
OWNER = "ark:/99999/owner"
CROWDED_CHANCE = 0.2  # that all deposits are versions of one object, which is rebuilt all the time
UPDATE_CHANCE = 0.5  # that a deposit is an update then
REMOTE_STORAGE_CHANCE = 0.2  # that storage is another service
FAULT_CHANCE = 0.2  # that stored content is damaged


class DepositScenario(Scenario):
    name = "deposits"
    description = (
        "Ingest's own steps: files and containers into storage and inventory, with crashes between any two writes."
    )
    uses_real_files: ClassVar[bool] = True
    target_points: ClassVar[tuple[str, ...]] = (
        "progress",
        "before put",
        "after put",
        "before put ocfl",
        "before put ingest/staged",
        "before part",
        "before asking POST",
        "after asking",
        "before inventory",
        "after inventory",
        "before inventory.lower_head",
        "before fetching",
    )
    # a late worker may publish its files over ours; that is detected and retried
    is_retry_free: ClassVar[bool] = False

    def __init__(self, world: SimulatedWorld) -> None:
        super().__init__(world)
        self.records_elsewhere = self.rng.random() < 0.1
        settings = {
            "storing_state": self.rng.random() < 0.3,
            "external_states": ["Recording"] if self.records_elsewhere else [],
        }
        self.services = SimulatedServices(
            world,
            build_machines,
            settings,
            self._check_removal,
            remote_storage=self.rng.random() < REMOTE_STORAGE_CHANCE,
        )
        self.faults, self.injects_faults = self.services.faults, self.rng.random() < FAULT_CHANCE
        self.checker = DepositChecker(self.services)
        self.rebuild_checker = RebuildChecker(self.services)
        self.arks = self.checker.arks
        self.is_crowded = self.rng.random() < (0.8 if self.injects_faults else CROWDED_CHANCE)
        self.retention_times = {} if self.rng.random() < 0.7 else {"batch.Completed": 5.0}
        self.services.objects.put(maintenance.ABANDONED_FILE, b"left")

    @property
    def completed_count(self) -> int:
        """The number of completed jobs at the end."""
        return self.checker.completed_count

    def build_machines(self) -> tuple[Machine, ...]:
        return self.services.tables

    def list_hold_names(self) -> tuple[str, ...]:
        return (f"collections/{PROFILE}",)

    def open_objects(self) -> MemoryObjects:
        return self.services.objects

    def resources_of(self, kind: str) -> SimulatedResources:
        return self.services.get_resources()

    def build_maintenance_routines(self) -> tuple[MaintenanceRoutine, ...]:
        return maintenance.choose_routines(self.rng, (*maintenance.STORAGE_ROUTINES, *maintenance.REMOVAL_ROUTINES))

    def get_retention(self) -> Mapping[str, float]:
        return self.retention_times

    def build_submissions(self) -> Iterator[New]:
        rng = self.rng
        mail = ProfileMail(to=("jane@example.org",))
        for profile in (
            Profile(name=PROFILE, owner=OWNER, mail=mail),
            Profile(name=CALLBACK_PROFILE, owner=OWNER, mail=mail, callback=ProfileCallback(url=CALLBACK_URL)),
            Profile(
                name=EZID_PROFILE,
                owner=OWNER,
                mail=mail,
                minter=ProfileMinter(url=f"https://ezid.test/shoulder/ark:/99999/{EZID_SHOULDER}"),
            ),
        ):
            yield New(
                "profile", {"profile": to_document(profile)}, id=profile.name, idempotency_key=f"profile {profile.name}"
            )
        for n in range(rng.choice((1, 1, 2, 3))):
            yield self._draw_batch(f"b{n}", rng.choice((1, 1, 2, 4)))

    def build_client_scripts(self) -> Iterator[ClientScript]:
        for n in range(self.rng.choice((2, 4) if self.injects_faults else (0, 0, 1, 2))):
            data = self._draw_payload(f"u{n}", not self.injects_faults and self.rng.random() < 0.6)
            if self.injects_faults:
                yield self.faults.damage_content
                yield partial(self._retry_while_unavailable, self.faults.audit_everything)
            yield partial(self._upload, self._make_submission(f"u{n}", data[0]), data[1])
        for _ in range(6 if self.is_crowded else self.rng.choice((0, 0, 1, 2))):
            yield partial(self._retry_while_unavailable, self.rebuild_checker.request_rebuilds)
        if self.is_crowded and self.rng.random() < UPDATE_CHANCE:
            file, body = self._draw_payload("u9", packed=False)
            yield partial(
                self._retry_while_unavailable,
                partial(self._amend, SimulatedUpdate(self.services, self._make_submission("u9", file), self.rng), body),
            )
        if self.records_elsewhere:
            yield self._record_elsewhere

    def _make_submission(self, name: str, file: str) -> Submission:
        """Build the submission of an upload."""
        self.checker.object_counts[f"bid-{name}"] = 1
        return Submission(
            profile=PROFILE,
            url="",
            filename=file,
            batch_id=f"bid-{name}",
            title="a title",
            local_ids=("loc-1",) if self.is_crowded else (),
            update=self.is_crowded and self.rng.random() < UPDATE_CHANCE,
        )

    def _draw_payload(self, name: str, packed: bool) -> tuple[str, bytes]:
        """Return the name and the bytes of a file or a container, and note what must be stored of it."""
        if packed:
            container = draw_container(self.rng, name)
            self.checker.expected[container.name] = container.files
            return container.name, container.data
        data = (self.rng.choice("ab") if self.injects_faults else name).encode() * self.rng.choice((1, 50))
        self.checker.expected[f"{name}.txt"] = {f"producer/{name}.txt": data}
        return f"{name}.txt", data

    def _draw_batch(self, name: str, jobs: int) -> New:
        rng, web = self.rng, self.services.web.files
        packed = not self.injects_faults and rng.random() < 0.4
        rows = []
        self.checker.object_counts[f"bid-{name}"] = jobs
        for n in range(jobs):
            file, data = self._draw_payload(f"{name}-{n}", packed)
            url = f"http://web.test/{file}"
            if rng.random() > 0.1:
                web[url] = data
            local = f"loc-1; loc-{name}-{n}" if self.is_crowded else rng.choice(("", "", "loc-1", f"loc-{name}-{n}"))
            rows.append(f"{url} | | | | | {file} | | {local} | | a title | ")
        profile = rng.choice((PROFILE, PROFILE, CALLBACK_PROFILE, EZID_PROFILE))
        update = self.is_crowded and rng.random() < UPDATE_CHANCE
        fields: dict[str, Any] = {
            "profile": profile,
            "batch_id": f"bid-{name}",
            "title": "a title",
            "is_profile_checked": True,
            "update": update,
        }
        if jobs == 1 and rng.random() < 0.5:
            local_ids = ("loc-1",) if self.is_crowded else ()
            submission = Submission(
                url=url,
                type=PayloadType.CONTAINER if packed else PayloadType.FILE,
                filename=file,
                local_ids=local_ids,
                **fields,
            )
        else:
            kind = "mrt-container-batch-manifest" if packed else "mrt-single-file-batch-manifest"
            head = ["#%checkm_0.7", f"#%profile | http://uc3.cdlib.org/registry/ingest/manifest/{kind}"]
            broken = rng.random() < 0.05
            text = "\n".join([*head, *(["nonsense"] if broken else rows), "#%eof", ""])
            web[f"http://web.test/{name}.checkm"] = text.encode()
            listing = PayloadType.CONTAINERS if packed else PayloadType.FILES
            submission = Submission(
                url=f"http://web.test/{name}.checkm", type=listing, filename=f"{name}.checkm", **fields
            )
        return New("batch", (BatchSubmission(submission),), idempotency_key=f"bid-{name}")

    def _upload(self, submission: Submission, data: bytes, engine: Engine) -> None:
        """Upload and submit as the form does; after a crash with the same batchID again."""
        for _ in range(10):
            try:
                service.submit_deposit(engine, self.services.get_resources(), submission, [data], who="depositor")
                return
            except NotFound:  # its profile does not exist yet
                self.world.simulation.pass_time(1.0)

    def _amend(self, update: SimulatedUpdate, data: bytes, engine: Engine) -> None:
        update.submit_update(lambda submission: self._upload(submission, data, engine))

    def _retry_while_unavailable(self, script: ClientScript, engine: Engine) -> None:
        """Retry a script while storage is unavailable."""
        while True:
            try:
                return script(engine)
            except TransferError:
                self.world.simulation.pass_time(2.0)

    def _record_elsewhere(self, engine: Engine) -> None:
        """Record jobs as another service, until none can follow."""
        while True:
            self.world.simulation.pass_time(3.0)
            for job in engine.store.find("job", state="Recording").records:
                try:
                    engine.act(job.ref, "finish-recording", who="recorder")
                except ActionRefused:
                    continue
            if not self._is_awaited():
                return

    def _is_awaited(self) -> bool:
        """Whether a job is, or may still come, in Recording."""
        simulation = self.world.simulation
        moving = any(entry.ref.kind in ("batch", "job") for entry in find_restless(simulation.checker))
        return moving or not simulation.has_healed or bool(simulation.observer.find("job", state="Recording").records)

    def check_change(self, change: Change, record: Record | None, entry: CheckedRecord) -> None:
        if problem := maintenance.explain_lost_folder(change):
            raise InvariantViolation(problem)
        if record is None:
            return
        self.rebuild_checker.check_change(record)
        if record.kind == "job" and "identifiers" in change.documents:
            self._check_ark(record)
        if record.kind == "mail" and (record.idempotency_key or "").startswith("audit/"):
            text = record.documents["mail"]["text"]
            if not any(fault.ark in text and fault.place in text for fault in self.faults.injected.values()):
                raise InvariantViolation(f"an audit reports damage although there is none: {text}")
        if record.kind == "job" and change.cause == "fail" and "is not staged" in change.why:
            raise InvariantViolation(f"{record.ref} fails although it has sent what it says is missing: {change.why}")
        reported = record.kind == "batch" and change.cause == "done" and record.state in ("Completed", "Failed")
        if reported and self.world.simulation.checker.open_child_counts.get(record.ref):
            raise InvariantViolation(f"{record.ref} is reported while jobs of it are open")

    def _check_ark(self, job: Record) -> None:
        ark = job.documents["identifiers"].get("primary_id") or ""
        before = self.arks.get(job.ref, "")
        if before and ark != before and before not in self.services.ezid.foreign_arks:
            raise InvariantViolation(f"{job.ref} had the ARK {before}, and has {ark or 'none'} now")
        if ark:
            self.arks[job.ref] = ark

    def _check_removal(self, name: str, data: bytes | None) -> None:
        """An object that is needed is not removed."""
        store = self.world.simulation.observer
        if name.startswith(f"{UPLOADS_FOLDER}/"):
            for batch in store.each("batch", documents=True):
                if Submission.from_batch(batch).url == f"{OBJECT_SCHEME}{name}" and batch.state not in ENDED_STATES:
                    raise InvariantViolation(f"{name} is removed, and {batch.ref} is {batch.state} and needs it")
        elif (ref := list_owner_of(name)) is not None and _has_record(store, ref):
            raise InvariantViolation(f"{name} is removed, and {ref} exists")

    def find_problems(self, store: Store) -> Iterator[str]:
        yield from self.checker.check_deposits(store)
        yield from self.rebuild_checker.find_differences()
        yield from maintenance.check_folders(self.services, store)
        yield from maintenance.find_staged_leftovers(self.services)
        yield from maintenance.run_long_after(self.services, store, *maintenance.FINAL_ROUTINES)
        yield from maintenance.compare_audit(self.services, store, self.faults.find_damaged())
        yield from self._find_leftovers(store)

    def _find_leftovers(self, store: Store) -> Iterator[str]:
        """Yield what is left long after the end and not needed."""
        batches = list(store.each("batch", documents=True))
        yield from (
            f"{batch.ref} is {batch.state} long after the end" for batch in batches if batch.state in ENDED_STATES
        )
        needed = {Submission.from_batch(batch).url for batch in batches}
        yield from maintenance.find_unfinished_uploads(self.services)
        if self.services.storage_service is not None:
            yield from (
                f"{info.name} is left at the storage service" for info in self.services.storage_objects.list("ingest")
            )
        for info in self.services.objects.list("ingest"):
            ref = list_owner_of(info.name)
            if info.name == maintenance.ABANDONED_FILE or (ref is not None and not _has_record(store, ref)):
                yield f"{info.name} is left, and is not needed"
            elif info.name.startswith(f"{UPLOADS_FOLDER}/") and f"{OBJECT_SCHEME}{info.name}" not in needed:
                yield f"the upload {info.name} is left, and no batch needs it"


def _has_record(store: Store, ref: Ref) -> bool:
    try:
        store.get(*ref)
    except RecordNotFound:
        return False
    return True


class SimulatedContainer(NamedTuple):
    name: str
    data: bytes
    files: dict[str, bytes] | None  # by path in the object; None: the container is faulty


def draw_container(rng: Random, name: str) -> SimulatedContainer:
    count = MANY_FILES if rng.random() < 0.04 else rng.choice((1, 2, 3))
    files = {f"{'d/' if n % 2 else ''}{n}.txt": f"{n} of {name}".encode() for n in range(count)}
    form, bag, broken = rng.choice(("zip", "tar", "tar.gz")), rng.random() < 0.3, rng.random() < 0.15
    packed, stored = _make_bag(files, wrong=broken and form != "zip") if bag else (files, files)
    data = _pack(form, {**packed, "../outside.txt": b"out"} if broken and not bag and form == "tar.gz" else packed)
    if broken and not (bag and form != "zip") and form != "tar.gz":
        data = data[:-30] if form == "zip" else data[:515]  # truncated: a tar in the middle of its first file
    producer = {f"producer/{path}": body for path, body in stored.items()}
    return SimulatedContainer(f"{name}.{form}", data, None if broken else producer)


def _make_bag(files: Mapping[str, bytes], *, wrong: bool) -> tuple[dict[str, bytes], dict[str, bytes]]:
    """Return its files in the container, and in the object."""
    lines = [f"{hashlib.sha256(body + b'!' * wrong).hexdigest()}  data/{path}\n" for path, body in files.items()]
    tags = {
        "bagit.txt": b"BagIt-Version: 1.0\nTag-File-Character-Encoding: UTF-8\n",
        "manifest-sha256.txt": "".join(lines).encode(),
    }
    packed = {**tags, **{f"data/{path}": body for path, body in files.items()}}
    return packed, {**files, **{f"mrt-bag/{path}": body for path, body in tags.items()}}


def _pack(form: str, files: Mapping[str, bytes]) -> bytes:
    buffer = io.BytesIO()
    if form == "zip":
        with zipfile.ZipFile(buffer, "w", zipfile.ZIP_DEFLATED) as archive:
            for path, body in files.items():
                archive.writestr(zipfile.ZipInfo(path), body)
        return buffer.getvalue()
    with tarfile.open(fileobj=buffer, mode="w", format=tarfile.PAX_FORMAT) as tar:
        for path, body in files.items():
            info = tarfile.TarInfo(path)
            info.size = len(body)
            tar.addfile(info, io.BytesIO(body))
    return gzip.compress(buffer.getvalue(), 1, mtime=0) if form == "tar.gz" else buffer.getvalue()


class SimulatedUpdate:
    """An update of an object found in the inventory: one more file, one deletion. Chosen once, and repeated after a crash."""

    def __init__(self, services: SimulatedServices, submission: Submission, rng: Random) -> None:
        self.services, self.rng = services, rng
        self._submission, self._is_chosen = submission, False

    def submit_update(self, send: Callable[[Submission], None]) -> None:
        for _ in range(MAX_SEARCHES):
            if self._is_chosen or self._choose():
                send(self._submission)
                return
            self.services.world.simulation.pass_time(SEARCH_INTERVAL)

    def _choose(self) -> bool:
        inventory = self.services.inventory
        for row in inventory.search(limit=1).rows:
            files = [file["path"] for file in inventory.list_files(row["ark"], row["head"], limit=1000).rows]
            if producer_files := [
                path.removeprefix(PRODUCER_PREFIX) for path in files if path.startswith(PRODUCER_PREFIX)
            ]:
                deletions = (self.rng.choice(producer_files),)
                self._submission = msgspec.structs.replace(
                    self._submission, update=True, primary_id=row["ark"], local_ids=(), deletions=deletions
                )
                self._is_chosen = True
        return self._is_chosen
