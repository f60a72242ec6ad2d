"""Auditing: an object read whole and compared with what it says of itself; each difference is named with its place
and its files.

Found are: a byte that changed, content that is missing, whatever lies in the object and belongs to nothing, inventories
and sidecars that do not agree, a missing declaration. A sound object has no findings, whoever wrote it.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Iterator

from waybill.apps.ingest.storage import ocfl_inventory as ocfl
from waybill.apps.ingest.storage.holding import DECLARATION, Held, load, sidecar_of
from waybill.apps.ingest.storage.ocfl_inventory import Content
from waybill.apps.ingest.storage.protocol import Finding, NotStored, Unsound
from waybill.objects import NotFound, Objects

FEW = 10  # logical files that a finding names

_FREE = re.compile(r"(logs|extensions)/.+")  # OCFL lets these folders be


def check(objects: Objects, root: str, place: str, size: int, sha256: str) -> Finding | None:
    """One place against the size and SHA-256 that are known of it."""
    try:
        with objects.get(f"{root}/{place}") as body:
            found, digest, _ = ocfl.digest_of(body, "sha256")
    except NotFound:
        return Finding(kind="missing", place=place, words=f"{place} is missing.")
    if (found, digest) != (size, sha256):
        words = f"{place} has {found} bytes of SHA-256 {digest}; it should have {size} of {sha256}."
        return Finding(kind="changed", place=place, words=words)
    return None


def verify(objects: Objects, root: str, object_id: str) -> Iterator[Finding]:
    """Everything that is wrong with the object."""
    try:
        held = load(objects, root)
    except Unsound as error:
        yield Finding(kind="inventory", place=ocfl.FILE, words=str(error))
        return
    if held is None:
        raise NotStored(f"There is no object {object_id} in the storage.")
    if held.inventory.id != object_id:
        yield Finding(
            kind="inventory",
            place=ocfl.FILE,
            words=f"{root} is the place of {object_id}, and holds {held.inventory.id}.",
        )
    yield from _declaration(objects, root)
    yield from _inventories(objects, held)
    missing = {place for places in held.inventory.manifest.values() for place in places}
    expected = _expected(held)
    for info in objects.list(root):
        name = info.name.removeprefix(f"{root}/")
        if name in missing:
            missing.discard(name)
        elif name not in expected and not _FREE.fullmatch(name):
            yield Finding(
                kind="extra", place=name, words=f"{name} lies in the object, and belongs to no version of it."
            )
    for content in held.inventory.contents():
        if content.place in missing:
            yield _about(held, content, "missing", f"{content.place} is missing")
        elif (found := _changed(objects, held, content)) is not None:
            yield found


def _changed(objects: Objects, held: Held, content: Content) -> Finding | None:
    try:
        with objects.get(f"{held.root}/{content.place}") as body:
            _, sha256, digest = ocfl.digest_of(body, held.inventory.algorithm)
    except NotFound:
        return _about(held, content, "missing", f"{content.place} is missing")
    if digest == content.digest.hex() and (not content.sha256 or sha256 == content.sha256.hex()):
        return None
    return _about(
        held,
        content,
        "changed",
        f"{content.place} has the {held.inventory.algorithm} {digest}, not {content.digest.hex()}",
    )


def _about(held: Held, content: Content, kind: str, words: str) -> Finding:
    """The finding, with the files that need this content, newest version first."""
    files: list[str] = []
    for number in range(held.inventory.number, 0, -1):
        paths = held.inventory.block(number).state.get(content.digest.hex(), [])
        files.extend(f"v{number} {path}" for path in paths[:FEW])
        if len(files) >= FEW:
            break
    needed = f"; it is {', '.join(files[:3])}{' ...' if len(files) > 3 else ''}." if files else "."
    return Finding(
        kind="changed" if kind == "changed" else "missing",
        place=content.place,
        files=tuple(files[:FEW]),
        words=words + needed,
    )


def _declaration(objects: Objects, root: str) -> Iterator[Finding]:
    name, words = DECLARATION
    try:
        with objects.get(f"{root}/{name}", end=1000) as body:
            if body.read() != words:
                yield Finding(kind="declaration", place=name, words=f"{name} does not hold what it should.")
    except NotFound:
        yield Finding(kind="declaration", place=name, words=f"{name} is missing.")


def _inventories(objects: Objects, held: Held) -> Iterator[Finding]:
    algorithm = held.inventory.algorithm
    if sidecar_of(objects, held.root, algorithm) != held.digest:
        name = ocfl.sidecar(algorithm)
        yield Finding(kind="inventory", place=name, words=f"{name} does not hold the digest of {ocfl.FILE}.")
    for version in held.inventory.versions:
        name = f"{version}/{ocfl.FILE}"
        try:
            with objects.get(f"{held.root}/{name}") as body:
                data = body.read()
        except NotFound:
            yield Finding(kind="inventory", place=name, words=f"{name} is missing.")
            continue
        sides = {kind: sidecar_of(objects, f"{held.root}/{version}", kind) for kind in ("sha512", "sha256")}
        if not any(side == hashlib.new(kind, data).hexdigest() for kind, side in sides.items() if side):
            yield Finding(kind="inventory", place=name, words=f"{name} does not match its digest.")
        elif version == held.inventory.head and hashlib.new(algorithm, data).hexdigest() != held.digest:
            yield Finding(kind="inventory", place=name, words=f"{name} differs from the {ocfl.FILE} of the object.")


def _expected(held: Held) -> set[str]:
    names = {DECLARATION[0], ocfl.FILE, ocfl.sidecar(held.inventory.algorithm)}
    for version in held.inventory.versions:
        names |= {
            f"{version}/{ocfl.FILE}",
            f"{version}/{ocfl.sidecar('sha256')}",
            f"{version}/{ocfl.sidecar('sha512')}",
        }
    return names
