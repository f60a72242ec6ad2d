"""DELETING: archive after archive is deleted on the storage, then the batch is closed and polled.

Archives are taken from the storage's own list, so what an interrupted PUT has left goes too. Deleting what is gone is done
already, so a run that was killed begins again.
"""

from __future__ import annotations

from msgspec.structs import replace

from waybill.apps.archive.machine import Progress
from waybill.apps.archive.stages import Stage, run_stage
from waybill.record import Record
from waybill.step import Done, Fail, Outcome, StepContext, Wait


def run_step(record: Record, ctx: StepContext) -> Outcome:
    return run_stage(ctx, _deleting)


def _deleting(stage: Stage) -> Outcome:
    progress, storage = stage.progress, stage.storage
    if progress.batch is None:
        raise Fail("The deletion has no batch on the storage; resume the request.")
    if not progress.is_closed:
        for count, archive in enumerate(list(storage.list_archives(stage.migration.container)), start=1):
            stage.ctx.check()
            storage.delete(progress.batch, archive.name)
            stage.ctx.report_progress(count, stage.files.archives + 1, "archives")
        storage.close_batch(progress.batch)
        return Wait(0, "All archives are to be deleted.", documents=(replace(progress, is_closed=True),))
    status = storage.poll(progress.batch)
    if status.failures:
        name, sentence = status.failures[0]
        raise Fail(f"The storage could not delete {name}: {sentence}")
    if not status.is_done:
        return stage.wait_for_storage(f"The storage has not deleted {status.waiting or 'all'} archives yet.")
    storage.end_batch(progress.batch)
    return Done(remove=(Progress,))
