"""Uploads: streamed into the objects, and hashed on the way; never held in memory.

    receive_upload -> ingest/payloads/<batchID>.<random>/<filename> -> a batch names it as its payload, or remove_upload removes it

Each upload has a name of its own, so that the same submission sent twice never overwrites what a batch is using. The
name holds the batchID: the maintenance routine that removes abandoned uploads (maintenance/unneeded_objects.py) needs
nothing else to find the batch.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from typing import BinaryIO

import msgspec

from waybill.apps.ingest.payload import UPLOADS_FOLDER
from waybill.apps.ingest.resources import IngestResources
from waybill.apps.ingest.storage.sources import OBJECT_SCHEME
from waybill.digests import Digests, normalize_algorithm
from waybill.files import names
from waybill.objects import ObjectsError, is_permanent
from waybill.rules import InvalidRequest, PayloadTooLarge

HEAD_BYTES = 4096  # bytes from which the type is guessed
_CHUNK = 1024 * 1024
_BATCH_ID = re.compile(r"[A-Za-z0-9][A-Za-z0-9_.-]{0,99}")
_STORE_ID = re.compile(r"bid[0-9]+")  # ids of batches in the store


class ReceivedUpload(msgspec.Struct, frozen=True):
    """An upload that is stored among the objects."""

    url: str
    filename: str
    size: int
    digests: dict[str, str]
    head: bytes


def receive_upload(
    resources: IngestResources,
    batch_id: str,
    filename: str,
    data: BinaryIO | Iterable[bytes],
    *,
    digests: Iterable[str] = (),
) -> ReceivedUpload:
    """Store the bytes; SHA-256 and the given digests are computed on the way.

    What `data` raises is raised, and nothing is stored.
    """
    if fault := find_batch_id_fault(batch_id):
        raise InvalidRequest(fault)
    if not filename:
        raise InvalidRequest("The upload has no name: give a filename.")
    if "/" in filename:
        raise InvalidRequest(f"{names.quote_text(filename)} is not the name of a file.")
    if fault := names.find_fault(filename):
        raise InvalidRequest(fault)
    max_bytes = resources.settings.fetch.max_bytes
    computed = Digests(digests)
    head = bytearray()

    def check_chunks() -> Iterator[bytes]:
        for chunk in _read_chunks(data):
            computed.update(chunk)
            if len(head) < HEAD_BYTES:
                head.extend(chunk[: HEAD_BYTES - len(head)])
            if max_bytes is not None and computed.size > max_bytes:
                raise PayloadTooLarge(f"The upload is larger than {max_bytes:,} bytes, the most that is accepted here.")
            yield chunk

    name = f"{UPLOADS_FOLDER}/{batch_id}.{resources.draw_random_bytes(8).hex()}/{filename}"
    # Safe to repeat: every upload has its own name, and a maintenance routine removes those that no batch refers to.
    resources.objects.put(name, check_chunks())
    return ReceivedUpload(f"{OBJECT_SCHEME}{name}", filename, computed.size, computed.values, bytes(head))


def find_batch_id_fault(text: str) -> str | None:
    """What is wrong with a batchID, as a sentence: it becomes part of paths, and must not look like the id of a batch."""
    if _BATCH_ID.fullmatch(text) and not _STORE_ID.fullmatch(text):
        return None
    return f"{names.quote_text(text)} is not a batchID: it has 1 to 100 letters, digits and - _ . as bid-<uuid> does."


def add_digest(resources: IngestResources, received: ReceivedUpload, digest: str) -> ReceivedUpload:
    """The upload with another digest, which the depositor named only after the file was received: it is read once more."""
    algorithm = normalize_algorithm(digest)
    if algorithm in received.digests:
        return received
    computed = Digests([algorithm])
    with resources.objects.get(object_name_of(received.url)) as body:
        for chunk in body:
            computed.update(chunk)
    if computed.values["sha256"] != received.digests["sha256"]:
        raise InvalidRequest("The upload was damaged in storage: send it again.")
    return msgspec.structs.replace(received, digests={**received.digests, **computed.values})


def remove_upload(resources: IngestResources, received: ReceivedUpload) -> None:
    """Remove an upload that no batch uses. If it cannot be removed now, the maintenance routine does it later."""
    try:
        resources.objects.delete(object_name_of(received.url))  # safe to repeat: a missing object is no error
    except ObjectsError as error:
        if is_permanent(error):
            raise


def object_name_of(url: str) -> str:
    """The name of the uploaded object; "" for any other URL."""
    name = url.removeprefix(OBJECT_SCHEME)
    return name if url.startswith(f"{OBJECT_SCHEME}{UPLOADS_FOLDER}/") else ""


def _read_chunks(data: BinaryIO | Iterable[bytes]) -> Iterator[bytes]:
    if hasattr(data, "read"):
        while chunk := data.read(_CHUNK):
            yield chunk
    else:
        yield from data
