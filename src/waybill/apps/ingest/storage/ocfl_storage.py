"""OcflStorage: a storage service in an OCFL 1.1 storage root, on any object store.

    storage = OcflStorage(objects, "ocfl", sources)
    stored = storage.write(
        Deposit(object="ark:/99999/fk4x", request="job 7", files=[FileToStore("producer/a.txt", 3, sha256, "file:...")])
    )

OcflRoot below says where an object is in the root, version_writer.py how a version is written, ocfl_integrity.py how
objects are checked, and recovered after an interrupted write.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Callable, Iterator
from datetime import UTC, datetime, timedelta
from itertools import islice

import msgspec

from waybill import manifests
from waybill.apps.ingest.storage import ocfl_integrity
from waybill.apps.ingest.storage.ocfl_inventory import DigestAlgorithm, decode_inventory
from waybill.apps.ingest.storage.ocfl_object import LostInventory, OcflObject, load_object, stored_version_of
from waybill.apps.ingest.storage.protocol import (
    ConcurrentWrite,
    Deposit,
    InvalidDeposit,
    NotInStorage,
    RecoveryResult,
    SourceOpener,
    StorageDamaged,
    StorageFinding,
    StoredVersion,
    VersionSummary,
)
from waybill.apps.ingest.storage.version_writer import VersionWriter
from waybill.manifests import ManifestReader
from waybill.objects import ObjectBody, ObjectNotFound, Objects, check_prefix

LAYOUT_EXTENSION = "0004-hashed-n-tuple-storage-layout"
TUPLE_SIZE, TUPLE_COUNT = 2, 2  # at most 65,536 folders, of which a new object rarely needs a new one
ROOT_DECLARATION = ("0=ocfl_1.1", b"ocfl_1.1\n")
LAYOUT_CONFIG = {
    "extensionName": LAYOUT_EXTENSION,
    "digestAlgorithm": "sha256",
    "tupleSize": TUPLE_SIZE,
    "numberOfTuples": TUPLE_COUNT,
    "shortObjectRoot": False,
}
LAYOUT_DESCRIPTION = (
    "Objects lie in folders named by the SHA-256 of their identifier, below two folders of two of its digits each"
)

_OBJECT_NAME = re.compile(r"(?P<root>[0-9a-f]{2}/[0-9a-f]{2}/[0-9a-f]{64})/.+")


class OcflStorage:
    """A storage service on an object store. Safe for several threads, with one writer per object at a time."""

    def __init__(
        self,
        objects: Objects,
        prefix: str,
        sources: SourceOpener,
        *,
        algorithm: DigestAlgorithm = "sha512",
        threads: int = 4,
        declare_layout: bool = True,
        now: Callable[[], datetime] = lambda: datetime.now(UTC),
    ) -> None:
        """`algorithm` is for new objects: with sha256 content is digested once instead of twice, but validators warn
        about it (W004).
        """
        self._objects, self._sources = objects, sources
        self._algorithm, self._threads, self._now = algorithm, threads, now
        self._root = OcflRoot(objects, prefix, declare_layout=declare_layout)

    def write(self, deposit: Deposit, *, check: Callable[[], None] = lambda: None) -> StoredVersion:
        self._root.ensure_declared()
        writer = VersionWriter(
            self._objects,
            self._root.place_of(deposit.object),
            self._sources,
            algorithm=self._algorithm,
            threads=self._threads,
            now=self._now,
            check=check,
        )
        return writer.write(deposit)

    def find_by_request(self, object_id: str, request: str) -> StoredVersion | None:
        ocfl_object = load_object(self._objects, self._root.place_of(object_id))
        for version in ocfl_object.inventory.list_versions() if ocfl_object else ():
            if ocfl_object is not None and version.request == request:
                return stored_version_of(self._objects, ocfl_object, version.number)
        return None

    def list_versions(self, object_id: str) -> list[VersionSummary]:
        return self._load_object(object_id).inventory.list_versions()

    def get_version(self, object_id: str, number: int = 0) -> StoredVersion:
        ocfl_object = self._load_object(object_id)
        return stored_version_of(self._objects, ocfl_object, self._resolve_number(ocfl_object, number))

    def open_manifest(self, stored: StoredVersion) -> ManifestReader:
        return manifests.open_manifest(self._objects, f"{self._root.place_of(stored.object)}/{stored.place}")

    def object_name_of(self, object_id: str, place: str) -> str:
        """Return the name of content in the object store."""
        return f"{self._root.place_of(object_id)}/{place}"

    def read(self, object_id: str, place: str, *, start: int = 0, end: int | None = None) -> ObjectBody:
        return self._objects.get(self.object_name_of(object_id, place), start=start, end=end)

    def open_file(
        self, object_id: str, path: str, number: int = 0, *, start: int = 0, end: int | None = None
    ) -> ObjectBody:
        return self.read(object_id, self.find_place(object_id, path, number), start=start, end=end)

    def find_place(self, object_id: str, path: str, number: int = 0) -> str:
        """Return where the content of a file is. Raises NotInStorage."""
        ocfl_object = self._load_object(object_id)
        number = self._resolve_number(ocfl_object, number)
        for digest, paths in ocfl_object.inventory.decode_block(number).state.items():
            if path in paths:
                return ocfl_object.inventory.manifest[digest][0]
        raise NotInStorage(f"Version {number} of {object_id} has no file {path!r}.")

    def find_digest(self, object_id: str, place: str) -> tuple[str, str] | None:
        """Return the algorithm and the digest that the content at a place must have; None if no version refers to it."""
        inventory = self._load_object(object_id).inventory
        for digest, places in inventory.manifest.items():
            if place in places:
                return inventory.algorithm, digest.lower()
        return None

    def check(self, object_id: str, place: str, size: int, sha256: str) -> StorageFinding | None:
        return ocfl_integrity.check_place(self._objects, self._root.place_of(object_id), place, size, sha256)

    def verify(self, object_id: str) -> Iterator[StorageFinding]:
        return ocfl_integrity.verify_object(self._objects, self._root.place_of(object_id), object_id)

    def recover(self, object_id: str) -> RecoveryResult:
        return ocfl_integrity.recover_object(self._objects, self._root.place_of(object_id))

    def recover_all(self, older_than: float, after: str = "") -> Iterator[tuple[str, RecoveryResult]]:
        """Recover all objects, also those without an inventory; yield (cursor, result) for each that was changed.

        Only leftovers older than so many seconds are removed: no write is still in progress for them.
        """
        before = self._now() - timedelta(seconds=older_than)
        for root in self._root.walk_objects(after):
            if (result := self._recover_old(root, before)) != RecoveryResult():
                yield self._root.cursor_of(root), result

    def recover_page(
        self, older_than: float, after: str = "", *, limit: int = 100
    ) -> tuple[str, list[tuple[str, RecoveryResult]]]:
        """Recover the next `limit` objects; return the cursor of the next page (empty at the end) and the results."""
        before = self._now() - timedelta(seconds=older_than)
        roots = list(islice(self._root.walk_objects(after), limit))
        results = [(self._root.cursor_of(root), self._recover_old(root, before)) for root in roots]
        changed = [(cursor, result) for cursor, result in results if result != RecoveryResult()]
        return results[-1][0] if len(roots) == limit else "", changed

    def _recover_old(self, root: str, before: datetime) -> RecoveryResult:
        try:
            return ocfl_integrity.recover_object(
                self._objects, root, is_old=lambda info: info.modified < before, folders=False, restore=False
            )
        except ConcurrentWrite:
            return RecoveryResult()  # it is being written now
        except StorageDamaged as error:
            return RecoveryResult(error=str(error))

    def list_objects(self, after: str = "") -> Iterator[tuple[str, str]]:
        for root in self._root.walk_objects(after):
            try:
                ocfl_object = load_object(self._objects, root)
            except LostInventory:
                yield self._root.cursor_of(root), self._find_lost_id(root)
                continue
            except StorageDamaged:
                yield self._root.cursor_of(root), ""
                continue
            if ocfl_object is not None:
                yield self._root.cursor_of(root), ocfl_object.inventory.id

    def _find_lost_id(self, root: str) -> str:
        """Return the id of an object that has lost its root inventory; empty if no version says it."""
        data = ocfl_integrity.read_newest_inventory(self._objects, root)
        found = decode_inventory(data, root).id if data is not None else ""
        return found if found and self._root.place_of(found) == root else ""

    def _load_object(self, object_id: str) -> OcflObject:
        ocfl_object = load_object(self._objects, self._root.place_of(object_id))
        if ocfl_object is None:
            raise NotInStorage(f"There is no object {object_id} in the storage.")
        return ocfl_object

    def _resolve_number(self, ocfl_object: OcflObject, number: int) -> int:
        if not 0 <= number <= ocfl_object.inventory.number:
            raise NotInStorage(
                f"{ocfl_object.inventory.id} has no version {number}; it has {ocfl_object.inventory.number}."
            )
        return number or ocfl_object.inventory.number


class OcflRoot:
    """The storage root below a prefix of the objects, and where each object is in it."""

    def __init__(self, objects: Objects, prefix: str, *, declare_layout: bool = True) -> None:
        if not prefix:
            raise InvalidDeposit(
                "A storage root needs a prefix of its own, such as ocfl: the store also holds other objects."
            )
        self._objects = objects
        self.prefix = check_prefix(prefix)
        self._declare_layout = declare_layout
        self._is_declared = False

    def place_of(self, object_id: str) -> str:
        """Return the root of an object, as a prefix of names."""
        try:
            digest = hashlib.sha256(object_id.encode()).hexdigest()
        except UnicodeEncodeError:
            raise InvalidDeposit(f"{object_id!a} is not an identifier: it holds half of a surrogate pair.") from None
        tuples = [digest[at : at + TUPLE_SIZE] for at in range(0, TUPLE_SIZE * TUPLE_COUNT, TUPLE_SIZE)]
        return "/".join([self.prefix, *tuples, digest])

    def ensure_declared(self) -> None:
        """Write the declaration of the storage root, or check that it is one of ours; once per process."""
        if self._is_declared:
            return
        declaration, text = ROOT_DECLARATION
        layout = (
            msgspec.json.format(
                msgspec.json.encode({"extension": LAYOUT_EXTENSION, "description": LAYOUT_DESCRIPTION}), indent=2
            )
            + b"\n"
        )
        config = msgspec.json.format(msgspec.json.encode(LAYOUT_CONFIG), indent=2) + b"\n"
        files = (
            [(f"extensions/{LAYOUT_EXTENSION}/config.json", config), ("ocfl_layout.json", layout)]
            if self._declare_layout
            else []
        )
        for name, data in (*files, (declaration, text)):
            stored = self._read_file(name)
            if stored is None:
                self._objects.put(f"{self.prefix}/{name}", data)
                stored = self._read_file(name)
            if stored is None or _to_comparable(stored) != _to_comparable(data):
                raise StorageDamaged(
                    f"{self.prefix}/{name} was not written by this version of Waybill: the storage root is not used."
                )
        self._is_declared = True

    def walk_objects(self, after: str = "") -> Iterator[str]:
        """Yield the roots of all objects, finished or not, in the order of the listing, after a cursor.

        The files of an object are skipped: one short listing per object, however many files it has.
        """
        at = f"{self.prefix}/{after}/~" if after else ""
        while True:
            found = next(iter(self._objects.list(self.prefix, after=at, limit=1)), None)
            if found is None:
                return
            inside = _OBJECT_NAME.fullmatch(found.name.removeprefix(f"{self.prefix}/"))
            if inside is None:
                at = found.name
                continue
            root = f"{self.prefix}/{inside['root']}"
            yield root
            at = f"{root}/~"  # every name in an object's root starts with a digit or a letter

    def cursor_of(self, root: str) -> str:
        return root.removeprefix(f"{self.prefix}/")

    def _read_file(self, name: str) -> bytes | None:
        try:
            with self._objects.get(f"{self.prefix}/{name}", end=100_000) as body:
                return body.read()
        except ObjectNotFound:
            return None


def _to_comparable(data: bytes) -> object:
    try:
        found = msgspec.json.decode(data)
    except msgspec.DecodeError:
        return data
    if isinstance(found, dict):
        found.pop("description", None)
    return found
