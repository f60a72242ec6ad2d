"""Sources of old queue entries: a ZooKeeper that still has the queues, or a folder with a copy of them.

The folder has one folder per queue, and in it one file per entry with the entry's bytes: ingest/mrtQ-02100000000003.
"""

from __future__ import annotations

import logging
import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Protocol
from urllib.parse import urlsplit

from waybill.apps.ingest.merritt.queue_entries import LegacyQueue
from waybill.errors import FormatError
from waybill.record import StoreUnavailable

MAX_ENTRY_BYTES = 2 * 2**20  # bytes read of an entry; a ZooKeeper node has at most one MiB
CONNECT_TIMEOUT = 10.0  # seconds


class LegacyQueueSource(Protocol):
    """Old queues, opened for reading only."""

    def iter_paths(self) -> Iterator[str]:
        """Yield paths such as `/ingest/mrtQ-02100000000003`: queue by queue, in the order of service."""

    def read(self, path: str) -> bytes | None:
        """Return the bytes of an entry; None if it has vanished."""


class FolderQueueSource:
    def __init__(self, folder: Path) -> None:
        if not folder.is_dir():
            raise FormatError(
                f"{folder} is not a folder; give one that has a folder for each queue: {', '.join(q[1:] for q in LegacyQueue)}."
            )
        self._folder = folder

    def iter_paths(self) -> Iterator[str]:
        for queue in LegacyQueue:
            folder = self._folder / queue[1:]
            if folder.is_dir():
                yield from (f"{queue}/{name}" for name in sorted(os.listdir(folder)))

    def read(self, path: str) -> bytes | None:
        try:
            with (self._folder / path[1:]).open("rb") as file:
                return file.read(MAX_ENTRY_BYTES)
        except FileNotFoundError:
            return None


class ZookeeperQueueSource:
    """The queues of a ZooKeeper, under a chroot or at its root."""

    def __init__(self, client: Any) -> None:
        self._client = client

    def iter_paths(self) -> Iterator[str]:
        from kazoo.exceptions import NoNodeError

        for queue in LegacyQueue:
            try:
                names = sorted(self._client.get_children(queue))
            except NoNodeError:
                continue
            yield from (f"{queue}/{name}" for name in names)

    def read(self, path: str) -> bytes | None:
        from kazoo.exceptions import NoNodeError

        try:
            data: bytes | None = self._client.get(path)[0]
        except NoNodeError:
            return None
        return data or b""


@contextmanager
def open_source(name: str) -> Iterator[LegacyQueueSource]:
    """Open zookeeper://host:port,host:port/chroot, or a folder."""
    if not name.startswith("zookeeper://"):
        yield FolderQueueSource(Path(name))
        return
    try:
        from kazoo.client import KazooClient
        from kazoo.handlers.threading import KazooTimeoutError
    except ImportError:
        raise FormatError("To read from a ZooKeeper, install waybill-engine[zookeeper].") from None
    parts = urlsplit(name)
    client = KazooClient(
        parts.netloc + parts.path.rstrip("/"), timeout=CONNECT_TIMEOUT, read_only=True, logger=_make_silent_logger()
    )
    try:
        client.start(timeout=CONNECT_TIMEOUT)
    except KazooTimeoutError:
        client.close()
        raise StoreUnavailable(f"There is no ZooKeeper at {parts.netloc}, or it does not answer.") from None
    try:
        yield ZookeeperQueueSource(client)
    finally:
        client.stop()
        client.close()


def _make_silent_logger() -> logging.Logger:
    """Return a logger that drops the client's messages about every attempt; the final error is raised."""
    log = logging.getLogger("waybill.ingest.merritt.kazoo")
    log.setLevel(logging.CRITICAL)
    return log
