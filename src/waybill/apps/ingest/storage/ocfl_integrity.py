"""The integrity of OCFL objects: reading an object and comparing it with its inventory, and recovery after an
interrupted write.

**Verification** reads the whole object and yields a StorageFinding, with its place, for each difference.

**Recovery** finishes or removes what an interrupted write left, so that a validator finds no error:

    the root inventory is valid       there is an object. Files that should match the inventory and do not are written again: its
                                      sidecar, the inventory and sidecar of the newest version, the declaration. Content that no
                                      version refers to, and versions after the newest, are removed.
    there is no root inventory        of a first version that was not finished everything is removed. Of an object, with a declaration, a
                                      sidecar or a second version, nothing: its root inventory is written again from that of its newest
                                      whole version, if somebody asked for that (`restore`).
    the root inventory is not valid   nothing is changed.

Only names that our own writes can have created are removed. Files of a person or another program stay, and are reported
by `verify_object`. A directory also contains empty folders of a write that died before its first file; they are removed
as well.
"""

from __future__ import annotations

import hashlib
import itertools
import re
from collections.abc import Callable, Iterator

from waybill.apps.ingest.storage import ocfl_inventory as ocfl
from waybill.apps.ingest.storage.ocfl_inventory import ContentFile
from waybill.apps.ingest.storage.ocfl_object import (
    OBJECT_DECLARATION,
    LostInventory,
    OcflObject,
    encode_sidecar,
    etag_of,
    load_object,
    put_checked,
    put_conditionally,
    read_sidecar,
)
from waybill.apps.ingest.storage.protocol import (
    ConcurrentWrite,
    NotInStorage,
    RecoveryResult,
    StorageDamaged,
    StorageFinding,
)
from waybill.objects import ObjectInfo, ObjectNotFound, Objects

MAX_LISTED_FILES = 10  # logical files in a finding
_IGNORED_NAMES = re.compile(r"(logs|extensions)/.+")  # folders that OCFL ignores
PAGE_SIZE = 1000  # names listed before some are removed
_CONTENT_NAME = re.compile(r"v(?P<number>[1-9][0-9]*)/content/(?P<sha256>[0-9a-f]{64})")
_OWN_NAME = re.compile(r"v(?P<number>[1-9][0-9]*)/(content/[0-9a-f]{64}|inventory\.json(\.sha256|\.sha512)?)")
_NEW_OBJECT_NAMES = {OBJECT_DECLARATION[0], ocfl.sidecar_name_of("sha256"), ocfl.sidecar_name_of("sha512")}
_PROBE_NAME = "0" * 64


def check_place(objects: Objects, root: str, place: str, size: int, sha256: str) -> StorageFinding | None:
    """Compare one place with its known size and SHA-256."""
    try:
        with objects.get(f"{root}/{place}") as body:
            found, digest, _ = ocfl.digest_of(body, "sha256")
    except ObjectNotFound:
        return StorageFinding(kind="missing", place=place, message=f"{place} is missing.")
    if (found, digest) != (size, sha256):
        message = f"{place} has {found} bytes of SHA-256 {digest}; it should have {size} of {sha256}."
        return StorageFinding(kind="changed", place=place, message=message)
    return None


def verify_object(objects: Objects, root: str, object_id: str) -> Iterator[StorageFinding]:
    """Yield all damage of the object. Raises NotInStorage."""
    try:
        ocfl_object = load_object(objects, root)
    except StorageDamaged as error:
        yield StorageFinding(kind="inventory", place=ocfl.INVENTORY_FILE, message=str(error))
        return
    if ocfl_object is None:
        raise NotInStorage(f"There is no object {object_id} in the storage.")
    if ocfl_object.inventory.id != object_id:
        yield StorageFinding(
            kind="inventory",
            place=ocfl.INVENTORY_FILE,
            message=f"{root} is the place of {object_id}, but contains {ocfl_object.inventory.id}.",
        )
    yield from _check_declaration(objects, root)
    yield from _check_inventories(objects, ocfl_object)
    missing = {place for places in ocfl_object.inventory.manifest.values() for place in places}
    expected = _list_expected_names(ocfl_object)
    for info in objects.list(root):
        name = info.name.removeprefix(f"{root}/")
        if name in missing:
            missing.discard(name)
        elif name not in expected and not _IGNORED_NAMES.fullmatch(name):
            yield StorageFinding(
                kind="extra", place=name, message=f"{name} is in the object, but belongs to no version of it."
            )
    for content in ocfl_object.inventory.iter_contents():
        if content.place in missing:
            yield _build_finding(ocfl_object, content, "missing", f"{content.place} is missing")
        elif (found := _check_content(objects, ocfl_object, content)) is not None:
            yield found


def _check_content(objects: Objects, ocfl_object: OcflObject, content: ContentFile) -> StorageFinding | None:
    try:
        with objects.get(f"{ocfl_object.root}/{content.place}") as body:
            _, sha256, digest = ocfl.digest_of(body, ocfl_object.inventory.algorithm)
    except ObjectNotFound:
        return _build_finding(ocfl_object, content, "missing", f"{content.place} is missing")
    if digest == content.digest.hex() and (not content.sha256 or sha256 == content.sha256.hex()):
        return None
    return _build_finding(
        ocfl_object,
        content,
        "changed",
        f"{content.place} has the {ocfl_object.inventory.algorithm} {digest}, not {content.digest.hex()}",
    )


def _build_finding(ocfl_object: OcflObject, content: ContentFile, kind: str, message: str) -> StorageFinding:
    """Build a finding with the files that need this content, newest version first."""
    files: list[str] = []
    for number in range(ocfl_object.inventory.number, 0, -1):
        paths = ocfl_object.inventory.decode_block(number).state.get(content.digest.hex(), [])
        files.extend(f"v{number} {path}" for path in paths[:MAX_LISTED_FILES])
        if len(files) >= MAX_LISTED_FILES:
            break
    needed = f"; it is {', '.join(files[:3])}{' ...' if len(files) > 3 else ''}." if files else "."
    return StorageFinding(
        kind="changed" if kind == "changed" else "missing",
        place=content.place,
        files=tuple(files[:MAX_LISTED_FILES]),
        message=message + needed,
    )


def _check_declaration(objects: Objects, root: str) -> Iterator[StorageFinding]:
    name, text = OBJECT_DECLARATION
    try:
        with objects.get(f"{root}/{name}", end=1000) as body:
            if body.read() != text:
                yield StorageFinding(kind="declaration", place=name, message=f"{name} has the wrong content.")
    except ObjectNotFound:
        yield StorageFinding(kind="declaration", place=name, message=f"{name} is missing.")


def _check_inventories(objects: Objects, ocfl_object: OcflObject) -> Iterator[StorageFinding]:
    algorithm = ocfl_object.inventory.algorithm
    if read_sidecar(objects, ocfl_object.root, algorithm) != ocfl_object.digest:
        name = ocfl.sidecar_name_of(algorithm)
        yield StorageFinding(
            kind="inventory", place=name, message=f"{name} does not have the digest of {ocfl.INVENTORY_FILE}."
        )
    for version in ocfl_object.inventory.versions:
        name = f"{version}/{ocfl.INVENTORY_FILE}"
        try:
            with objects.get(f"{ocfl_object.root}/{name}") as body:
                data = body.read()
        except ObjectNotFound:
            yield StorageFinding(kind="inventory", place=name, message=f"{name} is missing.")
            continue
        sidecars = {kind: read_sidecar(objects, f"{ocfl_object.root}/{version}", kind) for kind in ("sha512", "sha256")}
        if not any(digest == hashlib.new(kind, data).hexdigest() for kind, digest in sidecars.items() if digest):
            yield StorageFinding(kind="inventory", place=name, message=f"{name} does not match its digest.")
        elif version == ocfl_object.inventory.head and hashlib.new(algorithm, data).hexdigest() != ocfl_object.digest:
            yield StorageFinding(
                kind="inventory", place=name, message=f"{name} differs from the {ocfl.INVENTORY_FILE} of the object."
            )


def _list_expected_names(ocfl_object: OcflObject) -> set[str]:
    names = {OBJECT_DECLARATION[0], ocfl.INVENTORY_FILE, ocfl.sidecar_name_of(ocfl_object.inventory.algorithm)}
    for version in ocfl_object.inventory.versions:
        names |= {
            f"{version}/{ocfl.INVENTORY_FILE}",
            f"{version}/{ocfl.sidecar_name_of('sha256')}",
            f"{version}/{ocfl.sidecar_name_of('sha512')}",
        }
    return names


def recover_object(
    objects: Objects,
    root: str,
    *,
    is_old: Callable[[ObjectInfo], bool] = lambda info: True,
    folders: bool = True,
    restore: bool = True,
) -> RecoveryResult:
    """Recover the object at this root. `is_old` tells which leftovers may be removed; `folders` also removes empty
    folders; `restore` also writes a lost root inventory again.
    """
    restored: tuple[str, ...] = ()
    try:
        ocfl_object = load_object(objects, root)
    except LostInventory:
        if not restore:
            raise
        ocfl_object = restore_inventory(objects, root)
        restored = (ocfl.INVENTORY_FILE,)
    if ocfl_object is None:
        removed = remove_below(
            objects,
            root,
            lambda name, info: is_old(info) and bool(_OWN_NAME.fullmatch(name) or name in _NEW_OBJECT_NAMES),
        )
        if folders:
            _remove_empty_folders(objects, f"{root}/v1/content")
        return RecoveryResult(removed_places=removed)
    repaired = (*restored, *repair_object(objects, ocfl_object))
    places = {place for places in ocfl_object.inventory.manifest.values() for place in places}
    head = ocfl_object.inventory.number

    def is_needless(name: str, info: ObjectInfo) -> bool:
        own = _OWN_NAME.fullmatch(name)
        if own is None or name in places or not is_old(info):
            return False
        return int(own["number"]) > head or _CONTENT_NAME.fullmatch(name) is not None

    removed = remove_below(objects, root, is_needless)
    if folders:
        _remove_empty_folders(objects, f"{root}/v{head + 1}/content")
    return RecoveryResult(repaired_places=repaired, removed_places=removed)


def restore_inventory(objects: Objects, root: str) -> OcflObject:
    """Write a lost root inventory again from the newest version whose own is valid and whose content is all there.

    Safe to repeat, and beside another restorer: the bytes are the same, and are only written where there are none.
    """
    data = read_newest_inventory(objects, root)
    if data is None:
        raise LostInventory(
            f"{root}/{ocfl.INVENTORY_FILE} is missing, and no version is whole: restore the object from a copy."
        )
    put_conditionally(
        objects, f"{root}/{ocfl.INVENTORY_FILE}", lambda: [data], len(data), hashlib.sha256(data).hexdigest(), None
    )
    ocfl_object = load_object(objects, root)
    assert ocfl_object is not None  # it was read back
    return ocfl_object


def read_newest_inventory(objects: Objects, root: str) -> bytes | None:
    """Return the inventory of the newest version that is whole: valid, of this version, and all its content exists."""
    names = {info.name.removeprefix(f"{root}/") for info in objects.list(root)}
    numbers = sorted({int(own["number"]) for name in names if (own := _OWN_NAME.fullmatch(name))}, reverse=True)
    for number in numbers:
        folder = f"{root}/v{number}"
        try:
            with objects.get(f"{folder}/{ocfl.INVENTORY_FILE}") as body:
                data = body.read()
            inventory = ocfl.decode_inventory(data, f"{folder}/{ocfl.INVENTORY_FILE}")
        except (ObjectNotFound, StorageDamaged):
            continue  # of an attempt that was not finished, or damaged: an older one is taken
        digest = hashlib.new(inventory.algorithm, data).hexdigest()
        if inventory.number != number or read_sidecar(objects, folder, inventory.algorithm) != digest:
            continue
        if names.issuperset(place for places in inventory.manifest.values() for place in places):
            return data
    return None


def repair_object(objects: Objects, ocfl_object: OcflObject) -> tuple[str, ...]:
    """Make everything match the root inventory; return the places that were written again."""
    repaired: list[str] = []
    root, algorithm = ocfl_object.root, ocfl_object.inventory.algorithm
    folder = f"{root}/{ocfl_object.inventory.head}"
    if not _is_same_inventory(objects, f"{folder}/{ocfl.INVENTORY_FILE}", ocfl_object):
        _check_unchanged(objects, ocfl_object)
        with objects.get(f"{root}/{ocfl.INVENTORY_FILE}") as body:
            objects.put(f"{folder}/{ocfl.INVENTORY_FILE}", body, size=ocfl_object.size)
        if not _is_same_inventory(objects, f"{folder}/{ocfl.INVENTORY_FILE}", ocfl_object):
            raise StorageDamaged(
                f"{folder}/{ocfl.INVENTORY_FILE} was written again and still differs from the root inventory."
            )
        repaired.append(f"{ocfl_object.inventory.head}/{ocfl.INVENTORY_FILE}")
    sidecar, name = encode_sidecar(ocfl_object.digest), ocfl.sidecar_name_of(algorithm)
    for place, parent in ((f"{ocfl_object.inventory.head}/{name}", folder), (name, root)):
        if read_sidecar(objects, parent, algorithm) != ocfl_object.digest:
            _check_unchanged(objects, ocfl_object)
            put_checked(
                objects, f"{parent}/{name}", lambda: [sidecar], len(sidecar), hashlib.sha256(sidecar).hexdigest()
            )
            repaired.append(place)
    name, text = OBJECT_DECLARATION
    try:
        objects.head(f"{root}/{name}")
    except ObjectNotFound:
        put_checked(objects, f"{root}/{name}", lambda: [text], len(text), hashlib.sha256(text).hexdigest())
        repaired.append(name)
    return tuple(repaired)


def make_durable(objects: Objects, ocfl_object: OcflObject) -> None:
    """Make a version durable whose writer may have died before the last sync.

    Its sidecar is written again unchanged: a put makes all folders above the object durable, unless the process knows
    that they are. The files of the version were synced before the version was published.
    """
    _check_unchanged(objects, ocfl_object)
    sidecar = encode_sidecar(ocfl_object.digest)
    name = f"{ocfl_object.root}/{ocfl.sidecar_name_of(ocfl_object.inventory.algorithm)}"
    put_checked(objects, name, lambda: [sidecar], len(sidecar), hashlib.sha256(sidecar).hexdigest())


def _check_unchanged(objects: Objects, ocfl_object: OcflObject) -> None:
    """Raise ConcurrentWrite if the root inventory was replaced meanwhile: files that do not match the old one match
    the new one, and its writer must not be disturbed.
    """
    if etag_of(objects, f"{ocfl_object.root}/{ocfl.INVENTORY_FILE}") != ocfl_object.etag:
        raise ConcurrentWrite(
            f"{ocfl_object.root}/{ocfl.INVENTORY_FILE} was written by another writer meanwhile: the files beside it belong to that write."
        )


def has_matching_sidecars(objects: Objects, ocfl_object: OcflObject) -> bool:
    """Whether the sidecars match: cheap, and sufficient before a write, which replaces everything else that could be
    outdated.
    """
    algorithm = ocfl_object.inventory.algorithm
    return all(
        read_sidecar(objects, folder, algorithm) == ocfl_object.digest
        for folder in (ocfl_object.root, f"{ocfl_object.root}/{ocfl_object.inventory.head}")
    )


def remove_below(objects: Objects, root: str, is_needless: Callable[[str, ObjectInfo], bool]) -> tuple[str, ...]:
    """Remove the needless files below a root; return the first thousand names, relative to it."""
    removed: list[str] = []
    after = ""
    while True:
        page = list(itertools.islice(objects.list(root, after=after), PAGE_SIZE))
        for info in page:
            name = info.name.removeprefix(f"{root}/")
            if is_needless(name, info):
                objects.delete(info.name)
                if len(removed) < PAGE_SIZE:
                    removed.append(name)
        if len(page) < PAGE_SIZE:
            return tuple(removed)
        after = page[-1].name


def _is_same_inventory(objects: Objects, name: str, ocfl_object: OcflObject) -> bool:
    try:
        with objects.get(name) as body:
            size, _, digest = ocfl.digest_of(body, ocfl_object.inventory.algorithm)
    except ObjectNotFound:
        return False
    return (size, digest) == (ocfl_object.size, ocfl_object.digest)


def _remove_empty_folders(objects: Objects, folder: str) -> None:
    """Remove the folder and its parents if they are empty.

    Empty folders are in no listing, but deleting an object also removes the folders that become empty.
    """
    objects.put(f"{folder}/{_PROBE_NAME}", b"")
    objects.delete(f"{folder}/{_PROBE_NAME}")
