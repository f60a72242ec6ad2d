"""What a boundary publishes: the lots of its intervals that are over, in order, and again those to which late data came.

An interval without arrivals is an `empty` lot only when it is certain that nothing came: the boundary took arrivals all the
time (reported ones), or a complete listing after its end shows it (watched ones). Otherwise, and with `quiet = "gap"`, there
is no lot: it never arrived.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from datetime import datetime
from functools import partial
from typing import NamedTuple

from waybill.apps.lots.catalogue import Arrival, LotTables
from waybill.apps.lots.declaration.documents import BoundaryDeclaration, DatasetDeclaration
from waybill.apps.lots.lot_manifests import (
    LotEntry,
    LotManifest,
    LotManifestWriter,
    ObjectFacts,
    iter_entries,
    read_manifest,
)
from waybill.apps.lots.machine import BoundaryPosition
from waybill.apps.lots.publishing import LotPublication, PublishedLot, publish_lots, refresh_public_manifest
from waybill.apps.lots.units import Lot, parse_instant
from waybill.objects import Objects


def find_first_lot(boundary: BoundaryDeclaration, position: BoundaryPosition) -> Lot:
    """Return the first lot that is not closed yet."""
    opened = Lot.at(parse_instant(position.open_since), boundary.lot_unit)
    return (
        opened
        if position.closed < opened.minute
        else Lot(boundary.lot_unit, position.closed - position.closed % boundary.lot_unit.minutes)
    )


def is_silence_certain(boundary: BoundaryDeclaration, position: BoundaryPosition, lot: Lot) -> bool:
    """Return whether an interval in which nothing arrived is known to be empty."""
    if boundary.quiet == "gap":
        return False
    if boundary.watch:
        # a complete listing that began after its end shows what is there; of another time than that of the object itself
        # only if nothing of unknown time turned up
        is_listed = position.listed >= lot.end.timestamp()
        return (
            is_listed
            and lot.minute >= position.doubtful
            and (boundary.time != "arrival" or parse_instant(position.open_since) <= lot.start)
        )
    return parse_instant(position.open_since) <= lot.start


class DueLot(NamedTuple):
    """A lot that a boundary looks at, and whether silence in it is certain."""

    lot: Lot
    is_certain: bool


def publish_arrivals(
    objects: Objects, tables: LotTables, dataset: DatasetDeclaration, boundary: BoundaryDeclaration, due: Iterable[DueLot], *, at: str
) -> list[PublishedLot]:  # fmt: skip
    """Publish what has arrived for some lots, of each all of it, what earlier generations had too; returns those that are
    there. Left out are those for which nothing came, if that may be wrong.

    Safe to repeat: the producer is the boundary and the generation that it wants.
    """
    known: list[PublishedLot] = []
    publications: list[LotPublication] = []
    for lot, is_certain in due:
        newest = tables.find_lot(dataset.id, lot)
        has_new = tables.has_new_arrivals(dataset.id, lot.minute, lot.minute + 1)
        if newest is not None:
            there = PublishedLot(dataset, lot, newest.generation, newest.state, newest.manifest, newest.count)
            if has_new:  # they may be in that manifest: a crash came between publishing it and noting what it holds
                settle(objects, tables, dataset, there)
                has_new = tables.has_new_arrivals(dataset.id, lot.minute, lot.minute + 1)
            if not has_new:
                refresh_public_manifest(objects, tables, dataset, lot)
                known.append(there)
                continue
        elif not has_new and not is_certain:
            continue
        wanted = newest.generation + 1 if newest is not None else 1
        builder = partial(_build_manifest, objects, tables, dataset, lot, at)
        publications.append(LotPublication(dataset, lot, f"boundary {boundary.id} {wanted}", builder))
    published = publish_lots(objects, tables, publications, at=at)
    for each in published:
        settle(objects, tables, dataset, each)
    return sorted([*known, *published], key=lambda each: each.lot)


def _build_manifest(
    objects: Objects, tables: LotTables, dataset: DatasetDeclaration, lot: Lot, at: str, generation: int, folder: str
) -> LotManifest:
    head = LotManifest("complete", None, str(lot), dataset=dataset.title, generation=generation, created=at)
    writer = LotManifestWriter(objects, folder, head)
    for arrival in tables.iter_arrivals(dataset.id, lot):
        writer.add(LotEntry(arrival.uri, ObjectFacts(arrival.size, arrival.sha256, arrival.modified)))
    manifest = writer.build()
    return manifest if manifest.count else _as_empty(manifest)


def _as_empty(manifest: LotManifest) -> LotManifest:
    from msgspec.structs import replace

    return replace(manifest, state="empty")


def settle(objects: Objects, tables: LotTables, dataset: DatasetDeclaration, published: PublishedLot) -> None:
    """Note that the manifest holds its entries. What came with other bytes meanwhile stays new, and makes the next
    generation. Safe to repeat.
    """
    if published.state == "empty":
        return
    root = read_manifest(objects, published.manifest)
    entries = iter_entries(objects, published.manifest, root)
    page: list[Arrival] = []
    for entry in entries:
        page.append(Arrival(entry.uri, entry.facts.size, entry.facts.sha256, entry.facts.modified))
        if len(page) >= 1000:
            tables.settle_arrivals(dataset.id, published.lot, page, published.generation)
            page = []
    if page:
        tables.settle_arrivals(dataset.id, published.lot, page, published.generation)


def iter_due_lots(
    boundary: BoundaryDeclaration, position: BoundaryPosition, now: datetime, margin: float
) -> Iterator[Lot]:
    """Yield the lots that are over and not closed, in order."""
    lot = find_first_lot(boundary, position)
    while lot.end.timestamp() + boundary.grace + margin <= now.timestamp():
        yield lot
        lot = lot.next


def seconds_to_close(boundary: BoundaryDeclaration, lot: Lot, now: datetime, margin: float) -> float:
    return max(0.0, lot.end.timestamp() + boundary.grace + margin - now.timestamp())
