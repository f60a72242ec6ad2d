"""The disk space that a job needs, as Estimating or a later step has written it, and the priority that follows from it.

Downloading and Provisioning reserve it (waybill.disk_space).
"""

from __future__ import annotations

from msgspec.structs import replace

from waybill.apps.ingest import priority
from waybill.apps.ingest.documents import AdjustedPriority, PayloadFiles, SpaceNeeded
from waybill.record import Record


def space_needed_of(job: Record) -> int | None:
    """The bytes that the job needs on the disk; None if unknown."""
    needed = job.find_document(SpaceNeeded)
    return needed.byte_count if needed is not None else None


def adjust_job_priority(
    job: Record, files: PayloadFiles, needed: int | None, large_job_bytes: int
) -> tuple[int | None, PayloadFiles]:
    """The new priority, if it changes, and the document `files`, which remembers the first one."""
    remembered = files.priority
    first = remembered.first if remembered is not None and remembered.last == job.priority else job.priority
    last = priority.adjust_for_size(first, needed, large_job_bytes)
    if last == job.priority:
        return None, files
    return last, replace(files, priority=AdjustedPriority(first, last))
