"""What a put sends, cut into parts, with a digest of all that has passed.

    FileSource   a file as a source: a staged archive, a catalogue
    BytesSource  a few bytes as a source
    PartStream   a source during one put
    read_back    the size and digest of what a storage holds

The digest of the bytes up to a part's end is a copy of the running one, so a checkpoint costs nothing; and a put that is
resumed compares a single digest to know that the source still begins with what is stored.
"""

from __future__ import annotations

import hashlib
import os
from collections.abc import Callable, Iterable, Iterator
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path

from waybill.apps.archive.storages.errors import SourceChanged
from waybill.apps.archive.storages.protocol import ArchiveSource, Batch, Storage, StoredArchive, UploadCheckpoint

CHUNK_SIZE = 1024 * 1024


@dataclass(frozen=True, slots=True)
class FileSource:
    """The bytes of a file that nobody changes."""

    path: Path
    size: int

    @classmethod
    def of(cls, path: Path) -> FileSource:
        return cls(path, path.stat().st_size)

    def iter_chunks(self) -> Iterator[bytes]:
        with self.path.open("rb", buffering=0) as file:
            while chunk := file.read(CHUNK_SIZE):
                yield chunk


@dataclass(frozen=True, slots=True)
class BytesSource:
    content: bytes
    path: None = None

    @property
    def size(self) -> int:
        return len(self.content)

    def iter_chunks(self) -> Iterable[bytes]:
        view = self.content
        return (view[at : at + CHUNK_SIZE] for at in range(0, len(view), CHUNK_SIZE))


class PartStream:
    """A source from its start to its end. Raises SourceChanged if it is not as long as it said."""

    def __init__(self, source: ArchiveSource, part_size: int) -> None:
        self._chunks = iter(source.iter_chunks())
        self._rest: bytes | memoryview = b""
        self._digest = hashlib.sha256()
        self._expected = source.size
        self._part_size = part_size
        self.size = 0
        self.parts = 0  # that have passed as a whole

    def skip_parts(self, checkpoint: UploadCheckpoint) -> bool:
        """Pass over the parts of a checkpoint. Returns whether they are what is stored; if not, begin with a new stream."""
        if checkpoint.part_size != self._part_size or checkpoint.parts * self._part_size > self._expected:
            return False
        for _ in range(checkpoint.parts):
            for _ in self.iter_part():
                pass
        return self._digest.hexdigest() == checkpoint.sha256

    @property
    def is_finished(self) -> bool:
        return self.size == self._expected and self.parts > 0

    def iter_part(self) -> Iterator[bytes | memoryview]:
        """Yield the chunks of the next part. An empty source has one empty part."""
        left = min(self._part_size, self._expected - self.size)
        while left:
            chunk = self._rest or self._next_chunk()
            now, self._rest = (chunk, b"") if len(chunk) <= left else _split(chunk, left)
            self._digest.update(now)
            self.size += len(now)
            left -= len(now)
            yield now
        self.parts += 1
        if self.size == self._expected and (self._rest or next(self._chunks, b"")):
            raise SourceChanged(f"What is sent has more than the {self._expected} bytes that were planned.")

    def _next_chunk(self) -> bytes | memoryview:
        for chunk in self._chunks:
            if chunk:
                return chunk
        raise SourceChanged(f"What is sent ends after {self.size} bytes; {self._expected} were planned.")

    def make_checkpoint(self, upload: str) -> UploadCheckpoint:
        return UploadCheckpoint(upload, self._part_size, self.parts, self._digest.hexdigest())

    def to_archive(self, name: str) -> StoredArchive:
        return StoredArchive(name, self.size, self._digest.hexdigest())


def read_back(
    storage: Storage, batch: Batch, name: str, on_chunk: Callable[[int], object] = lambda _: None
) -> StoredArchive:
    """Read an archive through and return its real size and digest, to be compared before anything is deleted.

    `on_chunk` is called with the number of bytes of each chunk; what it raises ends the reading.
    """
    digest, size = hashlib.sha256(), 0
    with closing(storage.read(batch, name)) as chunks:
        for chunk in chunks:
            digest.update(chunk)
            size += len(chunk)
            on_chunk(len(chunk))
    return StoredArchive(name, size, digest.hexdigest())


def _split(chunk: bytes | memoryview, at: int) -> tuple[memoryview, memoryview]:
    view = memoryview(chunk)
    return view[:at], view[at:]


def resume_stream(
    source: ArchiveSource, part_size: int, resume: UploadCheckpoint | None, stored: int
) -> tuple[PartStream, bool]:
    """Return a stream that has passed what an upload of `stored` bytes holds, and whether the upload can go on."""
    if resume is not None and resume.parts * resume.part_size <= stored:
        stream = PartStream(source, part_size)
        if stream.skip_parts(resume):
            return stream, True
    return PartStream(source, part_size), False


def read_whole(file: int, size: int) -> Iterator[memoryview]:
    """Yield `size` bytes of an open file from its position, in one buffer that is used again. Raises EOFError."""
    buffer = memoryview(bytearray(min(CHUNK_SIZE, size) or 1))
    while size:
        count = os.readv(file, [buffer[: min(len(buffer), size)]])
        if not count:
            raise EOFError
        size -= count
        yield buffer[:count]
