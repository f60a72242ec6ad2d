"""The way of a deposit: batch -> job -> object, as `waybill trace` shows it.

An object is found by its ARK or a local id, a batch and a job by the id of their record or by the batchID and jobID that
depositors know. Each version of an object holds `system/mrt-ingest.txt`, which names the batch and the job that stored it: so
the way of an object is known from storage alone, when the records of its deposit have been removed.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from contextlib import suppress
from itertools import islice
from typing import TYPE_CHECKING, cast
from urllib.parse import quote

from waybill.apps.ingest.description import INGEST_FILE, SYSTEM_PREFIX
from waybill.apps.ingest.formats import anvl
from waybill.apps.ingest.identifiers.noid import is_ark
from waybill.apps.ingest.resources import IngestResources
from waybill.apps.ingest.service.batches import find_batch, find_job
from waybill.apps.ingest.storage import StorageError
from waybill.apps.ingest.submission import Submission
from waybill.errors import FormatError, NotFound
from waybill.objects import ObjectsError
from waybill.record import Record, RecordNotFound, Store
from waybill.rules import find_id_problem
from waybill.tracing import TraceEdge, TraceNode, key_of, name_in
from waybill.views import format_time

if TYPE_CHECKING:
    from waybill.environment import Environment

APPLICATION = "ingest"
MAX_FOUND = 20  # objects of one local id
MAX_JOBS = 2000  # of a batch, among which a job is looked for
MAX_INGEST_FILE = 100_000  # bytes
REMOVED = "removed"  # shown as the state of a record that retention has removed


class IngestTracer:
    """Its nodes are batches, jobs and objects. It is made for one trace and remembers the records that it has read."""

    def __init__(self, environment: Environment, store: Store) -> None:
        self._resources = cast(IngestResources, environment.resources_of(APPLICATION))
        self._engine = environment.make_engine(store)
        self._store = store
        self._records: dict[str, Record] = {}  # batches and jobs, by their keys
        self._batch_keys: dict[str, str] = {}  # by the keys of jobs

    def find(self, text: str) -> Iterator[str]:
        if is_ark(text):
            yield text
            return
        for key_of_record, find in ((self._batch_key_of, find_batch), (self._job_key_of, find_job)):
            try:
                yield key_of_record(find(self._engine, text))
            except NotFound:
                continue
        for row in self._resources.inventory.search(local_id=text, limit=MAX_FOUND).rows:
            yield row["ark"]

    def describe(self, key: str) -> TraceNode | None:
        if is_ark(key):
            return self._describe_object(key)
        for type in ("batch", "job"):
            if (name := name_in(key, APPLICATION, type)) is not None:
                return self._describe_record(key, type, name)
        return None

    def list_edges(self, key: str) -> Iterable[TraceEdge]:
        if is_ark(key):
            return self._list_deposits(key)
        if name_in(key, APPLICATION, "batch") is not None:
            return self._list_jobs(key)
        if name_in(key, APPLICATION, "job") is not None:
            return self._list_ends_of_job(key)
        return ()

    def _describe_object(self, ark: str) -> TraceNode | None:
        row = self._resources.inventory.get_object(ark)
        if row is None:
            return None
        return TraceNode(
            ark,
            "object",
            row["title"] or ark,
            APPLICATION,
            state=f"version {row['head']}",
            at=row["modified"],
            page=f"/ingest/objects/{quote(ark)}",
            owner=row["owner"],
        )

    def _describe_record(self, key: str, type: str, name: str) -> TraceNode:
        record = self._find_record(key, type, name)
        if record is None:
            return TraceNode(key, type, name, APPLICATION, state=REMOVED, is_data=False)
        title = Submission.from_job(record).title if type == "job" else ""
        return TraceNode(
            key,
            type,
            title or name,
            APPLICATION,
            state=record.state,
            at=format_time(record.updated) or "",
            is_data=False,
            page=f"/records/{type}/{quote(record.id, safe='')}",
            owner=record.owner,
            scope=record.scope,
        )

    def _list_deposits(self, ark: str) -> Iterator[TraceEdge]:
        for version in self._resources.inventory.list_versions(ark, limit=1000):
            deposit = self._read_deposit(ark, version["number"])
            if job := deposit.get("job"):
                job_key = key_of(APPLICATION, "job", job)
                if batch := deposit.get("batch"):
                    self._batch_keys[job_key] = key_of(APPLICATION, "batch", batch)
                yield TraceEdge(job_key, ark, f"stored version {version['number']}")

    def _read_deposit(self, ark: str, number: int) -> dict[str, str]:
        """What a version says of its deposit; nothing if it does not say, or cannot be read now."""
        try:
            with self._resources.storage.open_file(ark, SYSTEM_PREFIX + INGEST_FILE, number) as body:
                return {element.label: element.value for element in anvl.read(body.read(MAX_INGEST_FILE))}
        except (StorageError, ObjectsError, FormatError):
            return {}

    def _list_jobs(self, key: str) -> Iterator[TraceEdge]:
        batch = self._find_record(key, "batch", name_in(key, APPLICATION, "batch") or "")
        if batch is not None:
            for job in self._store.each("job", parent=batch.ref, documents=True):
                yield TraceEdge(key, self._job_key_of(job), "job")

    def _list_ends_of_job(self, key: str) -> Iterator[TraceEdge]:
        job = self._find_record(key, "job", name_in(key, APPLICATION, "job") or "")
        if job is not None and job.parent is not None and key not in self._batch_keys:
            with suppress(RecordNotFound):  # removed in this moment, with the job
                self._batch_keys[key] = self._batch_key_of(self._store.get(*job.parent))
        if key in self._batch_keys:
            yield TraceEdge(self._batch_keys[key], key, "job")
        if job is not None and is_ark(ark := Submission.from_job(job).primary_id):
            yield from (edge for edge in self._list_deposits(ark) if edge.source == key)

    def _find_record(self, key: str, type: str, name: str) -> Record | None:
        if key not in self._records:
            if type == "batch":
                self._find_batch(name)
            elif (batch_key := self._batch_keys.get(key)) is not None:
                batch_name = name_in(batch_key, APPLICATION, "batch") or ""
                batch = self._find_record(batch_key, "batch", batch_name)
                jobs = self._store.each("job", parent=batch.ref, documents=True) if batch is not None else ()
                for job in islice(jobs, MAX_JOBS):
                    if self._job_key_of(job) == key:
                        break
        return self._records.get(key)

    def _find_batch(self, batch_id: str) -> None:
        if find_id_problem(batch_id):
            return
        try:
            self._batch_key_of(self._store.get_by_idempotency_key("batch", batch_id))
        except RecordNotFound:
            try:
                self._batch_key_of(self._store.get("batch", batch_id))  # one without a batchID
            except RecordNotFound:
                return

    def _batch_key_of(self, batch: Record) -> str:
        key = key_of(APPLICATION, "batch", batch.idempotency_key or batch.id)
        self._records[key] = batch
        return key

    def _job_key_of(self, job: Record) -> str:
        key = key_of(APPLICATION, "job", Submission.from_job(job).job_id)
        self._records[key] = job
        return key
