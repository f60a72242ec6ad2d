"""Objects of a simulation: in memory, with the simulation's clock, and a point before and after everything that changes them.

A put reads its data first, and whatever that raises leaves the old object; then it is there, all at once. Uploads part by part are not
simulated: they are for what no simulated deposit has.
"""

from __future__ import annotations

import hashlib
import io
from collections.abc import Callable, Iterator, Sequence
from datetime import UTC, datetime
from types import TracebackType
from typing import Self

from waybill.objects import Data, ObjectInfo, Put
from waybill.objects.names import check_name
from waybill.objects.protocol import AlreadyThere, Conditions, Damaged, NotFound, Precondition, Swept, Unsupported, Upload

PORTION = 1 << 16


class MemoryBody:
    def __init__(self, info: ObjectInfo, data: bytes) -> None:
        self.info, self._data = info, io.BytesIO(data)

    def __iter__(self) -> Iterator[bytes]:
        while portion := self._data.read(PORTION):
            yield portion

    def read(self, size: int = -1) -> bytes:
        return self._data.read(size)

    def close(self) -> None: ...

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None: ...


class MemoryObjects:
    """`point` is called with a name before and after each change; `guard` with that of an object before it is replaced or goes."""

    conditions = Conditions("atomic", "atomic", "refused")

    def __init__(
        self, now: Callable[[], float], point: Callable[[str], None], guard: Callable[[str], None] = lambda name: None
    ) -> None:
        self._now, self._point, self._guard = now, point, guard
        self._kept: dict[str, tuple[ObjectInfo, bytes]] = {}
        self._etags = 0

    def put(
        self, name: str, data: Data, *, if_absent: bool = False, if_match: str | None = None, size: int | None = None,
        sha256: str | None = None,
    ) -> ObjectInfo:  # fmt: skip
        name, body = check_name(name), _bytes(data)
        digest = hashlib.sha256(body).hexdigest()
        self._point(f"before put {name}")
        if (size is not None and size != len(body)) or (sha256 is not None and sha256 != digest):
            raise Damaged(f"{name} is not what was promised.")
        there = self._kept.get(name)
        if if_absent and there is not None:
            raise AlreadyThere(f"{name} is there already.")
        if if_match is not None and (there is None or there[0].etag != if_match):
            raise Precondition(f"{name} has changed.")
        if there is not None and there[1] != body:
            self._guard(name)
        self._etags += 1
        info = ObjectInfo(name, len(body), f"e{self._etags}", datetime.fromtimestamp(self._now(), UTC), digest)
        self._kept[name] = (info, body)
        self._point(f"after put {name}")
        return info

    def get(self, name: str, *, start: int = 0, end: int | None = None) -> MemoryBody:
        info, data = self._found(name)
        return MemoryBody(info, data[start:end])

    def head(self, name: str) -> ObjectInfo:
        return self._found(name)[0]

    def list(self, prefix: str = "", *, after: str = "", limit: int | None = None) -> Iterator[ObjectInfo]:
        below = f"{prefix}/" if prefix else ""
        names = sorted(n for n in self._kept if n.startswith(below) and n > after)
        yield from (self._kept[n][0] for n in names[:limit] if n in self._kept)

    def delete(self, name: str) -> bool:
        self._point(f"before delete {name}")
        if name in self._kept:
            self._guard(name)
        gone = self._kept.pop(check_name(name), None) is not None
        self._point(f"after delete {name}")
        return gone

    def copy(self, source: str, target: str, *, if_absent: bool = False) -> ObjectInfo:
        return self.put(target, self._found(source)[1], if_absent=if_absent)

    def upload(self, name: str, *, resume: str | None = None, keep: bool = False) -> Upload:
        raise Unsupported("Uploads part by part are not simulated.")

    def sweep(self, older_than: float) -> Swept:
        return Swept()

    def spoil(self, name: str, data: bytes | None) -> None:
        """What a disk does: other bytes under the same name, or none. Nobody is asked."""
        info, _ = self._kept.pop(name)
        if data is not None:
            self._kept[name] = (info, data)

    def close(self) -> None: ...

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None: ...

    def _found(self, name: str) -> tuple[ObjectInfo, bytes]:
        if (kept := self._kept.get(check_name(name))) is None:
            raise NotFound(f"There is no object {name}.")
        return kept


class WholeMemoryObjects(MemoryObjects):
    """The same, and a new folder can be put with all that is in it, as into a directory."""

    def put_whole(self, folder: str, puts: Sequence[Put]) -> bool:
        self._point(f"before put whole {folder}")
        if folder in self._kept or any(name.startswith(f"{folder}/") for name in self._kept):
            return False
        for put in puts:
            body = bytes(put.data)
            self._etags += 1
            moment = datetime.fromtimestamp(self._now(), UTC)
            self._kept[put.name] = (ObjectInfo(put.name, len(body), f"e{self._etags}", moment, hashlib.sha256(body).hexdigest()), body)
        self._point(f"after put whole {folder}")
        return True


def _bytes(data: Data) -> bytes:
    if isinstance(data, (bytes, bytearray, memoryview)):
        return bytes(data)
    if isinstance(data, io.IOBase):
        return bytes(data.read())
    return b"".join(data)
