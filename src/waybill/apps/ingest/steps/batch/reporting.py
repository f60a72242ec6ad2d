"""Reporting: when every job of a batch has settled, the depositor gets a report."""

from __future__ import annotations

from typing import Any

from waybill.apps.ingest.batch_jobs import has_jobs_to_make, make_jobs, no_jobs_documents
from waybill.apps.ingest.merritt.unfinished_batches import await_foreign_jobs, build_remark
from waybill.apps.ingest.report_writer import missing_jobs_documents, write_next_report, write_report
from waybill.record import Record
from waybill.step import Outcome, StepContext, Wait


def run_step(batch: Record, ctx: StepContext) -> Outcome:
    documents: dict[str, Any] = {}
    note = ""
    if has_jobs_to_make(batch):  # another service moved it here while its jobs were being created
        result = make_jobs(batch, ctx)
        if isinstance(result, Wait):
            return result
        documents = no_jobs_documents(batch, result)
    elif "spawned" not in batch.documents:
        comparison = await_foreign_jobs(batch, ctx)
        if isinstance(comparison, Wait):
            return comparison
        documents, note = missing_jobs_documents(batch, comparison), build_remark(batch, comparison)
    # Another service may have started a batch again after its report: the second report says what has changed since.
    is_next = isinstance(batch.documents.get("status-report"), dict)
    return (
        write_next_report(batch, ctx, documents, note)
        if is_next
        else write_report(batch, ctx, documents, 1, None, note)
    )
