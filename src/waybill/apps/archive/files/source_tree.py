"""stub"""

from __future__ import annotations
from collections.abc import Iterable, Iterator
from waybill.apps.archive.files.entries import FileEntry, FileFailure, FileSet


class SourceTree:
    """A file set by descriptors. A context manager; raises FileSetChanged if its folder is gone or another one."""

    def __init__(self, file_set: FileSet) -> None: ...

    def find_change(self, entry: FileEntry) -> str | None:
        """Say how a file differs from its entry (kind, inode, size, mtime, ctime of the lock); None if it does not."""
        raise NotImplementedError


def find_changed(file_set: FileSet, entries: Iterable[FileEntry]) -> Iterator[FileFailure]:
    """Yield what is not as its entry says, and why."""
    raise NotImplementedError
