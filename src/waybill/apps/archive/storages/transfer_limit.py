"""A storage that carries out at most so many transfers at the same time, of all threads of this process.

Each storage has its own limit, so a slow one with few transfers does not hold up the others. A thread that finds all
places taken waits for one; a transfer has its place until it ends, or its reader is closed.
"""

from __future__ import annotations

import threading
from collections.abc import Generator, Iterator
from types import TracebackType
from typing import Self

from waybill.apps.archive.storages.protocol import (
    ArchiveSource,
    Batch,
    BatchKind,
    BatchStatus,
    SaveCheckpoint,
    Storage,
    StorageTraits,
    StoredArchive,
    UploadCheckpoint,
)


class LimitedStorage:
    """`storage` with at most `max_transfers` puts and reads at once; by default as many as its traits say."""

    def __init__(self, storage: Storage, max_transfers: int | None = None) -> None:
        self._storage = storage
        self._places = threading.Semaphore(max_transfers or storage.traits.max_transfers)

    @property
    def name(self) -> str:
        return self._storage.name

    @property
    def traits(self) -> StorageTraits:
        return self._storage.traits

    def put(
        self,
        batch: Batch,
        name: str,
        source: ArchiveSource,
        *,
        resume: UploadCheckpoint | None = None,
        save: SaveCheckpoint = lambda _: None,
    ) -> StoredArchive:
        with self._places:
            return self._storage.put(batch, name, source, resume=resume, save=save)

    def read(
        self, batch: Batch, name: str, *, start: int = 0, end: int | None = None
    ) -> Generator[bytes | memoryview, None, None]:
        chunks = self._storage.read(batch, name, start=start, end=end)
        return self._iter_limited(chunks)

    def _iter_limited(
        self, chunks: Generator[bytes | memoryview, None, None]
    ) -> Generator[bytes | memoryview, None, None]:
        with self._places:
            try:
                yield from chunks
            finally:
                chunks.close()

    def check(self) -> None:
        self._storage.check()

    def open_batch(self, kind: BatchKind, container: str, token: str) -> Batch:
        return self._storage.open_batch(kind, container, token)

    def request(self, batch: Batch, name: str) -> None:
        self._storage.request(batch, name)

    def delete(self, batch: Batch, name: str) -> None:
        self._storage.delete(batch, name)

    def close_batch(self, batch: Batch) -> None:
        self._storage.close_batch(batch)

    def poll(self, batch: Batch) -> BatchStatus:
        return self._storage.poll(batch)

    def end_batch(self, batch: Batch) -> None:
        self._storage.end_batch(batch)

    def list_archives(self, container: str) -> Iterator[StoredArchive]:
        return self._storage.list_archives(container)

    def list_containers(self) -> Iterator[str]:
        return self._storage.list_containers()

    def remove_container(self, container: str) -> None:
        self._storage.remove_container(container)

    def close(self) -> None:
        self._storage.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()
