"""Receiving: an upload on its way into the objects, hashed as it comes, never held in memory.

    receive -> ingest/payloads/<batchID>.<random>/<filename> -> `submit` names it as its payload, or `forget` removes it

Each upload has a name of its own, so that the same submission sent twice never writes over what a batch is working on.
The name leads to the batch: the duty that removes what was left behind (duties.py) needs to look up nothing else.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from typing import BinaryIO

import msgspec

from waybill.apps.ingest import names
from waybill.apps.ingest.outfit import Outfit
from waybill.apps.ingest.service.refusals import TooLarge, Unfit
from waybill.digests import Digests, algorithm
from waybill.objects import ObjectsError, is_permanent

PAYLOADS = "ingest/payloads"
SCHEME = "waybill:"
HEAD = 4096  # bytes from which the type is guessed
_PORTION = 1024 * 1024
_BATCH_ID = re.compile(r"[A-Za-z0-9][A-Za-z0-9_.-]{0,99}")
_MINTED = re.compile(r"bid[0-9]+")  # what stores call batches


class Received(msgspec.Struct, frozen=True):
    """An upload as it lies in the objects."""

    url: str
    filename: str
    size: int
    digests: dict[str, str]
    head: bytes


def receive(
    outfit: Outfit, batch_id: str, filename: str, data: BinaryIO | Iterable[bytes], *, digests: Iterable[str] = ()
) -> Received:
    """Keep the bytes; SHA-256 and the digests named are taken as they come.

    What `data` raises passes through, and nothing is kept.
    """
    if fault := fault_of_batch_id(batch_id):
        raise Unfit(fault)
    if not filename:
        raise Unfit("The upload has no name: give a filename.")
    if "/" in filename:
        raise Unfit(f"{names.shown(filename)} is not the name of a file.")
    if fault := names.fault(filename):
        raise Unfit(fault)
    largest = outfit.settings.fetch.largest
    taken = Digests(digests)
    head = bytearray()

    def passed() -> Iterator[bytes]:
        for portion in _portions(data):
            taken.update(portion)
            if len(head) < HEAD:
                head.extend(portion[: HEAD - len(head)])
            if largest is not None and taken.size > largest:
                raise TooLarge(f"The upload is larger than {largest:,} bytes, which is the most that is taken here.")
            yield portion

    name = f"{PAYLOADS}/{batch_id}.{outfit.draw(8).hex()}/{filename}"
    # Safe to repeat: every upload has a name of its own, and what no batch refers to is removed by the duty.
    outfit.objects.put(name, passed())
    return Received(f"{SCHEME}{name}", filename, taken.size, taken.values, bytes(head))


def fault_of_batch_id(text: str) -> str | None:
    """What is wrong with it, as a sentence: it becomes a part of paths, and must not be taken for what stores call
    batches.
    """
    if _BATCH_ID.fullmatch(text) and not _MINTED.fullmatch(text):
        return None
    return f"{names.shown(text)} is not a batchID: it has 1 to 100 letters, digits and - _ . as bid-<uuid> does."


def measured(outfit: Outfit, received: Received, digest: str) -> Received:
    """With another digest, for a depositor who named it only after his file had come: it is read once more."""
    wanted = algorithm(digest)
    if wanted in received.digests:
        return received
    taken = Digests([wanted])
    with outfit.objects.get(object_of(received.url)) as body:
        for portion in body:
            taken.update(portion)
    if taken.values["sha256"] != received.digests["sha256"]:
        raise Unfit("The upload was damaged while it was kept: send it again.")
    return msgspec.structs.replace(received, digests={**received.digests, **taken.values})


def forget(outfit: Outfit, received: Received) -> None:
    """Remove an upload that became no batch's payload. What cannot be removed now, the duty removes."""
    try:
        outfit.objects.delete(object_of(received.url))  # safe to repeat: there is nothing left then
    except ObjectsError as error:
        if is_permanent(error):
            raise


def object_of(url: str) -> str:
    """The name of the object that was uploaded; "" for any other URL."""
    name = url.removeprefix(SCHEME)
    return name if url.startswith(f"{SCHEME}{PAYLOADS}/") else ""


def _portions(data: BinaryIO | Iterable[bytes]) -> Iterator[bytes]:
    if hasattr(data, "read"):
        while portion := data.read(_PORTION):
            yield portion
    else:
        yield from data
