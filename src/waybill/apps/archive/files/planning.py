"""Which entries go into which archive, and where in it.

Entries are taken in the order of the listing, so that a directory stays together. An archive is closed when it has
reached the minimum and the next entry would bring it above the maximum, in bytes or in number; so that a directory is not
cut for nothing, one is also closed at the end of a directory when it is nearly full. What remains at the end and is below
the minimum joins its neighbour. A file above the maximum is alone: only if there is no other neighbour, a remainder joins
it.

A further hard link belongs beside the file with the content, as tar programs expect; where that archive is closed already
it goes into the current one, and is made when all archives are unpacked.

The same entries and limits give the same archives. At most three archives are in memory.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator

import msgspec

from waybill.apps.archive.files.entries import FileEntry
from waybill.apps.archive.files.tar_headers import TAR_END, content_size, make_headers, padded

_NEARLY_FULL = 0.9


class ArchiveLimits(msgspec.Struct, frozen=True):
    """How large archives are, of a storage."""

    min_size: int = 32 * 1024 * 1024  # bytes of an archive; only a whole set below it may be smaller
    max_size: int = 4 * 1024 * 1024 * 1024  # a file above it is alone
    max_count: int = 20_000  # entries; below the minimum of bytes there may be more, up to five times as many


class PlannedArchive(msgspec.Struct, frozen=True):
    """One archive: its members in order, each with `archive` and `offset`, and its exact size."""

    number: int  # from 1
    size: int  # of the tar file
    content_size: int  # of the files in it, with their holes
    entries: tuple[FileEntry, ...]

    @property
    def name(self) -> str:
        return f"archive_{self.number:010d}.tar"


class _OpenArchive:
    def __init__(self) -> None:
        self.entries: list[FileEntry] = []
        self.sizes: list[int] = []
        self.size = len(TAR_END)

    def add(self, entry: FileEntry, size: int) -> None:
        self.entries.append(entry)
        self.sizes.append(size)
        self.size += size

    def join(self, other: _OpenArchive) -> None:
        self.entries += other.entries
        self.sizes += other.sizes
        self.size += other.size - len(TAR_END)

    def finish(self, number: int) -> PlannedArchive:
        members, at = [], 0
        replace = msgspec.structs.replace
        for entry, size in zip(self.entries, self.sizes, strict=True):
            members.append(replace(entry, archive=number, offset=at))
            at += size
        return PlannedArchive(number, self.size, sum(entry.size for entry in members), tuple(members))


def plan_archives(entries: Iterable[FileEntry], limits: ArchiveLimits) -> Iterator[PlannedArchive]:
    """Share the entries out among archives. An empty set has no archive."""
    number = 0
    current = _OpenArchive()
    held: _OpenArchive | None = None  # the last one, kept back for what may remain
    held_is_large = False  # it is a single file above the maximum
    hard_max_count = 5 * limits.max_count
    directory = ""

    def is_closed_before(size: int, is_new_directory: bool) -> bool:
        count = len(current.entries)
        if count >= hard_max_count:
            return True
        if not count or current.size < limits.min_size:
            return False
        if current.size + size > limits.max_size or count >= limits.max_count:
            return True
        return is_new_directory and (
            current.size > limits.max_size * _NEARLY_FULL or count > limits.max_count * _NEARLY_FULL
        )

    for entry in entries:
        size = len(make_headers(entry)) + padded(content_size(entry))
        if size + len(TAR_END) > limits.max_size and entry.kind == "file":
            large = _OpenArchive()
            large.add(entry, size)
            if held is not None and not held_is_large:
                number += 1
                yield large.finish(number)  # the one that is kept back is the better neighbour
            else:
                if held is not None:
                    number += 1
                    yield held.finish(number)
                held, held_is_large = large, True
            continue
        parent = entry.path if entry.kind == "directory" else entry.path.rpartition("/")[0]
        if is_closed_before(size, parent != directory):
            if held is not None:
                number += 1
                yield held.finish(number)
            held, held_is_large = current, False
            current = _OpenArchive()
        directory = parent
        current.add(entry, size)
    if current.entries and held is not None and current.size < limits.min_size:
        held.join(current)
        current = _OpenArchive()
    for last in (held, current):
        if last is not None and last.entries:
            number += 1
            yield last.finish(number)
