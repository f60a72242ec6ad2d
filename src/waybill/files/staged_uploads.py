"""Uploads: streamed into the objects, and hashed on the way; never held in memory.

    receive -> FOLDER/<key>.<random>/<filename> -> a record refers to it, or it is removed

Each upload has an object name of its own, so that the same file sent twice never overwrites what a record is using. The
name holds the key, which leads to the record that will refer to the upload, such as its idempotency key: a maintenance
routine that removes abandoned uploads (unneeded_objects.py) needs nothing else.
"""

from __future__ import annotations

import secrets
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from typing import BinaryIO

import msgspec

from waybill.digests import Digests, normalize_algorithm
from waybill.errors import InputError
from waybill.files import names
from waybill.objects import Objects, ObjectsError, is_permanent
from waybill.rules import ActionRefused

HEAD_BYTES = 4096  # bytes from which a type can be guessed
_CHUNK = 1024 * 1024


class StagedUpload(msgspec.Struct, frozen=True):
    """An upload that is stored among the objects."""

    name: str  # of the object
    filename: str
    size: int
    digests: dict[str, str]
    head: bytes


class StagedUploads:
    """The uploads below one folder of the objects."""

    def __init__(
        self,
        objects: Objects,
        folder: str,
        *,
        max_bytes: int | None = None,
        draw_random_bytes: Callable[[int], bytes] = secrets.token_bytes,
    ) -> None:
        self._objects, self._folder, self._max_bytes = objects, folder, max_bytes
        self._draw_random_bytes = draw_random_bytes

    def receive(
        self, key: str, filename: str, data: BinaryIO | Iterable[bytes], *, digests: Iterable[str] = ()
    ) -> StagedUpload:
        """Store the bytes; SHA-256 and the given digests are computed on the way. `key` is one segment of a name.

        What `data` raises is raised, and nothing is stored.
        """
        check_file_name(filename)
        computed = Digests(digests)
        head = bytearray()

        def check_chunks() -> Iterator[bytes]:
            for chunk in _read_chunks(data):
                computed.update(chunk)
                if len(head) < HEAD_BYTES:
                    head.extend(chunk[: HEAD_BYTES - len(head)])
                if self._max_bytes is not None and computed.size > self._max_bytes:
                    raise InputError(
                        f"The upload is larger than {self._max_bytes:,} bytes, the most that is accepted here.",
                        code="too-large",
                    )
                yield chunk

        name = f"{self._folder}/{key}.{self._draw_random_bytes(8).hex()}/{filename}"
        # Safe to repeat: every upload has its own name, and a maintenance routine removes those that nobody refers to.
        self._objects.put(name, check_chunks())
        return StagedUpload(name, filename, computed.size, computed.values, bytes(head))

    def add_digest(self, upload: StagedUpload, digest: str) -> StagedUpload:
        """The upload with another digest, which the sender named only after the file was received: it is read once more."""
        algorithm = normalize_algorithm(digest)
        if algorithm in upload.digests:
            return upload
        computed = Digests([algorithm])
        with self._objects.get(upload.name) as body:
            for chunk in body:
                computed.update(chunk)
        if computed.values["sha256"] != upload.digests["sha256"]:
            raise InputError("The upload was damaged in storage: send it again.")
        return msgspec.structs.replace(upload, digests={**upload.digests, **computed.values})

    def remove(self, upload: StagedUpload) -> None:
        """Remove an upload that nobody uses. If it cannot be removed now, the maintenance routine does it later."""
        try:
            self._objects.delete(upload.name)  # safe to repeat: a missing object is no error
        except ObjectsError as error:
            if is_permanent(error):
                raise

    @contextmanager
    def remove_on_refusal(self) -> Iterator[Callable[[StagedUpload], None]]:
        """The function that is yielded takes each upload; if the block ends in a refusal, they are removed again.

        After any other error they stay: the record may have been created, and need them. If not, the maintenance
        routine removes them.
        """
        uploads: list[StagedUpload] = []
        try:
            yield uploads.append
        except (ActionRefused, ObjectsError):
            for upload in uploads:
                self.remove(upload)
            raise


def check_file_name(filename: str) -> None:
    """Raise unless an upload can be stored under this name."""
    if not filename:
        raise InputError("The upload has no name: give a filename.")
    if "/" in filename:
        raise InputError(f"{names.quote_text(filename)} is not the name of a file.")
    if fault := names.find_fault(filename):
        raise InputError(fault)


def upload_key_of(folder: str, name: str) -> str:
    """The key in the name of an object below the folder; "" if the name is not one of ours."""
    return name.removeprefix(f"{folder}/").partition("/")[0].rpartition(".")[0]


def _read_chunks(data: BinaryIO | Iterable[bytes]) -> Iterator[bytes]:
    if hasattr(data, "read"):
        while chunk := data.read(_CHUNK):
            yield chunk
    else:
        yield from data
