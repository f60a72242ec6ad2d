"""MOVE_START: the quota of the other storage is reserved, and a batch is opened on each of the two."""

from __future__ import annotations

from waybill.apps.archive.machine import MoveCharge, MoveRequest, Progress
from waybill.apps.archive.service.quotas import quota_ref
from waybill.apps.archive.stages import Stage, run_stage
from waybill.errors import ActionRefused
from waybill.record import Record
from waybill.step import Act, Done, Fail, Outcome, StepContext


def run_step(record: Record, ctx: StepContext) -> Outcome:
    return run_stage(ctx, _move_start)


def _move_start(stage: Stage) -> Outcome:
    asked, workspace = stage.record.document(MoveRequest), stage.migration.workspace
    if stage.record.find_document(MoveCharge) is None:
        with stage.open_tables() as tables:
            _, size, _ = tables.sum_archives(stage.migration.number)
        limit = stage.resources.get_limit(workspace, asked.to_storage)
        reserve = Act(quota_ref(workspace, asked.to_storage), "reserve", {"bytes": size, "limit": limit})
        try:
            stage.ctx.save((MoveCharge(size),), acts=(reserve,))  # one commit: a second run finds the charge
        except ActionRefused as refused:
            raise Fail(str(refused)) from None
    # Safe to repeat: the same token opens the same batch.
    source = stage.storage.open_batch("get", stage.migration.container, stage.batch_token("move-from"))
    batch = stage.resources.open_storage(asked.to_storage).open_batch(
        "put", asked.container, stage.batch_token("move-to")
    )
    return Done((Progress(batch=batch, source=source),))
