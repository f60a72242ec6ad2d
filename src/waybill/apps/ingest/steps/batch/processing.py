"""Processing: reads the payload of a batch, creates its jobs, and waits until all of them have settled."""

from __future__ import annotations

import msgspec

from waybill.apps.ingest.batch_jobs import has_jobs_to_make, make_jobs, no_more_jobs_document, order_rows, save_plan
from waybill.apps.ingest.documents import BatchJobs, BatchPlan
from waybill.apps.ingest.formats.checkm import BadManifest
from waybill.apps.ingest.merritt.unfinished_batches import POLL_SECONDS, JobComparison, await_foreign_jobs, plan_of
from waybill.apps.ingest.resources import resources_of
from waybill.apps.ingest.submission import Submission
from waybill.record import Record, StoreUnavailable
from waybill.step import Done, Fail, Outcome, StepContext, Wait


def run_step(batch: Record, ctx: StepContext) -> Outcome:
    if has_jobs_to_make(batch):
        result = make_jobs(batch, ctx)
        return (
            result if isinstance(result, Wait) else Done((result, no_more_jobs_document(batch)), message=result.reason)
        )
    return Done() if batch.find_document(BatchJobs) is not None else _await_foreign_jobs(batch, ctx)


def _await_foreign_jobs(batch: Record, ctx: StepContext) -> Outcome:
    """Another service creates the jobs: wait for it, and create those that it has left out."""
    comparison = await_foreign_jobs(batch, ctx)
    if isinstance(comparison, Wait):
        return comparison
    if comparison.is_complete:
        return Done((BatchPlan(compared=comparison.job_count),))
    return _take_over_jobs(batch, ctx, comparison) or Done((msgspec.structs.replace(plan_of(batch), unsaid=True),))


def _take_over_jobs(batch: Record, ctx: StepContext, comparison: JobComparison) -> Wait | None:
    """Create the jobs that no other service creates any more, if it is certain which they are: no row gets two jobs."""
    submission = Submission.from_batch(batch)
    if not comparison.job_count and submission.url:
        message = "The service that took it has created no job: Waybill creates them."
        return Wait(0, message, (BatchJobs(),), remove=(BatchPlan,))
    if not comparison.is_interrupted or comparison.kind is None:
        return None
    try:
        rows, remarks = order_rows(
            ctx, comparison.rows, submission.owner or resources_of(ctx).get_profile(ctx, submission).owner, []
        )
        rows_left = [
            msgspec.structs.replace(
                row, follows=tuple(line for line in row.follows if line >= comparison.rows_without_job[0].line)
            )
            for row in rows[comparison.job_count :]
        ]
        plan = save_plan(batch, ctx, submission, comparison.kind, rows_left, remarks)
    except StoreUnavailable as error:
        return Wait(POLL_SECONDS, f"The owners of its local ids cannot be looked up now: {error}")
    except (Fail, BadManifest):  # then the report names the rows without a job
        return None
    message = f"The service that took it has created {comparison.job_count} of its {len(rows)} jobs: Waybill creates the others."
    return Wait(0, message, (BatchJobs(), msgspec.structs.replace(plan, foreign_jobs=comparison.job_count)))
