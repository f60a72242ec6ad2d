"""UpdateReporting: after repairs, the depositor gets a report of what has changed since the last one."""

from __future__ import annotations

from waybill.apps.ingest.documents import BatchFailure, BatchJobs
from waybill.apps.ingest.merritt.unfinished_batches import compare_jobs
from waybill.apps.ingest.report_writer import write_compared_report, write_report
from waybill.record import Record
from waybill.step import Outcome, StepContext


def run_step(batch: Record, ctx: StepContext) -> Outcome:
    if batch.find_document(BatchJobs) is not None:
        return write_report(batch, ctx, batch.find_document(BatchFailure), is_update=True)
    comparison = compare_jobs(batch, ctx, sum(ctx.count_by_state("job", parent=batch.ref).values()))
    return write_compared_report(batch, ctx, comparison, is_update=True)
