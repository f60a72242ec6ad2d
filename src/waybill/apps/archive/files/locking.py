"""stub"""

from __future__ import annotations
from collections.abc import Callable, Iterable
from waybill.apps.archive.files.entries import FileEntry, FileSet, ReportFailure


def unlock_files(file_set: FileSet, entries: Iterable[FileEntry], report: ReportFailure) -> int:
    """Give owner and mode back as the entries have them, to the recorded device and inode only; returns how many.

    `entries` are those of `list_files`, in their order. What is gone is passed over; safe to repeat. As root, or as
    the owner.
    """
    raise NotImplementedError
