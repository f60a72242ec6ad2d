"""Pending: prepares a batch for its jobs. Nothing is fetched here; whatever is large about a batch comes later."""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

from waybill.apps.ingest.documents import BatchFailure, BatchJobs, BatchPlan
from waybill.apps.ingest.merritt.foreign_records import find_collections, wait_on_hold
from waybill.apps.ingest.submission import Submission
from waybill.record import Record
from waybill.step import Done, Outcome, StepContext


def run_step(batch: Record, ctx: StepContext) -> Outcome:
    collections = find_collections(batch, ctx)
    if (wait := wait_on_hold(collections, ctx)) is not None:
        return wait
    created = batch.find_document(BatchJobs)
    if created is None:
        if not Submission.from_batch(batch).url or ctx.count_by_state("job", parent=batch.ref):
            return _reset(batch, collections, message="The service that created it creates its jobs.")
        return _reset(batch, (BatchJobs(), *collections))
    # another service has started it again; a batch that failed creates the jobs that it lacks, and none twice
    restarted = (BatchJobs(created.count),) if batch.find_document(BatchFailure) is not None else ()
    return _reset(batch, (*restarted, *collections))


def _reset(batch: Record, documents: Sequence[msgspec.Struct], message: str = "") -> Done:
    """Done; of a batch that failed and starts again, the failure is removed, and, if it has no jobs, the plan: the
    payload is read again, or the first job awaited again.
    """
    has_failed, created = batch.find_document(BatchFailure) is not None, batch.find_document(BatchJobs)
    is_planned_again = has_failed and (created is None or not created.count)
    return Done(documents, message=message, remove=(BatchFailure, BatchPlan) if is_planned_again else (BatchFailure,))
