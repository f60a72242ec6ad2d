"""Batches whose jobs another service creates: are all jobs there, by the rows of the payload?

A service that takes a batch locks it, creates its jobs one by one in the order of the rows, then moves it to Reporting
and unlocks it. While it is alive the batch cannot be claimed here; a batch that is claimed here was finished by the
service, or abandoned. One that lacks jobs is polled for a while, since the service may have lost only its lock. Then

    the first rows have jobs, the last have none, and it is not in Reporting     the last jobs are created here (batch_jobs.py)
    other rows have no job                                                       the report fails the batch and names the rows
    the payload cannot be read here                                              its jobs count as all; unless the service has confirmed
                                                                                 them, the report says that they were not compared
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence

import msgspec

from waybill.apps.ingest.documents import BatchFailure, BatchPlan
from waybill.apps.ingest.formats.checkm import BadManifest, ManifestRow
from waybill.apps.ingest.job_refusal import SubmissionRefused
from waybill.apps.ingest.payload_contents import read_batch_payload
from waybill.apps.ingest.resources import resources_of
from waybill.apps.ingest.submission import PayloadType, Submission
from waybill.files import names
from waybill.record import Record
from waybill.step import StepContext, Wait
from waybill.transfer import TransferError

PATIENCE_SECONDS = 600.0  # seconds without a new job after which the wait ends
POLL_SECONDS = 5.0
PAGE_SIZE = 500  # jobs read at once
MAX_NAMED_ROWS = 10  # rows named in a message
MAX_REASONS = 100  # reasons listed in the document


class JobComparison(msgspec.Struct, frozen=True, kw_only=True):
    """The jobs of a batch compared with the rows of its payload."""

    job_count: int
    kind: PayloadType | None = None
    rows: Sequence[ManifestRow] = ()
    rows_without_job: Sequence[ManifestRow] = ()
    unmatched_jobs: int = 0  # jobs without a known row: each may belong to a row without a job
    obstacle: str = ""  # why they cannot be compared

    @property
    def missing_count(self) -> int:
        return max(0, len(self.rows_without_job) - self.unmatched_jobs)

    @property
    def is_complete(self) -> bool:
        return bool(self.job_count) and not self.missing_count and not self.obstacle

    @property
    def is_interrupted(self) -> bool:
        """Whether the first rows have one job each and the last have none, as after a crash of the service."""
        return (
            bool(self.rows_without_job)
            and not self.unmatched_jobs
            and list(self.rows_without_job) == list(self.rows[self.job_count :])
        )


def await_foreign_jobs(batch: Record, ctx: StepContext) -> Wait | JobComparison:
    """Return the comparison once it is complete, or when no job was added for a while."""
    jobs = sum(ctx.count_by_state("job", parent=batch.ref).values())
    plan, since = plan_of(batch), plan_of(batch).waiting_since
    is_unchanged = since is not None and plan.jobs == jobs
    if is_unchanged and since is not None and not _was_complete(batch, jobs) and ctx.now() - since < PATIENCE_SECONDS:
        return Wait(POLL_SECONDS, batch.message)
    comparison = compare_jobs(batch, ctx, jobs)
    if comparison.is_complete or is_unchanged or (comparison.obstacle and comparison.job_count):
        return comparison
    return Wait(POLL_SECONDS, _describe_wait(comparison), (BatchPlan(waiting_since=ctx.now(), jobs=jobs),))


def plan_of(batch: Record) -> BatchPlan:
    return batch.find_document(BatchPlan) or BatchPlan()


def compare_jobs(batch: Record, ctx: StepContext, jobs: int) -> JobComparison:
    """Compare the jobs of a batch with the rows of its payload."""
    deposit = Submission.from_batch(batch)
    if not jobs or _was_complete(batch, jobs) or not (deposit.url or (deposit.type and deposit.type.is_batch)):
        return JobComparison(job_count=jobs)  # a payload without a list is one object with one job
    if not deposit.url:
        return JobComparison(job_count=jobs, obstacle="its submission does not say where its manifest is")
    try:
        kind, manifest = read_batch_payload(ctx, deposit)
    except (SubmissionRefused, BadManifest) as error:
        return JobComparison(job_count=jobs, obstacle=f"its manifest cannot be read: {error}".rstrip("."))
    except TransferError as error:
        if batch.error_count + 1 < 2 * resources_of(ctx).settings.fetch.max_tries:
            raise  # retried with the back-off of the state
        return JobComparison(job_count=jobs, obstacle=f"its manifest cannot be read: {error}".rstrip("."))
    return (
        _match_jobs(manifest.rows, _read_submissions(batch, ctx), kind)
        if manifest is not None
        else JobComparison(job_count=jobs)
    )


def _was_complete(batch: Record, jobs: int) -> bool:
    """Whether all jobs existed once: jobs that are missing now were deleted and removed by other services."""
    return 0 < jobs <= plan_of(batch).compared


def _match_jobs(rows: Sequence[ManifestRow], jobs: Iterator[Submission], kind: PayloadType) -> JobComparison:
    """A job belongs to a row by the URL of its payload; without a URL, by the file name."""
    urls, files = {row.url for row in rows}, {row.name for row in rows}
    by_url, by_file = Counter[str](), Counter[str]()
    count = unmatched = 0
    for each in jobs:
        count += 1
        if each.url in urls:
            by_url[each.url] += 1
        elif not each.url and each.filename in files:
            by_file[each.filename] += 1
        else:
            unmatched += 1
    without_job = []
    for row in rows:
        if by_url[row.url]:
            by_url[row.url] -= 1
        elif by_file[row.name]:
            by_file[row.name] -= 1
        else:
            without_job.append(row)
    return JobComparison(job_count=count, kind=kind, rows=rows, rows_without_job=without_job, unmatched_jobs=unmatched)


def _read_submissions(batch: Record, ctx: StepContext) -> Iterator[Submission]:
    after: int | None = None
    while True:
        page = ctx.find("job", parent=batch.ref, after=after, limit=PAGE_SIZE, documents=True)
        yield from (Submission.from_job(job) for job in page.records)
        if page.after is None:
            return
        after = page.after


def _describe_wait(comparison: JobComparison) -> str:
    if not comparison.job_count:
        return "It waits for its first job from the service that created it."
    return f"It waits for {comparison.missing_count} of its {len(comparison.rows)} jobs from the service that took it."


def missing_jobs_failure(comparison: JobComparison) -> BatchFailure | None:
    """Return the document `failure` of a batch that lacks jobs; None if it lacks none."""
    if comparison.missing_count:
        first = ", ".join(names.quote_text(row.name) for row in comparison.rows_without_job[:MAX_NAMED_ROWS])
        more = (
            f" and {len(comparison.rows_without_job) - MAX_NAMED_ROWS} more"
            if len(comparison.rows_without_job) > MAX_NAMED_ROWS
            else ""
        )
        among = " They are among" if comparison.unmatched_jobs else " They are"
        advice = " Submit them again as a new batch."
        reason = f"{comparison.missing_count} of its {len(comparison.rows)} objects have no job.{among} {first}{more}.{advice}"
        return make_failure(
            reason,
            [
                f"Line {row.line}: no job was made for {names.quote_text(row.name)}."
                for row in comparison.rows_without_job
            ],
        )
    return None


def build_remark(batch: Record, comparison: JobComparison) -> str:
    """Return the report's remark on a batch whose jobs could not be compared and were not confirmed by the service."""
    if not (comparison.obstacle and plan_of(batch).unsaid):
        return ""
    return (
        f"The service that took it made {comparison.job_count} jobs and has not confirmed that these are all, and {comparison.obstacle}. "
        "Compare them with what was to be ingested, and submit what is missing."
    )


def make_failure(reason: str, reasons: Sequence[str] = ()) -> BatchFailure:
    """Return the reason, the first single reasons, and their number."""
    all_reasons = list(reasons) or [reason]
    return BatchFailure(reason, tuple(each[:500] for each in all_reasons[:MAX_REASONS]), len(all_reasons))
