"""VERIFY_PENDING: a download batch is opened, through which everything is read back."""

from __future__ import annotations

from waybill.apps.archive.machine import Progress
from waybill.apps.archive.stages import Stage, run_stage
from waybill.record import Record
from waybill.step import Done, Outcome, StepContext


def run_step(record: Record, ctx: StepContext) -> Outcome:
    return run_stage(ctx, _verify_pending)


def _verify_pending(stage: Stage) -> Outcome:
    # Safe to repeat: the same token opens the same batch.
    batch = stage.storage.open_batch("get", stage.migration.container, stage.batch_token("verify"))
    return Done((Progress(batch=batch),))
