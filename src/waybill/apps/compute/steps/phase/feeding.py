"""Feeding: a map phase makes chunks of the keys in its log, as many as its slots can use soon; a reduce phase makes its
reducers at once. When nothing more can come and all are settled, the log of the next phase ends.
"""

from __future__ import annotations

from collections.abc import Iterator

from msgspec.structs import replace

from waybill.apps.compute.machine import CHUNK, REDUCER, ChunkKeys, FeedPosition, PhaseDocument, ReducerDocument
from waybill.apps.compute.resources import ComputeResources, resources_of
from waybill.apps.compute.task_lines import InputKey, encode_lines, iter_lines, iter_tasks, read_client_key
from waybill.record import Record
from waybill.step import Done, New, Outcome, StepContext, Wait

MAX_CHUNK = 500  # keys
MIN_REMOTE_CHUNK = 100  # keys of a chunk whose tasks run in a cluster
OPEN_CHUNKS = 16  # not settled at a time, beside two for each slot
POLL = 0.5  # seconds between two looks at a log from which nothing was heard


def run_step(phase: Record, ctx: StepContext) -> Outcome:
    about, resources = phase.document(PhaseDocument), resources_of(ctx)
    position = phase.find_document(FeedPosition) or FeedPosition()
    if position.whole:
        resources.end_log(about.job, about.number + 1)
        resources.wake_phase(ctx, about.job, about.number + 1)
        return Done(message=f"{position.keys} keys")
    if about.is_reduce:
        children = [
            New(
                REDUCER.name,
                (ReducerDocument(about.job, about.number, phase.owner, number, about.count),),
                id=f"{phase.id}.{number}",
            )
            for number in range(about.count)
        ]
        # All or none of them: their names are their own, so a second run cannot make a second set.
        for start in range(0, len(children), 200):
            ctx.spawn(children[start : start + 200], (FeedPosition(keys=start),))
        return Wait(0, documents=(FeedPosition(keys=about.count, whole=True),))
    return _feed(phase, ctx, about, resources, position)


def _feed(
    phase: Record, ctx: StepContext, about: PhaseDocument, resources: ComputeResources, position: FeedPosition
) -> Outcome:
    slots = resources.map_slots
    while True:
        ctx.check()
        is_over = resources.is_log_ended(about.job, about.number)  # before its keys are read: then those are all
        if resources.is_cancelled(about.job):
            return Wait(0, documents=(replace(position, whole=True),))
        open_chunks = ctx.count_by_state(CHUNK.name, parent=phase.ref).get("Ready", 0)
        if open_chunks >= 2 * slots + OPEN_CHUNKS:
            return Wait(POLL)
        keys, position = _read_keys(resources, about, position, MAX_CHUNK * 8)
        if not keys:
            if is_over:
                return Wait(0, documents=(replace(position, whole=True),))
            return Wait(POLL)
        # All slots get work; what turns out to be slow is divided again while it runs. A cluster divides by itself.
        smallest = MIN_REMOTE_CHUNK if resources.settings.dask else 1
        size = max(smallest, min(MAX_CHUNK, -(-len(keys) // (2 * slots))))
        position = _spawn_chunks(phase, ctx, about, resources, keys, size, position)


def _spawn_chunks(
    phase: Record,
    ctx: StepContext,
    about: PhaseDocument,
    resources: ComputeResources,
    keys: list[InputKey],
    size: int,
    position: FeedPosition,
) -> FeedPosition:
    """Write the keys as one object, then create their chunks together with the position behind them. The object's name
    holds the claim: a run that lost it overwrites nothing.
    """
    first = position.keys - len(keys)
    name = f"{resources.job_prefix(about.job)}/{about.number}/keys-{first}-{ctx.claim_version}"
    ctx.objects.put(name, encode_lines(keys))
    chunks = [
        New(CHUNK.name, (ChunkKeys(about.job, about.number, phase.owner, name, at, min(size, len(keys) - at)),))
        for at in range(0, len(keys), size)
    ]
    ctx.spawn(chunks, (position,))
    return position


def _read_keys(
    resources: ComputeResources, about: PhaseDocument, position: FeedPosition, limit: int
) -> tuple[list[InputKey], FeedPosition]:
    """The next keys of the log, and the position behind them."""
    keys: list[InputKey] = []
    segment_number, byte = position.segment, position.byte
    for segment in resources.list_segments(about.job, about.number, position.segment):
        segment_number = segment.number
        if about.number == 0:
            for line in iter_lines(resources.objects, segment.object, byte):
                byte += len(line)
                if key := read_client_key(line):
                    keys.append(InputKey(key, key, -1, position.keys + len(keys)))
                    if len(keys) >= limit:
                        return keys, FeedPosition(segment_number, byte, position.keys + len(keys))
        else:
            keys += _iter_outputs(resources, segment.object)  # a part has some hundred lines
        segment_number, byte = segment.number + 1, 0
        if len(keys) >= limit:
            break
    return keys, FeedPosition(segment_number, byte, position.keys + len(keys))


def _iter_outputs(resources: ComputeResources, part: str) -> Iterator[InputKey]:
    for task in iter_tasks(resources.objects, part):
        for output in task.outputs:
            yield InputKey(output.key, task.p0, output.reducer, task.order)
