"""Warnings about a job that is stored all the same, in its document `warnings`, one sentence for each file.

The message of such a job names the first of them. A completed job without a message has none: so lists and reports need
not read its documents.
"""

from __future__ import annotations

from collections.abc import Iterator
from datetime import UTC, datetime

from waybill.apps.ingest.documents import JobWarnings
from waybill.apps.ingest.machine.job import JOB
from waybill.apps.ingest.resources import IngestResources, resources_of
from waybill.apps.ingest.storage import StoredVersion
from waybill.apps.ingest.submission import Submission
from waybill.files import names
from waybill.index import Row
from waybill.objects import ObjectsError
from waybill.record import Record
from waybill.step import StepContext

MAX_WARNINGS = 100  # sentences that the document holds


def warnings_of(job: Record) -> tuple[str, ...]:
    """The first warnings of a job."""
    found = job.find_document(JobWarnings)
    return found.first if found is not None else ()


def format_message(job: Record) -> str:
    """The warnings in one line; empty if there are none."""
    found = job.find_document(JobWarnings)
    if found is None:
        return ""
    return f"With warnings: {found.first[0]}{f' (and {found.count - 1} more)' if found.count > 1 else ''}"


def has_warnings(job: Record) -> bool:
    """Whether a completed job, read with its documents, has warnings."""
    return job.state == JOB.completed and bool(warnings_of(job))


# --- the warnings of a version that was just stored: a missing profile or owner, and files that audits found damaged


def find_warnings(job: Record, ctx: StepContext, version: StoredVersion) -> JobWarnings:
    """All are counted, the first are kept. Safe to repeat: they describe the present state."""
    count, first = 0, list[str]()
    for sentence in _iter_warnings(job, ctx, version):
        count += 1
        if count <= MAX_WARNINGS:
            first.append(sentence)
    return JobWarnings(count, tuple(first))


def _iter_warnings(job: Record, ctx: StepContext, version: StoredVersion) -> Iterator[str]:
    submission = Submission.from_job(job)
    if not submission.owner and resources_of(ctx).is_unknown_profile(ctx, submission):
        yield (
            f"{_describe_missing_profile(submission)}: the object has no owner and is in no collection, and nobody gets a callback or mail."
        )
    if submission.update and version.version == 1:
        yield "It was sent as an update, and there was nothing to update: this is the first version of the object."
    if version.version > 1:
        yield from _iter_damaged_files(ctx, resources_of(ctx), version)


def _describe_missing_profile(submission: Submission) -> str:
    return (
        f"There is no profile {names.quote_text(submission.profile)} here"
        if submission.profile
        else "The deposit names no profile"
    )


def _iter_damaged_files(ctx: StepContext, resources: IngestResources, version: StoredVersion) -> Iterator[str]:
    damaged = {row["place"]: row for row in resources.inventory.list_damaged_of(version.object)}
    if not damaged:
        return
    checked: dict[str, str] = {}
    with resources.storage.open_manifest(version) as reader:
        for entry in reader:
            place = str(entry.extra.get("place", ""))
            if place not in damaged:
                continue
            if place not in checked:
                ctx.check()
                checked[place] = _check_again(ctx, resources, damaged[place])
            if checked[place]:
                yield (
                    f"{names.quote_text(entry.uri)} is damaged in storage, and this version keeps it: {checked[place]} "
                    "Send it again in an update, or restore it from a copy."
                )


def _check_again(ctx: StepContext, resources: IngestResources, row: Row) -> str:
    """What is wrong with the file now; empty if it was repaired."""
    try:
        finding = resources.storage.check(row["ark"], row["place"], row["size"], row["sha256"])
    except ObjectsError:
        return str(row["result"])  # the place cannot be read at all
    resources.inventory.record_audit(row, finding, datetime.fromtimestamp(ctx.now(), UTC))
    return finding.message if finding is not None else ""
