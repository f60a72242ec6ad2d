"""Staged content: the files of something that another service sends, each by its SHA-256, until all of it is stored.

    put, put, ... -> PLACE/<SHA-256> -> open, when all of it is stored -> clear

A place is a folder of the objects. While somebody sends to it or reads from it, an object `in-use` in it is touched, so
that a maintenance routine (`AbandonedFolderRoutine`) removes only places that were not touched for a while. A sender that
comes again asks what is there (`list_files`), and sends the rest.
"""

from __future__ import annotations

import threading
from collections.abc import Iterable, Iterator
from contextlib import contextmanager

from waybill.objects import ObjectNotFound, Objects

IN_USE_NAME = "in-use"  # the object that is touched in a place
_TOUCH_INTERVAL_BYTES = 1024**3  # bytes between two touches
_FILE_WEIGHT_BYTES = 1024**2  # counted for each file in addition to its content
_MAX_COUNTED_PLACES = 1000  # at a time


class StagedContent:
    """May be used from all threads of a process."""

    def __init__(self, objects: Objects) -> None:
        self._objects = objects
        self._byte_counts: dict[str, int] = {}  # bytes since the last touch, by place
        self._lock = threading.Lock()

    def put(self, place: str, sha256: str, size: int, data: Iterator[bytes]) -> bool:
        """Stage one file and return whether it is new. Raises ContentMismatch."""
        name = f"{place}/{sha256}"
        try:
            if self._objects.head(name).size == size:
                for _ in data:  # the client reads the response only after it has sent everything
                    pass
                self.touch(place)
                return False
        except ObjectNotFound:
            pass
        # safe to repeat: the name is the digest of the content
        self._objects.put(name, self._count_chunks(place, data), size=size, sha256=sha256)
        return True

    def list_files(self, place: str) -> Iterator[tuple[str, int]]:
        """Yield SHA-256 and size of what is staged there."""
        for info in self._objects.list(place):
            if not info.name.endswith(f"/{IN_USE_NAME}"):
                yield info.name.rpartition("/")[2], info.size

    @contextmanager
    def open(self, place: str, sha256: str) -> Iterator[Iterator[bytes]]:
        """Read one file in chunks. Raises ObjectNotFound."""
        with self._objects.get(f"{place}/{sha256}") as body:
            yield self._count_chunks(place, body)

    def touch(self, place: str) -> None:
        """Show that a client or a write works on this place."""
        self._objects.put(f"{place}/{IN_USE_NAME}", b"")  # safe to repeat: only its time matters

    def clear(self, place: str) -> None:
        for info in self._objects.list(place):
            self._objects.delete(info.name)  # safe to repeat
        with self._lock:
            self._byte_counts.pop(place, None)

    def _count_chunks(self, place: str, data: Iterable[bytes]) -> Iterator[bytes]:
        """Yield the chunks of a file; the place is touched when many bytes have passed."""
        self._count_bytes(place, _FILE_WEIGHT_BYTES)
        for chunk in data:
            yield chunk
            self._count_bytes(place, len(chunk))

    def _count_bytes(self, place: str, count: int) -> None:
        with self._lock:
            if len(self._byte_counts) > _MAX_COUNTED_PLACES:
                self._byte_counts.clear()  # most are of clients that broke off; the others are touched a little later
            count += self._byte_counts.get(place, 0)
            self._byte_counts[place] = count % _TOUCH_INTERVAL_BYTES
        if count >= _TOUCH_INTERVAL_BYTES:
            self.touch(place)
