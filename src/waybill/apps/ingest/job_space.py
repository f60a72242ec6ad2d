"""The disk space that a job needs, as Estimating or a later step has written it, and the priority that follows from it.

Downloading and Provisioning reserve it (waybill.disk_space).
"""

from __future__ import annotations

from typing import Any

from waybill.apps.ingest import priority
from waybill.record import Record


def space_needed_of(job: Record) -> int | None:
    """The bytes that the job needs on the disk; None if unknown, which is written as 0 or -1."""
    needed = job.documents.get("space_needed")
    return needed if isinstance(needed, int) and needed > 0 else None


def to_space_needed(total: int) -> int:
    """The value of `space_needed`: at least one byte, since 0 means "unknown"."""
    return max(1, total)


def adjust_job_priority(
    job: Record, files: dict[str, Any] | None, needed: int, large_job_bytes: int
) -> tuple[int | None, dict[str, Any]]:
    """The new priority, if it changes, and the document `files` that remembers the first one."""
    if files is None:
        return None, {}  # the first priority cannot be remembered, so it is not changed
    remembered = files.get("priority") or {}
    first = remembered["first"] if remembered.get("last") == job.priority else job.priority
    last = priority.adjust_for_size(first, needed, large_job_bytes)
    if last == job.priority:
        return None, {}
    return last, {"files": {**files, "priority": {"first": first, "last": last}}}
