"""Pending: the files of a job are listed, and compared with what was promised, before anything large is fetched."""

from __future__ import annotations

from waybill.apps.ingest.documents import Refusal
from waybill.apps.ingest.job_refusal import SubmissionRefused, save_refusal
from waybill.apps.ingest.merritt.foreign_records import find_collections, find_owner, wait_on_hold
from waybill.apps.ingest.payload_contents import list_files
from waybill.apps.ingest.submission import NO_TARGET_MESSAGE, Submission
from waybill.record import Record
from waybill.step import Done, Outcome, StepContext


def run_step(job: Record, ctx: StepContext) -> Outcome:
    collections = find_collections(job, ctx)
    if (wait := wait_on_hold(collections, ctx)) is not None:
        return wait
    try:
        submission = Submission.from_job(job)
        # a row of a batch, or a payload whose type was unknown; for jobs of other services an ARK is minted
        if submission.is_profile_checked and submission.is_update_without_target:
            raise SubmissionRefused(NO_TARGET_MESSAGE)
        return Done((list_files(job, ctx), *collections, *find_owner(job, ctx)), remove=(Refusal,))
    except SubmissionRefused as error:
        raise save_refusal(ctx, error) from None
