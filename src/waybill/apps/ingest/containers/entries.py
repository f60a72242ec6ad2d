"""Entries: what is in a container, how much of it there may be, and what is said when it is refused."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from enum import StrEnum

import msgspec

PORTION = 256 * 1024


class Kind(StrEnum):
    ZIP = "zip"
    TAR = "tar"
    TAR_GZ = "tar.gz"
    TAR_BZ2 = "tar.bz2"


class Limits(msgspec.Struct, frozen=True):
    """How much a container may hold.

    It is a bomb if it unpacks to more than `ratio` times its size, and more than `harmless` bytes.
    """

    count: int = 1_000_000  # files and folders
    total: int = 2**40  # bytes, unpacked
    ratio: int = 500
    harmless: int = 2**30
    depth: int = 64  # folders within folders
    ignoring_case: bool = False  # refuse `a` beside `A`, for a disk that cannot keep both

    def fault(self, packed: int, unpacked: int) -> str | None:
        if unpacked > self.total:
            return f"It unpacks to more than the {self.total:,} bytes that are allowed."
        if unpacked > self.harmless and unpacked > self.ratio * packed:
            return f"It unpacks to more than {self.ratio} times its size, as a zip bomb does."
        return None


class Complaint(msgspec.Struct, frozen=True):
    """Why a file is refused; without a name, why the container is."""

    name: str
    text: str

    def __str__(self) -> str:
        return self.text


class BadContainer(Exception):
    """The container is not taken."""

    permanent = True

    def __init__(self, complaints: Sequence[Complaint] | str) -> None:
        self.complaints = [Complaint("", complaints)] if isinstance(complaints, str) else list(complaints)
        more = f" (and {len(self.complaints) - 1} more complaints)" if len(self.complaints) > 1 else ""
        super().__init__(f"{self.complaints[0]}{more}")


class BadFile(Exception):
    """One file in the container cannot be had; the text goes on with the name: "is damaged"."""


@dataclass(frozen=True, slots=True)
class Entry:
    """One thing in a container. `portions` reads it, once and before the next entry is asked for."""

    name: str
    size: int
    folder: bool
    portions: Callable[[], Iterator[bytes]]
    refusal: str = ""  # what kind of thing it is, if it is none that is taken: "is a symbolic link"
