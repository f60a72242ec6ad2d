"""Object storage of a simulation: in memory, with the simulation's clock, and a point before and after every change.

A put reads its data first, and an error there leaves the old object; then the new object appears at once. An upload in
parts is not visible before it is completed; a process that crashes in between leaves its parts, until `sweep` removes
them.

    MemoryObjects            objects one by one
    FolderMemoryObjects      also a new folder at once, as a directory can
    MultipartMemoryObjects   long objects in parts, as S3 does
"""

from __future__ import annotations

import hashlib
import io
from collections.abc import Callable, Iterator, Sequence
from datetime import UTC, datetime
from types import TracebackType
from typing import Self

from waybill.objects import ObjectData, ObjectInfo, ObjectPut
from waybill.objects.protocol import (
    ContentMismatch,
    ObjectExists,
    ObjectNotFound,
    ObjectStoreCapabilities,
    PartInfo,
    PreconditionFailed,
    SweepResult,
    check_name,
)

CHUNK_SIZE = 1 << 16
PART_SIZE = 150  # bytes: longer objects are uploaded in parts; nothing in a simulation is as long as a real part

ReplaceGuard = Callable[[str, bytes | None], None]


class MemoryBody:
    def __init__(self, info: ObjectInfo, data: bytes) -> None:
        self.info, self._data = info, io.BytesIO(data)

    def __iter__(self) -> Iterator[bytes]:
        while chunk := self._data.read(CHUNK_SIZE):
            yield chunk

    def read(self, size: int = -1) -> bytes:
        return self._data.read(size)

    def close(self) -> None: ...

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None: ...


class MemoryObjects:
    """`point` is called with a name before and after each change; `guard` with an object's name before it is replaced by
    other bytes, or removed (None).
    """

    capabilities = ObjectStoreCapabilities("atomic", "atomic", "atomic")

    def __init__(
        self, now: Callable[[], float], point: Callable[[str], None], guard: ReplaceGuard = lambda name, data: None
    ) -> None:
        self._now, self._point, self._guard = now, point, guard
        self._stored: dict[str, tuple[ObjectInfo, bytes]] = {}
        self._etag_count = 0
        self._uploads: dict[str, MemoryUpload] = {}  # neither completed nor aborted
        self._upload_count = 0

    def put(
        self,
        name: str,
        data: ObjectData,
        *,
        if_absent: bool = False,
        if_match: str | None = None,
        size: int | None = None,
        sha256: str | None = None,
    ) -> ObjectInfo:
        return self._put(name, _to_bytes(data), if_absent, if_match, size, sha256)

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
        """`upload`: the id of the upload that ends at the moment the object appears."""
        name, digest = check_name(name), hashlib.sha256(body).hexdigest()
        self._point(f"before put {name}")
        if (size is not None and size != len(body)) or (sha256 is not None and sha256 != digest):
            raise ContentMismatch(f"{name} does not have the declared size or digest.")
        stored = self._stored.get(name)
        if if_absent and stored is not None:
            raise ObjectExists(f"{name} exists already.")
        if if_match is not None and (stored is None or stored[0].etag != if_match):
            raise PreconditionFailed(f"{name} has changed.")
        if stored is not None and stored[1] != body:
            self._guard(name, body)
        self._etag_count += 1
        info = ObjectInfo(name, len(body), f"e{self._etag_count}", datetime.fromtimestamp(self._now(), UTC), digest)
        self._stored[name] = (info, body)
        self._uploads.pop(upload, None)
        self._point(f"after put {name}")
        return info

    def get(self, name: str, *, start: int = 0, end: int | None = None) -> MemoryBody:
        info, data = self._get_stored(name)
        return MemoryBody(info, data[start:end])

    def head(self, name: str) -> ObjectInfo:
        return self._get_stored(name)[0]

    def list(self, prefix: str = "", *, after: str = "", limit: int | None = None) -> Iterator[ObjectInfo]:
        below = f"{prefix}/" if prefix else ""
        names = sorted(n for n in self._stored if n.startswith(below) and n > after)
        yield from (self._stored[n][0] for n in names[:limit] if n in self._stored)

    def delete(self, name: str) -> bool:
        self._point(f"before delete {name}")
        if name in self._stored:
            self._guard(name, None)
        is_removed = self._stored.pop(check_name(name), None) is not None
        self._point(f"after delete {name}")
        return is_removed

    def copy(self, source: str, target: str, *, if_absent: bool = False) -> ObjectInfo:
        return self.put(target, self._get_stored(source)[1], if_absent=if_absent)

    def upload(self, name: str, *, resume: str | None = None, keep: bool = False) -> MemoryUpload:
        if resume is not None:
            if (upload := self._uploads.get(resume)) is None or upload.name != name:
                raise ObjectNotFound(f"There is no upload {resume} of {name}.")
            return upload
        self._point(f"before upload {name}")
        self._upload_count += 1
        upload = self._uploads[f"u{self._upload_count}"] = MemoryUpload(
            self, check_name(name), f"u{self._upload_count}", self._now(), keep
        )
        return upload

    def sweep(self, older_than: float) -> SweepResult:
        old = [upload for upload in self._uploads.values() if upload.began_at < self._now() - older_than]
        for upload in old:
            upload.abort()
        return SweepResult(uploads=len(old))

    def list_unfinished(self) -> tuple[str, ...]:
        """The names of uploads that go on, or did when their process crashed."""
        return tuple(upload.name for upload in self._uploads.values())

    def corrupt_object(self, name: str, data: bytes | None) -> None:
        """Damage as on a disk: other bytes under the same name, or none; without a point and without the guard."""
        info, _ = self._stored.pop(name)
        if data is not None:
            self._stored[name] = (info, data)

    def close(self) -> None: ...

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None: ...

    def _get_stored(self, name: str) -> tuple[ObjectInfo, bytes]:
        if (stored := self._stored.get(check_name(name))) is None:
            raise ObjectNotFound(f"There is no object {name}.")
        return stored


class MemoryUpload:
    """An upload in parts, with a point before each part; a process that crashes there leaves the parts so far."""

    def __init__(self, objects: MemoryObjects, name: str, id: str, began_at: float, keep: bool) -> None:
        self.name, self.id, self.began_at = name, id, began_at
        self._objects, self._keeps_parts = objects, keep
        self._parts: dict[int, bytes] = {}

    def list_parts(self) -> dict[int, PartInfo]:
        return {number: PartInfo(number, len(data), f"p{number}") for number, data in sorted(self._parts.items())}

    def put_part(self, number: int, data: bytes) -> PartInfo:
        self._objects._point(f"before part {number} of {self.name}")
        self._get_parts()[number] = data
        return PartInfo(number, len(data), f"p{number}")

    def complete(
        self, *, if_absent: bool = False, if_match: str | None = None, sha256: str | None = None
    ) -> ObjectInfo:
        body = b"".join(data for _, data in sorted(self._get_parts().items()))
        return self._objects._put(self.name, body, if_absent, if_match, None, sha256, self.id)

    def abort(self) -> None:
        self._objects._uploads.pop(self.id, None)

    def _get_parts(self) -> dict[int, bytes]:
        if self.id not in self._objects._uploads:
            raise ObjectNotFound(f"The upload {self.id} of {self.name} was aborted.")
        return self._parts

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if not self._keeps_parts and (kind is None or issubclass(kind, Exception)):  # a crashed process aborts nothing
            self.abort()


class MultipartMemoryObjects(MemoryObjects):
    """Long objects are uploaded in parts."""

    def put(
        self,
        name: str,
        data: ObjectData,
        *,
        if_absent: bool = False,
        if_match: str | None = None,
        size: int | None = None,
        sha256: str | None = None,
    ) -> ObjectInfo:
        body = _to_bytes(data)
        if len(body) <= PART_SIZE:
            return super().put(name, body, if_absent=if_absent, if_match=if_match, size=size, sha256=sha256)
        with self.upload(name) as upload:
            for at in range(0, len(body), PART_SIZE):
                upload.put_part(at // PART_SIZE + 1, body[at : at + PART_SIZE])
            if size is not None and size != len(body):
                raise ContentMismatch(f"{name} does not have the declared size or digest.")
            return upload.complete(if_absent=if_absent, if_match=if_match, sha256=sha256)


class FolderMemoryObjects(MemoryObjects):
    """A new folder can be put with everything in it, as into a directory."""

    def put_new_folder(self, folder: str, puts: Sequence[ObjectPut]) -> bool:
        self._point(f"before put whole {folder}")
        if folder in self._stored or any(name.startswith(f"{folder}/") for name in self._stored):
            return False
        for put in puts:
            body = bytes(put.data)
            self._etag_count += 1
            modified = datetime.fromtimestamp(self._now(), UTC)
            self._stored[put.name] = (
                ObjectInfo(put.name, len(body), f"e{self._etag_count}", modified, hashlib.sha256(body).hexdigest()),
                body,
            )
        self._point(f"after put whole {folder}")
        return True


def _to_bytes(data: ObjectData) -> bytes:
    if isinstance(data, (bytes, bytearray, memoryview)):
        return bytes(data)
    if isinstance(data, io.IOBase):
        return bytes(data.read())
    return b"".join(data)
