"""MOVING: archive after archive is copied from one storage to the other, checked on its way.

asked for -> polled -> copied, with `last_archive` saved -> the put is closed -> (another run) -> polled -> done
"""

from __future__ import annotations

from msgspec.structs import replace

from waybill.apps.archive.machine import MoveRequest, Progress
from waybill.apps.archive.moving import StoredSource, open_copy_source
from waybill.apps.archive.packed_archives import remove_staged
from waybill.apps.archive.reading import poll_batch, request_archives
from waybill.apps.archive.stages import Stage, WatchedSource, run_stage
from waybill.apps.archive.storages import ExternalStorageDamaged, UploadCheckpoint
from waybill.record import Record
from waybill.step import Done, Fail, Outcome, StepContext, Wait


def run_step(record: Record, ctx: StepContext) -> Outcome:
    return run_stage(ctx, _moving)


def _moving(stage: Stage) -> Outcome:
    progress = stage.progress
    if progress.batch is None or progress.source is None:
        raise Fail("The move has no batches on its storages; resume the request.")
    target = stage.resources.open_storage(stage.record.document(MoveRequest).to_storage)
    if not progress.is_asked:
        with stage.open_tables() as tables:
            request_archives(stage, stage.storage, progress.source, tables.iter_archives(stage.migration.number, -1))
        return Wait(0, "All archives are asked for.", documents=(replace(progress, is_asked=True, last_archive=-1),))
    if not progress.is_closed:
        return poll_batch(stage, stage.storage, progress.source) or _copy(stage, progress)
    status = target.poll(progress.batch)
    if status.failures:
        raise Fail(f"{target.name} could not store {status.failures[0][0]}: {status.failures[0][1]}")
    if not status.is_done:
        return stage.wait_for_storage(f"{target.name} has not stored {status.waiting or 'all'} archives yet.")
    target.end_batch(progress.batch)
    stage.storage.end_batch(progress.source)
    remove_staged(stage)
    return Done(remove=(Progress,))


def _copy(stage: Stage, progress: Progress) -> Outcome:
    batch, source_batch = progress.batch, progress.source
    assert batch is not None
    assert source_batch is not None
    target, done = stage.resources.open_storage(stage.record.document(MoveRequest).to_storage), 0
    with stage.open_tables() as tables:
        for row in tables.iter_archives(stage.migration.number, -1):
            if row.number > progress.last_archive:
                source = open_copy_source(stage, StoredSource(stage.storage, source_batch, row), target)

                def save(checkpoint: UploadCheckpoint, before: Progress = progress) -> None:
                    stage.save_progress(replace(before, upload=checkpoint))

                watched = WatchedSource(source, stage, done, stage.files.bytes)
                # Safe to repeat: a put replaces what it has left before, or goes on after its last part.
                stored = target.put(batch, row.name, watched, resume=progress.upload, save=save)
                if (stored.size, stored.sha256) != (row.size, row.sha256):
                    raise ExternalStorageDamaged(
                        f"{target.name} says that it stored something else than was sent of {row.name}."
                    )
                progress = replace(progress, last_archive=row.number, upload=None)
                stage.save_progress(progress)
            done += row.size
    target.close_batch(batch)
    return Wait(0, "All archives are copied.", documents=(replace(progress, is_closed=True),))
