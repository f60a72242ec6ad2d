"""The counter at which our storage takes deposits from other services (wire.py says how they come).

    staged     bytes as they come, each under its SHA-256 in a place of its deposit alone, verified
    written    a version is made of what was staged; the same request again is answered with the version it made
    cleared    what was staged goes when the version is there; what a client left behind goes after a day (duties/staged.py)

An object is written by one request at a time in this process. Between processes it is the storage itself that notices (Late).
"""

from __future__ import annotations

import hashlib
import threading
from collections.abc import Iterator
from contextlib import contextmanager

import msgspec

from waybill.apps.ingest.storage import wire
from waybill.apps.ingest.storage.ocfl import OcflStorage
from waybill.apps.ingest.storage.ocfl_inventory import Algorithm
from waybill.apps.ingest.storage.protocol import Deposit, FileToStore, Late, NotStorable, Stored
from waybill.objects import Data, NotFound, Objects

_SOURCE = "staged:"


class Staged:
    """What has come for deposits that are not stored yet."""

    def __init__(self, objects: Objects) -> None:
        self._objects = objects

    def put(self, place: str, sha256: str, size: int, data: Iterator[bytes]) -> bool:
        """Keep the bytes of one file; whether they are new. Damaged if they are not what was said."""
        name = f"{place}/{sha256}"
        try:
            if self._objects.head(name).size == size:
                for _ in data:  # whoever sends does not listen before he has sent all
                    pass
                return False
        except NotFound:
            pass
        self._objects.put(name, data, size=size, sha256=sha256)  # safe to repeat: the name says what it holds
        return True

    def listed(self, place: str) -> Iterator[tuple[str, int]]:
        for info in self._objects.list(place):
            yield info.name.rpartition("/")[2], info.size

    def clear(self, place: str) -> None:
        for info in self._objects.list(place):
            self._objects.delete(info.name)  # safe to repeat: there is nothing left then

    @contextmanager
    def source(self, name: str) -> Iterator[Data]:
        if not name.startswith(_SOURCE):
            raise NotStorable(f"{name[:100]!r} is no source of this storage.")
        try:
            with self._objects.get(name.removeprefix(_SOURCE)) as body:
                yield body
        except NotFound:
            sha256 = name.rpartition("/")[2]
            raise NotStorable(f"The bytes of SHA-256 {sha256} have not come: send them before the deposit.") from None


def place_of(object_id: str, request: str) -> str:
    """Where the bytes of a deposit are staged."""
    told = msgspec.json.encode((object_id, request))
    return f"{wire.STAGED}/{hashlib.sha256(told).hexdigest()[:40]}"


class Busy:
    """Which objects are being written in this process."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._objects: set[str] = set()

    @contextmanager
    def alone(self, object_id: str) -> Iterator[None]:
        with self._lock:
            if object_id in self._objects:
                raise Late(f"{object_id} is being written by another request now: ask again.")
            self._objects.add(object_id)
        try:
            yield
        finally:
            with self._lock:
                self._objects.discard(object_id)


class Counter:
    """Takes deposits from others."""

    def __init__(self, objects: Objects, prefix: str, algorithm: Algorithm) -> None:
        self.staged = Staged(objects)
        self.storage = OcflStorage(objects, prefix, self.staged.source, algorithm=algorithm)
        self._busy = Busy()

    def write(self, object_id: str, request: str, portions: Iterator[bytes]) -> Stored:
        place = place_of(object_id, request)
        with self._busy.alone(object_id):
            there = self.storage.look(object_id, request)
            if there is None:
                lines = wire.split_lines(portions)
                head = wire.read_head(next(lines, b""))
                files = self._files(lines, place)
                told = {name: getattr(head, name) for name in head.__struct_fields__}
                try:
                    there = self.storage.write(Deposit(object=object_id, request=request, files=files, **told))
                except NotStorable:
                    # Another process may have ended the same request meanwhile, and cleared what this one was reading.
                    there = self.storage.look(object_id, request)
                    if there is None:
                        raise
            self.staged.clear(place)
            return there

    def _files(self, lines: Iterator[bytes], place: str) -> Iterator[FileToStore]:
        for number, line in enumerate(lines, start=2):
            yield wire.read_file(line, number, f"{_SOURCE}{place}/")
