"""What must hold of deposits at the end of a simulation, when all is quiet.

a completed job's files are in storage, exactly those that were deposited, and in the inventory, once: a version for
each that stored; an update has those of the version before as well, but for what it replaces and deletes what was
deposited and cannot be taken is not stored, and its job says why what storage holds is sound, once what was
interrupted has been recovered whoever is to be called was called before a job is Completed; what was mailed is Sent
EZID was told of one ARK for each deposit, and never of one that belongs to somebody else
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING

import msgspec

from waybill.apps.ingest import submission
from waybill.apps.ingest.simulation.containers import REFUSED
from waybill.apps.ingest.storage import OcflStorage, Stored
from waybill.record import Record, Ref, Store

if TYPE_CHECKING:
    from waybill.apps.ingest.simulation.around import Surroundings

PROFILE, CALLED, KEPT = "p", "called", "kept"  # by EZID
RECEIVER = "http://receiver.test"


class Judge:
    def __init__(self, around: Surroundings) -> None:
        self.around, self.world, self.registry = around, around.world, around.registry
        self.arks: dict[Ref, str] = {}
        self.expected: dict[str, dict[str, bytes] | None] = {}  # by the name of the payload: what must be stored of it
        self.rows: dict[str, int] = {}  # objects, by batch
        self.completed = 0

    def stored(self, store: Store) -> Iterator[str]:
        storage = self.around.storage()
        jobs = list(each(store, "job"))
        for cursor, done in storage.recover_all(-1e9):
            if done.trouble:
                yield f"the object at {cursor} cannot be recovered: {done.trouble}"
        owners: dict[str, list[Record]] = {}
        for job in jobs:
            if ark := self.arks.get(job.ref):
                owners.setdefault(ark, []).append(job)
        for job in jobs:
            if job.state == "Completed" and self.arks.get(job.ref) != job.docs["stored"]["object"]:
                yield f"{job.ref} is stored as {job.docs['stored']['object']}, and its ARK is {self.arks.get(job.ref, 'unknown')}"
        if not self.world.simulation.ledger.gone:  # what was removed may be submitted again, and is another object then
            yield from self._requests(storage)
        self.completed = sum(job.state == "Completed" for job in jobs)
        for job in jobs:
            yield from self._told(job)
            yield from self._refused(job)
        for letter in each(store, "letter"):
            if letter.state == "Sent" and not self.world.count("letter", letter.id):
                yield f"{letter.ref} is Sent, and was not mailed"
        deposits = {submission.of_job(job).job_id: job for job in jobs}
        for ark, those in owners.items():
            yield from self._object(storage, ark, those, deposits)
        for batch in each(store, "batch"):
            yield from self._report(store, batch)

    def _told(self, job: Record) -> Iterator[str]:
        """Receivers and EZID know of what is Completed."""
        if job.state != "Completed":
            return
        said = submission.of_job(job)
        if said.profile == CALLED and not self.world.count("callback", f"{RECEIVER}/mc/{said.job_id}"):
            yield f"{job.ref} is Completed, and nobody was called"
        minted = job.docs.get("minted", {}).get("ark")
        if said.profile == KEPT and minted and not str(self.registry.known.get(minted, "")).startswith(said.job_id):
            yield f"{job.ref} has the ARK {minted}, which EZID keeps for {self.registry.known.get(minted, 'nobody')}"

    def _refused(self, job: Record) -> Iterator[str]:
        """A payload that cannot be taken is not stored, and its job says why; of any other nobody says so."""
        refusal = str(job.docs.get("refusal", {}).get("reason", ""))
        if self.expected[job.docs["configuration"]["filename"]] is not None:
            if refusal.startswith(REFUSED):
                yield f"{job.ref} is refused, and nothing is wrong with its payload: {refusal}"
        elif "stored" in job.docs:
            yield f"{job.ref} is {job.state} and stored, and its payload is broken"
        elif refusal and not refusal.startswith(
            (*REFUSED, "The payload could not be fetched:", "What was uploaded is no longer there.")
        ):
            yield f"{job.ref} has a broken payload, and says: {refusal}"
        elif not refusal and job.state == "Failed" and job.last_done == "Provisioning" and self._is_dull():
            yield f"{job.ref} has a broken payload, is {job.state}, and says nothing of it: {job.message}"

    def _is_dull(self) -> bool:
        """Nothing goes wrong, and nobody acts."""
        profile = self.world.simulation.profile
        return profile.weather == "calm" and not profile.lively

    def _requests(self, storage: OcflStorage) -> Iterator[str]:
        """One deposit is one version of one object."""
        seen: dict[str, str] = {}
        for _, ark in storage.objects():
            for version in storage.versions(ark):
                if seen.setdefault(version.request, f"{ark} v{version.number}") != f"{ark} v{version.number}":
                    yield f"the deposit {version.request} is {seen[version.request]} and {ark} v{version.number}"
        named: dict[str, str] = {}
        for ark, request in self.registry.known.items():
            if ark not in self.registry.strangers and named.setdefault(request, ark) != ark:
                yield f"EZID keeps {named[request]} and {ark} for the deposit {request}"

    def _object(
        self, storage: OcflStorage, ark: str, jobs: Sequence[Record], deposits: Mapping[str, Record]
    ) -> Iterator[str]:
        strangers = (
            job
            for job in jobs
            if not job.docs["identifiers"].get("local_id") and submission.of_job(job).primary_id != ark
        )
        if len(jobs) > 1 and any(strangers):
            yield f"{ark} was given to {', '.join(str(job.ref) for job in jobs)}, which have nothing to do with each other"
        done = [job for job in jobs if job.state == "Completed"]
        requests = [version.request for version in storage.versions(ark)] if done else []
        if len(requests) != len(set(requests)):
            yield f"{ark} has two versions of one request: {requests}"
        count = sum(1 + job.docs.get("restarted", {}).get("count", 0) for job in jobs)
        if len(requests) > count and not self.world.simulation.ledger.gone:
            yield f"{ark} has {len(requests)} versions of {count} deposits"
        contents = list(self._contents(requests, deposits))
        for job in done:
            stored = msgspec.convert(job.docs["stored"], Stored)
            if stored.request not in requests:
                yield f"{job.ref} is Completed, and storage has no version of it"
                continue
            yield from self._files(storage, job, stored, contents[stored.version - 1])
            if self.around.catalogue.stored(ark, stored.version) is None:
                yield f"{job.ref} is Completed, and the inventory does not know version {stored.version} of {ark}"
        ill = self.around.illness.sick()
        for finding in storage.verify(ark) if done else ():
            if (ark, finding.place) not in ill:
                yield f"{ark}: {finding.words}"

    def _contents(self, requests: Sequence[str], deposits: Mapping[str, Record]) -> Iterator[dict[str, bytes] | None]:
        """What each version must have of depositors' files; None: its deposit is gone, or it updates such a one."""
        has: dict[str, bytes] | None = {}
        for request in requests:
            if (job := deposits.get(request.partition(".")[0])) is None:
                has = None
            else:
                said, sent = submission.of_job(job), self.expected[job.docs["configuration"]["filename"]] or {}
                has = sent if not said.update else None if has is None else {**_kept(has, said.deletions), **sent}
            yield has

    def _files(
        self, storage: OcflStorage, job: Record, stored: Stored, expected: Mapping[str, bytes] | None
    ) -> Iterator[str]:
        """Exactly those that were deposited, whatever lay in the working folder."""
        if expected is None:
            return
        with storage.manifest(stored) as reader:
            places = {entry.uri: str(entry.extra["place"]) for entry in reader if entry.uri.startswith("producer/")}
        if places.keys() != expected.keys():
            yield f"{job.ref}: storage has {sorted(places)}, and {sorted(expected)} were submitted"
            return
        ill = self.around.illness.sick()
        for path, place in places.items():
            if (stored.object, place) in ill:
                continue
            with storage.read(stored.object, place) as body:
                if body.read() != expected[path]:
                    yield f"{job.ref}: the bytes of {path} in storage are not those that were submitted"

    def _report(self, store: Store, batch: Record) -> Iterator[str]:
        made = sum(store.tally("job", parent=batch.ref).values())
        if made > self.rows[batch.docs["submission"]["batchID"]]:
            yield f"{batch.ref} has {made} jobs, and {self.rows[batch.docs['submission']['batchID']]} objects"
        if batch.state not in ("Completed", "Failed"):
            return
        if (report := batch.docs.get("status-report")) is None:
            yield f"{batch.ref} is {batch.state} without a report"
        elif (
            batch.state == "Completed"
            and "counts" in report
            and not any(ref.kind == "job" for ref in self.world.simulation.ledger.gone)
        ):
            tally = store.tally("job", parent=batch.ref)
            found = {
                "completed": tally.get("Completed", 0),
                "failed": tally.get("Failed", 0),
                "deleted": tally.get("Deleted", 0),
            }
            if {name: report["counts"].get(name, 0) for name in found} != found:
                yield f"{batch.ref} reports {report['counts']}, and there are {tally}"


def _kept(before: Mapping[str, bytes], deleted: Sequence[str]) -> dict[str, bytes]:
    """What an update leaves of the version before: what a bag said of itself is true of that version alone."""
    gone = {f"producer/{name}" for name in deleted}
    return {
        path: data for path, data in before.items() if path not in gone and not path.startswith("producer/mrt-bag/")
    }


def each(store: Store, kind: str) -> Iterator[Record]:
    after: int | None = None
    while True:
        page = store.find(kind, after=after, limit=200, docs=True)
        yield from page.records
        if page.after is None:
            return
        after = page.after
