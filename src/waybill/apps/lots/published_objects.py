"""The objects of a generation of a lot, for other applications: of each, its name in the object store."""

from __future__ import annotations

from collections.abc import Iterator

from waybill.apps.lots.catalogue import LotRow
from waybill.apps.lots.lot_manifests import iter_entries
from waybill.apps.lots.resources import LotsResources
from waybill.apps.lots.units import Lot
from waybill.errors import InputError, NotFound
from waybill.published_objects import PublishedObject
from waybill.tracing import name_in


def list_lot_objects(resources: LotsResources, key: str, number: int) -> Iterator[PublishedObject] | None:
    name = name_in(key, "lots", "lot")
    if name is None:
        return None
    title, _, lot_name = name.rpartition("/")
    with resources.open_catalogue() as tables:
        row = tables.find_lot(title.replace("/", ":", 1), Lot.parse(lot_name), number)
    if row is None or row.state == "removed":
        raise NotFound(f"{title} has no generation {number} of {lot_name}, or its data have been removed.")
    return _iter_objects(resources, row)


def _iter_objects(resources: LotsResources, row: LotRow) -> Iterator[PublishedObject]:
    for entry in iter_entries(resources.objects, row.manifest):
        place = resources.locations.find_own(entry.uri)
        if place is None:
            raise InputError(f"{entry.uri} is not in the object store of Waybill.")
        found = resources.objects.head(place.name)
        if entry.facts.size is not None and found.size != entry.facts.size:
            raise InputError(f"{entry.uri} is not what its manifest says: it has {found.size} bytes.")
        yield PublishedObject(place.name, place.name, found.size, entry.facts.sha256 or "")
