"""Ready: runs the tasks of a chunk, and publishes what they put out every second.

A chunk has a slot for a few seconds at a time. When a slot is free that nobody waits for, half of what is left becomes a
chunk of its own. A kill repeats only what was not published.
"""

from __future__ import annotations

import time
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING

from msgspec.structs import replace

from waybill.apps.compute.job_tables import JobRow
from waybill.apps.compute.machine import CHUNK, ChunkKeys, ChunkProgress
from waybill.apps.compute.resources import ComputeResources, resources_of
from waybill.apps.compute.task_lines import InputKey, TaskError, TaskLine, iter_input_keys
from waybill.apps.compute.tasks.cluster_slices import ClusterUnavailable
from waybill.apps.compute.tasks.publishing import MAX_PACK, Publisher
from waybill.apps.compute.tasks.running import PhaseRunner, describe_map, make_cancelled_line, make_task_id
from waybill.apps.compute.tasks.slots import SlotLease
from waybill.apps.compute.tasks.workspace import InitFailed
from waybill.record import Record
from waybill.step import Done, New, Outcome, StepContext, StepStopped, Wait

if TYPE_CHECKING:
    from waybill.apps.compute.tasks.dask_cluster import DaskExecutor

SLICE = 5.0  # seconds for which a chunk has a slot
WAIT_FOR_SLOT = 1.0  # seconds for which a chunk waits for one, before another may be first
PUBLISH_INTERVAL = 0.9  # seconds
NO_SANDBOX_PAUSE = 30.0
CLUSTER_PAUSE = 2.0


def run_step(chunk: Record, ctx: StepContext) -> Outcome:
    about, resources = chunk.document(ChunkKeys), resources_of(ctx)
    progress = chunk.find_document(ChunkProgress) or ChunkProgress()
    for part in progress.parts[-1:]:  # the last run may have ended between the commit and this row
        resources.enter_part(about.job, about.phase + 1, part)
    row = resources.find_job(about.job)
    end = _end_of(about, progress)
    if row is None or progress.done >= end:
        return Done()
    publisher = Publisher(resources, ctx, about.job, about.phase, progress)
    keys = list(
        islice(iter_input_keys(resources.objects, about.object), about.first + progress.done, about.first + end)
    )
    if row.cancelled:
        return _give_up(about, publisher, keys)
    if (executor := resources.dask) is not None:
        return _run_in_cluster(ctx, resources, executor, about, publisher, keys)
    tasks = resources.tasks
    if tasks.workspaces.problem:
        return Wait(NO_SANDBOX_PAUSE, tasks.workspaces.problem)
    with tasks.slots.take(about.job, about.account, lambda: ctx.stop, WAIT_FOR_SLOT) as lease:
        if lease is None:
            return Wait(0, "all slots are in use")
        return _run_slice(ctx, resources, row, about, publisher, keys, lease)


def _end_of(about: ChunkKeys, progress: ChunkProgress) -> int:
    return about.count if progress.count < 0 else progress.count


def _give_up(about: ChunkKeys, publisher: Publisher, keys: list[InputKey]) -> Outcome:
    """The job is cancelled: an error for each key that is not done."""
    done = publisher.progress.done
    for number, key in enumerate(keys):
        publisher.add_line(
            make_cancelled_line(about.phase, key, make_task_id(about.object, about.first + done + number))
        )
    publisher.publish(done + len(keys))
    return Done()


def _run_in_cluster(
    ctx: StepContext, resources: ComputeResources, executor: DaskExecutor, about: ChunkKeys, publisher: Publisher,
    keys: list[InputKey],
) -> Outcome:  # fmt: skip
    """Publishes what comes back in the order of the keys. A cluster may run tasks twice; published are the outputs of one."""
    first = publisher.progress.done
    try:
        for gathered, done in executor.run_keys(about, first, keys, lambda: ctx.stop):
            publisher.publish_gathered(gathered, done)
            resources.halt_if_wanted(about.job)
    except ClusterUnavailable as problem:
        return Wait(CLUSTER_PAUSE, str(problem))
    ctx.check()
    if publisher.progress.done - first >= len(keys):
        return Done()
    return Wait(0)  # cancelled: the next run says so of the keys that are left


def _run_slice(
    ctx: StepContext, resources: ComputeResources, row: JobRow, about: ChunkKeys, publisher: Publisher,
    keys: list[InputKey], lease: SlotLease,
) -> Outcome:  # fmt: skip
    manifest = row.read_manifest()
    phase = manifest.phases[about.phase]

    def fetch(asset: str, place: Path) -> None:
        resources.fetch_for_job(about.account, about.job, asset, place)

    done = publisher.progress.done
    try:
        with resources.tasks.workspaces.borrow((about.job, about.phase), phase, fetch, lambda: ctx.stop) as workspace:
            if workspace is None:
                return Wait(0.5, "no memory or disk is free for its sandbox")
            runner = PhaseRunner(
                resources, about.job, about.account, manifest, about.phase, workspace, lease, publisher
            )
            is_over = _run_keys(ctx, resources, about, publisher, keys, runner, lease)
    except InitFailed as failure:
        return _fail_keys(about, publisher, keys[publisher.progress.done - done :], str(failure))
    if lease.is_cancelled:
        left = keys[publisher.progress.done - done :]
        return _give_up(about, publisher, left)
    ctx.check()
    return Done() if is_over else Wait(0)


def _run_keys(
    ctx: StepContext, resources: ComputeResources, about: ChunkKeys, publisher: Publisher, keys: list[InputKey],
    runner: PhaseRunner, lease: SlotLease,
) -> bool:  # fmt: skip
    """Whether the chunk is over. What a command was doing when its worker had to stop is done again."""
    began = published = time.monotonic()
    first = done = publisher.progress.done
    for key in keys:
        if done >= _end_of(about, publisher.progress):
            break
        try:
            line = runner.run_map(key, make_task_id(about.object, about.first + done))
        except StepStopped:
            break
        consumed = key.key if about.phase > 0 and line.error is None else ""
        publisher.add_line(line, consumed)
        done += 1
        now = time.monotonic()
        if now - published >= PUBLISH_INTERVAL or publisher.size >= MAX_PACK:
            publisher.publish(done)
            published = now
            _divide(ctx, resources, about, publisher, done)
            resources.halt_if_wanted(about.job)
        if lease.stop.is_set() or now - began >= SLICE:
            break
    publisher.publish(done)
    resources.halt_if_wanted(about.job)
    return done - first >= len(keys) or done >= _end_of(about, publisher.progress)


def _divide(ctx: StepContext, resources: ComputeResources, about: ChunkKeys, publisher: Publisher, done: int) -> None:
    """Give half of what is left to a slot that is idle: in one commit this chunk ends earlier and another begins there."""
    end = _end_of(about, publisher.progress)
    left = end - done
    if left < 2 or ctx.record.parent is None or not resources.tasks.slots.is_idle_slot():
        return
    middle = end - left // 2
    other = replace(about, first=about.first + middle, count=end - middle)
    publisher.progress = replace(publisher.progress, count=middle)
    ctx.spawn([New(CHUNK.name, (other,), parent=ctx.record.parent)], (publisher.progress,))


def _fail_keys(about: ChunkKeys, publisher: Publisher, keys: list[InputKey], problem: str) -> Outcome:
    """The workspace cannot be had, by the fault of the job: no task of the chunk can run."""
    done = publisher.progress.done
    for number, key in enumerate(keys):
        task = make_task_id(about.object, about.first + done + number)
        error = TaskError(describe_map(about.phase, key), "TaskInitError", problem)
        publisher.add_line(TaskLine(task, about.phase, key.key, key.p0, error=error, start=time.time()))
    publisher.publish(done + len(keys))
    return Done()
