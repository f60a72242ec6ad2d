"""Imports the entries of Merritt's old queues as batches with jobs, and assemblies.

    scan       every entry is read once: which batch it belongs to, and whether any work of that batch is left
    batch      created as Held, so that it cannot end before its last job exists; as Completed, if no work is left
    jobs       created as its children, each in the state of its entry
    release    the batch continues and waits for its jobs like any other
    assembly   created by itself

The old queues are only read. The idempotency key of each record is derived from its entry, so an import that was
interrupted, or is repeated, creates only what is missing. Of a batch only the names of its entries are in memory.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import cached_property, partial
from itertools import islice
from typing import Any

import msgspec
from msgspec.structs import replace

from waybill.apps.ingest.merritt import mnemonics
from waybill.apps.ingest.merritt.import_plans import ImportPlan, plan_import
from waybill.apps.ingest.merritt.queue_entries import LegacyQueueEntry, decode_entry
from waybill.apps.ingest.merritt.queue_sources import LegacyQueueSource
from waybill.apps.ingest.profile import BadProfile, Profile, from_document
from waybill.apps.ingest.submission import Submission
from waybill.engine import Engine
from waybill.errors import FormatError
from waybill.machine import Machine
from waybill.record import CommitOutcomeUnknown, Record, RecordExists, RecordNotFound, StoreError, StoreUnavailable
from waybill.rules import ActionRefused, find_id_problem
from waybill.step import New

MAX_REMARKS = 100  # refusals, and remarks, listed in a report
CHUNK_SIZE = 100  # records created in one round trip
IMPORT_REASON = "from an old queue"
HELD_MESSAGE = "It is held until all its entries are imported and its collection is not on hold."
_FINAL_STATES = ("Completed", "Deleted")
_PAYLOAD_KEYS = ("payload_url",)  # of a batch: from these its jobs would be created again

ImportProgress = Callable[[int, int], None]  # entries done, entries in all


class ImportRemark(msgspec.Struct, frozen=True):
    """A refusal of, or a remark on, one entry."""

    path: str
    text: str


class QueueImportReport(msgspec.Struct):
    """The result of an import. All refusals and remarks are counted, the first are listed."""

    dry_run: bool = False
    entries: int = 0
    created: dict[str, int] = {}  # count by kind; in a dry run, what would be created
    already_imported: int = 0  # entries whose record an earlier import created
    states: dict[str, int] = {}  # count by kind and state, such as "job Estimating"
    refusal_count: int = 0
    refusals: list[ImportRemark] = []
    remark_count: int = 0
    remarks: list[ImportRemark] = []
    vanished: int = 0  # entries that left their queue meanwhile

    def add_refusal(self, path: str, text: str) -> None:
        self.refusal_count += 1
        if len(self.refusals) < MAX_REMARKS:
            self.refusals.append(ImportRemark(path, text))

    def add_remarks(self, path: str, texts: Iterable[str]) -> None:
        for each in texts:
            self.remark_count += 1
            if len(self.remarks) < MAX_REMARKS:
                self.remarks.append(ImportRemark(path, each))

    def count_record(self, kind: str, is_repeated: bool) -> None:
        if is_repeated:
            self.already_imported += 1
        else:
            self.created[kind] = self.created.get(kind, 0) + 1


class _LegacyBatch(msgspec.Struct):
    """A batch as the scan finds it: the entries that become its jobs."""

    paths: list[str] = []
    is_over: bool = True  # no work is left
    batch_id: str = ""  # its batchID here
    job_count: int = 0  # jobs that are created for it


def import_entries(
    engine: Engine,
    source: LegacyQueueSource,
    *,
    who: str,
    dry_run: bool = False,
    progress: ImportProgress = lambda done, total: None,
) -> QueueImportReport:
    """Create the records of all entries. Safe to repeat; an entry that cannot be used is reported and stops no other."""
    return _QueueImport(engine, source, who, dry_run, progress).run()


class _QueueImport:
    def __init__(
        self, engine: Engine, source: LegacyQueueSource, who: str, dry_run: bool, progress: ImportProgress
    ) -> None:
        self._engine, self._source, self._who, self._dry_run, self._progress = engine, source, who, dry_run, progress
        self._report = QueueImportReport(dry_run=dry_run)
        self._started_at = engine.store.now()  # records created before are of an earlier import
        self._done = 0
        self._builder = LegacyRecordBuilder(engine)

    def run(self) -> QueueImportReport:
        batches, assemblies = self._scan_entries()
        for uuid, batch in batches.items():
            self._import_batch(uuid, batch)
        for paths in _chunk_paths(assemblies):
            self._make_records(self._describe_entries(paths), self._builder.build_assembly)
            self._advance_progress(len(paths))
        return self._report

    def _scan_entries(self) -> tuple[dict[str, _LegacyBatch], list[str]]:
        batches: dict[str, _LegacyBatch] = {}
        assemblies: list[str] = []
        for path in self._source.iter_paths():
            self._report.entries += 1
            planned = self._read_entry(path)
            if planned is None:
                self._advance_progress(1)
            elif planned[1].kind == "job":
                batch = batches.setdefault(planned[1].batch, _LegacyBatch())
                batch.paths.append(path)
                batch.is_over = batch.is_over and planned[1].state in _FINAL_STATES
            else:
                assemblies.append(path)
        return batches, assemblies

    def _read_entry(self, path: str) -> tuple[LegacyQueueEntry, ImportPlan] | None:
        data = self._source.read(path)
        if data is None:
            self._report.vanished += 1
            return None
        try:
            entry = decode_entry(path, data)
            return entry, plan_import(entry)
        except FormatError as error:
            self._report.add_refusal(path, str(error))
            return None

    def _describe_entries(self, paths: Sequence[str]) -> list[tuple[str, LegacyQueueEntry, ImportPlan]]:
        planned = ((path, self._read_entry(path)) for path in paths)
        return [(path, *each) for path, each in planned if each is not None]

    def _import_batch(self, uuid: str, legacy_batch: _LegacyBatch) -> None:
        legacy_batch = self._choose_batch_id(uuid, legacy_batch)
        batch: Record | None = None
        is_complete = True
        for paths in _chunk_paths(legacy_batch.paths):
            entries = self._describe_entries(paths)
            if entries and batch is None and not self._dry_run:
                batch = self._make_batch(legacy_batch, entries[0])
                if batch is None:  # every entry of it is refused with the reason
                    self._advance_progress(len(legacy_batch.paths))
                    return
            build = partial(self._builder.build_job, batch_id=legacy_batch.batch_id, batch=batch)
            is_complete = self._make_records(entries, build) and is_complete
            self._advance_progress(len(paths))
        if self._dry_run:
            self._report.count_record("batch", self._find_batch(legacy_batch.batch_id) is not None)
        elif batch is not None and is_complete:
            self._release(legacy_batch.batch_id, batch)

    def _choose_batch_id(self, uuid: str, legacy_batch: _LegacyBatch) -> _LegacyBatch:
        """Return the batch with the batchID for its new entries. Safe to repeat: an open batch is continued.

        A batch that has ended is not reported again. Entries that were added to the old queue since then become another
        batch, with a number after its batchID.
        """
        plain = replace(legacy_batch, batch_id=uuid, job_count=len(legacy_batch.paths))
        name, number, last = uuid, 1, self._find_batch(uuid)
        if legacy_batch.is_over or last is None or last.state not in _FINAL_STATES:
            return plain
        while (known := self._find_batch(name)) is not None and known.state in _FINAL_STATES:
            last, number, name = known, number + 1, f"{uuid}.{number + 1}"
        if known is not None:
            return replace(legacy_batch, batch_id=name, job_count=len(legacy_batch.paths))
        plans = (plan for paths in _chunk_paths(legacy_batch.paths) for _, _, plan in self._describe_entries(paths))
        new = [plan.state for plan in plans if not self._has_record("job", plan.idempotency_key)]
        if not new:
            return plain
        self._report.add_remarks(
            uuid, [f"{last.ref} is {last.state} and is not reported again: its new entries become the batch {name}."]
        )
        return replace(
            legacy_batch, batch_id=name, job_count=len(new), is_over=all(state in _FINAL_STATES for state in new)
        )

    def _make_batch(self, legacy_batch: _LegacyBatch, first: tuple[str, LegacyQueueEntry, ImportPlan]) -> Record | None:
        """Create the batch. Safe to repeat: a batchID makes one batch."""
        path, _, plan = first
        fields = {key: value for key, value in plan.submission.items() if key not in _PAYLOAD_KEYS}
        fields = self._builder.add_collections(fields | {"batchID": legacy_batch.batch_id})
        deposit = Submission.from_document(fields)
        # All its jobs are created here, so its worker has none to create.
        documents = {
            "submission": {**deposit.to_document(), **fields},
            "spawned": {"count": legacy_batch.job_count, "whole": True, "jobs": legacy_batch.job_count},
        }
        state, message = ("Completed", "") if legacy_batch.is_over else ("Held", HELD_MESSAGE)
        new = New(
            "batch",
            documents,
            state=state,
            message=message,
            owner=deposit.submitter,
            priority=plan.priority,
            idempotency_key=legacy_batch.batch_id,
        )
        why = f"{legacy_batch.job_count} entries of old queues, the first of them {path}"
        try:
            batch = self._engine.submit(new, who=self._who, why=why)
        except (RecordExists, CommitOutcomeUnknown):
            # another service has created it
            batch = self._engine.store.get_by_idempotency_key("batch", legacy_batch.batch_id)
        except (ActionRefused, StoreError) as error:
            if isinstance(error, StoreUnavailable):
                raise
            for each in legacy_batch.paths:
                self._report.add_refusal(each, f"Its batch {legacy_batch.batch_id} cannot be created: {error}")
            return None
        self._report.count_record("batch", batch.created < self._started_at)
        return batch

    def _find_batch(self, name: str) -> Record | None:
        try:
            return self._engine.store.get_by_idempotency_key("batch", name)
        except RecordNotFound:
            return None

    def _release(self, uuid: str, batch: Record) -> None:
        """Release the batch, unless somebody has acted on it since it was created here."""
        history = self._engine.store.history("batch", batch.id)
        if self._engine.store.get(*batch.ref).state != "Held" or [entry.cause for entry in history] != ["submit"]:
            return
        try:
            self._engine.act(batch.ref, "release", who=self._who, why="all its jobs are imported")
        except ActionRefused as refusal:
            self._report.add_remarks(uuid, [f"{batch.ref} stays held: {refusal}"])

    def _make_records(
        self,
        entries: Sequence[tuple[str, LegacyQueueEntry, ImportPlan]],
        build: Callable[[LegacyQueueEntry, ImportPlan], New],
    ) -> bool:
        """Create the records; return whether all of them exist now."""
        news = []
        for path, entry, plan in entries:
            self._report.add_remarks(path, plan.remarks)
            news.append(build(entry, plan))
            name = f"{news[-1].kind} {plan.state}"
            self._report.states[name] = self._report.states.get(name, 0) + 1
        if self._dry_run:
            for new in news:
                self._report.count_record(new.kind, self._has_record(new.kind, new.idempotency_key or ""))
            return True
        is_complete = True
        answers = self._engine.submit_each(news, who=self._who, why=IMPORT_REASON)
        for (path, _, _), new, answer in zip(entries, news, answers, strict=True):
            if isinstance(answer, CommitOutcomeUnknown):
                answer = self._engine.submit_each([new], who=self._who, why=IMPORT_REASON)[0]
            if isinstance(answer, Record):
                self._report.count_record(new.kind, answer.created < self._started_at)
            elif isinstance(answer, StoreUnavailable):
                raise answer
            else:
                is_complete = False
                self._report.add_refusal(path, str(answer))
        return is_complete

    def _has_record(self, kind: str, idempotency_key: str) -> bool:
        try:
            self._engine.store.get_by_idempotency_key(kind, idempotency_key)
        except RecordNotFound:
            return False
        return True

    def _advance_progress(self, count: int) -> None:
        self._done += count
        self._progress(self._done, self._report.entries)


def _chunk_paths(paths: Sequence[str]) -> Iterator[list[str]]:
    remaining = iter(paths)
    while chunk := list(islice(remaining, CHUNK_SIZE)):
        yield chunk


class LegacyRecordBuilder:
    """Builds the record of an entry: a job with its documents, or an assembly, in the state of the entry."""

    def __init__(self, engine: Engine) -> None:
        self._engine = engine
        self._collections: dict[str, list[str]] = {}  # mnemonics by profile name

    def build_job(self, entry: LegacyQueueEntry, plan: ImportPlan, batch_id: str, batch: Record | None) -> New:
        fields = self.add_collections({**plan.configuration, "batchID": batch_id})
        if entry.written_at is not None and not fields.get("submissionDate"):
            fields["submissionDate"] = entry.written_at.isoformat(timespec="seconds")
        deposit = Submission.from_document(fields)
        documents = {
            "configuration": {**deposit.to_document(), **fields},  # Merritt's keys and ours
            "identifiers": plan.identifiers,
            "metadata": {**plan.metadata, "erc_where": plan.identifiers.get("primary_id", "")},
            **({"inventory": plan.inventory} if plan.inventory else {}),
        }
        machine = self._engine.machines["job"]
        return New(
            "job",
            documents,
            state=plan.state,
            owner=deposit.submitter,
            priority=plan.priority,
            idempotency_key=plan.idempotency_key,
            last_done=_last_done_of(machine, plan),
            message=plan.message,
            parent=batch.ref if batch is not None else None,
        )

    def build_assembly(self, entry: LegacyQueueEntry, plan: ImportPlan) -> New:
        kind = "access-large" if plan.is_large else "access-small"
        last = _last_done_of(self._engine.machines[kind], plan)
        return New(
            kind,
            {"token": plan.token},
            state=plan.state,
            priority=plan.priority,
            idempotency_key=plan.idempotency_key,
            last_done=last,
            message=plan.message,
        )

    def add_collections(self, document: Mapping[str, Any]) -> dict[str, Any]:
        """Add the collections by which it can be held, if its profile exists here."""
        name = Submission.from_document(document).profile
        if name not in self._collections:
            self._collections[name] = list(self._find_mnemonics(name))
        return (
            {**document, "collections": self._collections[name]}
            if self._collections[name] and not document.get("collections")
            else {**document}
        )

    def _find_mnemonics(self, profile: str) -> tuple[str, ...]:
        try:
            if not profile or find_id_problem(profile) is not None:
                return ()
            document = self._engine.store.get("profile", profile).documents.get("profile")
            return mnemonics.mnemonics_of(from_document(Profile, document), self._mnemonics_by_ark)
        except (RecordNotFound, BadProfile):
            return ()

    @cached_property
    def _mnemonics_by_ark(self) -> dict[str, str]:
        return mnemonics.mnemonics_by_ark(self._engine.store.find)


def _last_done_of(machine: Machine, plan: ImportPlan) -> str | None:
    """Return the state after which the record is resumed, by the machine's table: it may have a state between those
    that the old queues knew.
    """
    reached = (
        plan.state
        if plan.state not in ("Failed", "Deleted", "Held")
        else plan.state_path[-2]
        if len(plan.state_path) > 1
        else ""
    )
    state = machine.find_state(reached)
    return (
        machine.find_last_done(reached, plan.last_done or None)
        if state is not None and state.to is not None
        else plan.last_done or None
    )
