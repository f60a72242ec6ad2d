"""Zip archives as a stream: bytes go out while files come in, of any size and number, in bounded memory.

    local header, data (, descriptor)      for each file; a short one is read first, so that its header knows everything
    central directory                      written beside while the files go by, sent at the end
    (zip64 end, locator,) end

Names are UTF-8 and say so. What does not fit into 32 bits, or 16 for the number of files, is written in the zip64 form,
and only that.
"""

from __future__ import annotations

import struct
import tempfile
import time
import zlib
from collections.abc import Iterable, Iterator
from typing import IO

from waybill.apps.ingest.access.members import Member

SHORT = 1024 * 1024  # bytes of a file that is read before its header is written
SPOOL = 4 * 1024 * 1024  # bytes of the central directory that are kept in memory
STORED, DEFLATED = 0, 8

_UTF8, _DESCRIPTOR = 0x800, 0x8
_FULL = 0xFFFFFFFF
_LOCAL = struct.Struct("<4sHHHHHLLLHH")
_CENTRAL = struct.Struct("<4sBBHHHHHLLLHHHHHLL")
_END64 = struct.Struct("<4sQHHLLQQQQ")
_LOCATOR = struct.Struct("<4sLQL")
_END = struct.Struct("<4sHHHHLLH")


class Zip:
    """One archive. `most` and `most_files` are where the zip64 form begins; tests make them small."""

    def __init__(
        self, *, deflate: bool, folder: str | None = None, most: int = _FULL, most_files: int = 0xFFFF
    ) -> None:
        self._deflate, self._folder, self._most, self._most_files = deflate, folder, most, most_files
        self._at = 0
        self._count = 0

    def portions(self, members: Iterable[Member]) -> Iterator[bytes]:
        with tempfile.SpooledTemporaryFile(SPOOL, dir=self._folder) as directory:
            for member in members:
                for portion in self._member(member, directory):
                    self._at += len(portion)
                    yield portion
            start = self._at
            directory.seek(0)
            while portion := directory.read(SHORT):
                self._at += len(portion)
                yield portion
            yield self._end(start, self._at - start)

    def _member(self, member: Member, directory: IO[bytes]) -> Iterator[bytes]:
        offset, name, stamp = self._at, member.name.encode(), _stamp(member.modified)
        if member.size <= SHORT:
            data = b"".join(member.portions())
            packed = self._squeeze(data)
            method, body = (DEFLATED, packed) if packed is not None and len(packed) < len(data) else (STORED, data)
            flags, crc, size, length = _UTF8, zlib.crc32(data), len(body), len(data)
            large = max(size, length) >= self._most
            yield _local(name, flags, method, stamp, crc, size, length, large)
            yield body
        else:
            method, flags = DEFLATED if self._deflate else STORED, _UTF8 | _DESCRIPTOR
            # What is deflated can become a little longer, and the header must decide now.
            large = member.size + member.size // 1000 + 1000 >= self._most
            yield _local(name, flags, method, stamp, 0, 0, 0, large)
            squeezer = zlib.compressobj(6, zlib.DEFLATED, -15) if self._deflate else None
            crc = size = length = 0
            for portion in member.portions():
                crc, length = zlib.crc32(portion, crc), length + len(portion)
                sent = squeezer.compress(portion) if squeezer else portion
                if sent:
                    size += len(sent)
                    yield sent
            if squeezer:
                rest = squeezer.flush()
                size += len(rest)
                yield rest
            yield struct.pack("<4sLQQ" if large else "<4sLLL", b"PK\x07\x08", crc, size, length)
        version = 45 if large else 20
        directory.write(self._central(name, flags, method, stamp, crc, size, length, offset, version))
        self._count += 1

    def _squeeze(self, data: bytes) -> bytes | None:
        if not self._deflate:
            return None
        squeezer = zlib.compressobj(6, zlib.DEFLATED, -15)
        return squeezer.compress(data) + squeezer.flush()

    def _central(
        self,
        name: bytes,
        flags: int,
        method: int,
        stamp: tuple[int, int],
        crc: int,
        size: int,
        length: int,
        offset: int,
        version: int,
    ) -> bytes:
        more, shown = [], []
        for value in (length, size, offset):  # in this order, and only those that do not fit
            more += [value] if value >= self._most else []
            shown.append(_FULL if value >= self._most else value)
        extra = struct.pack(f"<HH{len(more)}Q", 1, 8 * len(more), *more) if more else b""
        head = _CENTRAL.pack(
            b"PK\x01\x02",
            45,
            3,
            45 if more else version,
            flags,
            method,
            *stamp,
            crc,
            shown[1],
            shown[0],
            len(name),
            len(extra),
            0,
            0,
            0,
            0o100644 << 16,
            shown[2],
        )
        return head + name + extra

    def _end(self, start: int, size: int) -> bytes:
        count, end = self._count, b""
        if count >= self._most_files or start >= self._most or size >= self._most:
            end = _END64.pack(b"PK\x06\x06", _END64.size - 12, 45, 45, 0, 0, count, count, size, start)
            end += _LOCATOR.pack(b"PK\x06\x07", 0, start + size, 1)
            count, size, start = 0xFFFF, _FULL, _FULL
        return end + _END.pack(b"PK\x05\x06", 0, 0, count, count, size, start, 0)


def _local(
    name: bytes, flags: int, method: int, stamp: tuple[int, int], crc: int, size: int, length: int, large: bool
) -> bytes:
    extra = struct.pack("<HHQQ", 1, 16, length, size) if large else b""
    if large:
        size = length = _FULL
    return (
        _LOCAL.pack(b"PK\x03\x04", 45 if large else 20, flags, method, *stamp, crc, size, length, len(name), len(extra))
        + name
        + extra
    )


def _stamp(seconds: float) -> tuple[int, int]:
    """Time and date as zip has them, in UTC, from 1980 on."""
    year, month, day, hour, minute, second = time.gmtime(max(seconds, 315532800))[:6]
    return hour << 11 | minute << 5 | second // 2, (min(year, 2107) - 1980) << 9 | month << 5 | day
