"""What callers do with jobs: make one, add input, end it, cancel, look.

    make: rows, logs and directories in one transaction -> the record that does the work
    add:  keys into an object, synced -> its segment, unless the input has ended meanwhile
    end, cancel: the row says so -> the phase that waits is woken

A crash between the rows and the record leaves a job that maintenance starts.
"""

from __future__ import annotations

import hashlib
import json
import uuid
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from contextlib import AbstractContextManager
from itertools import islice
from typing import TYPE_CHECKING, Any

import msgspec

from waybill.apps.compute.entries import Entries
from waybill.apps.compute.errors import MantaError, not_found
from waybill.apps.compute.job_ids import is_job_id
from waybill.apps.compute.job_tables import JobRow, JobTables, LogRow
from waybill.apps.compute.machine import JOB, PHASE, JobDocument
from waybill.apps.compute.manifest import JobManifest
from waybill.apps.compute.paths import StoragePath
from waybill.apps.compute.storage import iso_time, now_ms
from waybill.apps.compute.task_lines import TaskLine, iter_lines, iter_tasks, read_client_key
from waybill.engine import Engine
from waybill.record import RecordNotFound, Ref
from waybill.step import New

if TYPE_CHECKING:
    from waybill.apps.compute.resources import ComputeResources

MAX_KEY_LINE = 65_536  # bytes of one line of input
MAX_MANIFEST_HEADER = 4096 - 200  # bytes
LISTS = ("in", "out", "err", "fail")


def job_path(account: str, job: str, *names: str) -> StoragePath:
    return StoragePath(account, "jobs", (job, *names))


class Jobs:
    """All calls block. `open_engine`: a connection to the store for a short time."""

    def __init__(self, resources: ComputeResources, open_engine: Callable[[], AbstractContextManager[Engine]]) -> None:
        self._resources = resources
        self._open_engine = open_engine

    # --- life

    def make(self, account: str, manifest: JobManifest, *, who: str) -> str:
        now = now_ms()
        with self._resources.connections.open() as tables:
            with tables.transaction():
                job = JobTables(tables).make(account, manifest, now=now)
                entries = Entries(tables)
                entries.put_directory(job_path(account, job), make_headers(manifest, "running"), now=now)
                entries.put_directory(job_path(account, job, "stor"), {}, now=now)
        self.start(job, account, manifest, who=who)
        return job

    def start(self, job: str, account: str, manifest: JobManifest, *, who: str) -> None:
        """Create the record of a job. Safe to repeat: a key has one record."""
        document = JobDocument(account, manifest.name, len(manifest.phases))
        with self._open_engine() as engine:
            engine.submit(New(JOB.name, (document,), id=job, owner=account, idempotency_key=job), who=who)

    def find(self, account: str, job: str) -> JobRow:
        """Raises ResourceNotFound for a job of another, or whose directory is gone."""
        row = self._resources.find_job(job) if is_job_id(job) else None
        if row is None or row.account != account or self._resources.storage.find(job_path(account, job)) is None:
            raise not_found(str(job_path(account, job)))
        return row

    def add_input(self, row: JobRow, chunks: Iterable[bytes]) -> int:
        """Add keys, one in each line; return how many."""
        self._check_open(row)
        stream = _KeyStream(chunks)
        name = f"{self._resources.job_prefix(row.job)}/in/{uuid.uuid4().hex}"
        self._resources.objects.put(name, stream)
        if stream.keys == 0:
            self._resources.objects.delete(name)
            return 0
        try:
            with self._resources.connections.open() as tables:
                JobTables(tables).add_input(row.job, name, name.rpartition("/")[2], stream.keys, now=now_ms())
        except MantaError:
            self._resources.objects.delete(name)
            raise
        self._wake(row.job)
        return stream.keys

    def _check_open(self, row: JobRow) -> None:
        state = "cancelled" if row.cancelled else "done" if row.done else "inputDone" if row.input_ended else ""
        if state:
            raise MantaError("InvalidJobState", f"job {row.job} is in state '{state}'")

    def end_input(self, row: JobRow) -> None:
        if row.cancelled or row.done:
            self._check_open(row)
        self._resources.end_input(row.job)
        self._wake(row.job)

    def cancel(self, row: JobRow) -> None:
        if row.cancelled or row.done:
            self._check_open(row)
        with self._resources.connections.open() as tables:
            JobTables(tables).cancel(row.job, now=now_ms())
        self._wake(row.job)

    def _wake(self, job: str) -> None:
        """All its phases, of which the first looks for keys and all look whether they are cancelled."""
        with self._open_engine() as engine:
            engine.wake([Ref(PHASE.name, f"{job}.0")])

    def remove(self, row: JobRow, *, who: str) -> None:
        """Remove a job with all its files. Raises InvalidJobState while it is live. Safe to repeat."""
        if row.state != "done":
            raise MantaError(
                "InvalidJobState", f"job {row.job} is in state '{row.state}': cancel it, then wait for its end"
            )
        self._resources.storage.delete_tree(job_path(row.account, row.job))
        self.forget(row.job, who=who)

    def forget(self, job: str, *, who: str) -> None:
        """Remove what is left of a job whose directory is gone."""
        with self._resources.connections.open() as tables:
            tables.execute("remove_logs", job=job)
            tables.execute("remove_job", job=job)
        with self._open_engine() as engine:
            try:
                engine.remove(Ref(JOB.name, job), who=who)
            except RecordNotFound:
                return  # it was kept long enough

    def rerun(self, row: JobRow, *, failed: bool, who: str) -> str:
        """A new job with the manifest and the inputs of one that is done, or with those that failed, each once."""
        path = job_path(row.account, row.job, "fail.txt" if failed else "in.txt")
        storage = self._resources.storage
        body = storage.open(storage.get(path))
        job = self.make(row.account, row.read_manifest(), who=who)
        new = self.find(row.account, job)
        with body:
            self.add_input(new, _iter_distinct(body) if failed else body)
        self.end_input(new)
        return job

    # --- looking

    def read_status(self, row: JobRow) -> dict[str, Any]:
        if row.archived:
            return dict(json.loads(row.stats))
        with self._resources.connections.open() as tables:
            logs = JobTables(tables).list_logs(row.job)
        return describe_job(row, logs)

    def iter_live(self, row: JobRow, name: str) -> Iterator[bytes]:
        """The lines of a list: the latest of a running job, all of a done one."""
        resources = self._resources
        if row.archived:
            path = job_path(row.account, row.job, f"{name}.txt")
            with resources.storage.open(resources.storage.get(path)) as body:
                yield from body
            return
        limit = resources.settings.live_records
        read = {
            "in": self._latest_inputs,
            "out": self._latest_outputs,
            "err": self._latest_errors,
            "fail": self._latest_failures,
        }[name]
        latest = list(islice(read(row), limit))
        yield b"".join(reversed(latest))

    def _latest_inputs(self, row: JobRow) -> Iterator[bytes]:
        limit = self._resources.settings.live_records
        with self._resources.connections.open() as tables:
            for segment in JobTables(tables).iter_latest(row.job, 0):
                keys = map(read_client_key, iter_lines(self._resources.objects, segment.object))
                lines = deque((key.encode() + b"\n" for key in keys if key), maxlen=limit)
                yield from reversed(lines)

    def _latest_outputs(self, row: JobRow) -> Iterator[bytes]:
        last = len(row.read_manifest().phases)
        with self._resources.connections.open() as tables:
            for segment in JobTables(tables).iter_latest(row.job, last):
                for task in reversed(list(iter_tasks(self._resources.objects, segment.object))):
                    for output in reversed(task.outputs):
                        yield output.key.encode() + b"\n"

    def _latest_failed(self, row: JobRow) -> Iterator[TaskLine]:
        with self._resources.connections.open() as tables:
            for phase in range(len(row.read_manifest().phases), 0, -1):
                for segment in JobTables(tables).iter_latest(row.job, phase, failed=True):
                    for task in reversed(list(iter_tasks(self._resources.objects, segment.object))):
                        if task.error is not None:
                            yield task

    def _latest_errors(self, row: JobRow) -> Iterator[bytes]:
        return (encode_error(task) for task in self._latest_failed(row))

    def _latest_failures(self, row: JobRow) -> Iterator[bytes]:
        return (task.p0.encode() + b"\n" for task in self._latest_failed(row) if task.p0)


def _iter_distinct(pieces: Iterable[bytes]) -> Iterator[bytes]:
    """Each line once; of each line that was there, its digest is remembered."""
    seen, rest = set[bytes](), b""
    for piece in pieces:
        *lines, rest = (rest + piece).split(b"\n")
        for line in lines:
            digest = hashlib.blake2b(line, digest_size=8).digest()
            if digest not in seen:
                seen.add(digest)
                yield line + b"\n"


class _KeyStream:
    """The lines of a client's input, counted on the way into an object."""

    def __init__(self, chunks: Iterable[bytes]) -> None:
        self._chunks = chunks
        self.keys = 0

    def __iter__(self) -> Iterator[bytes]:
        rest = b""
        for chunk in self._chunks:
            lines = (rest + chunk).split(b"\n")
            rest = lines.pop()
            if len(rest) > MAX_KEY_LINE or any(len(line) > MAX_KEY_LINE for line in lines):
                raise MantaError("InvalidArgument", f"A line of input has more than {MAX_KEY_LINE} bytes.")
            if kept := [line for line in lines if line.rstrip(b"\r")]:
                self.keys += len(kept)
                yield b"\n".join(kept) + b"\n"
        if rest.rstrip(b"\r"):
            self.keys += 1
            yield rest + b"\n"


def make_headers(manifest: JobManifest, state: str) -> dict[str, str]:
    """What the directory of a job says of it."""
    text = json.dumps({"name": manifest.name, "phases": manifest.raw_phases}, separators=(",", ":"))
    if len(text) > MAX_MANIFEST_HEADER:
        return {"m-job-state": state, "m-job-manifest-truncated": "true"}
    return {"m-job-state": state, "m-job-manifest": text}


def encode_error(task: TaskLine) -> bytes:
    error = task.error
    assert error is not None
    shown = {
        "phase": str(task.phase), "phaseNum": str(task.phase), "what": error.what, "code": error.code, "message": error.message,
        "taskId": task.task,
    }  # fmt: skip
    for name, value in (("stderr", error.stderr), ("core", error.core), ("input", task.key), ("p0input", task.p0)):
        if value:
            shown[name] = value
    return msgspec.json.encode(shown) + b"\n"


def describe_job(row: JobRow, logs: list[LogRow]) -> dict[str, Any]:
    """A job as its clients know one."""
    manifest = row.read_manifest()
    dispatched = sum(
        phase.count if phase.is_reduce else log.keys for phase, log in zip(manifest.phases, logs, strict=False)
    )
    times = {
        "timeDone": row.done, "timeArchiveStarted": row.archive_started, "timeArchiveDone": row.archived
    }  # fmt: skip
    return {
        "id": row.job,
        "name": row.name,
        "state": row.state,
        "cancelled": row.cancelled > 0,
        "inputDone": row.input_ended > 0,
        "transient": False,
        "stats": {
            "errors": sum(log.errors for log in logs[1:]),
            "outputs": logs[-1].keys if logs else 0,
            "retries": sum(log.retries for log in logs),
            "tasks": dispatched,
            "tasksDone": sum(log.tasks for log in logs[1:]),
        },
        "timeCreated": iso_time(row.created),
        **{name: iso_time(value) for name, value in times.items() if value},
        "phases": manifest.raw_phases,
        "options": {},
    }
