"""The counter at which our storage takes deposits from other services (wire.py says how they come).

    staged     bytes as they come, each under its SHA-256 in a place of its deposit alone, verified
    written    a version is made of what was staged; the same request again is answered with the version it made
    cleared    what was staged goes when the version is there, or can never be; so does a place that was left for a day (duties/staged.py)

What takes long leaves a sign in its place from time to time, so that it does not look left: a file that comes for days,
bytes that are sent again, a version that is being made. Should bytes be gone all the same, the deposit is refused as
Late: they are sent again, and it is.

An object is written by one request at a time in this process. Between processes it is the storage itself that notices
(Late).
"""

from __future__ import annotations

import hashlib
import threading
from collections.abc import Iterable, Iterator
from contextlib import contextmanager

import msgspec

from waybill.apps.ingest.storage import wire
from waybill.apps.ingest.storage.ocfl import OcflStorage
from waybill.apps.ingest.storage.ocfl_inventory import Algorithm
from waybill.apps.ingest.storage.protocol import Deposit, FileToStore, Late, NoSuchFile, NotStorable, Stored
from waybill.objects import Data, NotFound, Objects

_SOURCE = "staged:"
_SIGN = "in-use"  # the name of the sign in a place
_OFTEN = 1024**3  # bytes that move, or are made of files that do, from one sign to the next
_FILE = 1024**2  # how many bytes a file counts for, however small it is
_MOST = 1000  # places that are counted at a time


class Staged:
    """What has come for deposits that are not stored yet."""

    def __init__(self, objects: Objects) -> None:
        self._objects = objects
        self._moved: dict[str, int] = {}  # bytes since the last sign, by place
        self._lock = threading.Lock()

    def put(self, place: str, sha256: str, size: int, data: Iterator[bytes]) -> bool:
        """Keep the bytes of one file; whether they are new. Damaged if they are not what was said."""
        name = f"{place}/{sha256}"
        try:
            if self._objects.head(name).size == size:
                for _ in data:  # whoever sends does not listen before he has sent all
                    pass
                self.sign(place)
                return False
        except NotFound:
            pass
        # safe to repeat: the name says what it holds
        self._objects.put(name, self._watched(place, data), size=size, sha256=sha256)
        return True

    def listed(self, place: str) -> Iterator[tuple[str, int]]:
        for info in self._objects.list(place):
            if not info.name.endswith(f"/{_SIGN}"):
                yield info.name.rpartition("/")[2], info.size

    def sign(self, place: str) -> None:
        """Say that somebody works on this place."""
        self._objects.put(f"{place}/{_SIGN}", b"")  # safe to repeat: it is only its time that counts

    def _watched(self, place: str, data: Iterable[bytes]) -> Iterator[bytes]:
        """The bytes of a file, on their way; a sign is left when many have passed."""
        self._pass(place, _FILE)
        for portion in data:
            yield portion
            self._pass(place, len(portion))

    def _pass(self, place: str, count: int) -> None:
        with self._lock:
            if len(self._moved) > _MOST:  # of clients that broke off; the others leave their sign a little later
                self._moved.clear()
            moved = self._moved.get(place, 0) + count
            self._moved[place] = moved % _OFTEN
        if moved >= _OFTEN:
            self.sign(place)

    def clear(self, place: str) -> None:
        for info in self._objects.list(place):
            self._objects.delete(info.name)  # safe to repeat: there is nothing left then
        with self._lock:
            self._moved.pop(place, None)

    @contextmanager
    def source(self, name: str) -> Iterator[Data]:
        if not name.startswith(_SOURCE):
            raise NotStorable(f"{name[:100]!r} is no source of this storage.")
        try:
            with self._objects.get(name.removeprefix(_SOURCE)) as body:
                yield self._watched(name.removeprefix(_SOURCE).rpartition("/")[0], body)
        except NotFound:
            sha256 = name.rpartition("/")[2]
            raise Late(
                f"The bytes of SHA-256 {sha256} have not come, or have gone: send them, then the deposit again."
            ) from None


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
                self.staged.sign(place)  # from here on it has a day, and more with what moves
                lines = wire.split_lines(portions)
                head = wire.read_head(next(lines, b""))
                files = self._files(lines, place)
                told = {name: getattr(head, name) for name in head.__struct_fields__}
                try:
                    there = self.storage.write(Deposit(object=object_id, request=request, files=files, **told))
                except (NotStorable, Late) as error:
                    # Another process may have ended the same request meanwhile, and cleared what this one was reading.
                    there = self.storage.look(object_id, request)
                    if there is None:
                        # it is refused for good; whoever asks all the same sends the bytes again
                        if isinstance(error, NoSuchFile):
                            self.staged.clear(place)
                        raise
            self.staged.clear(place)
            return there

    def _files(self, lines: Iterator[bytes], place: str) -> Iterator[FileToStore]:
        for number, line in enumerate(lines, start=2):
            yield wire.read_file(line, number, f"{_SOURCE}{place}/")
