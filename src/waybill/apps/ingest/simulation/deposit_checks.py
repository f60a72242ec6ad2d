"""Checks of deposits at the end of a simulation (`DepositChecker`) and of rebuilds while it runs (`RebuildChecker`).

the files of a completed job are in storage, exactly those that were deposited, and in the inventory, once: one version
per deposit; an update also has the files of the version before, except those that it replaces or deletes
a faulty payload is not stored, and its job says why
storage is intact, once interrupted writes are recovered
a receiver is called before its job is Completed; a mail that was sent is Sent
EZID has one ARK per deposit, and none that belongs to somebody else
the inventory agrees with storage, during and after rebuilds
"""

from __future__ import annotations

from collections.abc import Container, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING

import msgspec

from waybill.apps.ingest.inventory.catalogue import InventoryDescription
from waybill.apps.ingest.machine.rebuild import KIND, arks_of, make_rebuild, read_object_pages
from waybill.apps.ingest.storage import MANIFEST_PATH, NotInStorage, OcflStorage, StoredVersion
from waybill.apps.ingest.submission import Submission
from waybill.engine import Engine
from waybill.record import Record, Ref, Store
from waybill.sim.invariant_checker import InvariantViolation

if TYPE_CHECKING:
    from waybill.apps.ingest.simulation.services import SimulatedServices

PROFILE, CALLBACK_PROFILE, EZID_PROFILE = "p", "called", "ezid"
REFUSAL_PREFIXES = (
    "The container is not taken:",
    "The bag is not valid:",
    "The bag is not taken:",
)  # of a faulty payload
CALLBACK_URL = "http://receiver.test"


class DepositChecker:
    def __init__(self, services: SimulatedServices) -> None:
        self.services, self.world, self.ezid = services, services.world, services.ezid
        self.arks: dict[Ref, str] = {}
        self.expected: dict[str, dict[str, bytes] | None] = {}  # by payload name: the files that must be stored
        self.object_counts: dict[str, int] = {}  # expected objects, by batch
        self.completed_count = 0

    def check_deposits(self, store: Store) -> Iterator[str]:
        storage = self.services.open_storage()
        jobs = list(store.each("job", documents=True))
        for cursor, done in storage.recover_all(-1e9):
            if done.error:
                yield f"the object at {cursor} cannot be recovered: {done.error}"
        owners: dict[str, list[Record]] = {}
        for job in jobs:
            if ark := self.arks.get(job.ref):
                owners.setdefault(ark, []).append(job)
        for job in jobs:
            if job.state == "Completed" and self.arks.get(job.ref) != job.documents["stored"]["object"]:
                yield f"{job.ref} is stored as {job.documents['stored']['object']}, and its ARK is {self.arks.get(job.ref, 'unknown')}"
        # a removed deposit may be submitted again, and is another object then
        if not self.world.simulation.checker.removed_versions:
            yield from self._check_requests(storage)
        self.completed_count = sum(job.state == "Completed" for job in jobs)
        for job in jobs:
            yield from self._check_notifications(job)
            yield from self._check_refusal(job)
        for mail in store.each("mail", documents=True):
            if mail.state == "Sent" and not self.world.count_effects("mail", mail.id):
                yield f"{mail.ref} is Sent, and no mail was sent"
        deposits = {Submission.from_job(job).job_id: job for job in jobs}
        for ark, owning_jobs in owners.items():
            yield from self._check_object(storage, ark, owning_jobs, deposits)
        for batch in store.each("batch", documents=True):
            yield from self._check_report(store, batch)

    def _check_notifications(self, job: Record) -> Iterator[str]:
        """Receivers and EZID know the completed jobs."""
        if job.state != "Completed":
            return
        submission = Submission.from_job(job)
        if submission.profile == CALLBACK_PROFILE and not self.world.count_effects(
            "callback", f"{CALLBACK_URL}/mc/{submission.job_id}"
        ):
            yield f"{job.ref} is Completed, and its receiver was not called"
        minted = job.documents.get("minted", {}).get("ark")
        if (
            submission.profile == EZID_PROFILE
            and minted
            and not str(self.ezid.deposits_by_ark.get(minted, "")).startswith(submission.job_id)
        ):
            yield f"{job.ref} has the ARK {minted}, which EZID has for {self.ezid.deposits_by_ark.get(minted, 'nobody')}"

    def _check_refusal(self, job: Record) -> Iterator[str]:
        """A faulty payload is not stored, and its job says why; no other job says so."""
        refusal = str(job.documents.get("refusal", {}).get("reason", ""))
        if self.expected[job.documents["configuration"]["filename"]] is not None:
            if refusal.startswith(REFUSAL_PREFIXES):
                yield f"{job.ref} is refused although its payload is intact: {refusal}"
        elif "stored" in job.documents:
            yield f"{job.ref} is {job.state} and stored although its payload is faulty"
        elif refusal and not refusal.startswith(
            (*REFUSAL_PREFIXES, "The payload could not be fetched:", "What was uploaded is no longer there.")
        ):
            yield f"{job.ref} has a faulty payload, and says: {refusal}"
        elif not refusal and job.state == "Failed" and job.last_done == "Provisioning" and self._is_uneventful():
            yield f"{job.ref} has a faulty payload, is {job.state}, and does not say so: {job.message}"

    def _is_uneventful(self) -> bool:
        """No faults are injected, and no operator acts."""
        profile = self.world.simulation.profile
        return profile.fault_mix == "none" and not profile.has_operator

    def _check_requests(self, storage: OcflStorage) -> Iterator[str]:
        """A deposit is one version of one object."""
        seen: dict[str, str] = {}
        for _, ark in storage.list_objects():
            for version in storage.list_versions(ark):
                if seen.setdefault(version.request, f"{ark} v{version.number}") != f"{ark} v{version.number}":
                    yield f"the deposit {version.request} is {seen[version.request]} and {ark} v{version.number}"
        named: dict[str, str] = {}
        for ark, request in self.ezid.deposits_by_ark.items():
            if ark not in self.ezid.foreign_arks and named.setdefault(request, ark) != ark:
                yield f"EZID has {named[request]} and {ark} for the deposit {request}"

    def _check_object(
        self, storage: OcflStorage, ark: str, jobs: Sequence[Record], deposits: Mapping[str, Record]
    ) -> Iterator[str]:
        strangers = (
            job
            for job in jobs
            if not job.documents["identifiers"].get("local_id") and Submission.from_job(job).primary_id != ark
        )
        if len(jobs) > 1 and any(strangers):
            yield f"{ark} was given to {', '.join(str(job.ref) for job in jobs)}, which are unrelated"
        done = [job for job in jobs if job.state == "Completed"]
        requests = [version.request for version in storage.list_versions(ark)] if done else []
        if len(requests) != len(set(requests)):
            yield f"{ark} has two versions of one request: {requests}"
        count = sum(1 + job.documents.get("restarts", {}).get("count", 0) for job in jobs)
        if len(requests) > count and not self.world.simulation.checker.removed_versions:
            yield f"{ark} has {len(requests)} versions of {count} deposits"
        contents = list(self._iter_expected_contents(requests, deposits))
        for job in done:
            stored = msgspec.convert(job.documents["stored"], StoredVersion)
            if stored.request not in requests:
                yield f"{job.ref} is Completed, and storage has no version of it"
                continue
            yield from self._check_files(storage, job, stored, contents[stored.version - 1])
            if self.services.inventory.get_version(ark, stored.version) is None:
                yield f"{job.ref} is Completed, and the inventory does not know version {stored.version} of {ark}"
        damaged = self.services.faults.find_damaged()
        for finding in storage.verify(ark) if done else ():
            if (ark, finding.place) not in damaged:
                yield f"{ark}: {finding.message}"

    def _iter_expected_contents(
        self, requests: Sequence[str], deposits: Mapping[str, Record]
    ) -> Iterator[dict[str, bytes] | None]:
        """Yield the depositor's files that each version must have; None: its deposit is removed, or it updates such a one."""
        files: dict[str, bytes] | None = {}
        for request in requests:
            if (job := deposits.get(request.partition(".")[0])) is None:
                files = None
            else:
                submission = Submission.from_job(job)
                deposited = self.expected[job.documents["configuration"]["filename"]] or {}
                if not submission.update:
                    files = deposited
                elif files is not None:
                    files = {**_apply_deletions(files, submission.deletions), **deposited}
            yield files

    def _check_files(
        self, storage: OcflStorage, job: Record, stored: StoredVersion, expected: Mapping[str, bytes] | None
    ) -> Iterator[str]:
        """Storage has exactly the files that were deposited, whatever was in the working folder."""
        if expected is None:
            return
        with storage.open_manifest(stored) as reader:
            places = {entry.uri: str(entry.extra["place"]) for entry in reader if entry.uri.startswith("producer/")}
        if places.keys() != expected.keys():
            yield f"{job.ref}: storage has {sorted(places)}, and {sorted(expected)} were submitted"
            return
        damaged = self.services.faults.find_damaged()
        for path, place in places.items():
            if (stored.object, place) in damaged:
                continue
            with storage.read(stored.object, place) as body:
                if body.read() != expected[path]:
                    yield f"{job.ref}: the bytes of {path} in storage are not those that were submitted"

    def _check_report(self, store: Store, batch: Record) -> Iterator[str]:
        job_count = sum(store.count_by_state("job", parent=batch.ref).values())
        if job_count > self.object_counts[batch.documents["submission"]["batchID"]]:
            yield f"{batch.ref} has {job_count} jobs, and {self.object_counts[batch.documents['submission']['batchID']]} objects"
        if batch.state not in ("Completed", "Failed"):
            return
        if (report := batch.documents.get("status-report")) is None:
            yield f"{batch.ref} is {batch.state} without a report"
        elif (
            batch.state == "Completed"
            and "counts" in report
            and not any(ref.kind == "job" for ref in self.world.simulation.checker.removed_versions)
        ):
            counts = store.count_by_state("job", parent=batch.ref)
            expected = {
                "completed": counts.get("Completed", 0),
                "failed": counts.get("Failed", 0),
                "deleted": counts.get("Deleted", 0),
            }
            if {name: report["counts"].get(name, 0) for name in expected} != expected:
                yield f"{batch.ref} reports {report['counts']}, and there are {counts}"


def _apply_deletions(before: Mapping[str, bytes], deleted: Sequence[str]) -> dict[str, bytes]:
    """Return what an update keeps of the version before; tag files of a bag belong to that version only."""
    deleted_paths = {f"producer/{name}" for name in deleted}
    return {
        path: data
        for path, data in before.items()
        if path not in deleted_paths and not path.startswith("producer/mrt-bag/")
    }


class RebuildChecker:
    """Requests rebuilds while deposits go on; before some of them the inventory loses files, which the rebuild must restore."""

    def __init__(self, services: SimulatedServices) -> None:
        self.services = services
        self.recorded: dict[str, dict[int, None]] = {}  # by object: the versions that jobs have recorded
        # objects that lost files, and the rebuild that restores them; empty if it is unknown
        self.lost_files: dict[str, str] = {}

    def request_rebuilds(self, engine: Engine) -> None:
        """Request rebuilds as `waybill ingest rebuild --all` does."""
        resources, world = self.services.get_resources(), self.services.world
        for page in read_object_pages(resources.storage, page_size=2):
            damaged = [ark for ark in page.arks if world.draw_chance(0.3) and self._lose_files(ark)]
            if page.arks:
                rebuild = engine.submit(make_rebuild(page.arks, owner="rebuilder"), who="rebuilder")
                self.lost_files.update(dict.fromkeys(damaged, rebuild.id))

    def _lose_files(self, ark: str) -> bool:
        inventory = self.services.inventory
        if not (versions := inventory.list_versions(ark)):
            return False
        self.lost_files[ark] = ""
        return bool(inventory.tables.execute("forget_files", ark=ark, number=versions[-1]["number"], row_limit=1))

    def check_change(self, record: Record) -> None:
        if record.kind == "job" and record.state == "Notify":
            stored = record.documents["stored"]
            self.recorded.setdefault(stored["object"], {})[stored["version"]] = None
            self._check_recorded(stored["object"])
        if record.kind == KIND and record.state == "Completed":
            arks = arks_of(record)
            for ark in arks:
                if self.lost_files.get(ark) == record.id:
                    del self.lost_files[ark]
                self._check_recorded(ark)
            for problem in self.find_differences(arks):
                raise InvariantViolation(f"{record.ref} is Completed, and {problem}")

    def _check_recorded(self, ark: str) -> None:
        """A recorded version stays recorded, also during a rebuild."""
        for number in self.recorded.get(ark, ()):
            if self.services.inventory.get_version(ark, number) is None:
                raise InvariantViolation(f"the inventory had version {number} of {ark}, and has it no more")

    def find_differences(self, arks: Container[str] | None = None) -> Iterator[str]:
        """Yield differences between inventory and storage, of these objects or of all."""
        inventory, storage = self.services.inventory, self.services.open_storage()
        for row in inventory.search(limit=1000).rows:
            if arks is not None and row["ark"] not in arks:
                continue
            ark, numbers = row["ark"], [version["number"] for version in inventory.list_versions(row["ark"])]
            if numbers and row["head"] != max(numbers):
                yield f"the newest version of {ark} in the inventory is {max(numbers)}, and it says {row['head']}"
            for number in numbers:
                try:
                    stored = storage.get_version(ark, number)
                except NotInStorage:
                    yield f"the inventory has version {number} of {ark}, and storage has not"
                    continue
                if inventory.get_version(ark, number) != stored:
                    yield f"the inventory and storage differ in version {number} of {ark}"
                elif ark not in self.lost_files:
                    yield from self._check_files(storage, stored)
                yield from self._check_local_ids(storage, stored)

    def _check_local_ids(self, storage: OcflStorage, stored: StoredVersion) -> Iterator[str]:
        """Each local id leads to its object; otherwise a deposit would create a second object."""
        with storage.open_manifest(stored) as reader:
            description = InventoryDescription.from_header(reader.header)
        for local in description.local_ids:
            if (found := self.services.inventory.ark_of(description.owner, local)) != stored.object:
                yield f"the local id {local} of {stored.object} leads to {found or 'nothing'}"

    def _check_files(self, storage: OcflStorage, stored: StoredVersion) -> Iterator[str]:
        page = self.services.inventory.list_files(stored.object, stored.version, limit=1000)
        found = {row["path"]: (row["place"], row["sha256"]) for row in page.rows}
        with storage.open_manifest(stored) as reader:
            listed = {entry.uri: (entry.extra["place"], entry.sha256) for entry in reader}
        if found != {**listed, MANIFEST_PATH: (stored.place, stored.sha256)}:
            lost, version = sorted(set(listed) - set(found)), f"version {stored.version} of {stored.object}"
            yield f"the inventory has {len(found)} files of {version}; storage has others, such as {lost[:3]}"
