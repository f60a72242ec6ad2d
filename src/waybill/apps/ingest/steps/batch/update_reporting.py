"""UpdateReporting: after repairs, the depositor gets a report of what has changed since the last one."""

from __future__ import annotations

from waybill.apps.ingest.merritt.unfinished_batches import build_remark, compare_jobs
from waybill.apps.ingest.report_writer import missing_jobs_documents, write_next_report
from waybill.record import Record
from waybill.step import Outcome, StepContext


def run_step(batch: Record, ctx: StepContext) -> Outcome:
    if "spawned" in batch.documents:
        return write_next_report(batch, ctx, {})
    comparison = compare_jobs(batch, ctx, sum(ctx.count_by_state("job", parent=batch.ref).values()))
    return write_next_report(batch, ctx, missing_jobs_documents(batch, comparison), build_remark(batch, comparison))
