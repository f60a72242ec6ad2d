"""stub"""

from __future__ import annotations
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from waybill.apps.archive.files.entries import FileEntry, FileSet


class TarSource:
    """An archive as an ArchiveSource: read from the files while it is sent.

    `iter_chunks` raises SourceChanged, naming the file, if one is not as its entry says (before, and again after it was
    read). When it has been read to the end, `entries` have their digests. It can be iterated again and again.
    """

    path: Path | None = None
    size: int

    def __init__(self, file_set: FileSet, entries: Sequence[FileEntry]) -> None:
        """`entries` of one PlannedArchive."""

    def iter_chunks(self) -> Iterator[bytes | memoryview]:
        raise NotImplementedError

    @property
    def entries(self) -> tuple[FileEntry, ...]:
        """The members with `sha256`. Raises RuntimeError before the archive was read to its end."""
        raise NotImplementedError

    @property
    def sha256(self) -> str:
        """Of the whole archive; likewise."""
        raise NotImplementedError


def write_staged_archive(path: Path, source: TarSource) -> str:
    """Write the archive to a file for a storage that wants whole files, durably and under its name only when whole;
    return its SHA-256. Safe to repeat."""
    raise NotImplementedError
