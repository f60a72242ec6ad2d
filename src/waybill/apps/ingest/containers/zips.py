"""Zips: files one after the other, and at the end a directory of them, which alone says what is there.

The directory is read record by record; then each file from where the directory says, and the header that stands there
must agree. Large files and many files have their numbers in further fields (zip64). No two files may share bytes: that
is how a small zip unpacks to petabytes. Names are UTF-8 where the zip says so, where another field says so, or where
they can be; else what DOS or an old Unix wrote.
"""

from __future__ import annotations

import bz2
import os
import stat
import struct
import zlib
from array import array
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import pairwise
from typing import BinaryIO, Protocol

from waybill.apps.ingest.containers.entries import PORTION, BadContainer, BadFile, Entry

_END = struct.Struct("<4s4H2LH")
_END_64 = struct.Struct("<4sQ2H2L4Q")
_WHERE_64 = struct.Struct("<4sLQL")
_RECORD = struct.Struct("<4s6H3L5H2L")
_LOCAL = struct.Struct("<4s5H3L2H")
_LONGEST_COMMENT = 0xFFFF
_FULL = 0xFFFFFFFF
_DAMAGED = "The zip is damaged: its directory cannot be read."
_NOT_WHOLE = "The zip is not whole, or no zip: it does not end with a directory of its files."


@dataclass(frozen=True, slots=True)
class _File:
    """What the directory says of one file."""

    raw: bytes
    name: str
    system: int
    flags: int
    method: int
    crc: int
    packed: int
    size: int
    attributes: int
    start: int  # of its header

    @property
    def folder(self) -> bool:
        return (
            self.name.endswith("/")
            or self._unix_kind == stat.S_IFDIR
            or (self.system == 0 and bool(self.attributes & 0x10))
        )

    @property
    def _unix_kind(self) -> int:
        return stat.S_IFMT(self.attributes >> 16) if self.system in (3, 19) else 0  # Unix, macOS

    @property
    def refusal(self) -> str:
        kind = self._unix_kind
        if self.flags & 0x2041:
            return "is encrypted"
        if kind == stat.S_IFLNK:
            return "is a symbolic link"
        if kind not in (0, stat.S_IFREG, stat.S_IFDIR):
            return "is a device or a pipe"
        if self.method not in (0, 8, 12):
            return f"is compressed by a method that is not known ({self.method}): pack it with deflate, as nearly all programs do"
        return ""


def entries(file: BinaryIO) -> Iterator[Entry]:
    """Everything in the zip, in the order of its directory."""
    size = os.fstat(file.fileno()).st_size
    start, length, count = _directory(file, size)
    _check_overlaps(file, start, length, count)
    for found in _records(file, start, length, count):

        def portions(found: _File = found) -> Iterator[bytes]:
            return _read(file, found)

        yield Entry(found.name, found.size, found.folder, portions, found.refusal)


def _directory(file: BinaryIO, size: int) -> tuple[int, int, int]:
    """Where the directory is, how long, and how many files it lists."""
    tail_start = max(0, size - _LONGEST_COMMENT - _END.size)
    tail = _at(file, tail_start, size - tail_start)
    place = len(tail)
    while True:
        place = tail.rfind(b"PK\x05\x06", 0, place + 3 if place else 0)
        if place < 0:
            raise BadContainer(_NOT_WHOLE)
        if len(tail) - place >= _END.size:
            _, disk, first_disk, here, count, length, start, comment = _END.unpack_from(tail, place)
            if place + _END.size + comment == len(tail):
                break
    end = tail_start + place
    if 0xFFFF in (here, count) or _FULL in (length, start):
        if end < _WHERE_64.size:
            raise BadContainer(_DAMAGED)
        signature, _, where, disks = _WHERE_64.unpack(_at(file, end - _WHERE_64.size, _WHERE_64.size))
        if signature == b"PK\x06\x07":
            if disks > 1 or where > end - _WHERE_64.size - _END_64.size:
                raise BadContainer(_DAMAGED)
            signature, _, _, _, disk, first_disk, here, count, length, start = _END_64.unpack(
                _at(file, where, _END_64.size)
            )
            if signature != b"PK\x06\x06":
                raise BadContainer(_DAMAGED)
            end = where
    if disk or first_disk or here != count:
        raise BadContainer("The zip is in several parts: put them together first.")
    if start + length != end:
        raise BadContainer(
            "The zip is damaged, or something was put before or into it: its directory is not where it says."
        )
    return start, length, count


def _records(file: BinaryIO, start: int, length: int, count: int) -> Iterator[_File]:
    at, end = start, start + length
    for _ in range(count):
        if at + _RECORD.size > end:
            raise BadContainer(_DAMAGED)
        record = _RECORD.unpack(_at(file, at, _RECORD.size))
        (
            signature,
            made_by,
            _,
            flags,
            method,
            _,
            _,
            crc,
            packed,
            size,
            of_name,
            of_extra,
            of_comment,
            _,
            _,
            outside,
            header,
        ) = record
        more = of_name + of_extra + of_comment
        if signature != b"PK\x01\x02" or at + _RECORD.size + more > end:
            raise BadContainer(_DAMAGED)
        rest = _at(file, at + _RECORD.size, of_name + of_extra)
        raw, extra = rest[:of_name], _fields(rest[of_name:])
        size, packed, header = _with_zip64(extra.get(1, b""), size, packed, header)
        name = _decoded(raw, flags, made_by >> 8, extra.get(0x7075, b""))
        if header + _LOCAL.size + packed > start:
            raise BadContainer(_DAMAGED)
        yield _File(raw, name, made_by >> 8, flags, method, crc, packed, size, outside, header)
        at += _RECORD.size + more
    if at != end:
        raise BadContainer(_DAMAGED)


def _check_overlaps(file: BinaryIO, start: int, length: int, count: int) -> None:
    begins, ends = array("Q"), array("Q")  # no objects: there may be a million
    for found in _records(file, start, length, count):
        begins.append(found.start)
        ends.append(found.start + _LOCAL.size + len(found.raw) + found.packed)
    in_order = all(after >= before for before, after in pairwise(begins))
    places = zip(begins, ends, strict=True) if in_order else sorted(zip(begins, ends, strict=True))
    for (_, before), (after, _) in pairwise(places):
        if after < before:
            raise BadContainer("Files in the zip share the same bytes, as in a zip bomb.")


def _read(file: BinaryIO, found: _File) -> Iterator[bytes]:
    """The file's bytes; they must be as many, and have the check sum, that the directory says."""
    signature, _, _, _, _, _, _, _, _, of_name, of_extra = _LOCAL.unpack(_at(file, found.start, _LOCAL.size))
    if signature != b"PK\x03\x04" or _at(file, found.start + _LOCAL.size, of_name) != found.raw:
        raise BadFile("is called otherwise where it stands than in the directory of the zip")
    at, left, size, crc = found.start + _LOCAL.size + of_name + of_extra, found.packed, 0, 0
    inflating = _decompressor(found.method)
    while left:
        packed = _at(file, at, min(left, PORTION))
        at, left = at + len(packed), left - len(packed)
        for portion in _inflated(inflating, packed):
            size, crc = size + len(portion), zlib.crc32(portion, crc)
            if size > found.size:
                raise BadFile(f"is longer than the {found.size} bytes that the zip says")
            yield portion
    whole = inflating.eof or not found.method or not found.packed
    if size != found.size or crc != found.crc or not whole or inflating.unused_data:
        raise BadFile("is damaged: its length or check sum is not what the zip says")


class _Decompressor(Protocol):
    @property
    def eof(self) -> bool: ...

    @property
    def unused_data(self) -> bytes: ...

    def decompress(self, data: bytes, max_length: int = ..., /) -> bytes: ...


class _Stored:
    """What is not compressed at all."""

    eof = False
    unused_data = b""

    def decompress(self, data: bytes, max_length: int = 0, /) -> bytes:
        return data


def _decompressor(method: int) -> _Decompressor:
    return zlib.decompressobj(-15) if method == 8 else bz2.BZ2Decompressor() if method == 12 else _Stored()


def _inflated(inflating: _Decompressor, packed: bytes) -> Iterator[bytes]:
    """All that these bytes make, a portion at a time, however much it is."""
    while not inflating.eof:
        try:
            made = inflating.decompress(packed, PORTION)
        except (zlib.error, OSError, EOFError, ValueError):
            raise BadFile("is damaged: it cannot be decompressed") from None
        if made:
            yield made
        packed = getattr(inflating, "unconsumed_tail", b"")
        if not packed and len(made) < PORTION:
            return  # it wants more
    if packed:
        raise BadFile("is damaged: something follows its end")


def _at(file: BinaryIO, place: int, length: int) -> bytes:
    data = os.pread(file.fileno(), length, place)
    while len(data) < length:
        more = os.pread(file.fileno(), length - len(data), place + len(data))
        if not more:
            raise BadContainer(_NOT_WHOLE)
        data += more
    return data


def _fields(extra: bytes) -> dict[int, bytes]:
    found: dict[int, bytes] = {}
    at = 0
    while at + 4 <= len(extra):
        kind, length = struct.unpack_from("<2H", extra, at)
        found.setdefault(kind, extra[at + 4 : at + 4 + length])
        at += 4 + length
    return found


def _with_zip64(field: bytes, *numbers: int) -> tuple[int, int, int]:
    """Numbers that did not fit into the record come from the field, in their order."""
    found: list[int] = []
    for number in numbers:
        if number == _FULL and field:
            if len(field) < 8:
                raise BadContainer(_DAMAGED)
            number, field = int.from_bytes(field[:8], "little"), field[8:]
        found.append(number)
    return found[0], found[1], found[2]


def _decoded(raw: bytes, flags: int, system: int, unicode_path: bytes) -> str:
    if (
        len(unicode_path) > 5
        and unicode_path[0] == 1
        and int.from_bytes(unicode_path[1:5], "little") == zlib.crc32(raw)
    ):
        raw = unicode_path[5:]
    try:
        name = raw.decode()
    except UnicodeDecodeError:
        if flags & 0x800:
            raise BadContainer("The zip is damaged: a name in it is not UTF-8, though the zip says so.") from None
        name = raw.decode("iso-8859-1" if system == 3 else "cp437")
    # some programs of Windows use its own separator
    return name.replace("\\", "/") if system == 0 and "/" not in name else name
