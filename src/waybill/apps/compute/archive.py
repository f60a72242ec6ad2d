"""The files of a job that is over: in.txt, out.txt, err.txt, fail.txt, tasks.txt, metrics.json and job.json.

    lists written as streams -> metrics -> job.json -> the row says done -> what they were read from is removed

Each is an ordinary object in the directory of the job. A crash anywhere begins again: an object is replaced by the same.
The user may have removed the directory meanwhile; then there is nothing to write.
"""

from __future__ import annotations

import heapq
import json
import math
import tempfile
from collections.abc import Callable, Iterable, Iterator
from contextlib import ExitStack, contextmanager
from datetime import UTC, datetime
from itertools import islice
from operator import itemgetter
from pathlib import Path
from typing import IO, TYPE_CHECKING, Any

import msgspec

from waybill.apps.compute.entries import Entries
from waybill.apps.compute.errors import MantaError
from waybill.apps.compute.job_tables import JobRow, JobTables
from waybill.apps.compute.jobs import describe_job, encode_error, job_path, make_headers
from waybill.apps.compute.paths import StoragePath
from waybill.apps.compute.storage import Conditions, ObjectHeaders, iso_time, now_ms
from waybill.apps.compute.task_lines import TaskLine, iter_lines, iter_tasks, read_client_key
from waybill.apps.compute.usage import JobUsage

if TYPE_CHECKING:
    from waybill.apps.compute.resources import ComputeResources

GATHER = 256 * 1024  # bytes of lines that are written together
SORT_RUN = 200_000  # lines that are sorted in memory
OPERATOR_ACCOUNT = "waybill"
PUBLIC_READ = {"access-control-allow-origin": "*"}
ERROR_TYPE = "application/x-json-stream; type=job-error"


class JobArchiver:
    """`check` is called between two lines: it raises when the step must stop."""

    def __init__(self, resources: ComputeResources, row: JobRow, check: Callable[[], None]) -> None:
        self._resources, self._row, self._check = resources, row, check
        self._last = len(row.read_manifest().phases)
        self._usage = JobUsage()

    def write_all(self) -> None:
        """Write every file; the row says done last."""
        row = self._row
        try:
            self._put("in.txt", self._iter_inputs(), "text/plain")
            self._put_outputs()
            self._put("err.txt", (encode_error(task) for task in self._iter_failed()), ERROR_TYPE)
            self._put("fail.txt", (task.p0.encode() + b"\n" for task in self._iter_failed() if task.p0), "text/plain")
            metrics = JobMetrics(self._last)
            self._put(
                "tasks.txt",
                (encode_task(metrics.add(self._usage.add(task))) for task in self.iter_tasks()),
                "application/x-json-stream",
            )
            self._put("metrics.json", iter([metrics.encode(row)]), "application/json")
        except MantaError as error:
            if error.manta_code not in ("DirectoryDoesNotExist", "ResourceNotFound"):
                raise
        self._remove_intermediates()
        self._finish()

    def _put_outputs(self) -> None:
        if not self._row.read_manifest().options.keep_order:
            return self._put("out.txt", self._iter_outputs(), "text/plain")
        lines = (
            (task.order, output.key.encode() + b"\n")
            for task in self._iter_tasks_of(self._last)
            for output in task.outputs
        )
        # Beside the folders of tasks: the temporary folder of the system may be in memory.
        folder = self._resources.environment.config.work.root
        folder.mkdir(parents=True, exist_ok=True)
        with sort_lines(lines, folder) as ordered:
            self._put("out.txt", ordered, "text/plain")
        return None

    def _remove_intermediates(self) -> None:
        """What one phase put out for the next, where a reducer has used it up."""
        resources, row = self._resources, self._row
        for phase in range(1, self._last):
            for task in self._iter_tasks_of(phase):
                resources.remove_intermediates(
                    output.key
                    for output in task.outputs
                    if output.key.startswith(f"/{row.account}/jobs/{row.job}/stor/")
                )

    def _finish(self) -> None:
        """job.json, the state in the headers, and the row: together, so that `done` shows when all is there."""
        row, now = self._row, now_ms()
        with self._resources.connections.open() as tables:
            logs = JobTables(tables).list_logs(row.job)
        done = msgspec.structs.replace(row, state="done", archived=now)
        status = describe_job(done, logs)
        text = json.dumps(status)
        self._keep_existing(lambda: self._put("job.json", iter([text.encode()]), "application/json"))
        self._copy_for_operators()
        with self._resources.connections.open() as tables:
            with tables.transaction():
                path = job_path(row.account, row.job)
                entries = Entries(tables)
                if entries.find(path) is not None:
                    entries.put_directory(path, make_headers(row.read_manifest(), "done"), now=now)
                self._usage.write(tables, row.account, row.job, row.read_manifest())
                JobTables(tables).finish_archive(row.job, text, now=now)

    def remove_sources(self) -> None:
        """Remove what the files were written from. Safe to repeat."""
        resources, row = self._resources, self._row
        with resources.connections.open() as tables:
            JobTables(tables).remove_all(row.job, self._last)
        for info in resources.objects.list(resources.job_prefix(row.job)):
            self._check()
            resources.objects.delete(info.name)

    def _keep_existing(self, write: Callable[[], None]) -> None:
        try:
            write()
        except MantaError as error:
            if error.manta_code not in ("DirectoryDoesNotExist", "ResourceNotFound"):
                raise

    def _copy_for_operators(self) -> None:
        """Links to the measurements that outlive what the user removes."""
        storage, row = self._resources.storage, self._row
        hour = datetime.fromtimestamp(row.created / 1000, UTC).strftime("%Y/%m/%d/%H")
        folder = StoragePath(OPERATOR_ACCOUNT, "stor", ("job_archives", *hour.split("/"), row.job))
        storage.make_directories(folder)
        for name in ("job.json", "metrics.json", "tasks.txt"):
            source = job_path(row.account, row.job, name)
            if storage.find(source) is not None:
                storage.put_link(folder.child(name), source, Conditions())

    def _put(self, name: str, pieces: Iterator[bytes], content_type: str) -> None:
        path = job_path(self._row.account, self._row.job, name)
        self._resources.storage.check_put(path)
        about = ObjectHeaders(content_type, headers=PUBLIC_READ)
        self._resources.storage.put(path, self._gather(pieces), about)

    def _gather(self, pieces: Iterator[bytes]) -> Iterator[bytes]:
        gathered = bytearray()
        for piece in pieces:
            gathered += piece
            if len(gathered) >= GATHER:
                self._check()
                yield bytes(gathered)
                gathered.clear()
        yield bytes(gathered)

    # --- what they are read from

    def _segments(self, phase: int, *, failed: bool = False) -> Iterator[str]:
        after = 0
        while segments := self._resources.list_segments(self._row.job, phase, after):
            yield from (segment.object for segment in segments if segment.errors or not failed)
            after = segments[-1].number + 1

    def _iter_inputs(self) -> Iterator[bytes]:
        for name in self._segments(0):
            for line in iter_lines(self._resources.objects, name):
                if key := read_client_key(line):
                    yield key.encode() + b"\n"

    def _iter_outputs(self) -> Iterator[bytes]:
        for task in self._iter_tasks_of(self._last):
            for output in task.outputs:
                yield output.key.encode() + b"\n"

    def _iter_failed(self) -> Iterator[TaskLine]:
        for phase in range(1, self._last + 1):
            for name in self._segments(phase, failed=True):
                yield from (task for task in iter_tasks(self._resources.objects, name) if task.error is not None)

    def _iter_tasks_of(self, phase: int) -> Iterator[TaskLine]:
        for name in self._segments(phase):
            yield from iter_tasks(self._resources.objects, name)

    def iter_tasks(self) -> Iterator[TaskLine]:
        for phase in range(1, self._last + 1):
            yield from self._iter_tasks_of(phase)


@contextmanager
def sort_lines(lines: Iterable[tuple[int, bytes]], folder: Path, run: int = SORT_RUN) -> Iterator[Iterator[bytes]]:
    """The lines in the order of their numbers; those of one number stay as they came. Sorted runs lie in files without a
    name, so that memory is bounded and nothing is left by a crash.
    """
    with ExitStack() as stack:
        runs: list[IO[bytes]] = []
        pending = iter(lines)
        while chosen := list(islice(pending, run)):
            file = stack.enter_context(tempfile.TemporaryFile(dir=folder))
            file.writelines(b"%020d %b" % line for line in sorted(chosen, key=itemgetter(0)))
            file.seek(0)
            runs.append(file)
        merged = heapq.merge(*runs, key=lambda line: line[:20])
        yield (line[21:] for line in merged)


def encode_task(task: TaskLine) -> bytes:
    shown: dict[str, Any] = {
        "task": task.task, "phase": task.phase, "key": task.key, "start": iso_time(task.start * 1000), "wall": round(task.wall, 6),
        "cpu": round(task.cpu, 6), "peakMemory": task.memory, "bytesIn": task.bytes_in, "bytesOut": task.bytes_out,
        "exitCode": task.code, "attempts": task.attempts, "outputs": len(task.outputs),
    }  # fmt: skip
    if task.reducer >= 0:
        shown["reducer"] = task.reducer
    if task.error is not None:
        shown["error"] = task.error.code
    return msgspec.json.encode(shown) + b"\n"


class Distribution:
    """Percentiles in bounded memory: counts in buckets that are 5 % wide."""

    def __init__(self) -> None:
        self.count, self.total, self.maximum = 0, 0.0, 0.0
        self._buckets: dict[int, int] = {}

    def add(self, value: float) -> None:
        self.count += 1
        self.total += value
        self.maximum = max(self.maximum, value)
        bucket = math.ceil(math.log(max(value, 1e-6), 1.05))
        self._buckets[bucket] = self._buckets.get(bucket, 0) + 1

    def find_percentile(self, share: float) -> float:
        wanted, seen = share * self.count, 0
        for bucket in sorted(self._buckets):
            seen += self._buckets[bucket]
            if seen >= wanted:
                return min(self.maximum, round(1.05**bucket, 6))
        return self.maximum

    def describe(self) -> dict[str, float]:
        return {
            "total": round(self.total, 6), "p50": self.find_percentile(0.5), "p90": self.find_percentile(0.9),
            "p99": self.find_percentile(0.99), "max": round(self.maximum, 6),
        }  # fmt: skip


class _PhaseMetrics:
    def __init__(self) -> None:
        self.tasks = self.errors = self.outputs = self.retries = self.bytes_in = self.bytes_out = 0
        self.wall, self.cpu, self.memory = Distribution(), Distribution(), Distribution()
        self.codes: dict[str, int] = {}
        self.first, self.last = math.inf, 0.0


class JobMetrics:
    """Counts and timings of the phases of a job."""

    def __init__(self, phases: int) -> None:
        self._phases = [_PhaseMetrics() for _ in range(phases)]

    def add(self, task: TaskLine) -> TaskLine:
        phase = self._phases[task.phase]
        phase.tasks += 1
        phase.outputs += len(task.outputs)
        phase.retries += task.attempts - 1
        phase.bytes_in += task.bytes_in
        phase.bytes_out += task.bytes_out
        phase.wall.add(task.wall)
        phase.cpu.add(task.cpu)
        phase.memory.add(task.memory)
        phase.first = min(phase.first, task.start)
        phase.last = max(phase.last, task.start + task.wall)
        if task.error is not None:
            phase.errors += 1
            phase.codes[task.error.code] = phase.codes.get(task.error.code, 0) + 1
        return task

    def describe(self) -> list[dict[str, Any]]:
        return [
            {
                "phase": number, "tasks": phase.tasks, "outputs": phase.outputs, "errors": phase.errors, "errorCodes": phase.codes,
                "retries": phase.retries, "bytesIn": phase.bytes_in, "bytesOut": phase.bytes_out,
                "timeFirstTask": iso_time(phase.first * 1000) if phase.tasks else None,
                "timeLastTask": iso_time(phase.last * 1000) if phase.tasks else None,
                "wall": phase.wall.describe(), "cpu": phase.cpu.describe(), "peakMemory": phase.memory.describe(),
            }
            for number, phase in enumerate(self._phases)
        ]  # fmt: skip

    def encode(self, row: JobRow) -> bytes:
        return json.dumps(
            {"id": row.job, "name": row.name, "timeCreated": iso_time(row.created), "phases": self.describe()}
        ).encode()
