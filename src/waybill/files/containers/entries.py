"""The types of containers: kinds, members, limits, complaints, and the entries that zips.py and tars.py yield."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from enum import StrEnum

import msgspec

from waybill.errors import FormatError

CHUNK = 256 * 1024
CONTAINER_ENDINGS = (".zip", ".tar", ".tar.gz", ".tgz", ".tar.bz2", ".tbz2")  # of the names of containers


class ContainerKind(StrEnum):
    ZIP = "zip"
    TAR = "tar"
    TAR_GZ = "tar.gz"
    TAR_BZ2 = "tar.bz2"


class ContainerLimits(msgspec.Struct, frozen=True):
    """How much a container may contain.

    It is a zip bomb if it unpacks to more than `ratio` times its size and more than `harmless` bytes.
    """

    count: int = 1_000_000  # files and folders
    total: int = 2**40  # bytes, unpacked
    ratio: int = 500
    harmless: int = 2**30
    depth: int = 64  # folders within folders
    ignoring_case: bool = False  # refuse `a` beside `A`, for a disk that does not distinguish them

    def find_fault(self, packed: int, unpacked: int) -> str | None:
        if unpacked > self.total:
            return f"It unpacks to more than the {self.total:,} bytes that are allowed."
        if unpacked > self.harmless and unpacked > self.ratio * packed:
            return f"It unpacks to more than {self.ratio} times its size, as a zip bomb does."
        return None


class ContainerMember(msgspec.Struct, frozen=True):
    """A file as the container describes it."""

    name: str
    size: int


class UnpackedFile(msgspec.Struct, frozen=True):
    """A file in the target folder."""

    name: str
    size: int
    sha256: str


class ContainerComplaint(msgspec.Struct, frozen=True):
    """Why a file is refused; without a name, why the container is refused."""

    name: str
    text: str

    def __str__(self) -> str:
        return self.text


class BadContainer(FormatError):
    """The container is refused."""

    code = "bad-container"

    def __init__(self, complaints: Sequence[ContainerComplaint] | str) -> None:
        self.complaints = [ContainerComplaint("", complaints)] if isinstance(complaints, str) else list(complaints)
        more = f" (and {len(self.complaints) - 1} more complaints)" if len(self.complaints) > 1 else ""
        super().__init__(f"{self.complaints[0]}{more}")


class BadContainerFile(FormatError):
    """A file in the container cannot be read or stored; the message follows its name: "is damaged"."""

    code = "bad-container"


@dataclass(frozen=True, slots=True)
class ContainerEntry:
    """An entry of a container. `chunks` reads it, once and before the next entry is requested."""

    name: str
    size: int
    is_folder: bool
    chunks: Callable[[], Iterator[bytes]]
    refusal: str = ""  # why an entry of its type is refused: "is a symbolic link"
