"""The content of a batch report: the outcome of its jobs, as mail for the depositor, as a document and as events.

    counts      completed, failed, deleted
    text        the text of the mail, with the first failures and their reasons, and the first ARKs
    failed.json, completed.json, deleted.json    every job with its submission, attached to the mail

The first report covers all jobs. A report after repairs says what has changed since the last one, and what is still
unresolved.
"""

from __future__ import annotations

import itertools
import time
from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from typing import Any

import msgspec

from waybill.apps.ingest import events, job_warnings
from waybill.apps.ingest.documents import BatchFailure, BatchReport, JobCounts, Refusal, ReportedChanges
from waybill.apps.ingest.machine.batch import BATCH
from waybill.apps.ingest.machine.job import JOB
from waybill.apps.ingest.profile import Profile
from waybill.apps.ingest.resources import IngestResources
from waybill.apps.ingest.submission import Submission, fields_of
from waybill.events import Event
from waybill.files import names
from waybill.manifests import ManifestError, record_lists
from waybill.manifests.record_lists import RecordList
from waybill.masking import mask_document
from waybill.notify import MailAttachment, make_mail, parse_recipients
from waybill.objects import ObjectNotFound, Objects
from waybill.record import Record
from waybill.step import New

QUEUED_MAIL_KINDS = ("verbose", "additional")  # kinds of mail in a profile that also confirm the queueing of a batch
MAX_NAMED_JOBS = 20  # failures, and stored objects, that the text of a mail names
MAX_REASONS = 10_000  # reasons of one job in an attached file
MAX_EVENT_IDS = 100  # ids of failed jobs in an event


class ReportedJob(msgspec.Struct, frozen=True, array_like=True):
    """A job in the list that a report keeps: [seq, id, state, message, reasons]; the last two only for failures and
    warnings.
    """

    seq: int
    id: str
    state: str
    message: str = ""
    reasons: tuple[str, ...] = ()  # the first reasons, one for each file; warnings if the job is completed

    @classmethod
    def from_record(cls, job: Record) -> ReportedJob:
        if job.state == JOB.completed and (warnings := job_warnings.warnings_of(job)):
            return cls(job.seq, job.id, job.state, job.message, warnings)
        if job.state != JOB.failed:
            return cls(job.seq, job.id, job.state)
        refusal = job.find_document(Refusal)
        return cls(job.seq, job.id, job.state, job.message, refusal.reasons if refusal is not None else ())

    def to_document(self) -> dict[str, Any]:
        """The job as the API returns it."""
        why = {"message": self.message, "reasons" if self.state == JOB.failed else "warnings": list(self.reasons)}
        if self.state != JOB.failed and not self.message:
            why = {}
        return {"id": self.id, "state": self.state, **why}


class BatchFindings(msgspec.Struct, kw_only=True):
    """What one pass over all jobs of a batch has found."""

    counts: JobCounts
    changes: JobCounts  # those that the previous report did not have; `failed`: what is unresolved
    failed_ids: list[str]  # the first of them
    completed_ids: list[str]
    job_list: RecordList  # all jobs
    first_failures: list[dict[str, Any]]  # as job_entry_of returns them
    first_completed: list[dict[str, Any]]  # the first stored jobs
    attachments: list[MailAttachment]
    first_warned: list[dict[str, Any]] = []  # the first jobs completed with warnings
    warning_count: int = 0  # how many jobs are completed with warnings
    failure: BatchFailure | None = None  # why there are no jobs, or not all
    remark: str = ""  # a remark on the batch as a whole
    number: int = 1  # of the report: 1 is the first
    since: str = ""  # when the previous report was written

    @property
    def is_success(self) -> bool:
        return not self.failure and not self.counts.failed and self.counts.total > 0


def job_entry_of(job: Record, reasons: Sequence[str] = ()) -> dict[str, Any]:
    """A job in a file of the report: its submission, its outcome and the reasons; secrets in URLs are removed."""
    submission = Submission.from_job(job)
    configured = fields_of(job.documents.raw.get("configuration", b""))  # also what is not read here
    return {
        **mask_document(configured),
        "id": job.id,
        "jobID": submission.job_id,
        "primary_id": submission.primary_id,
        "local_id": list(submission.local_ids),
        "status": job.state,
        "last_successful_status": job.last_done,
        "retry_count": job.resume_count,
        "message": job.message,
        **({"reasons": reasons} if reasons else {}),
        **({"warnings": warnings} if (warnings := job_warnings.warnings_of(job)) else {}),
    }


def reasons_of(objects: Objects, job: Record) -> list[str]:
    """Why a job has failed, one reason for each file, at most MAX_REASONS."""
    refusal = job.find_document(Refusal) if job.state == JOB.failed else None
    if refusal is None:
        return []
    if refusal.list is not None:
        with suppress(ObjectNotFound, ManifestError):  # then the first ones are all that is known
            return list(itertools.islice(record_lists.read_list(objects, refusal.list, str), MAX_REASONS))
    return list(refusal.reasons)


def format_time(seconds: float) -> str:
    """A time as the services that share the tree write it."""
    return time.strftime("%Y-%m-%d %H:%M:%S +0000", time.gmtime(seconds))


def build_report(findings: BatchFindings, at: float, max_ids: int, url: str) -> BatchReport:
    """The document `status-report`: at most `max_ids` ids, those of failures first, and the URL of the full list."""
    failed = tuple(findings.failed_ids[:max_ids])
    completed = tuple(findings.completed_ids[: max_ids - len(failed)])
    changes = findings.changes
    return BatchReport(
        last_modified=format_time(at),
        status=BATCH.completed if findings.is_success else BATCH.failed,
        report=findings.number,
        counts=findings.counts,
        failed_jobs=failed,
        successful_jobs=completed,
        whole=len(failed) == findings.counts.failed and len(completed) == findings.counts.completed,
        manifest_url=url,
        jobs=findings.job_list,
        since=ReportedChanges(findings.since, changes.completed, changes.deleted, changes.failed)
        if findings.since
        else None,
        warnings=findings.warning_count,
        reason=findings.failure.reason if findings.failure is not None else "",
        remark=findings.remark,
    )


def summarize_findings(findings: BatchFindings) -> str:
    """The outcome of the batch in one line."""
    counts = findings.counts
    if findings.failure and not counts.total:
        return "nothing could be ingested"
    if not counts.total:
        return "it had no jobs"
    deleted = f", {counts.deleted} deleted" if counts.deleted else ""
    deleted += ", not all of it has jobs" if findings.failure else ""
    if counts.failed:
        return f"{counts.failed} of {counts.total} failed, {counts.completed} completed{deleted}"
    return f"{counts.completed} of {counts.total} completed{deleted}"


# --- mail and events


def choose_recipients(
    submission: Submission, profile: Profile, resources: IngestResources
) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """The recipients of mail, and of blind copies; none if the profile suppresses mail or no mail server is set."""
    if profile.mail.suppressed or not resources.environment.config.mail.url:
        return (), ()
    return parse_recipients(submission.notification) or parse_recipients(*profile.mail.to), parse_recipients(
        *resources.settings.notifications.admins
    )


def build_queued_mail(
    batch: Record, submission: Submission, profile: Profile, resources: IngestResources, count: int, at: float
) -> Iterable[New]:
    """The mail that confirms the queueing of a batch, if the profile asks for it."""
    to, bcc = choose_recipients(submission, profile, resources)
    if profile.mail.kind.lower() not in QUEUED_MAIL_KINDS or not to:
        return ()
    lines = [
        *_describe_batch(batch, submission),
        "",
        f"Queued: {count} {'object' if count == 1 else 'objects'}. A report follows when all are done.",
    ]
    subject = f"Queued: {count} {'object' if count == 1 else 'objects'} of {_name_batch(batch, submission)}"
    return (
        make_mail(
            to=to,
            bcc=bcc,
            subject=subject,
            text="\n".join(lines),
            key=f"{batch.ref} {submission.batch_id} queued",
            at=at,
        ),
    )


def build_report_messages(
    batch: Record,
    submission: Submission,
    profile: Profile,
    resources: IngestResources,
    findings: BatchFindings,
    at: float,
) -> tuple[tuple[New, ...], Event]:
    """The mail of a report, and the event that tells of it."""
    key = f"{batch.ref} {submission.batch_id} report {findings.number}"
    to, bcc = choose_recipients(submission, profile, resources)
    mail: tuple[New, ...] = ()
    if to or bcc:
        mail = (
            make_mail(
                to=to,
                bcc=bcc,
                subject=build_subject(batch, submission, findings),
                text=build_text(batch, submission, findings),
                key=key,
                at=at,
                attachments=findings.attachments,
            ),
        )
    data = {
        "batch": batch.id,
        "batchID": submission.batch_id,
        "profile": submission.profile,
        "submitter": submission.submitter,
        "report": findings.number,
        "status": BATCH.completed if findings.is_success else BATCH.failed,
        "counts": msgspec.to_builtins(findings.counts),
        "failed_jobs": findings.failed_ids[:MAX_EVENT_IDS],
        "reason": findings.failure.reason if findings.failure else "",
    }
    event_type = events.BATCH_COMPLETED if findings.is_success else events.BATCH_FAILED
    return mail, Event(event_type, batch.id, data)


def build_subject(batch: Record, submission: Submission, findings: BatchFindings) -> str:
    update = " (update)" if findings.number > 1 else ""
    return f"{'OK' if findings.is_success else 'FAIL'}{update}: {summarize_findings(findings)}: {_name_batch(batch, submission)}"


def build_text(batch: Record, submission: Submission, findings: BatchFindings) -> str:
    counts, changes = findings.counts, findings.changes
    lines = [*_describe_batch(batch, submission), ""]
    if findings.number > 1:
        lines += [
            f"Since the report of {findings.since or 'another service'}:",
            f"  completed: {changes.completed}",
            f"  deleted: {changes.deleted}",
            f"  still unresolved: {changes.failed}",
            "",
            "In all:",
        ]
    lines += [
        f"  completed: {counts.completed}",
        f"  failed: {counts.failed}",
        f"  deleted: {counts.deleted}",
        "  pending: 0",
    ]
    if findings.failure:
        lines += ["", "Not ingested:" if counts.total else "No object was ingested:"]
        lines += [*(f"  {reason}" for reason in findings.failure.reasons[:MAX_NAMED_JOBS])]
        lines += _count_more(findings.failure.count)
    if findings.first_failures:
        lines += [
            "",
            "Failed:",
            *(_describe_failure(each) for each in findings.first_failures),
            *_count_more(counts.failed),
        ]
    if findings.first_completed:
        lines += [
            "",
            "Completed:",
            *(_describe_success(each) for each in findings.first_completed),
            *_count_more(changes.completed),
        ]
    if findings.remark:
        lines += ["", findings.remark]
    if findings.first_warned:
        lines += [
            "",
            "Warnings:",
            *(line for each in findings.first_warned for line in _describe_warnings(each)),
            *_count_more(findings.warning_count),
        ]
    if findings.attachments:
        lines += ["", f"With every job: {', '.join(each.name for each in findings.attachments)}."]
    return "\n".join(lines) + "\n"


def _count_more(count: int) -> list[str]:
    return [f"  and {count - MAX_NAMED_JOBS} more"] if count > MAX_NAMED_JOBS else []


def _describe_failure(job_entry: Mapping[str, Any]) -> str:
    labels = _bracket_labels(job_entry.get("primary_id"), *_labels_of(job_entry))
    return f"  {job_entry['id']}{labels}: {job_entry['message'] or 'no reason is known'}"


def _describe_success(job_entry: Mapping[str, Any]) -> str:
    return f"  {job_entry['primary_id'] or job_entry['id']}{_bracket_labels(*_labels_of(job_entry))}"


def _describe_warnings(job_entry: Mapping[str, Any]) -> list[str]:
    """A line for each of the first files."""
    warnings = job_entry["warnings"]
    more = (
        [f"  {job_entry['primary_id'] or job_entry['id']}: and {len(warnings) - MAX_NAMED_JOBS} more"]
        if len(warnings) > MAX_NAMED_JOBS
        else []
    )
    return [*(f"  {job_entry['primary_id'] or job_entry['id']}: {each}" for each in warnings[:MAX_NAMED_JOBS]), *more]


def _labels_of(job_entry: Mapping[str, Any]) -> tuple[Any, ...]:
    return (*job_entry.get("local_id", ()), job_entry.get("payload_filename"), job_entry.get("title"))


def _bracket_labels(*labels: Any) -> str:
    text = ", ".join(names.quote_text(str(each)) for each in labels if each)
    return f" ({text})" if text else ""


def _describe_batch(batch: Record, submission: Submission) -> list[str]:
    lines = [
        ("Batch", submission.batch_id or batch.id),
        ("Profile", submission.profile),
        ("Payload", submission.filename),
        ("Title", submission.title),
        ("Submitter", submission.submitter),
        ("Submitted", submission.submitted_at),
        ("Note", submission.note),
    ]
    return [f"{name}: {value}" for name, value in lines if value]


def _name_batch(batch: Record, submission: Submission) -> str:
    name = submission.title or submission.filename
    return f"{name} ({submission.batch_id or batch.id})" if name else submission.batch_id or batch.id
