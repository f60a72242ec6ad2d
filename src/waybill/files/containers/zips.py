"""Zips: files one after the other, and at the end a directory, which alone decides what the zip contains.

The directory is read record by record, then each file at its offset, where the local header must match. Large sizes and
counts are in additional fields (zip64). No two files may share bytes: that is how a small zip unpacks to petabytes.
Names are UTF-8 if the zip or an extra field says so, or if they can be decoded as UTF-8; else they are in the encoding
of DOS or an old Unix.
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
from functools import partial
from itertools import pairwise
from typing import BinaryIO, Protocol

from waybill.files.containers.entries import CHUNK, BadContainer, BadContainerFile, ContainerEntry

_END = struct.Struct("<4s4H2LH")
_END_64 = struct.Struct("<4sQ2H2L4Q")
_LOCATOR_64 = struct.Struct("<4sLQL")
_RECORD = struct.Struct("<4s6H3L5H2L")
_LOCAL = struct.Struct("<4s5H3L2H")
_LONGEST_COMMENT = 0xFFFF
_ZIP64_MARKER = 0xFFFFFFFF
_DAMAGED = "The zip is damaged: its directory cannot be read."
_INCOMPLETE = "The zip is incomplete, or not a zip: it does not end with a directory of its files."


@dataclass(frozen=True, slots=True)
class _ZipRecord:
    """The directory record of one file."""

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
    def is_folder(self) -> bool:
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
            return f"is compressed by an unknown method ({self.method}): use deflate, as nearly all programs do"
        return ""


def iter_zip_entries(file: BinaryIO) -> Iterator[ContainerEntry]:
    """Yield all entries, in the order of the directory."""
    size = os.fstat(file.fileno()).st_size
    start, length, count = _find_directory(file, size)
    _check_overlaps(file, start, length, count)
    for record in _iter_records(file, start, length, count):
        yield ContainerEntry(
            record.name, record.size, record.is_folder, partial(_read_file, file, record), record.refusal
        )


def _find_directory(file: BinaryIO, size: int) -> tuple[int, int, int]:
    """Return the offset and length of the directory, and the number of its files."""
    tail_start = max(0, size - _LONGEST_COMMENT - _END.size)
    tail = _read_at(file, tail_start, size - tail_start)
    place = len(tail)
    while True:
        place = tail.rfind(b"PK\x05\x06", 0, place + 3 if place else 0)
        if place < 0:
            raise BadContainer(_INCOMPLETE)
        if len(tail) - place >= _END.size:
            _, disk, first_disk, here, count, length, start, comment = _END.unpack_from(tail, place)
            if place + _END.size + comment == len(tail):
                break
    end = tail_start + place
    if 0xFFFF in (here, count) or _ZIP64_MARKER in (length, start):
        if end < _LOCATOR_64.size:
            raise BadContainer(_DAMAGED)
        signature, _, where, disks = _LOCATOR_64.unpack(_read_at(file, end - _LOCATOR_64.size, _LOCATOR_64.size))
        if signature == b"PK\x06\x07":
            if disks > 1 or where > end - _LOCATOR_64.size - _END_64.size:
                raise BadContainer(_DAMAGED)
            signature, _, _, _, disk, first_disk, here, count, length, start = _END_64.unpack(
                _read_at(file, where, _END_64.size)
            )
            if signature != b"PK\x06\x06":
                raise BadContainer(_DAMAGED)
            end = where
    if disk or first_disk or here != count:
        raise BadContainer("The zip is split into several parts: join them first.")
    if start + length != end:
        raise BadContainer(
            "The zip is damaged, or data was added before or into it: its directory is not at its declared offset."
        )
    return start, length, count


def _iter_records(file: BinaryIO, start: int, length: int, count: int) -> Iterator[_ZipRecord]:
    at, end = start, start + length
    for _ in range(count):
        if at + _RECORD.size > end:
            raise BadContainer(_DAMAGED)
        record = _RECORD.unpack(_read_at(file, at, _RECORD.size))
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
        rest = _read_at(file, at + _RECORD.size, of_name + of_extra)
        raw, extra = rest[:of_name], _parse_extra_fields(rest[of_name:])
        size, packed, header = _apply_zip64(extra.get(1, b""), size, packed, header)
        name = _decode_name(raw, flags, made_by >> 8, extra.get(0x7075, b""))
        if header + _LOCAL.size + packed > start:
            raise BadContainer(_DAMAGED)
        yield _ZipRecord(raw, name, made_by >> 8, flags, method, crc, packed, size, outside, header)
        at += _RECORD.size + more
    if at != end:
        raise BadContainer(_DAMAGED)


def _check_overlaps(file: BinaryIO, start: int, length: int, count: int) -> None:
    begins, ends = array("Q"), array("Q")  # arrays, since there may be a million files
    for record in _iter_records(file, start, length, count):
        begins.append(record.start)
        ends.append(record.start + _LOCAL.size + len(record.raw) + record.packed)
    in_order = all(after >= before for before, after in pairwise(begins))
    places = zip(begins, ends, strict=True) if in_order else sorted(zip(begins, ends, strict=True))
    for (_, before), (after, _) in pairwise(places):
        if after < before:
            raise BadContainer("Files in the zip share bytes, as in a zip bomb.")


def _read_file(file: BinaryIO, record: _ZipRecord) -> Iterator[bytes]:
    """Yield the bytes of a file; their number and checksum must match the directory."""
    signature, _, _, _, _, _, _, _, _, of_name, of_extra = _LOCAL.unpack(_read_at(file, record.start, _LOCAL.size))
    if signature != b"PK\x03\x04" or _read_at(file, record.start + _LOCAL.size, of_name) != record.raw:
        raise BadContainerFile("has another name in its local header than in the directory of the zip")
    at, left, size, crc = record.start + _LOCAL.size + of_name + of_extra, record.packed, 0, 0
    decompressor = _make_decompressor(record.method)
    while left:
        packed = _read_at(file, at, min(left, CHUNK))
        at, left = at + len(packed), left - len(packed)
        for chunk in _inflate(decompressor, packed):
            size, crc = size + len(chunk), zlib.crc32(chunk, crc)
            if size > record.size:
                raise BadContainerFile(f"is longer than the {record.size} bytes that the zip declares")
            yield chunk
    is_complete = decompressor.eof or not record.method or not record.packed
    if size != record.size or crc != record.crc or not is_complete or decompressor.unused_data:
        raise BadContainerFile("is damaged: its length or checksum does not match the zip")


class _Decompressor(Protocol):
    @property
    def eof(self) -> bool: ...

    @property
    def unused_data(self) -> bytes: ...

    def decompress(self, data: bytes, max_length: int = ..., /) -> bytes: ...


class _NoCompression:
    """Data that is not compressed."""

    eof = False
    unused_data = b""

    def decompress(self, data: bytes, max_length: int = 0, /) -> bytes:
        return data


def _make_decompressor(method: int) -> _Decompressor:
    return zlib.decompressobj(-15) if method == 8 else bz2.BZ2Decompressor() if method == 12 else _NoCompression()


def _inflate(decompressor: _Decompressor, packed: bytes) -> Iterator[bytes]:
    """Yield the decompressed data in chunks, however much it is."""
    while not decompressor.eof:
        try:
            chunk = decompressor.decompress(packed, CHUNK)
        except (zlib.error, OSError, EOFError, ValueError):
            raise BadContainerFile("is damaged: it cannot be decompressed") from None
        if chunk:
            yield chunk
        packed = getattr(decompressor, "unconsumed_tail", b"")
        if not packed and len(chunk) < CHUNK:
            return  # it needs more input
    if packed:
        raise BadContainerFile("is damaged: there is data after its end")


def _read_at(file: BinaryIO, place: int, length: int) -> bytes:
    data = os.pread(file.fileno(), length, place)
    while len(data) < length:
        more = os.pread(file.fileno(), length - len(data), place + len(data))
        if not more:
            raise BadContainer(_INCOMPLETE)
        data += more
    return data


def _parse_extra_fields(extra: bytes) -> dict[int, bytes]:
    fields: dict[int, bytes] = {}
    at = 0
    while at + 4 <= len(extra):
        kind, length = struct.unpack_from("<2H", extra, at)
        fields.setdefault(kind, extra[at + 4 : at + 4 + length])
        at += 4 + length
    return fields


def _apply_zip64(field: bytes, *numbers: int) -> tuple[int, int, int]:
    """Replace numbers that did not fit into the record by those of the zip64 field, in order."""
    values: list[int] = []
    for number in numbers:
        if number == _ZIP64_MARKER and field:
            if len(field) < 8:
                raise BadContainer(_DAMAGED)
            number, field = int.from_bytes(field[:8], "little"), field[8:]
        values.append(number)
    return values[0], values[1], values[2]


def _decode_name(raw: bytes, flags: int, system: int, unicode_path: bytes) -> str:
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
    # some Windows programs write backslashes
    return name.replace("\\", "/") if system == 0 and "/" not in name else name
