"""DELETE_PENDING: a delete batch is opened on the storage, if the migration ever got as far as the storage."""

from __future__ import annotations

from waybill.apps.archive.machine import Progress
from waybill.apps.archive.stages import Stage, run_stage
from waybill.record import Record
from waybill.step import Done, Outcome, StepContext


def run_step(record: Record, ctx: StepContext) -> Outcome:
    return run_stage(ctx, _delete_pending)


def _delete_pending(stage: Stage) -> Outcome:
    if not stage.files.archives:
        return Done(to="DELETE_TIDY", message="Nothing of it was sent.")
    # Safe to repeat: the same token opens the same batch.
    batch = stage.storage.open_batch("delete", stage.migration.container, stage.batch_token("delete"))
    return Done((Progress(batch=batch),))
