"""PUT_PENDING: an upload batch is opened on the storage. The same token opens the same batch again."""

from __future__ import annotations

from waybill.apps.archive.machine import Progress
from waybill.apps.archive.stages import Stage, run_stage
from waybill.record import Record
from waybill.step import Done, Outcome, StepContext


def run_step(record: Record, ctx: StepContext) -> Outcome:
    return run_stage(ctx, _put_pending)


def _put_pending(stage: Stage) -> Outcome:
    batch = stage.storage.open_batch("put", stage.migration.container, stage.batch_token("put"))
    return Done((Progress(batch=batch),))
