"""Streams of bytes into and out of object stores.

    CheckedStream   the data of a put, in chunks, measured while it passes
    StreamedBody    the content of an object, over the chunks that a driver reads
    ChunkQueue      chunks from the caller's thread to the thread of a client library

A CheckedStream is iterated once; it counts and digests, and at its end it raises ContentMismatch if the data does not
have the expected size or SHA-256. A driver that consumes it only has to stop, without publishing, when an exception
passes.
"""

from __future__ import annotations

import hashlib
import threading
from collections import deque
from collections.abc import Callable, Generator, Iterator
from types import TracebackType
from typing import Self

from waybill.objects.protocol import ContentMismatch, ObjectData, ObjectInfo, ObjectRequestRefused

CHUNK_SIZE = 1024 * 1024
MAX_QUEUED_CHUNKS = 4


def iter_chunks(data: ObjectData) -> Iterator[bytes]:
    """Yield the data in chunks, none empty and none larger than CHUNK_SIZE unless the caller's own are."""
    if isinstance(data, bytes | bytearray | memoryview):
        view = memoryview(data).cast("B")
        for at in range(0, len(view), CHUNK_SIZE):
            yield bytes(view[at : at + CHUNK_SIZE])
    elif hasattr(data, "read"):
        while chunk := data.read(CHUNK_SIZE):
            yield chunk
    elif isinstance(data, str):
        raise ObjectRequestRefused("An object's data is bytes, not text: encode it first.")
    else:
        for chunk in data:
            if chunk:
                yield chunk


class CheckedStream:
    """Chunks of bytes, with the size and digest so far and a check at the end."""

    def __init__(self, data: ObjectData, *, size: int | None = None, sha256: str | None = None) -> None:
        self._chunks = iter_chunks(data)
        self._digest = hashlib.sha256()
        self._expected_size = size
        self._expected_sha256 = check_sha256(sha256) if sha256 is not None else None
        self.size = 0

    @property
    def sha256(self) -> str:
        return self._digest.hexdigest()

    def __iter__(self) -> Iterator[bytes]:
        for chunk in self._chunks:
            self.size += len(chunk)
            if self._expected_size is not None and self.size > self._expected_size:
                raise ContentMismatch(f"The data has more than the expected {self._expected_size} bytes.")
            self._digest.update(chunk)
            yield chunk
        if self._expected_size is not None and self.size != self._expected_size:
            raise ContentMismatch(f"The data has {self.size} bytes, expected were {self._expected_size}.")
        if self._expected_sha256 is not None and self.sha256 != self._expected_sha256:
            raise ContentMismatch(f"The data has the SHA-256 {self.sha256}, expected was {self._expected_sha256}.")


def check_sha256(text: str) -> str:
    """Return a SHA-256 as 64 lower-case hex digits. Raises ObjectRequestRefused."""
    lowered = text.lower()
    if len(lowered) != 64 or any(letter not in "0123456789abcdef" for letter in lowered):
        raise ObjectRequestRefused(f"{text[:80]!r} is not a SHA-256 in hex.")
    return lowered


def check_range(start: int, end: int | None) -> None:
    if start < 0 or (end is not None and end < 0):
        raise ObjectRequestRefused("A range counts from the beginning: neither start nor end can be negative.")


def check_conditions(if_absent: bool, if_match: str | None) -> None:
    if if_absent and if_match is not None:
        raise ObjectRequestRefused(
            "A put is either for an absent object (if_absent) or for a known version (if_match), not both."
        )


class StreamedBody:
    """The ObjectBody of all drivers."""

    def __init__(self, info: ObjectInfo, chunks: Generator[bytes], close: Callable[[], None] = lambda: None) -> None:
        self.info = info
        self._chunks = chunks
        self._close = close
        self._closed = False
        self._buffer = b""

    def __iter__(self) -> Iterator[bytes]:
        return self  # not a generator: leaving a loop early would close it, and the chunks with it

    def __next__(self) -> bytes:
        if self._buffer:
            chunk, self._buffer = self._buffer, b""
            return chunk
        return next(self._chunks)

    def read(self, size: int = -1) -> bytes:
        """Return at most `size` bytes, empty only at the end; by default everything that is left."""
        if size < 0:
            return b"".join(self)
        if not self._buffer:
            self._buffer = next(self._chunks, b"")
        data, self._buffer = self._buffer[:size], self._buffer[size:]
        return data

    def close(self) -> None:
        if not self._closed:
            self._closed = True
            self._chunks.close()
            self._close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def __del__(self) -> None:
        self.close()


class ChunkQueue:
    """A bounded queue between one thread that produces chunks and one that iterates them."""

    def __init__(self) -> None:
        self._chunks: deque[bytes] = deque()
        self._changed = threading.Condition()
        self._is_finished = False
        self._is_abandoned = False
        self._failure: BaseException | None = None

    def put(self, chunk: bytes) -> bool:
        """Add a chunk, waiting while the queue is full. Returns False if the reader has stopped."""
        with self._changed:
            self._changed.wait_for(lambda: self._is_abandoned or len(self._chunks) < MAX_QUEUED_CHUNKS)
            if self._is_abandoned:
                return False
            self._chunks.append(chunk)
            self._changed.notify_all()
            return True

    def finish(self, failure: BaseException | None = None) -> None:
        """End the queue; with a failure the reader gets an error instead of the end."""
        with self._changed:
            self._is_finished, self._failure = True, failure
            self._changed.notify_all()

    def stop_reading(self) -> None:
        """Release a producer that waits: nobody reads any more."""
        with self._changed:
            self._is_abandoned = True
            self._changed.notify_all()

    def __iter__(self) -> Iterator[bytes]:
        while True:
            with self._changed:
                self._changed.wait_for(lambda: self._chunks or self._is_finished)
                if self._failure is not None:
                    raise RuntimeError("the chunks ended early") from self._failure
                if not self._chunks:
                    return
                chunk = self._chunks.popleft()
                self._changed.notify_all()
            yield chunk
