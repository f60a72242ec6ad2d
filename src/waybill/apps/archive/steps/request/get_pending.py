"""GET_PENDING: a download batch is opened on the storage. The same token opens the same batch again."""

from __future__ import annotations

from waybill.apps.archive.machine import Progress
from waybill.apps.archive.stages import Stage, run_stage
from waybill.record import Record
from waybill.step import Done, Outcome, StepContext


def run_step(record: Record, ctx: StepContext) -> Outcome:
    return run_stage(ctx, _get_pending)


def _get_pending(stage: Stage) -> Outcome:
    batch = stage.storage.open_batch("get", stage.migration.container, stage.batch_token("get"))
    return Done((Progress(batch=batch),))
