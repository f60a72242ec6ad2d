"""Pending: prepares a batch for its jobs. Nothing is fetched here; whatever is large about a batch comes later."""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

from waybill.apps.ingest.documents import BatchFailure, BatchJobs, BatchPlan
from waybill.apps.ingest.merritt.foreign_records import find_collections, wait_on_hold
from waybill.apps.ingest.resources import resources_of
from waybill.apps.ingest.submission import Submission
from waybill.record import Record
from waybill.step import Done, Outcome, StepContext, Wait

FOREIGN_BATCH_WAIT = 300.0  # seconds between two looks at a batch that another service is to process


def run_step(batch: Record, ctx: StepContext) -> Outcome:
    collections = find_collections(batch, ctx)
    if (wait := wait_on_hold(collections, ctx)) is not None:
        return wait
    created = batch.find_document(BatchJobs)
    if created is None:
        submission, has_jobs = Submission.from_batch(batch), bool(ctx.count_by_state("job", parent=batch.ref))
        if not has_jobs and _is_left_to_others(submission, batch, ctx):
            # Untouched: their consumer looks for batches without the node `states`, which only leaving Pending makes.
            return Wait(FOREIGN_BATCH_WAIT)
        if not submission.url or has_jobs:
            return _reset(batch, collections, message="The service that created it creates its jobs.")
        return _reset(batch, (BatchJobs(), *collections))
    # another service has started it again; a batch that failed creates the jobs that it lacks, and none twice
    restarted = (BatchJobs(created.count),) if batch.find_document(BatchFailure) is not None else ()
    return _reset(batch, (*restarted, *collections))


def _is_left_to_others(submission: Submission, batch: Record, ctx: StepContext) -> bool:
    """Whether another service submitted the batch, and Waybill does not process it: the settings say so, or its payload is not
    named, so that it could only wait for the jobs of that service.
    """
    settings = resources_of(ctx).settings
    # An empty submission, or one that cannot be read, is nobody's to process: the report says so.
    is_new = (
        bool(batch.documents.get("submission"))
        and not submission.is_profile_checked
        and batch.find_document(BatchFailure) is None
    )
    return is_new and (not submission.url or not settings.takes_batches_of_others) and resources_of(ctx).is_tree_shared


def _reset(batch: Record, documents: Sequence[msgspec.Struct], message: str = "") -> Done:
    """Done; of a batch that failed and starts again, the failure is removed, and, if it has no jobs, the plan: the
    payload is read again, or the first job awaited again.
    """
    has_failed, created = batch.find_document(BatchFailure) is not None, batch.find_document(BatchJobs)
    is_planned_again = has_failed and (created is None or not created.count)
    return Done(documents, message=message, remove=(BatchFailure, BatchPlan) if is_planned_again else (BatchFailure,))
