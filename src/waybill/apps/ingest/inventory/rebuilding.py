"""Rebuilding: the inventory recorded again from storage (mode fix), one object or all of them, in portions that
begin at a cursor.

Nothing is emptied first: searches go on meanwhile, and what audits found stays known for bytes that are still the same.

What the inventory has is read before what the storage has, and only what was read then is forgotten: everything that is
recorded was stored before, so what a worker that was thought dead does not know of stays, however late it comes.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from typing import NamedTuple

from waybill.apps.ingest.inventory.about import About
from waybill.apps.ingest.inventory.catalogue import LocalIdTaken
from waybill.apps.ingest.inventory.elsewhere import KeptElsewhere, is_elsewhere
from waybill.apps.ingest.inventory.inventory import MOST, Inventory
from waybill.apps.ingest.storage import NotStored, StorageError, StorageService, Unsound
from waybill.manifests import ManifestError
from waybill.objects import NotFound


class Rebuilt(NamedTuple):
    """What a portion did: where the next one begins (empty: all was seen), how many objects, and what could not be
    recorded.
    """

    cursor: str
    objects: int
    troubles: tuple[str, ...] = ()


def rebuild_object(inventory: Inventory, storage: StorageService, ark: str) -> int:
    """Record all versions of an object as the storage has them, and forget those it has not; how many it has.

    Versions that another storage service keeps stay as they are: from our storage they could not be recorded again.
    """
    known, told_before = dict(_places(inventory, ark)), inventory.shelf.query("localids", ark=ark, portion=MOST)
    there = bool(known) or inventory.object(ark) is not None
    kept = {number for number, place in known.items() if is_elsewhere(place)}
    try:
        versions = storage.versions(ark)
    except NotStored:
        if kept:
            raise KeptElsewhere(
                f"Another storage service keeps {ark}: it cannot be recorded again from this one."
            ) from None
        if there:
            inventory.forget(ark)
        return 0
    numbers = {version.number for version in versions}
    if both := kept & numbers:
        raise KeptElsewhere(
            f"Another storage service keeps version {min(both)} of {ark}, and this one has a version of that number too."
        )
    for number in known.keys() - numbers - kept:
        inventory.catalogue.forget_version(inventory.shelf, ark, number)
    inventory.shelf.execute("lower_head", ark=ark, number=max(numbers | kept))
    told: set[tuple[str, str]] = set()
    for version in versions:
        stored = storage.stored(ark, version.number)
        inventory.record(stored, storage, fix=True)
        with storage.manifest(stored) as reader:
            about = About.of(reader.header)
        told.update((about.owner, localid) for localid in about.local_ids)
    # Local ids go last, one by one: in between each of them must be found, or a deposit would make a second object of
    # it.
    for row in told_before:
        if not kept and (row["owner"], row["localid"]) not in told:
            inventory.shelf.execute("forget_localid", ark=ark, owner=row["owner"], localid=row["localid"])
    inventory.forget_contents(ark)
    return len(versions)


def _places(inventory: Inventory, ark: str) -> Iterator[tuple[int, str]]:
    """The versions that the inventory has, each with the place of its manifest."""
    after = 0
    while rows := inventory.versions(ark, after=after):
        yield from ((row["number"], row["place"]) for row in rows)
        after = rows[-1]["number"]


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
