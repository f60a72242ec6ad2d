"""One object at rest: its root inventory read and believed, its manifests found, and single things written and read
back.

A reader believes the **root inventory** and nothing else. It is believed if its digest is in the sidecar beside it, or
in the sidecar of its newest version: a crash between the last two writes of a version leaves the first one old.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterable, Sequence
from typing import NamedTuple

from waybill.apps.ingest.storage import ocfl_inventory as ocfl
from waybill.apps.ingest.storage.ocfl_inventory import Inventory
from waybill.apps.ingest.storage.protocol import MANIFEST, Late, NotStored, Stored, Unsound
from waybill.objects import (
    AlreadyThere,
    Damaged,
    NotFound,
    Objects,
    Precondition,
    Put,
    Unsupported,
    measure,
    put_several,
    put_whole,
)

DECLARATION = ("0=ocfl_object_1.1", b"ocfl_object_1.1\n")

SMALL = 4 * 1024 * 1024  # bytes that are written together, out of memory
MOST_TOGETHER = 64  # files that are written together: each is open for a moment

Portions = Callable[[], Iterable[bytes]]


class Held(NamedTuple):
    """A root inventory that is believed, the version of the file it was read from, and its digest by its own
    algorithm.
    """

    root: str
    inventory: Inventory
    etag: str
    digest: str
    size: int


def load(objects: Objects, root: str) -> Held | None:
    """What the object's root inventory says; None if there is none, Unsound if it cannot be believed."""
    try:
        with objects.get(f"{root}/{ocfl.FILE}") as body:
            etag, data = body.info.etag, body.read()
    except NotFound:
        return None
    where = f"{root}/{ocfl.FILE}"
    for algorithm in ("sha512", "sha256"):
        digest = hashlib.new(algorithm, data).hexdigest()
        if sidecar_of(objects, root, algorithm) == digest:
            break
    else:
        # Which algorithm and which version it claims is only asked in order to find the other sidecar; then the digest
        # decides.
        claimed = ocfl.decode(data, where)
        digest = hashlib.new(claimed.algorithm, data).hexdigest()
        if sidecar_of(objects, f"{root}/{claimed.head}", claimed.algorithm) != digest:
            raise Unsound(
                f"{where} does not match its digest: it was changed, and the object is not touched until someone looks at it."
            )
    return Held(root, ocfl.decode(data, where), etag, digest, len(data))


def sidecar_of(objects: Objects, folder: str, algorithm: str) -> str | None:
    """The digest that the sidecar in this folder holds; None without one."""
    try:
        with objects.get(f"{folder}/{ocfl.sidecar(algorithm)}", end=10_000) as body:
            words = body.read().decode("ascii", "replace").split()
    except NotFound:
        return None
    return words[0].lower() if len(words) == 2 and words[1] == ocfl.FILE else ""


def sidecar_data(digest: str) -> bytes:
    return f"{digest} {ocfl.FILE}\n".encode()


def stored_in(objects: Objects, held: Held, number: int) -> Stored:
    """A version as the one who wrote it was answered."""
    block = held.inventory.block(number)
    digest = next((digest for digest, paths in block.state.items() if MANIFEST in paths), None)
    if digest is None:
        raise NotStored(f"Version {number} of {held.inventory.id} has no {MANIFEST}: another program wrote it.")
    place = held.inventory.manifest[digest][0]
    if held.inventory.algorithm == "sha256":
        sha256 = digest
    else:
        found = (text for text, places in held.inventory.fixity.get("sha256", {}).items() if place in places)
        sha256 = next(found, "")
    size = objects.head(f"{held.root}/{place}").size
    version = block.version(number)
    return Stored(
        object=held.inventory.id,
        version=number,
        request=version.request,
        created=version.created,
        place=place,
        sha256=sha256,
        size=size,
    )


class Write(NamedTuple):
    """To be written over whatever is there; or `guarded`: only if nothing is there (no etag), or in the place of
    that version.
    """

    name: str
    portions: Portions
    size: int
    sha256: str
    guarded: bool = False
    etag: str | None = None


def put_all(objects: Objects, writes: Sequence[Write]) -> None:
    """Write them in their order, and read them back: together where the object store can and they are small.

    Late as `put_guarded` says.
    """
    if (
        len(writes) <= MOST_TOGETHER
        and sum(write.size for write in writes) <= SMALL
        and hasattr(objects, "put_several")
    ):
        _put_together(objects, writes)
        return
    for write in writes:
        if write.guarded:
            put_guarded(objects, write.name, write.portions, write.size, write.sha256, write.etag)
        else:
            put_checked(objects, write.name, write.portions, write.size, write.sha256)


def put_as_folder(objects: Objects, folder: str, writes: Sequence[Write]) -> bool:
    """Write a folder that is new, with everything in it, at once; whether that could be done. If not, nothing was."""
    return put_whole(objects, folder, [Put(write.name, b"".join(write.portions())) for write in writes])


def _put_together(objects: Objects, writes: Sequence[Write]) -> None:
    puts = [
        Put(w.name, b"".join(w.portions()), if_absent=w.guarded and w.etag is None, if_match=w.etag) for w in writes
    ]
    try:
        wrong = put_several(objects, puts)
    except (AlreadyThere, Precondition) as error:
        raise Late(f"{error} This write is given up, and theirs stays.") from error
    for write in writes:
        if any(put.name == write.name for put in wrong):
            if write.guarded:
                raise Late(_overtaken(write.name))
            read_back(objects, write.name, write.size, write.sha256)


def _overtaken(name: str) -> str:
    return f"{name} was written by someone else meanwhile: this write is given up, and theirs stays."


def put_checked(objects: Objects, name: str, portions: Portions, size: int, sha256: str) -> None:
    """Write, whatever is there, and read it back."""
    objects.put(name, portions(), size=size, sha256=sha256)
    read_back(objects, name, size, sha256)


def put_guarded(objects: Objects, name: str, portions: Portions, size: int, sha256: str, etag: str | None) -> None:
    """Write only if nothing is there (no etag) or only in the place of a known version, and read it back; Late
    otherwise.

    Where the object store cannot promise that, it is looked at before and after: a second writer is noticed, if not
    prevented, unless both write in the moment between a look and its write. There the caller's exclusive key is all
    there is.
    """
    late = _overtaken(name)
    try:
        objects.put(name, portions(), if_absent=etag is None, if_match=etag, size=size, sha256=sha256)
    except (AlreadyThere, Precondition) as error:
        raise Late(late) from error
    except Unsupported:
        if etag_of(objects, name) != etag:
            raise Late(late) from None
        objects.put(name, portions(), size=size, sha256=sha256)
    try:
        read_back(objects, name, size, sha256)
    except Damaged as error:
        raise Late(late) from error


def etag_of(objects: Objects, name: str) -> str | None:
    try:
        return objects.head(name).etag
    except NotFound:
        return None


def read_back(objects: Objects, name: str, size: int, sha256: str) -> None:
    try:
        found = measure(objects, name)
    except NotFound as error:
        raise Late(
            f"{name} was written and is gone: someone else finished this version and removed what others had left."
        ) from error
    if found != (size, sha256):
        raise Damaged(
            f"{name} was written with {size} bytes of SHA-256 {sha256}, and read back with {found[0]} bytes of {found[1]}."
        )
