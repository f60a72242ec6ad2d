"""Reporting: when every job of a batch has settled, the depositor gets a report."""

from __future__ import annotations

from waybill.apps.ingest.batch_jobs import has_jobs_to_make, make_jobs, no_more_jobs_document
from waybill.apps.ingest.documents import BatchFailure, BatchJobs
from waybill.apps.ingest.merritt.unfinished_batches import await_foreign_jobs
from waybill.apps.ingest.report_writer import write_compared_report, write_report
from waybill.record import Record
from waybill.step import Outcome, StepContext, Wait


def run_step(batch: Record, ctx: StepContext) -> Outcome:
    if has_jobs_to_make(batch):  # another service moved it here while its jobs were being created
        result = make_jobs(batch, ctx)
        return result if isinstance(result, Wait) else write_report(batch, ctx, result, (no_more_jobs_document(batch),))
    if batch.find_document(BatchJobs) is None:
        comparison = await_foreign_jobs(batch, ctx)
        return comparison if isinstance(comparison, Wait) else write_compared_report(batch, ctx, comparison)
    return write_report(batch, ctx, batch.find_document(BatchFailure))
