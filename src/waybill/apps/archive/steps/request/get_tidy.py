"""GET_TIDY: the batch on the storage is ended; those who wanted it are told. A GET that was cancelled ends here too."""

from __future__ import annotations

from waybill.apps.archive.machine import Cancelled, Progress
from waybill.apps.archive.notices import make_completion_mail
from waybill.apps.archive.stages import Stage, report_of, run_stage
from waybill.record import Record
from waybill.step import Done, Outcome, StepContext


def run_step(record: Record, ctx: StepContext) -> Outcome:
    return run_stage(ctx, _get_tidy)


def _get_tidy(stage: Stage) -> Outcome:
    if (batch := stage.progress.batch) is not None:
        stage.storage.end_batch(batch)  # safe to repeat: what is ended is ended
    if (cancelled := stage.record.find_document(Cancelled)) is not None:
        return Done(
            to="STOPPED", remove=(Progress,), message=f"Cancelled: {cancelled.why}" if cancelled.why else "Cancelled."
        )
    report = report_of(stage)
    return Done(
        remove=(Progress,),
        spawn=make_completion_mail(stage.record, report, at=stage.ctx.now()),
        message=f"{report.restored} files restored"
        + (f", {report.dropped} without their owner or special bits" if report.dropped else ""),
    )
