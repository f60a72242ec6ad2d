"""Objects of a simulation: in memory, with the simulation's clock, and a point before and after everything that
changes them.

A put reads its data first, and whatever that raises leaves the old object; then it is there, all at once. Of an upload
part by part nothing is seen before it is completed; a process that dies on the way leaves its parts, until somebody
sweeps them.

    MemoryObjects          one by one, in order       WholeMemoryObjects     a new folder at once, as a directory can
    PartedMemoryObjects    what is long goes part by part, as into S3
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
from waybill.objects.protocol import AlreadyThere, Conditions, Damaged, NotFound, PartInfo, Precondition, Swept

PORTION = 1 << 16
PART = 150  # bytes: what is longer goes part by part, and nothing in a simulation is as long as a real part

Guard = Callable[[str, bytes | None], None]


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

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None: ...


class MemoryObjects:
    """`point` is called with a name before and after each change; `guard` with that of an object before it is replaced
    by other bytes, or goes (None).
    """

    conditions = Conditions("atomic", "atomic", "atomic")

    def __init__(
        self, now: Callable[[], float], point: Callable[[str], None], guard: Guard = lambda name, data: None
    ) -> None:
        self._now, self._point, self._guard = now, point, guard
        self._kept: dict[str, tuple[ObjectInfo, bytes]] = {}
        self._etags = 0
        self._uploads: dict[str, MemoryUpload] = {}  # that were neither completed nor aborted
        self._begun = 0

    def put(
        self,
        name: str,
        data: Data,
        *,
        if_absent: bool = False,
        if_match: str | None = None,
        size: int | None = None,
        sha256: str | None = None,
    ) -> ObjectInfo:
        return self._put(name, _bytes(data), if_absent, if_match, size, sha256)

    def _put(
        self,
        name: str,
        body: bytes,
        if_absent: bool,
        if_match: str | None,
        size: int | None,
        sha256: str | None,
        upload: str = "",
    ) -> ObjectInfo:
        """`upload`: over in the moment in which the object is there."""
        name, digest = check_name(name), hashlib.sha256(body).hexdigest()
        self._point(f"before put {name}")
        if (size is not None and size != len(body)) or (sha256 is not None and sha256 != digest):
            raise Damaged(f"{name} is not what was promised.")
        there = self._kept.get(name)
        if if_absent and there is not None:
            raise AlreadyThere(f"{name} is there already.")
        if if_match is not None and (there is None or there[0].etag != if_match):
            raise Precondition(f"{name} has changed.")
        if there is not None and there[1] != body:
            self._guard(name, body)
        self._etags += 1
        info = ObjectInfo(name, len(body), f"e{self._etags}", datetime.fromtimestamp(self._now(), UTC), digest)
        self._kept[name] = (info, body)
        self._uploads.pop(upload, None)
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
            self._guard(name, None)
        gone = self._kept.pop(check_name(name), None) is not None
        self._point(f"after delete {name}")
        return gone

    def copy(self, source: str, target: str, *, if_absent: bool = False) -> ObjectInfo:
        return self.put(target, self._found(source)[1], if_absent=if_absent)

    def upload(self, name: str, *, resume: str | None = None, keep: bool = False) -> MemoryUpload:
        if resume is not None:
            if (found := self._uploads.get(resume)) is None or found.name != name:
                raise NotFound(f"There is no upload {resume} of {name}.")
            return found
        self._point(f"before upload {name}")
        self._begun += 1
        begun = self._uploads[f"u{self._begun}"] = MemoryUpload(
            self, check_name(name), f"u{self._begun}", self._now(), keep
        )
        return begun

    def sweep(self, older_than: float) -> Swept:
        old = [each for each in self._uploads.values() if each.begun < self._now() - older_than]
        for each in old:
            each.abort()
        return Swept(uploads=len(old))

    def unfinished(self) -> tuple[str, ...]:
        """The names of what is on its way, part by part, or was when its process died."""
        return tuple(each.name for each in self._uploads.values())

    def spoil(self, name: str, data: bytes | None) -> None:
        """What a disk does: other bytes under the same name, or none. Nobody is asked."""
        info, _ = self._kept.pop(name)
        if data is not None:
            self._kept[name] = (info, data)

    def close(self) -> None: ...

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None: ...

    def _found(self, name: str) -> tuple[ObjectInfo, bytes]:
        if (kept := self._kept.get(check_name(name))) is None:
            raise NotFound(f"There is no object {name}.")
        return kept


class MemoryUpload:
    """An object on its way. A point before each part; whoever dies there leaves the parts that have come."""

    def __init__(self, objects: MemoryObjects, name: str, id: str, begun: float, keep: bool) -> None:
        self.name, self.id, self.begun = name, id, begun
        self._objects, self._keep = objects, keep
        self._parts: dict[int, bytes] = {}

    def parts(self) -> dict[int, PartInfo]:
        return {number: PartInfo(number, len(data), f"p{number}") for number, data in sorted(self._parts.items())}

    def part(self, number: int, data: bytes) -> PartInfo:
        self._objects._point(f"before part {number} of {self.name}")
        self._there()[number] = data
        return PartInfo(number, len(data), f"p{number}")

    def complete(
        self, *, if_absent: bool = False, if_match: str | None = None, sha256: str | None = None
    ) -> ObjectInfo:
        body = b"".join(data for _, data in sorted(self._there().items()))
        return self._objects._put(self.name, body, if_absent, if_match, None, sha256, self.id)

    def abort(self) -> None:
        self._objects._uploads.pop(self.id, None)

    def _there(self) -> dict[int, bytes]:
        if self.id not in self._objects._uploads:
            raise NotFound(f"The upload {self.id} of {self.name} was aborted.")
        return self._parts

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if not self._keep and (kind is None or issubclass(kind, Exception)):  # whoever is dead aborts nothing
            self.abort()


class PartedMemoryObjects(MemoryObjects):
    """The same, and what is long goes part by part."""

    def put(
        self,
        name: str,
        data: Data,
        *,
        if_absent: bool = False,
        if_match: str | None = None,
        size: int | None = None,
        sha256: str | None = None,
    ) -> ObjectInfo:
        body = _bytes(data)
        if len(body) <= PART:
            return super().put(name, body, if_absent=if_absent, if_match=if_match, size=size, sha256=sha256)
        with self.upload(name) as upload:
            for at in range(0, len(body), PART):
                upload.part(at // PART + 1, body[at : at + PART])
            if size is not None and size != len(body):
                raise Damaged(f"{name} is not what was promised.")
            return upload.complete(if_absent=if_absent, if_match=if_match, sha256=sha256)


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
            self._kept[put.name] = (
                ObjectInfo(put.name, len(body), f"e{self._etags}", moment, hashlib.sha256(body).hexdigest()),
                body,
            )
        self._point(f"after put whole {folder}")
        return True


def _bytes(data: Data) -> bytes:
    if isinstance(data, (bytes, bytearray, memoryview)):
        return bytes(data)
    if isinstance(data, io.IOBase):
        return bytes(data.read())
    return b"".join(data)
