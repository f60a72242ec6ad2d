"""Archives of stored objects as streams: any number of files of any size, in bounded memory.

`ArchiveContents` yields the members of an order, file by file from the stored manifests, each verified while it is
read. `ZipPacker` and `pack_tar` turn them into an archive; a damaged file ends the archive with ArchiveSourceDamaged.

A zip is written as

    local header, data (, descriptor)      for each file; a short file is read first, so that its header is complete
    central directory                      spooled while the files are written, sent at the end
    (zip64 end, locator,) end

Names are UTF-8 and flagged as such. The zip64 form is used only for values that do not fit into 32 bits (16 for the
number of files).
"""

from __future__ import annotations

import hashlib
import itertools
import struct
import tarfile
import tempfile
import time
import zlib
from collections.abc import Callable, Iterable, Iterator
from datetime import datetime
from typing import IO, NamedTuple

from waybill.apps.ingest.access.archive_names import ArchiveNames
from waybill.apps.ingest.access.orders import ALL_VERSIONS, AssemblyOrder
from waybill.apps.ingest.names import quote_text
from waybill.apps.ingest.storage import MANIFEST_PATH, StorageService, StoredVersion
from waybill.manifests import ManifestEntry
from waybill.objects import ObjectNotFound, Objects

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


class ArchiveMember(NamedTuple):
    name: str
    size: int
    modified: float  # seconds since 1970
    chunks: Callable[[], Iterator[bytes]]  # opened when the member is packed; raises if the bytes are damaged


class ArchiveSourceDamaged(Exception):
    """The stored object is damaged, so no archive is made of it."""


class ArchiveContents:
    """The members of one archive; `files` and `bytes` count those that were read."""

    def __init__(
        self,
        storage: StorageService,
        objects: Objects,
        order: AssemblyOrder,
        check: Callable[[int], None] = lambda done: None,
    ) -> None:
        """`check` is called for every chunk with the number of bytes read so far; it raises to stop."""
        self._storage, self._order, self._check = storage, order, check
        self._wanted_paths = order.read_file_names(objects)
        self.names = ArchiveNames(order.top_folder)
        self.files = 0
        self.bytes = 0

    def __iter__(self) -> Iterator[ArchiveMember]:
        ark = self._order.object
        all_versions = self._order.version == ALL_VERSIONS
        numbers = (
            [version.number for version in self._storage.list_versions(ark)] if all_versions else [self._order.version]
        )
        for number in numbers:
            stored = self._find_version(ark, number)
            modified = datetime.fromisoformat(stored.created).timestamp()
            for entry in self._iter_entries(stored):
                name = self.names.assign(f"v{number}/{entry.uri}" if all_versions else entry.uri)
                self.files += 1
                yield ArchiveMember(name, entry.size, modified, lambda e=entry, s=stored: self._read(s, e))  # type: ignore[misc]

    def _find_version(self, ark: str, number: int) -> StoredVersion:
        try:
            return self._storage.get_version(ark, number)
        except ObjectNotFound:  # of its manifest
            raise ArchiveSourceDamaged(f"{MANIFEST_PATH} of version {number} of {ark} is missing in storage.") from None

    def _iter_entries(self, stored: StoredVersion) -> Iterator[ManifestEntry]:
        """Yield the wanted files of a version, its manifest last."""
        missing = set(self._wanted_paths) if self._wanted_paths is not None else None
        manifest_entry = ManifestEntry(MANIFEST_PATH, stored.size, stored.sha256, {"place": stored.place})
        self._check_manifest(stored)
        with self._storage.open_manifest(stored) as reader:
            for entry in itertools.chain(reader, [manifest_entry]):
                if missing is not None and entry.uri in missing:
                    missing.discard(entry.uri)
                    yield entry
                elif missing is None and self._order.is_included(entry.uri):
                    yield entry
        if missing:
            raise ArchiveSourceDamaged(
                f"Version {stored.version} of {stored.object} has no file {quote_text(min(missing))}."
            )

    def _check_manifest(self, stored: StoredVersion) -> None:
        """Verify the manifest before it is used: it decides what is in the archive."""
        if not stored.sha256:
            return
        finding = self._storage.check(stored.object, stored.place, stored.size, stored.sha256)
        if finding is not None:
            raise ArchiveSourceDamaged(
                f"{MANIFEST_PATH} of version {stored.version} of {stored.object} is damaged: {finding.message}"
            )

    def _read(self, stored: StoredVersion, entry: ManifestEntry) -> Iterator[bytes]:
        where = f"{quote_text(entry.uri)} in version {stored.version} of {stored.object}"
        digest, size = hashlib.sha256(), 0
        try:
            with self._storage.read(stored.object, str(entry.extra.get("place", ""))) as body:
                for chunk in body:
                    size += len(chunk)
                    if size > entry.size:
                        raise ArchiveSourceDamaged(
                            f"{where} is damaged: it has more than the {entry.size} bytes that it should have."
                        )
                    digest.update(chunk)
                    self.bytes += len(chunk)
                    self._check(self.bytes)
                    yield chunk
        except ObjectNotFound:
            raise ArchiveSourceDamaged(f"{where} is missing in storage.") from None
        if (size, digest.hexdigest()) != (entry.size, entry.sha256):
            raise ArchiveSourceDamaged(
                f"{where} is damaged: it has {size} bytes of SHA-256 {digest.hexdigest()}; it should have {entry.size} of {entry.sha256}."
            )


class ZipPacker:
    """Packs one zip. From `zip64_size` bytes and `zip64_files` files on the zip64 form is used; tests make them small."""

    def __init__(
        self, *, deflate: bool, folder: str | None = None, zip64_size: int = _FULL, zip64_files: int = 0xFFFF
    ) -> None:
        self._deflate, self._folder = deflate, folder
        self._zip64_size, self._zip64_files = zip64_size, zip64_files
        self._offset = 0
        self._count = 0

    def pack(self, members: Iterable[ArchiveMember]) -> Iterator[bytes]:
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

    def _pack_member(self, member: ArchiveMember, directory: IO[bytes]) -> Iterator[bytes]:
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


def pack_tar(members: Iterable[ArchiveMember]) -> Iterator[bytes]:
    for member in members:
        head = tarfile.TarInfo(member.name)
        head.size, head.mtime, head.mode = member.size, int(member.modified), 0o644
        yield head.tobuf(tarfile.PAX_FORMAT, "utf-8", "strict")
        yield from member.chunks()
        yield bytes(-member.size % _TAR_BLOCK)
    yield bytes(_TAR_END)


def compress_gzip(chunks: Iterable[bytes]) -> Iterator[bytes]:
    """Compress a stream; without a timestamp, so that the same content gives the same archive."""
    compressor = zlib.compressobj(6, zlib.DEFLATED, 31)
    for chunk in chunks:
        if packed := compressor.compress(chunk):
            yield packed
    yield compressor.flush()
