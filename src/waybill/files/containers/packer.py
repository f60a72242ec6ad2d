"""Writes zips and tars as streams: any number of files of any size, in bounded memory.

`ZipPacker` and `pack_tar` turn members into a container; what reading a member raises ends the stream.
`store_container` writes it to the objects.

A zip is written as

    local header, data (, descriptor)      for each file; a short file is read first, so that its header is complete
    central directory                      spooled while the files are written, sent at the end
    (zip64 end, locator,) end

Names are UTF-8 and flagged as such. The zip64 form is used only for values that do not fit into 32 bits (16 for the
number of files). The same members give the same bytes.
"""

from __future__ import annotations

import hashlib
import struct
import tarfile
import tempfile
import time
import zlib
from collections.abc import Callable, Iterable, Iterator
from typing import IO, NamedTuple

from waybill.objects import MAX_PART_NUMBER, MIN_PART_SIZE, DirectoryObjects, ObjectInfo, Objects

BUFFERED_FILE_SIZE = 1024 * 1024  # bytes; a smaller file is read before its header is written
SPOOL_SIZE = 4 * 1024 * 1024  # bytes of the central directory that stay in memory
STORED, DEFLATED = 0, 8

_UTF8, _DESCRIPTOR = 0x800, 0x8
_FULL = 0xFFFFFFFF
_LOCAL = struct.Struct("<4sHHHHHLLLHH")
_CENTRAL = struct.Struct("<4sBBHHHHHLLLHHHHHLL")
_END64 = struct.Struct("<4sQHHLLQQQQ")
_LOCATOR = struct.Struct("<4sLQL")
_ZIP_END = struct.Struct("<4sHHHHLLH")
_TAR_BLOCK = 512
_TAR_END = 2 * _TAR_BLOCK


class MemberToPack(NamedTuple):
    name: str
    size: int
    modified: float  # seconds since 1970
    chunks: Callable[[], Iterator[bytes]]  # opened when the member is packed; raises if the bytes are damaged


class ZipPacker:
    """Packs one zip. From `zip64_size` bytes and `zip64_files` files on the zip64 form is used; tests make them small."""

    def __init__(
        self, *, deflate: bool, folder: str | None = None, zip64_size: int = _FULL, zip64_files: int = 0xFFFF
    ) -> None:
        self._deflate, self._folder = deflate, folder
        self._zip64_size, self._zip64_files = zip64_size, zip64_files
        self._offset = 0
        self._count = 0

    def pack(self, members: Iterable[MemberToPack]) -> Iterator[bytes]:
        with tempfile.SpooledTemporaryFile(SPOOL_SIZE, dir=self._folder) as directory:
            for member in members:
                for chunk in self._pack_member(member, directory):
                    self._offset += len(chunk)
                    yield chunk
            start = self._offset
            directory.seek(0)
            while chunk := directory.read(BUFFERED_FILE_SIZE):
                self._offset += len(chunk)
                yield chunk
            yield self._build_end_records(start, self._offset - start)

    def _pack_member(self, member: MemberToPack, directory: IO[bytes]) -> Iterator[bytes]:
        offset, name, stamp = self._offset, member.name.encode(), _to_dos_time(member.modified)
        if member.size <= BUFFERED_FILE_SIZE:
            data = b"".join(member.chunks())
            packed = self._compress(data)
            method, body = (DEFLATED, packed) if packed is not None and len(packed) < len(data) else (STORED, data)
            flags, crc, size, length = _UTF8, zlib.crc32(data), len(body), len(data)
            large = max(size, length) >= self._zip64_size
            yield _build_local_header(name, flags, method, stamp, crc, size, length, large)
            yield body
        else:
            method, flags = DEFLATED if self._deflate else STORED, _UTF8 | _DESCRIPTOR
            # Deflated data can be a little longer than the file, and the header is written now.
            large = member.size + member.size // 1000 + 1000 >= self._zip64_size
            yield _build_local_header(name, flags, method, stamp, 0, 0, 0, large)
            compressor = zlib.compressobj(6, zlib.DEFLATED, -15) if self._deflate else None
            crc = size = length = 0
            for chunk in member.chunks():
                crc, length = zlib.crc32(chunk, crc), length + len(chunk)
                packed_chunk = compressor.compress(chunk) if compressor else chunk
                if packed_chunk:
                    size += len(packed_chunk)
                    yield packed_chunk
            if compressor:
                rest = compressor.flush()
                size += len(rest)
                yield rest
            yield struct.pack("<4sLQQ" if large else "<4sLLL", b"PK\x07\x08", crc, size, length)
        version = 45 if large else 20
        directory.write(self._build_directory_record(name, flags, method, stamp, crc, size, length, offset, version))
        self._count += 1

    def _compress(self, data: bytes) -> bytes | None:
        if not self._deflate:
            return None
        compressor = zlib.compressobj(6, zlib.DEFLATED, -15)
        return compressor.compress(data) + compressor.flush()

    def _build_directory_record(
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
        zip64_values, fields = [], []
        for value in (length, size, offset):  # zip64 values are written in this order, and only those that do not fit
            zip64_values += [value] if value >= self._zip64_size else []
            fields.append(_FULL if value >= self._zip64_size else value)
        extra = (
            struct.pack(f"<HH{len(zip64_values)}Q", 1, 8 * len(zip64_values), *zip64_values) if zip64_values else b""
        )
        head = _CENTRAL.pack(
            b"PK\x01\x02",
            45,
            3,
            45 if zip64_values else version,
            flags,
            method,
            *stamp,
            crc,
            fields[1],
            fields[0],
            len(name),
            len(extra),
            0,
            0,
            0,
            0o100644 << 16,
            fields[2],
        )
        return head + name + extra

    def _build_end_records(self, start: int, size: int) -> bytes:
        count, end = self._count, b""
        if count >= self._zip64_files or start >= self._zip64_size or size >= self._zip64_size:
            end = _END64.pack(b"PK\x06\x06", _END64.size - 12, 45, 45, 0, 0, count, count, size, start)
            end += _LOCATOR.pack(b"PK\x06\x07", 0, start + size, 1)
            count, size, start = 0xFFFF, _FULL, _FULL
        return end + _ZIP_END.pack(b"PK\x05\x06", 0, 0, count, count, size, start, 0)


def _build_local_header(
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


def _to_dos_time(seconds: float) -> tuple[int, int]:
    """Return time and date in the format of zip, in UTC, not before 1980."""
    year, month, day, hour, minute, second = time.gmtime(max(seconds, 315532800))[:6]
    return hour << 11 | minute << 5 | second // 2, (min(year, 2107) - 1980) << 9 | month << 5 | day


def pack_tar(members: Iterable[MemberToPack]) -> Iterator[bytes]:
    for member in members:
        head = tarfile.TarInfo(member.name)
        head.size, head.mtime, head.mode = member.size, int(member.modified), 0o644
        yield head.tobuf(tarfile.PAX_FORMAT, "utf-8", "strict")
        yield from member.chunks()
        yield bytes(-member.size % _TAR_BLOCK)
    yield bytes(_TAR_END)


def compress_gzip(chunks: Iterable[bytes]) -> Iterator[bytes]:
    """Compress a stream; without a timestamp, so that the same content gives the same bytes."""
    compressor = zlib.compressobj(6, zlib.DEFLATED, 31)
    for chunk in chunks:
        if packed := compressor.compress(chunk):
            yield packed
    yield compressor.flush()


class UploadPartSizes(NamedTuple):
    """When a container is uploaded in parts: from `min_content` bytes of content on, in parts of at least `min_part`."""

    min_content: int = 100 * 2**30
    min_part: int = MIN_PART_SIZE


_PART_SIZES = UploadPartSizes()


def store_container(
    objects: Objects, name: str, chunks: Iterator[bytes], content: int, part_sizes: UploadPartSizes = _PART_SIZES
) -> ObjectInfo:
    """Store what was packed of `content` bytes. A very long container is uploaded to S3 in large enough parts, because its
    final length is not known.
    """
    if content < part_sizes.min_content or isinstance(objects, DirectoryObjects):
        return objects.put(name, chunks)
    size, digest = max(part_sizes.min_part, content // (MAX_PART_NUMBER // 2)), hashlib.sha256()
    with objects.upload(name) as upload:
        for number, part in enumerate(_split_parts(chunks, size), 1):
            digest.update(part)
            upload.put_part(number, part)
        return upload.complete(sha256=digest.hexdigest())


def _split_parts(chunks: Iterator[bytes], size: int) -> Iterator[bytes]:
    part = bytearray()
    for chunk in chunks:
        part += chunk
        if len(part) >= size:
            yield bytes(part)
            part.clear()
    if part:
        yield bytes(part)
