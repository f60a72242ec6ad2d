"""What the catalogue holds of jobs: one row for each, the logs of its keys, and their segments.

A log is extended and ended by others than those who read it. A segment gets its number under the lock of its log, and an
input is added under the lock of its job, so whoever has seen the end of a log has seen all of it.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

import msgspec

from waybill.apps.compute.errors import MantaError
from waybill.apps.compute.job_ids import make_job_id
from waybill.apps.compute.manifest import JobManifest, decode_manifest
from waybill.index import CatalogueTables, Row

PAGE = 500


class JobRow(msgspec.Struct, frozen=True):
    job: str
    account: str
    name: str
    manifest: str
    state: str
    created: int
    last_input: int
    input_ended: int
    cancelled: int
    archive_started: int
    done: int
    archived: int
    stats: str

    def read_manifest(self) -> JobManifest:
        return decode_manifest(self.manifest)


class LogRow(NamedTuple):
    phase: int
    segments: int
    keys: int
    tasks: int
    errors: int
    retries: int
    ended: bool


class Segment(NamedTuple):
    number: int
    object: str
    keys: int
    errors: int


class JobTables:
    """The tables on one connection. Times are milliseconds."""

    def __init__(self, tables: CatalogueTables) -> None:
        self._tables = tables

    # --- jobs

    def make(self, account: str, manifest: JobManifest, *, now: int) -> str:
        """Inside a transaction: a row for a new job, whose id is greater than all before."""
        last = self._tables.query("last_job", max_rows=1)[0]["job"]
        job = make_job_id(now, last)
        self._tables.execute("set_last_job", job=job)
        self._tables.execute(
            "make_job", job=job, account=account, name=manifest.name, manifest=manifest.encode(), now=now
        )
        for phase in range(len(manifest.phases) + 1):
            self._tables.execute("make_log", job=job, phase=phase)
        return job

    def find(self, job: str) -> JobRow | None:
        rows = self._tables.query("job", job=job, max_rows=1)
        return JobRow(**rows[0]) if rows else None

    def end_input(self, job: str, *, now: int) -> bool:
        """Whether it was not ended before. The row is locked: an input that is being added is added, or refused."""
        with self._tables.transaction():
            changed = self._tables.execute("end_input", job=job, now=now)
            self._tables.execute("end_log", job=job, phase=0)
            return bool(changed)

    def cancel(self, job: str, *, now: int) -> bool:
        with self._tables.transaction():
            changed = self._tables.execute("cancel_job", job=job, now=now)
            self._tables.execute("end_log", job=job, phase=0)
            return bool(changed)

    def is_cancelled(self, job: str) -> bool:
        row = self.find(job)
        return row is None or row.cancelled > 0

    def start_archive(self, job: str, *, now: int) -> None:
        self._tables.execute("start_archive", job=job, now=now)

    def finish_archive(self, job: str, stats: str, *, now: int) -> None:
        self._tables.execute("finish_archive", job=job, stats=stats, now=now)

    def list_running(self, account: str, limit: int) -> list[Row]:
        return self._tables.query("list_running", account=account, row_limit=limit)

    def list_named(self, account: str, name: str, limit: int) -> list[Row]:
        return self._tables.query("list_named", account=account, name=name, row_limit=limit)

    # --- logs

    def find_log(self, job: str, phase: int) -> LogRow | None:
        rows = self._tables.query("log", job=job, phase=phase, max_rows=1)
        return _to_log(rows[0]) if rows else None

    def list_logs(self, job: str) -> list[LogRow]:
        return [_to_log(row) for row in self._tables.query("logs", job=job)]

    def end_log(self, job: str, phase: int) -> None:
        self._tables.execute("end_log", job=job, phase=phase)

    def add_input(self, job: str, object: str, source: str, keys: int, *, now: int) -> None:
        """Add keys of a client, unless the input has ended meanwhile."""
        with self._tables.transaction():
            rows = self._tables.query("lock_job", job=job, max_rows=1)
            if not rows or rows[0]["input_ended"] or rows[0]["state"] != "running":
                raise MantaError("InvalidJobState", f"job {job} is in state 'inputDone'")
            self._extend(job, 0, source, object, keys=keys)
        self._tables.execute("note_input", job=job, now=now)

    def add_output(
        self, job: str, phase: int, source: str, object: str, *, keys: int, tasks: int, errors: int, retries: int
    ) -> None:
        """Add what tasks of the phase before have put out. Safe to repeat: a source is added once."""
        with self._tables.transaction():
            self._extend(job, phase, source, object, keys=keys, tasks=tasks, errors=errors, retries=retries)

    def _extend(
        self, job: str, phase: int, source: str, object: str, *, keys: int, tasks: int = 0, errors: int = 0, retries: int = 0
    ) -> None:  # fmt: skip
        rows = self._tables.query("lock_log", job=job, phase=phase, max_rows=1)
        if not rows or self._tables.query("find_segment", job=job, phase=phase, source=source, max_rows=1):
            return
        self._tables.execute(
            "add_segment", job=job, phase=phase, number=rows[0]["segments"], source=source, object=object, keys=keys, errors=errors
        )  # fmt: skip
        self._tables.execute("extend_log", job=job, phase=phase, keys=keys, tasks=tasks, errors=errors, retries=retries)

    def list_segments(self, job: str, phase: int, after: int = 0, limit: int = PAGE) -> list[Segment]:
        rows = self._tables.query("segments", job=job, phase=phase, after=after, row_limit=limit)
        return [Segment(row["number"], row["object"], row["keys"], row["errors"]) for row in rows]

    def iter_segments(self, job: str, phase: int) -> Iterator[Segment]:
        after = 0
        while page := self.list_segments(job, phase, after):
            yield from page
            after = page[-1].number + 1

    def iter_latest(self, job: str, phase: int, *, failed: bool = False) -> Iterator[Segment]:
        """From the newest to the oldest; `failed`: only those with errors."""
        statement, before = "latest_failed_segments" if failed else "latest_segments", 2**62
        while rows := self._tables.query(statement, job=job, phase=phase, before=before, row_limit=20):
            for row in rows:
                yield Segment(row["number"], row["object"], row["keys"], row["errors"])
            before = rows[-1]["number"]

    def remove_all(self, job: str, phases: int) -> None:
        """Remove the logs of a job, page by page; safe to repeat."""
        for phase in range(phases + 1):
            before = 0
            while page := self.list_segments(job, phase, 0):
                before = page[-1].number + 1
                self._tables.execute("remove_segments", job=job, phase=phase, before=before)
        self._tables.execute("remove_logs", job=job)


def _to_log(row: Row) -> LogRow:
    return LogRow(
        row["phase"], row["segments"], row["keys"], row["tasks"], row["errors"], row["retries"], bool(row["ended"])
    )
