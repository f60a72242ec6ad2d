"""MOVE_TIDY: the copy that is not the migration's goes: the old one after a MOVE, the new one of a MOVE that was cancelled."""

from __future__ import annotations

from waybill.apps.archive.machine import Cancelled, MoveCharge, MoveRequest, Progress
from waybill.apps.archive.moving import remove_other_copies
from waybill.apps.archive.notices import make_completion_mail
from waybill.apps.archive.packed_archives import remove_staged
from waybill.apps.archive.service.quotas import quota_ref
from waybill.apps.archive.stages import Stage, report_of, run_stage
from waybill.record import Record
from waybill.step import Act, Done, Outcome, StepContext


def run_step(record: Record, ctx: StepContext) -> Outcome:
    return run_stage(ctx, _move_tidy)


def _move_tidy(stage: Stage) -> Outcome:
    asked = stage.record.document(MoveRequest)
    remove_other_copies(stage, stage.record)
    remove_staged(stage)
    with stage.open_tables() as tables:
        tables.change_storage(stage.migration.number, stage.migration.storage)
    if (cancelled := stage.record.find_document(Cancelled)) is not None and stage.migration.storage != asked.to_storage:
        charge = stage.record.find_document(MoveCharge)
        give_back = (
            ()
            if charge is None
            else (
                Act(
                    quota_ref(stage.migration.workspace, asked.to_storage),
                    "give_back",
                    {"reserved": charge.reserved, "used": 0},
                ),
            )
        )
        return Done(
            to="STOPPED",
            remove=(Progress, MoveCharge),
            acts=give_back,
            message=f"Cancelled: {cancelled.why}" if cancelled.why else "Cancelled.",
        )
    return Done(remove=(Progress,), spawn=make_completion_mail(stage.record, report_of(stage), at=stage.ctx.now()))
