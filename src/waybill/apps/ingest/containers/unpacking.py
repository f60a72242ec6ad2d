"""Unpacking: the walk through a container, the same for both formats.

1. Each entry is checked: what it is, its name, its name beside the others, and whether there are too many or too much.
2. As long as nothing was refused, it is written: as many bytes as the container said, not one more.
3. After a refusal nothing is written any more, but all entries are looked at, so that the depositor hears of everything at once.
"""

from __future__ import annotations

import bz2
import gzip
import hashlib
import os
import zlib
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import BinaryIO

import msgspec

from waybill.apps.ingest import names
from waybill.apps.ingest.containers import tars, zips
from waybill.apps.ingest.containers.entries import BadContainer, BadFile, Complaint, Entry, Kind, Limits
from waybill.apps.ingest.containers.folder import Folder, InTheWay

MOST_COMPLAINTS = 1000


class Member(msgspec.Struct, frozen=True):
    """A file as the container describes it."""

    name: str
    size: int


class File(msgspec.Struct, frozen=True):
    """A file as it lies in the folder."""

    name: str
    size: int
    sha256: str


def kind_of(head: bytes) -> Kind | None:
    """Of which kind a file is that begins so (512 bytes are enough); None if it is no container, or one that is not
    known.
    """
    if head.startswith((b"PK\x03\x04", b"PK\x05\x06")):
        return Kind.ZIP
    if head.startswith(b"\x1f\x8b\x08"):
        return Kind.TAR_GZ
    if head.startswith(b"BZh"):
        return Kind.TAR_BZ2
    return Kind.TAR if head[257:262] == b"ustar" or tars.is_header(head[: tars.BLOCK]) else None


def look(
    path: Path, limits: Limits | None = None, *, came: Callable[[int], None] = lambda count: None
) -> Iterator[Member]:
    """Every file in the container; BadContainer at the end, if anything would be refused.

    `came` is told of every portion of bytes that is read of a tar, and may raise to stop.
    """
    with _Walk(path, limits or Limits(), came) as walk, walk.judged():
        for name, entry in walk.files():
            yield Member(name, entry.size)


def unpack(
    path: Path, into: Path, limits: Limits | None = None, *, came: Callable[[int], None] = lambda count: None
) -> Iterator[File]:
    """Unpack into an existing folder, and tell of each file; BadContainer at the end, if anything was refused: then
    take none of them.

    `came` is told of every portion of bytes, and may raise to stop.
    """
    with _Walk(path, limits or Limits()) as walk, Folder(into) as folder, walk.judged():
        for name, entry in walk.files():
            if walk.complaints:
                continue
            try:
                written = _write(folder, name, entry, came)
            except (BadFile, InTheWay) as error:
                walk.complain(name, f"{names.shown(name)} {error}.")
            else:
                yield written


def _write(folder: Folder, name: str, entry: Entry, came: Callable[[int], None]) -> File:
    digest, size = hashlib.sha256(), 0
    with folder.create(name) as file:
        for portion in entry.portions():
            view = memoryview(portion)
            while view:
                view = view[file.write(view) :]
            digest.update(portion)
            size += len(portion)
            came(len(portion))
    return File(name, size, digest.hexdigest())


class _Walk:
    """One container on its way through the checks."""

    def __init__(self, path: Path, limits: Limits, came: Callable[[int], None] = lambda count: None) -> None:
        self._limits, self._came = limits, came
        self._file = open(path, "rb")  # noqa: SIM115 - closed by __exit__
        self._packed = os.fstat(self._file.fileno()).st_size
        self._names = names.Names(ignoring_case=limits.ignoring_case)
        self._count = 0
        self._unpacked = 0
        self.complaints: list[Complaint] = []

    def __enter__(self) -> _Walk:
        return self

    def __exit__(self, *raised: object) -> None:
        self._file.close()

    def files(self) -> Iterator[tuple[str, Entry]]:
        """Every file that is taken, under the name that it gets."""
        for entry in self._entries():
            name = self._checked(entry)
            if name:
                yield name, entry

    @contextmanager
    def judged(self) -> Iterator[None]:
        """In the end, BadContainer with all complaints, if there are any."""
        try:
            with _explained():
                yield
        except BadContainer as error:
            self.complaints.extend(error.complaints)
        if self.complaints:
            raise BadContainer(self.complaints)
        if not self._names:
            raise BadContainer("There are no files in the container.")

    def complain(self, name: str, text: str) -> None:
        self.complaints.append(Complaint(name, text))
        if len(self.complaints) == MOST_COMPLAINTS:
            raise BadContainer(f"Nothing more was looked at: there are {MOST_COMPLAINTS} complaints already.")

    def _entries(self) -> Iterator[Entry]:
        head = self._file.read(tars.BLOCK)
        kind = kind_of(head)
        self._file.seek(0)
        if kind is Kind.ZIP:
            return zips.entries(self._file)
        if kind is None:
            raise BadContainer("The file is empty." if not head else "This is neither a zip nor a tar file.")
        return tars.entries(_Counted(_decompressed(self._file, kind), self._packed, self._limits, self._came))

    def _checked(self, entry: Entry) -> str:
        self._count += 1
        self._unpacked += entry.size
        if self._count > self._limits.count:
            raise BadContainer(f"There are more than {self._limits.count:,} files and folders in the container.")
        fault = self._limits.fault(self._packed, self._unpacked)
        if fault:
            raise BadContainer(fault)
        # tars begin with ./ and folders end with /
        name = "/".join(part for part in entry.name.split("/") if part not in ("", "."))
        if entry.folder and not name and not entry.name.startswith("/"):
            return ""  # the folder itself
        fault = names.fault("/" + name if entry.name.startswith("/") else name)
        if not fault and name.count("/") > self._limits.depth:
            fault = f"{names.shown(name)} lies more than {self._limits.depth} folders deep."
        if not fault and (entry.refusal or (entry.folder and entry.size)):
            fault = f"{names.shown(name)} {entry.refusal or 'is a folder, and has content like a file'}."
        if not fault:
            fault = self._names.enter(name) if entry.folder else self._names.take(name)
        if fault:
            self.complain(name or entry.name, fault)
            return ""
        return "" if entry.folder else name


class _Counted:
    """A tar as it comes out of a decompressor: no more of it than the limits allow, whether it belongs to files or
    not.
    """

    def __init__(self, source: tars.Source, packed: int, limits: Limits, came: Callable[[int], None]) -> None:
        self._source, self._packed, self._limits, self._tell = source, packed, limits, came
        self._came = 0

    def read(self, size: int, /) -> bytes:
        data = self._source.read(size)
        self._came += len(data)
        self._tell(len(data))
        fault = self._limits.fault(self._packed, self._came)
        if fault:
            raise BadContainer(fault)
        return data


def _decompressed(file: BinaryIO, kind: Kind) -> tars.Source:
    if kind is Kind.TAR_GZ:
        return gzip.GzipFile(fileobj=file, mode="rb")
    return bz2.BZ2File(file) if kind is Kind.TAR_BZ2 else file


@contextmanager
def _explained() -> Iterator[None]:
    """What decompressors say of damaged data, as a sentence."""
    try:
        yield
    except EOFError:
        raise BadContainer("The container ends too early: it is not whole.") from None
    except (zlib.error, gzip.BadGzipFile):
        raise BadContainer("The container is damaged: it cannot be decompressed.") from None
    except OSError as error:
        if error.errno is None:  # bz2 says it so
            raise BadContainer("The container is damaged: it cannot be decompressed.") from None
        raise
