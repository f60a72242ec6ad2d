"""Warnings about a job that is stored all the same, in its document `warnings`, one sentence for each file.

The message of such a job names the first of them. A completed job without a message has none: so lists and reports need
not read its documents.
"""

from __future__ import annotations

from collections.abc import Mapping
from datetime import UTC, datetime
from typing import Any

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


class JobWarnings:
    """The warnings of one job: all are counted, the first are kept."""

    def __init__(self) -> None:
        self.count = 0
        self._first: list[str] = []

    def add(self, sentence: str) -> None:
        self.count += 1
        if len(self._first) < MAX_WARNINGS:
            self._first.append(sentence)

    def to_document(self) -> dict[str, Any]:
        return {"count": self.count, "first": self._first}


def warnings_of(job: Record) -> list[str]:
    """The first warnings of a job."""
    found = job.documents.get("warnings")
    return [each for each in found.get("first", ()) if isinstance(each, str)] if isinstance(found, Mapping) else []


def format_message(job: Record) -> str:
    """The warnings in one line; empty if there are none."""
    warnings = warnings_of(job)
    more = job.documents["warnings"].get("count", 0) - 1 if warnings else 0
    return f"With warnings: {warnings[0]}{f' (and {more} more)' if more > 0 else ''}" if warnings else ""


def has_warnings(job: Record) -> bool:
    """Whether a completed job, read with its documents, has warnings."""
    return job.state == JOB.completed and bool(warnings_of(job))


# --- the warnings of a version that was just stored: a missing profile or owner, and files that audits found damaged


def build_warnings_document(job: Record, ctx: StepContext, version: StoredVersion) -> dict[str, Any]:
    """The document `warnings`, if there are any. Safe to repeat: it describes the present state."""
    warnings, submission = JobWarnings(), Submission.from_job(job)
    if not submission.owner and resources_of(ctx).is_unknown_profile(ctx, submission):
        warnings.add(
            f"{_describe_missing_profile(submission)}: the object has no owner and is in no collection, and nobody gets a callback or mail."
        )
    if submission.update and version.version == 1:
        warnings.add(
            "It was sent as an update, and there was nothing to update: this is the first version of the object."
        )
    if version.version > 1:
        _add_damaged_files(warnings, ctx, resources_of(ctx), version)
    if not warnings.count:
        return {"warnings": None} if "warnings" in job.documents else {}
    return {"warnings": warnings.to_document()}


def _describe_missing_profile(submission: Submission) -> str:
    return (
        f"There is no profile {names.quote_text(submission.profile)} here"
        if submission.profile
        else "The deposit names no profile"
    )


def _add_damaged_files(
    warnings: JobWarnings, ctx: StepContext, resources: IngestResources, version: StoredVersion
) -> None:
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
                warnings.add(
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
