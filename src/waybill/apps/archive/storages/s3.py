"""S3Storage: a key for each archive, below a prefix of a bucket, on any server that speaks Amazon's protocol.

    s3://bucket/prefix/migration-12/archive_0000000001.tar

An archive is sent in parts: the server keeps those of an unfinished put until it is completed, so a checkpoint names the
upload and counts its parts, and a put that is resumed sends the parts that follow. While one part is sent the next one is
read. An archive that fits into one request is sent in one. Nothing is under an archive's name before all of it is there.

A batch is done when its calls have returned, so batches are names only. The bucket must exist.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Generator, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager
from types import TracebackType
from typing import Self
from urllib.parse import urlsplit, urlunsplit

from waybill.apps.archive.storages.errors import (
    ArchiveNotFound,
    CredentialsRefused,
    ExternalStorageError,
    SourceChanged,
    StorageFull,
    StorageRefused,
    StorageUnavailable,
)
from waybill.apps.archive.storages.protocol import (
    DEFAULT_PART_SIZE,
    ArchiveSource,
    Batch,
    BatchKind,
    BatchStatus,
    SaveCheckpoint,
    StorageTraits,
    StoredArchive,
    UploadCheckpoint,
    check_batch,
    check_storage_name,
    open_named_batch,
)
from waybill.apps.archive.storages.sources import PartStream, resume_stream
from waybill.objects import (
    MAX_PART_NUMBER,
    MIN_PART_SIZE,
    ObjectNotFound,
    ObjectRequestRefused,
    Objects,
    ObjectsError,
    ObjectUpload,
    S3Credentials,
    UnsupportedObjectOperation,
    open_objects,
)

MAX_SINGLE_PUT = 8 * 1024 * 1024
_OPEN_CONTAINERS = 16


@contextmanager
def translate_object_errors() -> Iterator[None]:
    try:
        yield
    except ObjectsError as error:
        raise to_storage_error(error) from error


def to_storage_error(error: ObjectsError) -> ExternalStorageError:
    text = str(error)
    if isinstance(error, ObjectNotFound):
        return ArchiveNotFound(text)
    if error.code == "objects-denied":
        return CredentialsRefused(text)
    if error.code == "objects-full":
        return StorageFull(text)
    if isinstance(error, ObjectRequestRefused | UnsupportedObjectOperation):
        return StorageRefused(text)
    return StorageUnavailable(text)


class S3Storage:
    """Archives below `address`: s3://bucket/prefix?endpoint=https://host&region=name. Needs an access key."""

    def __init__(
        self,
        name: str,
        address: str,
        *,
        credentials: S3Credentials | Callable[[], S3Credentials] | None = None,
        part_size: int = DEFAULT_PART_SIZE,
        max_transfers: int = 4,
        tries: int = 5,
    ) -> None:
        if part_size < MIN_PART_SIZE:
            raise StorageRefused(f"The parts of {name} must have at least {MIN_PART_SIZE} bytes.")
        self.name = name
        self.traits = StorageTraits(part_size=part_size, max_transfers=max_transfers)
        self._address, self._credentials, self._tries = urlsplit(address), credentials, tries
        self._lock = threading.Lock()
        self._containers: dict[str, Objects] = {}
        self._retired: list[Objects] = []  # replaced by others; a thread may still read from them
        with translate_object_errors():
            self._root = self._open_objects("")

    def _open_objects(self, container: str) -> Objects:
        path = "/".join(part for part in (self._address.path.strip("/"), container) if part)
        address = urlunsplit(self._address._replace(path=f"/{path}"))
        return open_objects(address, credentials=self._credentials, probe=False, tries=self._tries)

    def _objects_of(self, container: str) -> Objects:
        """What is below the prefix of a container, its unfinished puts too."""
        with self._lock:
            if (known := self._containers.get(container)) is not None:
                return known
            if len(self._containers) >= _OPEN_CONTAINERS:
                self._retired.append(self._containers.pop(next(iter(self._containers))))
            self._containers[container] = self._open_objects(container)
            return self._containers[container]

    def check(self) -> None:
        with translate_object_errors():
            for _ in self._root.list(limit=1):
                pass

    def open_batch(self, kind: BatchKind, container: str, token: str) -> Batch:
        batch = open_named_batch(kind, container, token)
        self.check()
        return batch

    def put(
        self,
        batch: Batch,
        name: str,
        source: ArchiveSource,
        *,
        resume: UploadCheckpoint | None = None,
        save: SaveCheckpoint = lambda _: None,
    ) -> StoredArchive:
        """Send an archive. A second run replaces what the first sent, or goes on with its upload."""
        check_batch(batch, "put", name)
        objects = self._objects_of(batch.container)
        if source.size <= min(MAX_SINGLE_PUT, self.traits.part_size):
            stream = PartStream(source, self.traits.part_size)
            content = b"".join(bytes(chunk) for chunk in stream.iter_part())
            archive = stream.to_archive(name)
            with translate_object_errors():
                objects.put(name, content, size=archive.size, sha256=archive.sha256)
            return archive
        part_size = max(self.traits.part_size, -(-source.size // MAX_PART_NUMBER))
        upload, stored = self._find_upload(objects, name, resume)
        stream, goes_on = resume_stream(source, part_size, resume if upload else None, stored)
        with translate_object_errors():
            if upload is None or not goes_on:
                if upload is not None:
                    upload.abort()
                upload = objects.upload(name, keep=True)
        try:
            with _PartSender(upload, save) as sender:
                while not stream.is_finished:
                    number = stream.parts + 1
                    content = b"".join(bytes(chunk) for chunk in stream.iter_part())
                    sender.send(number, content, None if stream.is_finished else stream.make_checkpoint(upload.id))
        except SourceChanged:
            with translate_object_errors():
                upload.abort()
            raise
        with translate_object_errors():
            stored_info = upload.complete()
        if stored_info.size != stream.size:
            raise StorageUnavailable(f"The S3 server has {stored_info.size} bytes of {name}; {stream.size} were sent.")
        return stream.to_archive(name)

    def _find_upload(
        self, objects: Objects, name: str, resume: UploadCheckpoint | None
    ) -> tuple[ObjectUpload | None, int]:
        """Return the upload of a checkpoint, if the server has it, and how many bytes of it are there from the start."""
        if resume is None:
            return None, 0
        with translate_object_errors():
            try:
                upload = objects.upload(name, resume=resume.upload, keep=True)
                parts = upload.list_parts()
            except ObjectNotFound:
                return None, 0  # it was completed, by the run that left the checkpoint, or removed
        whole = 0
        while (part := parts.get(whole + 1)) is not None and part.size == resume.part_size:
            whole += 1
        return upload, whole * resume.part_size

    def request(self, batch: Batch, name: str) -> None:
        check_batch(batch, "get", name)
        with translate_object_errors():
            self._objects_of(batch.container).head(name)

    def delete(self, batch: Batch, name: str) -> None:
        check_batch(batch, "delete", name)
        with translate_object_errors():
            self._objects_of(batch.container).delete(name)

    def close_batch(self, batch: Batch) -> None:
        """Nothing is left to do."""

    def poll(self, batch: Batch) -> BatchStatus:
        self.check()
        return BatchStatus(is_done=True)

    def read(
        self, batch: Batch, name: str, *, start: int = 0, end: int | None = None
    ) -> Generator[bytes | memoryview, None, None]:
        check_batch(batch, "get", name)
        with translate_object_errors():
            body = self._objects_of(batch.container).get(name, start=start, end=end)
        return self._iter_body(body)

    def _iter_body(self, body: object) -> Generator[bytes | memoryview, None, None]:
        with translate_object_errors(), body as chunks:  # type: ignore[attr-defined]
            yield from chunks

    def end_batch(self, batch: Batch) -> None:
        """Nothing is kept of a batch. An unfinished put is resumed by the next one, or removed with its container."""

    def list_archives(self, container: str) -> Iterator[StoredArchive]:
        check_storage_name(container, "a container")
        with translate_object_errors():
            for info in self._objects_of(container).list():
                if "/" not in info.name:
                    yield StoredArchive(info.name, info.size)

    def list_containers(self) -> Iterator[str]:
        with translate_object_errors():
            names = {info.name.partition("/")[0] for info in self._root.list() if "/" in info.name}
        yield from sorted(names)

    def remove_container(self, container: str) -> None:
        """Remove all keys of a container, and the parts of its unfinished puts. A second run finds what is left."""
        check_storage_name(container, "a container")
        objects = self._objects_of(container)
        with translate_object_errors():
            objects.sweep(older_than=-60.0)  # all of them, if the server's clock is a little ahead, too
            for info in list(objects.list()):
                objects.delete(info.name)

    def close(self) -> None:
        with self._lock:
            for objects in (self._root, *self._containers.values(), *self._retired):
                objects.close()
            self._containers.clear()
            self._retired.clear()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()


class _PartSender:
    """Sends one part while the next one is read. A checkpoint is saved when its part is stored, in the caller's thread."""

    def __init__(self, upload: ObjectUpload, save: SaveCheckpoint) -> None:
        self._upload, self._save = upload, save
        self._thread = ThreadPoolExecutor(1, "archive-part")
        self._under_way: tuple[Future[object], UploadCheckpoint | None] | None = None

    def send(self, number: int, content: bytes, checkpoint: UploadCheckpoint | None) -> None:
        self._wait()
        self._under_way = (self._thread.submit(self._upload.put_part, number, content), checkpoint)

    def _wait(self) -> None:
        if self._under_way is not None:
            (future, checkpoint), self._under_way = self._under_way, None
            with translate_object_errors():
                future.result()
            if checkpoint is not None:
                self._save(checkpoint)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        try:
            self._wait()  # whatever ended the source: this part is not sent again
        finally:
            self._thread.shutdown()
