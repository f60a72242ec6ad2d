"""An archive as a source of bytes: read from the files while it is sent, with no copy in between.

What the archive will be is fixed before: its members, where each begins, its size. While it streams, a thread reads the
files and computes the digest of each, and hands over blocks of the archive, which the caller sends and digests as a
whole; so both are done in one pass, on two cores. After a file was read, its descriptor says whether it still is what
was recorded: if it is not, SourceChanged names it, and what was sent is worthless.

Blocks are at most 1 MiB and few are under way, so memory does not depend on the size of a file.
"""

from __future__ import annotations

import hashlib
import os
import queue
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import closing, suppress
from pathlib import Path

import msgspec

from waybill.apps.archive.files.entries import FileEntry, FileSet, to_printable
from waybill.apps.archive.files.source_tree import SourceTree, describe_change
from waybill.apps.archive.files.tar_headers import TAR_END, content_size, make_headers, padded, padding_of
from waybill.apps.archive.storages import SourceChanged

BLOCK_SIZE = 1024 * 1024
_SMALL = 128 * 1024  # smaller files are collected into blocks
_BLOCKS_UNDER_WAY = 4
_END = object()


class TarSource:
    """An archive as an ArchiveSource. It can be iterated again and again, and gives the same bytes.

    `iter_chunks` raises SourceChanged, naming the file, if one is not as its entry says. When it has been read to the end,
    `entries` have their digests; the digest of the whole is what `storage.put` returns.
    """

    path: Path | None = None

    def __init__(self, file_set: FileSet, entries: Sequence[FileEntry]) -> None:
        """`entries` of one PlannedArchive."""
        self._file_set = file_set
        self._planned = tuple(entries)
        self._packed: tuple[FileEntry, ...] | None = None
        last = self._planned[-1] if self._planned else None
        end = last.offset + len(make_headers(last)) + padded(content_size(last)) if last else 0
        self.size = end + len(TAR_END)

    @property
    def entries(self) -> tuple[FileEntry, ...]:
        """The members with `sha256`. Raises RuntimeError before the archive was read to its end."""
        if self._packed is None:
            raise RuntimeError("The archive was not read to its end: its digests are not known.")
        return self._packed

    def iter_chunks(self) -> Iterator[bytes | memoryview]:
        blocks: queue.Queue[object] = queue.Queue(_BLOCKS_UNDER_WAY)
        is_abandoned = threading.Event()
        reader = threading.Thread(
            target=self._read_files, args=(blocks, is_abandoned), name="archive-reader", daemon=True
        )
        reader.start()
        try:
            while True:
                block = blocks.get()
                if block is _END:
                    return
                if isinstance(block, BaseException):
                    raise block
                yield block  # type: ignore[misc] # bytes or memoryview
        finally:
            is_abandoned.set()
            with suppress(queue.Empty):
                while True:  # make room for a reader that waits to hand over a block
                    blocks.get_nowait()
            reader.join()

    def _read_files(self, blocks: queue.Queue[object], is_abandoned: threading.Event) -> None:
        """The life of the reading thread: blocks, and at last _END or what was raised."""

        def hand_over(block: object) -> None:
            while not is_abandoned.is_set():
                with suppress(queue.Full):
                    blocks.put(block, timeout=0.2)
                    return
            raise _AbandonedError

        try:
            with SourceTree(self._file_set) as tree:
                self._packed = _ArchiveReader(tree, hand_over).read_members(self._planned)
            hand_over(_END)
        except _AbandonedError:
            return
        except BaseException as error:  # noqa: BLE001 # raised again by the thread that asked for the blocks
            with suppress(_AbandonedError):
                hand_over(error)


class _AbandonedError(BaseException):  # not an error: control flow
    """Nobody reads the archive any more."""


class _ArchiveReader:
    """Collects headers and small files into blocks, and passes large files on as they are read."""

    def __init__(self, tree: SourceTree, hand_over: Callable[[object], None]) -> None:
        self._tree = tree
        self._hand_over = hand_over
        self._pieces: list[bytes] = []
        self._collected = 0
        self._sent = 0

    def read_members(self, entries: Sequence[FileEntry]) -> tuple[FileEntry, ...]:
        replace = msgspec.structs.replace
        packed = []
        digests: dict[str, str] = {}  # of files that further hard links belong to
        has_links = any(entry.kind == "hardlink" for entry in entries)
        for entry in entries:
            if self._sent + self._collected != entry.offset:
                raise SourceChanged(f"{to_printable(entry.path)} does not lie where it was planned in the archive.")
            self._add(make_headers(entry))
            digest = ""
            if entry.kind == "file":
                try:
                    digest = self._read_file(entry)
                except OSError as error:
                    raise SourceChanged(f"{to_printable(entry.path)} cannot be read: {error.strerror}.") from error
                if has_links:
                    digests[entry.path] = digest
            elif entry.kind == "hardlink":
                digest = digests.get(entry.target, "")
                self._check(entry)
            elif entry.kind == "symlink":
                self._check(entry)
            packed.append(replace(entry, sha256=digest) if digest else entry)
        self._add(TAR_END)
        self._flush()
        return tuple(packed)

    def _check(self, entry: FileEntry) -> None:
        if reason := self._tree.find_change(entry):
            raise SourceChanged(f"{to_printable(entry.path)} {reason}.")

    def _read_file(self, entry: FileEntry) -> str:
        file = self._tree.open_entry(entry.path)
        try:
            if entry.size <= _SMALL and entry.data is None:
                data = os.read(file, entry.size + 1) if entry.size else b""
                if len(data) == entry.size:
                    self._check_file(entry, file)
                    self._add(data)
                    self._add(padding_of(entry.size))
                    return hashlib.sha256(data).hexdigest()
            self._check_file(entry, file)  # nothing of another file is sent, not even to be thrown away
            digest = self._read_pieces(entry, file)
            self._check_file(entry, file)
            return digest
        finally:
            os.close(file)

    def _check_file(self, entry: FileEntry, file: int) -> None:
        """After it was read: then it is also known that it did not change meanwhile."""
        if reason := describe_change(entry, os.fstat(file)):
            raise SourceChanged(f"{to_printable(entry.path)} {reason}.")

    def _read_pieces(self, entry: FileEntry, file: int) -> str:
        self._flush()
        digest, at = hashlib.sha256(), 0
        os.posix_fadvise(file, 0, 0, os.POSIX_FADV_SEQUENTIAL)
        for start, length in entry.data if entry.data is not None else ((0, entry.size),):
            digest_zeros(digest, start - at)
            at, end = start, start + length
            while at < end:
                block = os.pread(file, min(BLOCK_SIZE, end - at), at)
                if not block:
                    raise SourceChanged(f"{to_printable(entry.path)} became shorter while it was read.")
                self._sent += len(block)
                self._hand_over(block)  # before its digest: the other thread begins at once
                digest.update(block)
                at += len(block)
        digest_zeros(digest, entry.size - at)
        self._add(padding_of(entry.stored_size))
        return digest.hexdigest()

    def _add(self, data: bytes) -> None:
        if data:
            self._pieces.append(data)
            self._collected += len(data)
            if self._collected >= BLOCK_SIZE:
                self._flush()

    def _flush(self) -> None:
        if self._pieces:
            self._sent += self._collected
            self._hand_over(b"".join(self._pieces))
            self._pieces, self._collected = [], 0


_ZEROS = bytes(BLOCK_SIZE)


def digest_zeros(digest: hashlib._Hash, count: int) -> None:
    """Digest a hole."""
    while count > 0:
        digest.update(_ZEROS if count >= BLOCK_SIZE else _ZEROS[:count])
        count -= BLOCK_SIZE


def write_staged_archive(path: Path, source: TarSource) -> str:
    """Write the archive to a file, for a storage that wants whole files; return its SHA-256.

    A second run replaces it. It has its name only when it is whole and on the disk.
    """
    unfinished = path.with_name(path.name + ".unfinished")
    digest, size = hashlib.sha256(), 0
    with open(unfinished, "wb", buffering=0) as file, closing(source.iter_chunks()) as chunks:  # type: ignore[type-var]
        for chunk in chunks:
            digest.update(chunk)
            size += len(chunk)
            view = memoryview(chunk)
            while view:
                view = view[file.write(view) :]
        os.fsync(file.fileno())
    if size != source.size:
        raise SourceChanged(f"{path.name} has {size} bytes; {source.size} were planned.")
    os.rename(unfinished, path)
    folder = os.open(path.parent, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(folder)
    finally:
        os.close(folder)
    return digest.hexdigest()
