"""stub"""

from __future__ import annotations
from collections.abc import Iterable, Iterator
import msgspec
from waybill.apps.archive.files.entries import FileEntry


class ArchiveLimits(msgspec.Struct, frozen=True):
    """How large archives are, of a storage."""

    min_size: int = 32 * 1024 * 1024  # bytes of an archive; only a whole set below it may be smaller
    max_size: int = 4 * 1024 * 1024 * 1024  # a file above it is alone
    max_count: int = 20_000  # entries; the min_size goes before


class PlannedArchive(msgspec.Struct, frozen=True):
    """One archive: its members in order, each with `archive` and `offset`, and its exact size."""

    number: int  # from 1
    size: int  # of the tar file
    content_size: int  # of the files in it
    entries: tuple[FileEntry, ...]

    @property
    def name(self) -> str:
        return f"archive_{self.number:010d}.tar"


def plan_archives(entries: Iterable[FileEntry], limits: ArchiveLimits) -> Iterator[PlannedArchive]:
    """Share the entries out among archives. The same entries give the same archives. Streams: at most three archives
    are in memory.
    """
    raise NotImplementedError
