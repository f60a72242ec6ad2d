"""stub"""

from __future__ import annotations
from collections.abc import Iterable
import msgspec
from waybill.apps.archive.files.entries import FileEntry, FileSet, ReportFailure


class RemovalCounts(msgspec.Struct, frozen=True):
    removed: int  # or gone already
    stayed: int  # each of them was reported


def remove_originals(file_set: FileSet, entries: Iterable[FileEntry], report: ReportFailure) -> RemovalCounts:
    """Remove the files of a MIGRATE whose archives were proven: only the recorded inode, and only unchanged since the
    lock. A directory goes when it is empty. What stays is reported with its reason; its owner and mode are given back by
    `unlock_files` afterwards. `entries` in the order of the listing. Safe to repeat: what is gone is gone.
    """
    raise NotImplementedError
