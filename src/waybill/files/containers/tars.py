"""Tars: headers of 512 bytes, each followed by its file, up to two blocks of zeros.

A tar is read once from start to end, so that it can be a decompressed stream. Names that are too long for a header come
before it, as GNU tar writes them (type L) or as POSIX does (type x, a list of `length key=value`). Damaged data is
refused, also where other programs take it for the end: a container that ends early has lost files.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Protocol

from waybill.files.containers.entries import CHUNK, BadContainer, ContainerEntry

BLOCK = 512

_LONGEST_EXTRA = 1024 * 1024
_ZEROS = bytes(BLOCK)
_OCTAL = re.compile(rb"[\x00 ]*([0-7]*)[\x00 ]*")
_RECORD = re.compile(rb"([1-9][0-9]{0,6}) ([^=]+)=")
_REFUSED_TYPES = {
    b"1": "is a link to another file",
    b"2": "is a symbolic link",
    b"3": "is a device",
    b"4": "is a device",
    b"6": "is a pipe",
    b"S": "is packed as a sparse file: pack it without that option",
    b"M": "continues from another volume",
}
_FILE_TYPES = {b"0", b"\0", b"7"}
_SKIPPED_TYPES = {b"V"}  # the name of the volume


class ByteSource(Protocol):
    def read(self, size: int, /) -> bytes: ...


def iter_tar_entries(source: ByteSource) -> Iterator[ContainerEntry]:
    """Yield all entries; each must be read before the next, or is skipped."""
    reader = _TarReader(source)
    while (header := reader.next_header()) is not None:
        data = _EntryData(source, header.size)
        yield ContainerEntry(header.name, header.size, header.is_folder, data.chunks, header.refusal)
        data.skip()
    reader.check_end()


def is_header(block: bytes) -> bool:
    """Whether this is the header of an entry: its checksum is right."""
    try:
        checksum = _parse_number(block[148:156])
    except BadContainer:
        return False
    blank = block[:148] + b" " * 8 + block[156:]
    # Some old programs added signed bytes.
    return len(block) == BLOCK and checksum in (sum(blank), sum(byte - 256 if byte > 127 else byte for byte in blank))


@dataclass(slots=True)
class _TarHeader:
    name: str
    size: int
    is_folder: bool
    refusal: str


@dataclass(slots=True)
class _ExtendedHeader:
    """Values from before a header, for it alone or for all that follow."""

    name: bytes | None = None
    size: int | None = None
    sparse: bool = False

    def merge_over(self, other: _ExtendedHeader) -> _ExtendedHeader:
        return _ExtendedHeader(
            other.name if self.name is None else self.name,
            other.size if self.size is None else self.size,
            self.sparse or other.sparse,
        )


@dataclass(slots=True)
class _TarReader:
    source: ByteSource
    global_header: _ExtendedHeader = field(default_factory=_ExtendedHeader)
    has_begun: bool = False

    def next_header(self) -> _TarHeader | None:
        """Return the next header of a file, a folder or a refused entry; None at the end."""
        extra = _ExtendedHeader()
        while True:
            block = _read_exactly(self.source, BLOCK)
            if block == _ZEROS:
                return None
            if not is_header(block):
                raise BadContainer(
                    "The tar is damaged: a header in it does not match its checksum."
                    if self.has_begun
                    else "This is not a tar file."
                )
            self.has_begun = True
            kind, size = block[156:157], _parse_number(block[124:136])
            if kind in (b"x", b"g", b"L", b"K"):
                if size > _LONGEST_EXTRA:
                    raise BadContainer("A name in the tar is longer than any name can be.")
                data = b"".join(_EntryData(self.source, size).chunks(skip_padding=True))
                if kind == b"L":
                    extra.name = data.rstrip(b"\0")
                elif kind == b"x":
                    extra = _parse_records(data).merge_over(extra)
                elif kind == b"g":
                    self.global_header = _parse_records(data).merge_over(self.global_header)
            elif kind in _SKIPPED_TYPES:
                _EntryData(self.source, size).skip()
            else:
                return self._build_header(block, kind, size, extra.merge_over(self.global_header))

    def _build_header(self, block: bytes, kind: bytes, size: int, extra: _ExtendedHeader) -> _TarHeader:
        raw = _name_of(block) if extra.name is None else extra.name
        size = size if extra.size is None else extra.size
        refusal = "" if kind in _FILE_TYPES or kind == b"5" else _REFUSED_TYPES.get(kind, "is of an unknown type")
        if extra.sparse:
            refusal = _REFUSED_TYPES[b"S"]
        folder = kind == b"5" or (kind in _FILE_TYPES and raw.endswith(b"/"))
        if kind in (b"1", b"2", b"3", b"4", b"5", b"6"):
            size = 0  # such entries have no data, whatever the header says
        return _TarHeader(_decode_name(raw), size, folder, refusal)

    def check_end(self) -> None:
        """Only zeros may follow the end: anything else could be a second tar with unread files."""
        while chunk := self.source.read(CHUNK):
            if chunk.count(0) != len(chunk):
                raise BadContainer("There is data after the end of the tar: perhaps two tars were concatenated.")


class _EntryData:
    """The unread data of one entry."""

    def __init__(self, source: ByteSource, size: int) -> None:
        self._source = source
        self._left = size
        self._padding = -size % BLOCK

    def chunks(self, *, skip_padding: bool = False) -> Iterator[bytes]:
        while self._left:
            chunk = _read_some(self._source, min(self._left, CHUNK))
            self._left -= len(chunk)
            yield chunk
        if skip_padding:
            self.skip()

    def skip(self) -> None:
        for _ in self.chunks():
            pass
        if self._padding:
            _read_exactly(self._source, self._padding)
            self._padding = 0


def _read_some(source: ByteSource, size: int) -> bytes:
    data = source.read(size)
    if not data:
        raise BadContainer("The tar ends too early: it is incomplete.")
    return data


def _read_exactly(source: ByteSource, size: int) -> bytes:
    data = _read_some(source, size)
    while len(data) < size:
        data += _read_some(source, size - len(data))
    return data


def _parse_number(raw: bytes) -> int:
    if raw[:1] == b"\x80":
        number = int.from_bytes(raw[1:])
        if number < 2**63:
            return number
    elif found := _OCTAL.fullmatch(raw):
        return int(found[1] or b"0", 8)
    raise BadContainer("The tar is damaged: a number in a header cannot be read.")


def _name_of(block: bytes) -> bytes:
    name = block[:100].split(b"\0")[0]
    prefix = block[345:500].split(b"\0")[0] if block[257:263] == b"ustar\0" else b""
    return prefix + b"/" + name if prefix else name


def _parse_records(data: bytes) -> _ExtendedHeader:
    extra = _ExtendedHeader()
    at = 0
    while at < len(data) and data[at]:
        found = _RECORD.match(data, at)
        end = at + int(found[1]) if found else 0
        if not found or end > len(data) or found.end() >= end or data[end - 1 : end] != b"\n":
            raise BadContainer("The tar is damaged: an extended header in it cannot be read.")
        value = data[found.end() : end - 1]
        if found[2] == b"path":
            extra.name = value
        elif found[2] == b"size":
            if not (value.isdigit() and len(value) < 19):
                raise BadContainer("The tar is damaged: a size in an extended header cannot be read.")
            extra.size = int(value)
        elif found[2].startswith(b"GNU.sparse."):
            extra.sparse = True
        at = end
    return extra


def _decode_name(raw: bytes) -> str:
    """Decode a name. Tars do not declare the encoding: nearly all names are UTF-8, others are from older systems."""
    try:
        return raw.decode()
    except UnicodeDecodeError:
        return raw.decode("iso-8859-1")
