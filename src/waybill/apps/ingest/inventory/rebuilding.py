"""Rebuilding: the inventory recorded again from storage (mode fix), one object or all of them, in portions that begin at a cursor.

Nothing is emptied first: searches go on meanwhile, and what audits found stays known for bytes that are still the same.
"""

from __future__ import annotations

import itertools
from typing import NamedTuple

from waybill.apps.ingest.inventory.about import About
from waybill.apps.ingest.inventory.catalogue import LocalIdTaken
from waybill.apps.ingest.inventory.inventory import MOST, Inventory
from waybill.apps.ingest.storage import NotStored, StorageError, StorageService, Unsound
from waybill.manifests import ManifestError
from waybill.objects import NotFound


class Rebuilt(NamedTuple):
    """What a portion did: where the next one begins (empty: all was seen), how many objects, and what could not be recorded."""

    cursor: str
    objects: int
    troubles: tuple[str, ...] = ()


def rebuild_object(inventory: Inventory, storage: StorageService, ark: str) -> int:
    """Record all versions of an object as the storage has them, and forget those it has not; how many it has."""
    try:
        versions = storage.versions(ark)
    except NotStored:
        inventory.forget(ark)
        return 0
    numbers = {version.number for version in versions}
    inventory.shelf.execute("lower_head", ark=ark, number=max(numbers))
    after = 0
    while rows := inventory.versions(ark, after=after):
        for row in rows:
            if row["number"] not in numbers:
                inventory.catalogue.forget_version(inventory.shelf, ark, row["number"])
        after = rows[-1]["number"]
    told: set[tuple[str, str]] = set()
    for version in versions:
        stored = storage.stored(ark, version.number)
        inventory.record(stored, storage, fix=True)
        with storage.manifest(stored) as reader:
            about = About.of(reader.header)
        told.update((about.owner, localid) for localid in about.local_ids)
    # Local ids go last, one by one: in between each of them must be found, or a deposit would make a second object of it.
    for row in inventory.shelf.query("localids", ark=ark, portion=MOST):
        if (row["owner"], row["localid"]) not in told:
            inventory.shelf.execute("forget_localid", ark=ark, owner=row["owner"], localid=row["localid"])
    inventory.forget_contents(ark)
    return len(versions)


def rebuild_some(inventory: Inventory, storage: StorageService, cursor: str = "", *, most: int = 100) -> Rebuilt:
    """Record the next objects of the storage. What is wrong with one of them does not stop the others."""
    troubles: list[str] = []
    count = 0
    for at, ark in itertools.islice(storage.objects(cursor), most):
        try:
            if not ark:
                raise Unsound(f"The object at {at} has an inventory that cannot be believed.")
            rebuild_object(inventory, storage, ark)
        except (StorageError, ManifestError, LocalIdTaken, NotFound) as error:
            troubles.append(f"{ark or at}: {error}")
        cursor, count = at, count + 1
    return Rebuilt(cursor if count == most else "", count, tuple(troubles))
