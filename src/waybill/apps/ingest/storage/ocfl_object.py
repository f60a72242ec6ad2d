"""One OCFL object in storage: loading its root inventory, finding the manifest of a version, and writing files with
read-back.

Only the **root inventory** says what an object contains. It is valid if its digest is in its own sidecar, or in the
sidecar of its newest version: a crash between the last two writes of a version leaves the first sidecar outdated.

A folder without a root inventory is no object only as long as its first version is being written. Declaration, root sidecar and
second version are written after the root inventory: where one of them is, the inventory was lost, and the object is damaged.

Files are written as PendingWrites, together where the store can and they are small. An EncodedInventory is the next
inventory with its sidecar, which are written twice: with the version and in the object's root.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Callable, Iterable, Sequence
from typing import NamedTuple

from waybill.apps.ingest.storage import ocfl_inventory as ocfl
from waybill.apps.ingest.storage.ocfl_inventory import NewVersion, OcflInventory
from waybill.apps.ingest.storage.protocol import (
    MANIFEST_PATH,
    ConcurrentWrite,
    NotInStorage,
    StorageDamaged,
    StoredVersion,
)
from waybill.objects import (
    ContentMismatch,
    ObjectExists,
    ObjectNotFound,
    ObjectPut,
    Objects,
    PreconditionFailed,
    UnsupportedObjectOperation,
    measure,
    put_new_folder,
    put_several,
)

OBJECT_DECLARATION = ("0=ocfl_object_1.1", b"ocfl_object_1.1\n")

_TRACES = re.compile(r"0=.*|inventory\.json\.sha(256|512)|v(?!1/)[0-9]+/.*")  # written after the first root inventory

MAX_BYTES_TOGETHER = 4 * 1024 * 1024  # written together, from memory
MAX_FILES_TOGETHER = 64  # written together: all are open at the same time

ChunkSource = Callable[[], Iterable[bytes]]


class LostInventory(StorageDamaged):
    """The root inventory of an object is missing."""


class OcflObject(NamedTuple):
    """A valid root inventory, with the etag, digest (by its own algorithm) and size of its file."""

    root: str
    inventory: OcflInventory
    etag: str
    digest: str
    size: int


def load_object(objects: Objects, root: str) -> OcflObject | None:
    """Load the object's root inventory; None if there is no object. Raises StorageDamaged if it is not valid, or lost."""
    found = _read_inventory(objects, root)
    if found is None and has_traces(objects, root):
        found = _read_inventory(objects, root)  # again: it may have been published meanwhile
        if found is None:
            raise LostInventory(
                f"{root}/{ocfl.INVENTORY_FILE} is missing, and other files of the object are there: nothing is written until "
                "`waybill ingest rebuild ARK` has restored it from the newest version."
            )
    if found is None:
        return None
    etag, data = found
    where = f"{root}/{ocfl.INVENTORY_FILE}"
    for algorithm in ("sha512", "sha256"):
        digest = hashlib.new(algorithm, data).hexdigest()
        if read_sidecar(objects, root, algorithm) == digest:
            break
    else:
        # The algorithm and version it claims are used only to find the other sidecar; then the digest decides.
        claimed = ocfl.decode_inventory(data, where)
        digest = hashlib.new(claimed.algorithm, data).hexdigest()
        if read_sidecar(objects, f"{root}/{claimed.head}", claimed.algorithm) != digest:
            raise StorageDamaged(
                f"{where} does not match its digest: it was changed, and the object is not written until someone has looked at it."
            )
    return OcflObject(root, ocfl.decode_inventory(data, where), etag, digest, len(data))


def _read_inventory(objects: Objects, root: str) -> tuple[str, bytes] | None:
    """Return etag and content of the root inventory; None if there is none."""
    try:
        with objects.get(f"{root}/{ocfl.INVENTORY_FILE}") as body:
            return body.info.etag, body.read()
    except ObjectNotFound:
        return None


def has_traces(objects: Objects, root: str) -> bool:
    """Whether the folder has files that are only written after its root inventory: those of an object, not of an attempt."""
    after = ""
    while (info := next(iter(objects.list(root, after=after, limit=1)), None)) is not None:
        name = info.name.removeprefix(f"{root}/")
        if _TRACES.fullmatch(name):
            return True
        after = f"{root}/v1/~" if name.startswith("v1/") else info.name
    return False


def read_sidecar(objects: Objects, folder: str, algorithm: str) -> str | None:
    """Return the digest in the sidecar of this folder; None if there is none, empty if it is not valid."""
    try:
        with objects.get(f"{folder}/{ocfl.sidecar_name_of(algorithm)}", end=10_000) as body:
            words = body.read().decode("ascii", "replace").split()
    except ObjectNotFound:
        return None
    return words[0].lower() if len(words) == 2 and words[1] == ocfl.INVENTORY_FILE else ""


def encode_sidecar(digest: str) -> bytes:
    return f"{digest} {ocfl.INVENTORY_FILE}\n".encode()


def stored_version_of(objects: Objects, ocfl_object: OcflObject, number: int) -> StoredVersion:
    """Return a version as `write` returned it."""
    block = ocfl_object.inventory.decode_block(number)
    digest = next((digest for digest, paths in block.state.items() if MANIFEST_PATH in paths), None)
    if digest is None:
        raise NotInStorage(
            f"Version {number} of {ocfl_object.inventory.id} has no {MANIFEST_PATH}: another program wrote it."
        )
    place = ocfl_object.inventory.manifest[digest][0]
    if ocfl_object.inventory.algorithm == "sha256":
        sha256 = digest
    else:
        found = (text for text, places in ocfl_object.inventory.fixity.get("sha256", {}).items() if place in places)
        sha256 = next(found, "")
    size = objects.head(f"{ocfl_object.root}/{place}").size
    version = block.to_summary(number)
    return StoredVersion(
        object=ocfl_object.inventory.id,
        version=number,
        request=version.request,
        created=version.created,
        place=place,
        sha256=sha256,
        size=size,
    )


class PendingWrite(NamedTuple):
    """A file to write, replacing any other; if `is_conditional`, only if none exists (no etag), or replacing that
    version.
    """

    name: str
    chunks: ChunkSource
    size: int
    sha256: str
    is_conditional: bool = False
    etag: str | None = None


def put_all(objects: Objects, writes: Sequence[PendingWrite]) -> None:
    """Write them in order and read them back; together if the object store can and they are small.

    Raises ConcurrentWrite like `put_conditionally`.
    """
    if (
        len(writes) <= MAX_FILES_TOGETHER
        and sum(write.size for write in writes) <= MAX_BYTES_TOGETHER
        and hasattr(objects, "put_several")
    ):
        _put_together(objects, writes)
        return
    for write in writes:
        if write.is_conditional:
            put_conditionally(objects, write.name, write.chunks, write.size, write.sha256, write.etag)
        else:
            put_checked(objects, write.name, write.chunks, write.size, write.sha256)


def put_as_folder(objects: Objects, folder: str, writes: Sequence[PendingWrite]) -> bool:
    """Write a new folder with everything in it, atomically. Returns False, with nothing written, if that is impossible."""
    return put_new_folder(objects, folder, [ObjectPut(write.name, b"".join(write.chunks())) for write in writes])


def _put_together(objects: Objects, writes: Sequence[PendingWrite]) -> None:
    puts = [
        ObjectPut(
            write.name,
            b"".join(write.chunks()),
            if_absent=write.is_conditional and write.etag is None,
            if_match=write.etag,
        )
        for write in writes
    ]
    try:
        wrong = put_several(objects, puts)
    except (ObjectExists, PreconditionFailed) as error:
        raise ConcurrentWrite(f"{error} This write is given up, and the other one stays.") from error
    for write in writes:
        if any(put.name == write.name for put in wrong):
            if write.is_conditional:
                raise ConcurrentWrite(_describe_overtaken(write.name))
            read_back(objects, write.name, write.size, write.sha256)


def _describe_overtaken(name: str) -> str:
    return f"{name} was written by another writer meanwhile: this write is given up, and the other one stays."


def put_checked(objects: Objects, name: str, chunks: ChunkSource, size: int, sha256: str) -> None:
    """Write a file, replacing any other, and read it back."""
    objects.put(name, chunks(), size=size, sha256=sha256)
    read_back(objects, name, size, sha256)


def put_conditionally(
    objects: Objects, name: str, chunks: ChunkSource, size: int, sha256: str, etag: str | None
) -> None:
    """Write a file only if none exists (no etag) or only in place of a known version, and read it back. Raises
    ConcurrentWrite otherwise.

    If the object store does not guarantee that, the version is compared before and the content after: a second writer
    is detected, if not prevented, unless both write between the comparison and the write. In that case only the lock
    that the caller owns protects the object.
    """
    overtaken = _describe_overtaken(name)
    try:
        objects.put(name, chunks(), if_absent=etag is None, if_match=etag, size=size, sha256=sha256)
    except (ObjectExists, PreconditionFailed) as error:
        raise ConcurrentWrite(overtaken) from error
    except UnsupportedObjectOperation:
        if etag_of(objects, name) != etag:
            raise ConcurrentWrite(overtaken) from None
        objects.put(name, chunks(), size=size, sha256=sha256)
    try:
        read_back(objects, name, size, sha256)
    except ContentMismatch as error:
        raise ConcurrentWrite(overtaken) from error


def etag_of(objects: Objects, name: str) -> str | None:
    try:
        return objects.head(name).etag
    except ObjectNotFound:
        return None


def read_back(objects: Objects, name: str, size: int, sha256: str) -> None:
    try:
        found = measure(objects, name)
    except ObjectNotFound as error:
        raise ConcurrentWrite(
            f"{name} was written and is gone: another writer finished this version and removed the leftovers of others."
        ) from error
    if found != (size, sha256):
        raise ContentMismatch(
            f"{name} was written with {size} bytes of SHA-256 {sha256}, and read back with {found[0]} bytes of {found[1]}."
        )


class EncodedInventory(NamedTuple):
    """The inventory of an object with a new version, encoded when it is written."""

    names: tuple[str, str]
    chunks: Callable[[], Iterable[bytes]]
    size: int
    sha256: str
    digest: str  # by its own algorithm, for the sidecar

    @classmethod
    def build(cls, before: OcflInventory | None, new: NewVersion) -> EncodedInventory:
        def encode_chunks() -> Iterable[bytes]:
            return ocfl.encode_inventory(before, new)

        return cls(
            (ocfl.INVENTORY_FILE, ocfl.sidecar_name_of(new.algorithm)),
            encode_chunks,
            *ocfl.digest_of(encode_chunks(), new.algorithm),
        )

    def to_writes(self, folder: str, etag: str | None = None, sidecar_etag: str | None = None) -> list[PendingWrite]:
        """Return the writes of inventory and sidecar, replacing these versions, or only if there is none."""
        sidecar = encode_sidecar(self.digest)
        return [
            PendingWrite(f"{folder}/{self.names[0]}", self.chunks, self.size, self.sha256, True, etag),
            PendingWrite(
                f"{folder}/{self.names[1]}",
                lambda: [sidecar],
                len(sidecar),
                hashlib.sha256(sidecar).hexdigest(),
                True,
                sidecar_etag,
            ),
        ]


def build_declaration_write(root: str) -> PendingWrite:
    """Return the write of the file that declares a folder an OCFL object."""
    name, text = OBJECT_DECLARATION
    return PendingWrite(f"{root}/{name}", lambda: [text], len(text), hashlib.sha256(text).hexdigest())
