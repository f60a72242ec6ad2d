"""The report of a batch: what became of its jobs, for the depositor by mail, for programs as documents and events.

    counts      completed, failed, deleted
    text        a letter to read, with the first failures and their reasons, and the first ARKs
    failed.json, completed.json, deleted.json    every job with what was said of it, as files that go with the letter

The first report tells of all jobs. One after mending tells what has changed since the last, and what is still
unresolved.
"""

from __future__ import annotations

import itertools
import time
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import msgspec

from waybill.apps.ingest import caveats, lists, names, submission
from waybill.apps.ingest.outfit import Outfit
from waybill.apps.ingest.profile import Profile
from waybill.apps.ingest.signatures import without_secrets
from waybill.apps.ingest.submission import Submission
from waybill.notify import Attachment, events, letter, recipients
from waybill.objects import NotFound, Objects
from waybill.record import Record
from waybill.step import New

SUMMARY = ("verbose", "additional")  # kinds of mail for which the queueing of a batch is told too
FIRST = 20  # failures, and objects that were stored, named in the text of a letter
REASONS = 10_000  # of one job, in a file that goes with the letter
EVENT_IDS = 100  # ids in an event


class Counts(msgspec.Struct):
    completed: int = 0
    failed: int = 0
    deleted: int = 0

    @property
    def total(self) -> int:
        return self.completed + self.failed + self.deleted


class Told(msgspec.Struct, frozen=True, array_like=True):
    """A job in the list that a report keeps: [seq, id, state, message, reasons]; the last two are told of failures
    and of warnings.
    """

    seq: int
    id: str
    state: str
    message: str = ""
    reasons: tuple[str, ...] = ()  # one for each file, the first of them; of a job that is done, warnings

    @classmethod
    def of(cls, job: Record) -> Told:
        if job.state == "Completed" and (warned := caveats.of(job)):
            return cls(job.seq, job.id, job.state, job.message, tuple(warned))
        if job.state != "Failed":
            return cls(job.seq, job.id, job.state)
        refusal = job.docs.get("refusal")
        return cls(
            job.seq,
            job.id,
            job.state,
            job.message,
            tuple(refusal.get("reasons", ())) if isinstance(refusal, dict) else (),
        )

    def shown(self) -> dict[str, Any]:
        """As programs read it."""
        why = {"message": self.message, "reasons" if self.state == "Failed" else "warnings": list(self.reasons)}
        if self.state != "Failed" and not self.message:
            why = {}
        return {"id": self.id, "state": self.state, **why}


class Findings(msgspec.Struct, kw_only=True):
    """What a look at all jobs of a batch has found."""

    counts: Counts
    news: Counts  # of those, what the report before did not say; `failed`: what is unresolved
    failed: list[str]  # ids, at most so many
    completed: list[str]
    jobs: dict[str, Any]  # the list of all, as `lists` keeps it
    first: list[dict[str, Any]]  # failures, as `entry` tells them
    stored: list[dict[str, Any]]  # the first that have been stored
    files: list[Attachment]
    warned: list[dict[str, Any]] = []  # the first that are done with warnings
    warnings: int = 0  # how many jobs are done with warnings
    trouble: Mapping[str, Any] | None = None  # why there are no jobs, or not all
    remark: str = ""  # what is worth knowing of the batch as a whole
    number: int = 1  # of the report: 1 is the first
    since: str = ""  # when the report before was written

    @property
    def good(self) -> bool:
        return not self.trouble and not self.counts.failed and self.counts.total > 0


def entry(job: Record, reasons: Sequence[str] = ()) -> dict[str, Any]:
    """A job in a file of the report: what was said of it, what became of it, and why; without what may be secret in
    its addresses.
    """
    said = submission.of_job(job)
    configuration = job.docs.get("configuration")
    told = (
        {name: without_secrets(value) for name, value in configuration.items()}
        if isinstance(configuration, dict)
        else {}
    )
    return {
        **told,
        "id": job.id,
        "jobID": said.job_id,
        "primary_id": said.primary_id,
        "local_id": list(said.local_ids),
        "status": job.state,
        "last_successful_status": job.last_done,
        "retry_count": job.retries,
        "message": job.message,
        **({"reasons": reasons} if reasons else {}),
        **({"warnings": warned} if (warned := caveats.of(job)) else {}),
    }


def reasons_of(objects: Objects, job: Record) -> list[str]:
    """Why a job has failed, one reason for each file: no more than a file of the report holds of one job."""
    refusal = job.docs.get("refusal")
    if job.state != "Failed" or not isinstance(refusal, dict):
        return []
    kept = refusal.get("list")
    try:
        return (
            list(itertools.islice(lists.each(objects, kept, str), REASONS))
            if isinstance(kept, dict)
            else refusal.get("reasons", [])
        )
    except (NotFound, lists.BadList):
        return list(refusal.get("reasons", []))


def moment(seconds: float) -> str:
    """As the services that share the tree write times."""
    return time.strftime("%Y-%m-%d %H:%M:%S +0000", time.gmtime(seconds))


def document(found: Findings, at: float, most: int, url: str) -> dict[str, Any]:
    """The document `status-report`: at most so many ids, those of failures first; and the URL where all of them are
    listed.
    """
    failed = found.failed[:most]
    completed = found.completed[: most - len(failed)]
    told: dict[str, Any] = {
        "last_modified": moment(at),
        "status": "Completed" if found.good else "Failed",
        "report": found.number,
        "counts": msgspec.to_builtins(found.counts),
        "failed_jobs": failed,
        "successful_jobs": completed,
        "whole": len(failed) == found.counts.failed and len(completed) == found.counts.completed,
        "manifest_url": url,
        "jobs": found.jobs,
    }
    if found.since:
        told["since"] = {
            "last_modified": found.since,
            "completed": found.news.completed,
            "deleted": found.news.deleted,
            "unresolved": found.news.failed,
        }
    if found.warnings:
        told["warnings"] = found.warnings
    if found.trouble:
        told["reason"] = found.trouble["reason"]
    if found.remark:
        told["remark"] = found.remark
    return told


def in_short(found: Findings) -> str:
    """One line: what became of the batch."""
    counts = found.counts
    if found.trouble and not counts.total:
        return "nothing could be ingested"
    if not counts.total:
        return "it had no jobs"
    deleted = f", {counts.deleted} deleted" if counts.deleted else ""
    deleted += ", not all of it has jobs" if found.trouble else ""
    if counts.failed:
        return f"{counts.failed} of {counts.total} failed, {counts.completed} completed{deleted}"
    return f"{counts.completed} of {counts.total} completed{deleted}"


# --- who is told, and what


def addressed(said: Submission, profile: Profile, outfit: Outfit) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """To whom mail goes, and who gets a blind copy; nobody, where the profile wants no mail or no mail server is
    named.
    """
    if profile.mail.suppressed or not outfit.depot.config.mail.url:
        return (), ()
    return recipients(said.notification) or recipients(*profile.mail.to), recipients(*outfit.settings.tell.admins)


def queued(batch: Record, said: Submission, profile: Profile, outfit: Outfit, count: int, at: float) -> Iterable[New]:
    """A letter that confirms the queueing, if the profile wants one."""
    to, bcc = addressed(said, profile, outfit)
    if profile.mail.kind.lower() not in SUMMARY or not to:
        return ()
    lines = [
        *_about(batch, said),
        "",
        f"Queued: {count} {'object' if count == 1 else 'objects'}. A report follows when all are done.",
    ]
    subject = f"Queued: {count} {'object' if count == 1 else 'objects'} of {_named(batch, said)}"
    return (
        letter(
            to=to, bcc=bcc, subject=subject, text="\n".join(lines), key=f"{batch.ref} {said.batch_id} queued", at=at
        ),
    )


def told(
    batch: Record, said: Submission, profile: Profile, outfit: Outfit, found: Findings, at: float
) -> tuple[New, ...]:
    """The letter and the events of a report."""
    key = f"{batch.ref} {said.batch_id} report {found.number}"
    to, bcc = addressed(said, profile, outfit)
    letters: tuple[New, ...] = ()
    if to or bcc:
        letters = (
            letter(
                to=to,
                bcc=bcc,
                subject=subject(batch, said, found),
                text=text(batch, said, found),
                key=key,
                at=at,
                attachments=found.files,
            ),
        )
    data = {
        "batch": batch.id,
        "batchID": said.batch_id,
        "profile": said.profile,
        "submitter": said.submitter,
        "report": found.number,
        "status": "Completed" if found.good else "Failed",
        "counts": msgspec.to_builtins(found.counts),
        "failed_jobs": found.failed[:EVENT_IDS],
        "reason": found.trouble["reason"] if found.trouble else "",
    }
    kind = f"org.waybill.ingest.batch.{'completed' if found.good else 'failed'}"
    return (*letters, *announced(outfit, kind, said.batch_id or batch.id, data, key, at))


def announced(outfit: Outfit, type: str, subject: str, data: Mapping[str, Any], key: str, at: float) -> tuple[New, ...]:
    """An event for each webhook that wants it; none where there are no webhooks."""
    source = f"{outfit.settings.url.rstrip('/')}/ingest"
    return events(outfit.depot.config.webhooks, type=type, source=source, subject=subject, data=data, key=key, at=at)


def subject(batch: Record, said: Submission, found: Findings) -> str:
    update = " (update)" if found.number > 1 else ""
    return f"{'OK' if found.good else 'FAIL'}{update}: {in_short(found)}: {_named(batch, said)}"


def text(batch: Record, said: Submission, found: Findings) -> str:
    counts, news = found.counts, found.news
    lines = [*_about(batch, said), ""]
    if found.number > 1:
        lines += [
            f"Since the report of {found.since or 'another service'}:",
            f"  completed: {news.completed}",
            f"  deleted: {news.deleted}",
            f"  still unresolved: {news.failed}",
            "",
            "In all:",
        ]
    lines += [
        f"  completed: {counts.completed}",
        f"  failed: {counts.failed}",
        f"  deleted: {counts.deleted}",
        "  pending: 0",
    ]
    if found.trouble:
        lines += ["", "Not ingested:" if counts.total else "No object was ingested:"]
        lines += [*(f"  {reason}" for reason in found.trouble.get("reasons", ())[:FIRST])]
        lines += _more(int(found.trouble.get("count", 0)))
    if found.first:
        lines += ["", "Failed:", *(_failure(each) for each in found.first), *_more(counts.failed)]
    if found.stored:
        lines += ["", "Completed:", *(_success(each) for each in found.stored), *_more(news.completed)]
    if found.remark:
        lines += ["", found.remark]
    if found.warned:
        lines += ["", "Warnings:", *(line for each in found.warned for line in _warned(each)), *_more(found.warnings)]
    if found.files:
        lines += ["", f"With every job: {', '.join(each.name for each in found.files)}."]
    return "\n".join(lines) + "\n"


def _more(count: int) -> list[str]:
    return [f"  and {count - FIRST} more"] if count > FIRST else []


def _failure(told: Mapping[str, Any]) -> str:
    return f"  {told['id']}{_in_brackets(told.get('primary_id'), *_words(told))}: {told['message'] or 'no reason is known'}"


def _success(told: Mapping[str, Any]) -> str:
    return f"  {told['primary_id'] or told['id']}{_in_brackets(*_words(told))}"


def _warned(told: Mapping[str, Any]) -> list[str]:
    """A line for each file, the first of them."""
    warned = told["warnings"]
    more = [f"  {told['primary_id'] or told['id']}: and {len(warned) - FIRST} more"] if len(warned) > FIRST else []
    return [*(f"  {told['primary_id'] or told['id']}: {each}" for each in warned[:FIRST]), *more]


def _words(told: Mapping[str, Any]) -> tuple[Any, ...]:
    return (*told.get("local_id", ()), told.get("payload_filename"), told.get("title"))


def _in_brackets(*words: Any) -> str:
    about = ", ".join(names.shown(str(each)) for each in words if each)
    return f" ({about})" if about else ""


def _about(batch: Record, said: Submission) -> list[str]:
    told = [
        ("Batch", said.batch_id or batch.id),
        ("Profile", said.profile),
        ("Payload", said.filename),
        ("Title", said.title),
        ("Submitter", said.submitter),
        ("Submitted", said.submitted),
        ("Note", said.note),
    ]
    return [f"{name}: {value}" for name, value in told if value]


def _named(batch: Record, said: Submission) -> str:
    name = said.title or said.filename
    return f"{name} ({said.batch_id or batch.id})" if name else said.batch_id or batch.id
