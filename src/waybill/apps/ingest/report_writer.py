"""Writes the report of a batch when every job of it has settled.

    write_report             counts, lists and mail of all jobs -> Completed, or Failed if a job failed or none could be created;
                             after repairs: what has changed since the last report
    write_compared_report    the same, for a batch whose jobs another service creates

Jobs are read page by page and written as they are read. The report keeps the list of all jobs beside the record, to be
compared by the next report. Mail and the event are created in the commit that ends the state, never without it.
"""

from __future__ import annotations

import tempfile
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, suppress
from typing import IO, Any

import msgspec

from waybill.apps.ingest import job_warnings
from waybill.apps.ingest.batch_report import (
    MAX_NAMED_JOBS,
    BatchFindings,
    ReportedJob,
    build_report,
    build_report_messages,
    choose_recipients,
    job_entry_of,
    reasons_of,
    summarize_findings,
)
from waybill.apps.ingest.documents import BatchFailure, BatchJobs, BatchPlan, BatchReport, JobCounts
from waybill.apps.ingest.machine.batch import BATCH
from waybill.apps.ingest.machine.job import JOB
from waybill.apps.ingest.merritt.unfinished_batches import (
    JobComparison,
    build_remark,
    make_failure,
    missing_jobs_failure,
)
from waybill.apps.ingest.profile import Profile
from waybill.apps.ingest.resources import resources_of
from waybill.apps.ingest.submission import Submission
from waybill.manifests import record_lists
from waybill.notify import MailAttachment
from waybill.objects import ObjectNotFound
from waybill.record import Record, encode_document
from waybill.record import RecordNotFound as NoRecord
from waybill.step import Done, Fail, Outcome, StepContext

PAGE_SIZE = 500  # jobs read at a time
MAX_INLINE_BYTES = 4000  # bytes of a file that is attached inside the mail record itself
MAX_MEMORY_BYTES = 1024 * 1024  # bytes of a file before it goes to disk
MAX_ID_BYTES = 200_000  # bytes of all ids in the document: a znode must stay well below a megabyte
REPORTED_STATES = {JOB.completed: "completed", JOB.failed: "failed", JOB.deleted: "deleted"}


def write_compared_report(
    batch: Record, ctx: StepContext, comparison: JobComparison, *, is_update: bool = False
) -> Outcome:
    """The report of a batch whose jobs another service creates: it says which it has not created."""
    documents = (BatchPlan(compared=comparison.job_count),) if comparison.is_complete else ()
    failure, note = missing_jobs_failure(comparison), build_remark(batch, comparison)
    return write_report(batch, ctx, failure, documents, note, is_update=is_update)


def write_report(
    batch: Record,
    ctx: StepContext,
    failure: BatchFailure | None,
    documents: Sequence[msgspec.Struct] = (),
    note: str = "",
    *,
    is_update: bool = False,
) -> Outcome:
    """`failure`: why there are no jobs, or not all. `documents`: what is written with the report. A report after another
    one, of whichever service, says what has changed since; so does one with `is_update`.
    """
    previous = batch.find_document(BatchReport)
    is_update = is_update or previous is not None
    resources, submission, now = resources_of(ctx), Submission.from_batch(batch), ctx.now()
    try:
        profile = resources.get_profile(ctx, submission)
    except Fail:  # then the report has no recipients; it is written all the same
        profile = Profile(name=submission.profile)
    with_files = any(choose_recipients(submission, profile, resources))
    findings = _collect_findings(batch, ctx, previous, is_update, with_files)
    if previous is not None:
        findings.number, findings.since = previous.report + 1, previous.last_modified
    elif is_update:
        findings.number = 2
    if not findings.counts.total and failure is None:
        failure = make_failure("No job was created for it. Submit it again.")
    findings.failure, findings.remark = failure, note
    if findings.failure and with_files:
        findings.attachments.append(MailAttachment("failure.json", text=encode_document(findings.failure).decode()))
    url = resources.api_url_of("batches", batch.id, "report")
    report = build_report(findings, now, resources.settings.notifications.max_ids, url)
    message = failure.reason if failure is not None else ". ".join(filter(None, (summarize_findings(findings), note)))
    # Safe to repeat: the mail and the event are created in this commit alone, and the key of the mail is derived from the
    # batch and the number of the report.
    mail, event = build_report_messages(batch, submission, profile, resources, findings, now)
    return Done(
        (*documents, report) if failure is None else (*documents, failure, report),
        remove=(BatchFailure,) if failure is None else (),
        to=BATCH.completed if findings.is_success else BATCH.failed,
        message=message,
        spawn=mail,
        events=(event,),
    )


# --- reading all jobs


def _collect_findings(
    batch: Record, ctx: StepContext, previous: BatchReport | None, is_update: bool, with_files: bool
) -> BatchFindings:
    with ExitStack() as stack:
        jobs_pass = _SettledJobsPass(batch, ctx, previous, is_update, with_files, stack)
        # Safe to repeat: the name is this attempt's own.
        job_list = record_lists.write_list(ctx.objects, f"{jobs_pass.object_prefix}/jobs.jsonl", jobs_pass.read_jobs())
        jobs_pass.count_removed()
        return BatchFindings(
            counts=jobs_pass.counts,
            changes=jobs_pass.changes,
            failed_ids=jobs_pass.ids[JOB.failed],
            completed_ids=jobs_pass.ids[JOB.completed],
            job_list=job_list,
            first_failures=jobs_pass.first_failures,
            first_completed=jobs_pass.first_completed,
            attachments=jobs_pass.build_attachments(),
            first_warned=jobs_pass.first_warned,
            warning_count=jobs_pass.warning_count,
        )


class _SettledJobsPass:
    """One pass over the jobs of a batch, side by side with the job list of the previous report."""

    def __init__(
        self,
        batch: Record,
        ctx: StepContext,
        previous: BatchReport | None,
        is_update: bool,
        with_files: bool,
        stack: ExitStack,
    ) -> None:
        self._batch, self._ctx, self._stack = batch, ctx, stack
        self._update = is_update
        self._with_files = (
            with_files  # files are attached for a recipient; otherwise the documents of jobs are not read
        )
        self.object_prefix = f"ingest/reports/{batch.id}/{ctx.claim_version}"
        self.counts, self.changes = JobCounts(), JobCounts()
        self.ids: dict[str, list[str]] = {JOB.completed: [], JOB.failed: []}
        self.first_failures: list[dict[str, Any]] = []
        self.first_completed: list[dict[str, Any]] = []
        self.first_warned: list[dict[str, Any]] = []
        self.warning_count = 0
        self._id_bytes = 0
        self._files: dict[str, _ReportFile] = {}
        self._known: Iterator[ReportedJob] = (
            record_lists.read_list(ctx.objects, previous.jobs, ReportedJob)
            if previous is not None and previous.jobs is not None
            else iter(())
        )
        try:
            self._next = next(self._known, None)
        except ObjectNotFound:  # then every job counts as changed
            self._known, self._next = iter(()), None

    def read_jobs(self) -> Iterator[ReportedJob]:
        """Yields every job in the order of creation, and counts and writes each on the way."""
        after: int | None = None
        while True:
            page = self._ctx.find(
                "job", parent=self._batch.ref, after=after, limit=PAGE_SIZE, documents=self._with_files
            )
            for job in page.records:
                # a failed job has reasons in its documents; of the completed, only those with a message can have warnings
                read = self._read_with_documents(job) if job.state == JOB.failed or job.message else job
                self._count_job(read)
                yield ReportedJob.from_record(read)
            if page.after is None:
                break
            after = page.after
        while self._next is not None:
            self._count_gone(self._next)

    def _read_with_documents(self, job: Record) -> Record:
        """The job with its documents, which hold the reasons."""
        if self._with_files:
            return job
        with suppress(NoRecord):  # it is being removed: then it is reported as it was read
            return self._ctx.get("job", job.id)
        return job

    def count_removed(self) -> None:
        """Count jobs that were created and no longer exist as deleted: other services remove a deleted job at once."""
        created = self._batch.find_document(BatchJobs)
        self.counts.deleted += max(0, created.jobs - self.counts.total) if created is not None else 0

    def build_attachments(self) -> list[MailAttachment]:
        return [
            self._files[state].to_attachment(self._ctx, self.object_prefix)
            for state in ("failed", "completed", "deleted")
            if state in self._files
        ]

    def _count_job(self, job: Record) -> None:
        state = REPORTED_STATES.get(job.state)
        previous_state = self._state_before(job)
        if state is None:
            return  # it was resumed: then the commit of this report is refused, and the report is written again later
        setattr(self.counts, state, getattr(self.counts, state) + 1)
        if state != "deleted" and self._id_bytes < MAX_ID_BYTES:
            self._id_bytes += len(job.id) + 3
            self.ids[job.state].append(job.id)
        has_warnings = job_warnings.has_warnings(job)
        self.warning_count += has_warnings
        if self._update and previous_state == job.state and state != "failed":
            return
        setattr(self.changes, state, getattr(self.changes, state) + 1)
        if self._with_files:
            entry = job_entry_of(job, reasons_of(self._ctx.objects, job))
            self._get_file(state).write(entry)
            named = {"failed": self.first_failures, "completed": self.first_completed}.get(state)
            if named is not None and len(named) < MAX_NAMED_JOBS:
                named.append(entry)
            if has_warnings and len(self.first_warned) < MAX_NAMED_JOBS and entry.get("warnings"):
                self.first_warned.append(entry)

    def _state_before(self, job: Record) -> str | None:
        """The state of the job in the previous report. Both lists are in the order of creation, so one pass is enough."""
        while self._next is not None and self._next.seq < job.seq:
            self._count_gone(self._next)
        if self._next is not None and self._next.id == job.id:
            state, self._next = self._next.state, next(self._known, None)
            return state
        return None

    def _count_gone(self, known: ReportedJob) -> None:
        self._next = next(self._known, None)
        if known.state == JOB.failed:
            self.changes.deleted += 1

    def _get_file(self, state: str) -> _ReportFile:
        if state not in self._files:
            self._files[state] = _ReportFile(state, self._stack)
        return self._files[state]


class _ReportFile:
    """A file of the report, written job by job: {"failedJobs": [...]}."""

    def __init__(self, state: str, stack: ExitStack) -> None:
        self._name = f"{state}.json"
        # the stack closes it
        self._body: IO[bytes] = stack.enter_context(tempfile.SpooledTemporaryFile(max_size=MAX_MEMORY_BYTES))  # noqa: SIM115
        self._body.write(b'{"%sJobs":[' % state.encode())
        self._empty = True

    def write(self, row: Mapping[str, Any]) -> None:
        self._body.write((b"\n" if self._empty else b",\n") + encode_document(row))
        self._empty = False

    def to_attachment(self, ctx: StepContext, object_prefix: str) -> MailAttachment:
        self._body.write(b"\n]}\n")
        size = self._body.tell()
        self._body.seek(0)
        if size <= MAX_INLINE_BYTES:
            return MailAttachment(self._name, text=self._body.read().decode())
        # Safe to repeat: the name is this attempt's own.
        ctx.objects.put(f"{object_prefix}/{self._name}", self._body, size=size)
        return MailAttachment(self._name, object=f"{object_prefix}/{self._name}")
