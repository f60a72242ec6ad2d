"""Ready: one long task, fed through a pipe with what the phase before puts out, from its first output to its last.

A reducer that is interrupted begins again: its input waits as objects until its output is published.
"""

from __future__ import annotations

import os
import threading
import zlib
from collections.abc import Iterator
from pathlib import Path
from typing import BinaryIO

from waybill.apps.compute.errors import MantaError
from waybill.apps.compute.machine import PHASE, REDUCER, ChunkProgress, ReducerDocument
from waybill.apps.compute.manifest import JobManifest
from waybill.apps.compute.paths import parse_path
from waybill.apps.compute.resources import ComputeResources, resources_of
from waybill.apps.compute.task_lines import TaskError, TaskLine, iter_lines, iter_tasks, read_client_key
from waybill.apps.compute.tasks.publishing import Publisher
from waybill.apps.compute.tasks.running import PhaseRunner, make_task_id
from waybill.apps.compute.tasks.slots import SlotLease
from waybill.apps.compute.tasks.workspace import InitFailed
from waybill.record import Record, Ref
from waybill.step import Done, Outcome, StepContext, StepStopped, Wait

LOOK_INTERVAL = 0.2  # seconds between two looks at a log that has nothing new
NO_SANDBOX_PAUSE = 30.0
READY = REDUCER.initial_state


def run_step(reducer: Record, ctx: StepContext) -> Outcome:
    about, resources = reducer.document(ReducerDocument), resources_of(ctx)
    progress = reducer.find_document(ChunkProgress) or ChunkProgress()
    for part in progress.parts:
        resources.enter_part(about.job, about.phase + 1, part)
    row = resources.find_job(about.job)
    if row is None or progress.done:
        return Done()
    publisher = Publisher(resources, ctx, about.job, about.phase, progress)
    task = make_task_id(reducer.id, 0)
    if row.cancelled:
        return _end_with(publisher, about, task, "JobCancelledError", "job was cancelled")
    workspaces = resources.tasks.workspaces
    if workspaces.problem:
        return Wait(NO_SANDBOX_PAUSE, workspaces.problem)
    if _must_wait(ctx, about):
        return Wait(1.0, "waits until the reducers of the phases before run or are done")
    if not resources.take_reducer_slot():
        return Wait(0.5, "as many reducers as may run are running")
    try:
        return _run(ctx, resources, about, publisher, task, row.read_manifest())
    finally:
        resources.give_back_reducer_slot()


def _must_wait(ctx: StepContext, about: ReducerDocument) -> bool:
    """A reducer that waits for others must not take the place of those it waits for."""
    for number in range(about.phase):
        phase = Ref(PHASE.name, f"{about.job}.{number}")
        for reducer in ctx.find(REDUCER.name, parent=phase, limit=1000).records:
            if reducer.state == READY and reducer.session is None:
                return True
    return False


def _end_with(publisher: Publisher, about: ReducerDocument, task: str, code: str, message: str) -> Outcome:
    error = TaskError(f"phase {about.phase}: reduce", code, message)
    publisher.add_line(TaskLine(task, about.phase, error=error, reducer=about.number))
    publisher.publish(1)
    return Done()


def _run(
    ctx: StepContext, resources: ComputeResources, about: ReducerDocument, publisher: Publisher, task: str, manifest: JobManifest
) -> Outcome:  # fmt: skip
    phase = manifest.phases[about.phase]

    def fetch(asset: str, place: Path) -> None:
        resources.fetch_for_job(about.account, about.job, asset, place)

    tasks = resources.tasks
    with tasks.slots.watch_only(about.job, about.account, lambda: ctx.stop) as lease:
        try:
            with tasks.workspaces.borrow((about.job, about.phase), phase, fetch, lambda: ctx.stop) as workspace:
                if workspace is None:
                    return Wait(1.0, "no memory or disk is free for its sandbox")
                runner = PhaseRunner(
                    resources, about.job, about.account, manifest, about.phase, workspace, lease, publisher
                )
                feeder = ReducerFeeder(resources, about, lease)
                with feeder:
                    try:
                        line = runner.run_reduce(about.number, task, feeder.stdin, lambda: feeder.size)
                    except StepStopped:
                        if feeder.problem is None:
                            raise
                        raise feeder.problem from None  # the input could not be read: begin again
        except InitFailed as failure:
            return _end_with(publisher, about, task, "TaskInitError", str(failure))
    if feeder.problem and not lease.is_cancelled:
        raise feeder.problem  # the input could not be read: begin again
    publisher.add_line(line)
    publisher.publish(1)
    return Done()


class ReducerFeeder:
    """Writes the input of one reducer into a pipe, in a thread, until all earlier phases are over."""

    def __init__(self, resources: ComputeResources, about: ReducerDocument, lease: SlotLease) -> None:
        self._resources, self._about, self._lease = resources, about, lease
        self.stdin, self._sink = os.pipe()
        self.size = 0
        self.problem: Exception | None = None
        self._must_end = threading.Event()
        self._thread = threading.Thread(target=self._run, name="waybill-reducer", daemon=True)

    def __enter__(self) -> ReducerFeeder:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._must_end.set()
        os.close(self.stdin)  # a write that waits ends now: nobody reads any more
        self._thread.join()

    def _run(self) -> None:
        try:
            with open(self._sink, "wb", buffering=0) as sink:
                for key in self._iter_keys():
                    self._write(key, sink)
        except BrokenPipeError:
            return  # the command has read what it wanted
        except Exception as error:  # noqa: BLE001 - raised by the step, which runs again
            self.problem = error
            self._lease.stop.set()

    def _write(self, key: str, sink: BinaryIO) -> None:
        try:
            entry = self._resources.storage.get(parse_path(key))
        except MantaError as error:
            if error.manta_code in ("ResourceNotFound", "InvalidResource"):
                return  # removed by its owner; as an input that never was
            raise
        if entry.is_directory:
            return
        with self._resources.storage.open(entry) as body:
            for piece in body:
                view = memoryview(piece)
                while view:
                    written = os.write(sink.fileno(), view[: 1024 * 1024])
                    self.size += written
                    view = view[written:]

    def _iter_keys(self) -> Iterator[str]:
        job, phase, after = self._about.job, self._about.phase, 0
        position = 0
        while not self._must_end.is_set():
            is_over = self._resources.is_log_ended(job, phase)
            segments = self._resources.list_segments(job, phase, after)
            for segment in segments:
                for key, wanted in self._iter_segment(segment.object):
                    if self._is_mine(key, wanted, position):
                        yield key
                    position += 1
                after = segment.number + 1
            if not segments:
                if is_over:
                    return
                self._must_end.wait(LOOK_INTERVAL)

    def _iter_segment(self, name: str) -> Iterator[tuple[str, int]]:
        objects = self._resources.objects
        if self._about.phase == 0:
            for line in iter_lines(objects, name):
                if key := read_client_key(line):
                    yield key, -1
            return
        for task in iter_tasks(objects, name):
            for output in task.outputs:
                yield output.key, output.reducer

    def _is_mine(self, key: str, wanted: int, position: int) -> bool:
        """As the task said; otherwise by chance, the same in every run."""
        if wanted >= 0:
            return wanted % self._about.count == self._about.number
        return zlib.crc32(f"{key}\n{position}".encode()) % self._about.count == self._about.number
