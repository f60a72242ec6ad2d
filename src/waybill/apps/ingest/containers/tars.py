"""Tars: headers of 512 bytes, each followed by its file, up to two blocks of zeros.

Read once from the first byte to the last, so that it may come out of a decompressor. Names longer than a header come
before it, as GNU tar writes them (type L) or as POSIX does (type x, a list of `length key=value`). What is damaged is
refused, also where another program would take it for the end: a container that ends early has lost files.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Protocol

from waybill.apps.ingest.containers.entries import PORTION, BadContainer, Entry

BLOCK = 512

_LONGEST_EXTRA = 1024 * 1024
_ZEROS = bytes(BLOCK)
_OCTAL = re.compile(rb"[\x00 ]*([0-7]*)[\x00 ]*")
_RECORD = re.compile(rb"([1-9][0-9]{0,6}) ([^=]+)=")
_REFUSED = {
    b"1": "is a link to another file",
    b"2": "is a symbolic link",
    b"3": "is a device",
    b"4": "is a device",
    b"6": "is a pipe",
    b"S": "is packed as a sparse file: pack it without that option",
    b"M": "goes on from another volume",
}
_FILES = {b"0", b"\0", b"7"}
_PASSED_OVER = {b"V"}  # the name of the volume


class Source(Protocol):
    def read(self, size: int, /) -> bytes: ...


def entries(source: Source) -> Iterator[Entry]:
    """Everything in the tar; each must be read, or is skipped, before the next."""
    reading = _Reading(source)
    while (header := reading.header()) is not None:
        rest = _Rest(source, header.size)
        yield Entry(header.name, header.size, header.folder, rest.portions, header.refusal)
        rest.skip()
    reading.end()


def is_header(block: bytes) -> bool:
    """Whether this can be the header of an entry: its check sum is right."""
    try:
        said = _number(block[148:156])
    except BadContainer:
        return False
    blank = block[:148] + b" " * 8 + block[156:]
    # Some old programs added signed bytes.
    return len(block) == BLOCK and said in (sum(blank), sum(byte - 256 if byte > 127 else byte for byte in blank))


@dataclass(slots=True)
class _Header:
    name: str
    size: int
    folder: bool
    refusal: str


@dataclass(slots=True)
class _Extra:
    """What was said before a header, for it alone or for all that follow."""

    name: bytes | None = None
    size: int | None = None
    sparse: bool = False

    def over(self, other: _Extra) -> _Extra:
        return _Extra(
            other.name if self.name is None else self.name,
            other.size if self.size is None else self.size,
            self.sparse or other.sparse,
        )


@dataclass(slots=True)
class _Reading:
    source: Source
    for_all: _Extra = field(default_factory=_Extra)
    begun: bool = False

    def header(self) -> _Header | None:
        """The next header of a file, a folder or something that is refused; None at the end."""
        extra = _Extra()
        while True:
            block = _exactly(self.source, BLOCK)
            if block == _ZEROS:
                return None
            if not is_header(block):
                said = (
                    "The tar is damaged: a header in it does not agree with its check sum."
                    if self.begun
                    else "This is no tar file."
                )
                raise BadContainer(said)
            self.begun = True
            kind, size = block[156:157], _number(block[124:136])
            if kind in (b"x", b"g", b"L", b"K"):
                if size > _LONGEST_EXTRA:
                    raise BadContainer("A name in the tar is longer than any name can be.")
                data = b"".join(_Rest(self.source, size).portions(padded=True))
                if kind == b"L":
                    extra.name = data.rstrip(b"\0")
                elif kind == b"x":
                    extra = _records(data).over(extra)
                elif kind == b"g":
                    self.for_all = _records(data).over(self.for_all)
            elif kind in _PASSED_OVER:
                _Rest(self.source, size).skip()
            else:
                return self._found(block, kind, size, extra.over(self.for_all))

    def _found(self, block: bytes, kind: bytes, size: int, extra: _Extra) -> _Header:
        raw = _name(block) if extra.name is None else extra.name
        size = size if extra.size is None else extra.size
        refusal = "" if kind in _FILES or kind == b"5" else _REFUSED.get(kind, "is of a kind that is not known")
        if extra.sparse:
            refusal = _REFUSED[b"S"]
        folder = kind == b"5" or (kind in _FILES and raw.endswith(b"/"))
        if kind in (b"1", b"2", b"3", b"4", b"5", b"6"):
            size = 0  # whatever it says: nothing follows
        return _Header(_decoded(raw), size, folder, refusal)

    def end(self) -> None:
        """What follows the end must be zeros: anything else would be a second tar, whose files nobody saw."""
        while portion := self.source.read(PORTION):
            if portion.count(0) != len(portion):
                raise BadContainer("Something follows the end of the tar: perhaps two were put together.")


class _Rest:
    """The data of one entry, and how much of it has not been read."""

    def __init__(self, source: Source, size: int) -> None:
        self._source = source
        self._data = size
        self._padding = -size % BLOCK

    def portions(self, *, padded: bool = False) -> Iterator[bytes]:
        while self._data:
            portion = _some(self._source, min(self._data, PORTION))
            self._data -= len(portion)
            yield portion
        if padded:
            self.skip()

    def skip(self) -> None:
        for _ in self.portions():
            pass
        if self._padding:
            _exactly(self._source, self._padding)
            self._padding = 0


def _some(source: Source, size: int) -> bytes:
    data = source.read(size)
    if not data:
        raise BadContainer("The tar ends too early: it is not whole.")
    return data


def _exactly(source: Source, size: int) -> bytes:
    data = _some(source, size)
    while len(data) < size:
        data += _some(source, size - len(data))
    return data


def _number(raw: bytes) -> int:
    if raw[:1] == b"\x80":
        number = int.from_bytes(raw[1:])
        if number < 2**63:
            return number
    elif found := _OCTAL.fullmatch(raw):
        return int(found[1] or b"0", 8)
    raise BadContainer("The tar is damaged: a number in a header cannot be read.")


def _name(block: bytes) -> bytes:
    name = block[:100].split(b"\0")[0]
    prefix = block[345:500].split(b"\0")[0] if block[257:263] == b"ustar\0" else b""
    return prefix + b"/" + name if prefix else name


def _records(data: bytes) -> _Extra:
    extra = _Extra()
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


def _decoded(raw: bytes) -> str:
    """Tars do not say how names are encoded: nearly all are UTF-8, and those that cannot be are from before it."""
    try:
        return raw.decode()
    except UnicodeDecodeError:
        return raw.decode("iso-8859-1")
