"""Sources of old entries: a ZooKeeper that still has the queues, or a folder with a copy of them.

A folder has a folder for each queue, and in it a file for each entry, with the entry's bytes:
ingest/mrtQ-02100000000003.
"""

from __future__ import annotations

import logging
import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Protocol
from urllib.parse import urlsplit

from waybill.apps.ingest.legacy.entries import LegacyError, Queue
from waybill.record import Unavailable

LARGEST = 2 * 2**20  # bytes of an entry: ZooKeeper has none of more than one MiB
PATIENCE = 10.0  # seconds


class Source(Protocol):
    """Where old entries lie. Nothing is ever written to it."""

    def paths(self) -> Iterator[str]:
        """`/ingest/mrtQ-02100000000003` and so on: queue by queue, in the order in which each was served."""

    def read(self, path: str) -> bytes | None:
        """The bytes of an entry; None if it is gone meanwhile."""


class Folder:
    def __init__(self, folder: Path) -> None:
        if not folder.is_dir():
            raise LegacyError(
                f"{folder} is no folder; give one that has a folder for each queue: {', '.join(q[1:] for q in Queue)}."
            )
        self._folder = folder

    def paths(self) -> Iterator[str]:
        for queue in Queue:
            place = self._folder / queue[1:]
            if place.is_dir():
                yield from (f"{queue}/{name}" for name in sorted(os.listdir(place)))

    def read(self, path: str) -> bytes | None:
        try:
            with (self._folder / path[1:]).open("rb") as file:
                return file.read(LARGEST)
        except FileNotFoundError:
            return None


class Tree:
    """The queues of a ZooKeeper, under a chroot or at its root."""

    def __init__(self, client: Any) -> None:
        self._client = client

    def paths(self) -> Iterator[str]:
        from kazoo.exceptions import NoNodeError

        for queue in Queue:
            try:
                found = sorted(self._client.get_children(queue))
            except NoNodeError:
                continue
            yield from (f"{queue}/{name}" for name in found)

    def read(self, path: str) -> bytes | None:
        from kazoo.exceptions import NoNodeError

        try:
            data: bytes | None = self._client.get(path)[0]
        except NoNodeError:
            return None
        return data or b""


@contextmanager
def open_source(name: str) -> Iterator[Source]:
    """zookeeper://host:port,host:port/chroot, or the name of a folder."""
    if not name.startswith("zookeeper://"):
        yield Folder(Path(name))
        return
    try:
        from kazoo.client import KazooClient
        from kazoo.handlers.threading import KazooTimeoutError
    except ImportError:
        raise LegacyError("To read from a ZooKeeper, install waybill[zookeeper].") from None
    parts = urlsplit(name)
    client = KazooClient(parts.netloc + parts.path.rstrip("/"), timeout=PATIENCE, read_only=True, logger=_quiet())
    try:
        client.start(timeout=PATIENCE)
    except KazooTimeoutError:
        client.close()
        raise Unavailable(f"There is no ZooKeeper at {parts.netloc}, or it does not answer.") from None
    try:
        yield Tree(client)
    finally:
        client.stop()
        client.close()


def _quiet() -> logging.Logger:
    """For the client: what it says of every try is one sentence at the end."""
    log = logging.getLogger("waybill.ingest.legacy.kazoo")
    log.setLevel(logging.CRITICAL)
    return log
