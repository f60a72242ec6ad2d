"""DELETE_START: waits until the grace ends. It owns the lock of its migration, so nothing else of that is at work."""

from __future__ import annotations

from waybill.apps.archive.machine import DeleteRequest
from waybill.apps.archive.stages import Stage, run_stage
from waybill.record import Record
from waybill.step import Done, Outcome, StepContext, Wait


def run_step(record: Record, ctx: StepContext) -> Outcome:
    return run_stage(ctx, _delete_start)


def _delete_start(stage: Stage) -> Outcome:
    left = stage.record.document(DeleteRequest).not_before - stage.ctx.now()
    if left > 0:
        return Wait(left, "The grace has not ended; `waybill archive undelete` keeps the migration.")
    return Done()
