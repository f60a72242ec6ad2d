"""Publishing a lot: its manifest, its row in the catalogue, its public names, and what starts because of it.

    1  the root of the manifest is put under the name of its generation, `…/lot=LOT/generation=N/state=STATE/manifest.json`,
       once: whoever comes second finds it and takes it as it is
    2  the catalogue has a new row, by its producer: a second publication by the same producer is the first
    3  the public name, `…/lot=LOT/state=STATE/manifest.json`, gets what the catalogue says is newest
    4  the commit of the step that publishes has the runs that it starts, and the events

A crash after any of them leaves a step that runs again and comes to the same end; a process that lost its claim and goes on
all the same finds the work of its successor in 1 and 2, and never puts anything of its own in 3.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from typing import NamedTuple

from waybill.apps.lots.catalogue import LotRow, LotTables
from waybill.apps.lots.declaration.documents import ArcDeclaration, DatasetDeclaration, DatasetSubscribers
from waybill.apps.lots.declaration.project_file import minute_of_begin
from waybill.apps.lots.lot_manifests import LotManifest, decode_manifest, encode_manifest
from waybill.apps.lots.machine import ARC, DATASET, LIVE_PRIORITY, RUN, ArcStart, RunDocument, run_id_of
from waybill.apps.lots.naming import ManifestKey, ManifestState
from waybill.apps.lots.units import Lot, LotUnit
from waybill.errors import NotFound
from waybill.objects import ObjectExists, ObjectNotFound, Objects, UnsupportedObjectOperation
from waybill.record import Record, Ref
from waybill.step import New

GetRecord = Callable[[str, str], Record]
MAX_REFRESHES = 20
PUBLIC_STATES: tuple[ManifestState, ...] = ("complete", "empty")


class PublishedLot(NamedTuple):
    """A lot that is there."""

    dataset: DatasetDeclaration
    lot: Lot
    generation: int
    state: ManifestState
    manifest: str  # the name of its root
    object_count: int


class LotStarts(NamedTuple):
    """What a publication starts: runs to be created, and runs that wait and are to look again."""

    runs: tuple[New, ...] = ()
    wakes: tuple[Ref, ...] = ()


def lot_key_of(dataset: DatasetDeclaration, lot: Lot) -> ManifestKey:
    return ManifestKey(dataset.name, dataset.version, str(lot))


class LotPublication(NamedTuple):
    """A lot to be published. `build` makes the root of its manifest for a generation, with its pages below a folder."""

    dataset: DatasetDeclaration
    lot: Lot
    producer: str
    build: Callable[[int, str], LotManifest]


def publish_lots(
    objects: Objects, tables: LotTables, publications: Iterable[LotPublication], *, at: str, finish: Callable[[], None] = lambda: None
) -> list[PublishedLot]:  # fmt: skip
    """Publish the next generation of some lots: all in one transaction, which also does what `finish` does.

    Safe to repeat: see the head of this module.
    """
    wanted = list(publications)
    roots: dict[tuple[str, Lot], tuple[str, LotManifest]] = {}
    for each in wanted:
        if tables.find_publication(each.dataset.id, each.lot, each.producer) is None:
            newest = tables.find_lot(each.dataset.id, each.lot)
            generation = newest.generation + 1 if newest is not None else 1
            key = lot_key_of(each.dataset, each.lot)._replace(generation=generation)
            roots[each.dataset.id, each.lot] = put_root(objects, key, each.build(generation, f"{key.folder}pages"))
    generations = []
    with tables.tables.transaction():
        for each in wanted:
            known = tables.find_publication(each.dataset.id, each.lot, each.producer)
            if known is None:
                name, manifest = roots[each.dataset.id, each.lot]
                known = tables.publish_lot(
                    each.dataset.id, each.lot, state=manifest.state, manifest=name, producer=each.producer, at=at,
                    count=manifest.count or 0, size=manifest.bytes,
                )  # fmt: skip
            generations.append(known)
        finish()
    published = []
    for each, generation in zip(wanted, generations, strict=True):
        row = tables.find_lot(each.dataset.id, each.lot, generation)
        if row is None:
            raise LookupError(
                f"The catalogue has no generation {generation} of {each.lot} of {each.dataset.title}, which was just published."
            )
        refresh_public_manifest(objects, tables, each.dataset, each.lot)
        published.append(PublishedLot(each.dataset, each.lot, generation, row.state, row.manifest, row.count))
    return published


def put_root(objects: Objects, key: ManifestKey, manifest: LotManifest) -> tuple[str, LotManifest]:
    """Put the root of a generation once; returns its name and the manifest that is there now."""
    for state in PUBLIC_STATES:  # a second run may have found other arrivals, and come to another state
        name = key._replace(state=state).key
        if state != manifest.state and (found := _read_if_there(objects, name)) is not None:
            return name, found
    name = key._replace(state=manifest.state).key
    try:
        objects.put(name, encode_manifest(manifest), if_absent=True)
    except ObjectExists:
        found = _read_if_there(objects, name)
        if found is None:
            raise
        return name, found
    except UnsupportedObjectOperation:
        # a store without atomic conditions: look, then put; two at once write the same but for late arrivals
        if (found := _read_if_there(objects, name)) is not None:
            return name, found
        objects.put(name, encode_manifest(manifest))
    return name, manifest


def _read_if_there(objects: Objects, name: str) -> LotManifest | None:
    try:
        with objects.get(name) as body:
            return decode_manifest(body.read(), name)
    except ObjectNotFound:
        return None


def refresh_public_manifest(objects: Objects, tables: LotTables, dataset: DatasetDeclaration, lot: Lot) -> str:
    """Let the public name say what the catalogue says is newest; returns it. Safe to repeat, and to run beside itself:
    whoever writes looks again afterwards.
    """
    key = lot_key_of(dataset, lot)
    for _ in range(MAX_REFRESHES):
        newest = tables.find_lot(dataset.id, lot)
        if newest is None or newest.state not in PUBLIC_STATES:
            return ""
        name = key._replace(state=newest.state).key
        with objects.get(newest.manifest) as body:
            content = body.read()
        objects.put(name, content)
        if newest.generation > 1:
            for state in PUBLIC_STATES:
                if state != newest.state:
                    objects.delete(key._replace(state=state).key)
        after = tables.find_lot(dataset.id, lot)
        if after is not None and after.generation == newest.generation:
            return name
    raise RuntimeError(f"{lot} of {dataset.title} is published again and again; its public name cannot be written now.")


# --- what starts


def read_dataset(get: GetRecord, id: str) -> Record:
    try:
        return get(DATASET.name, id)
    except NotFound:
        raise NotFound(f"There is no dataset {id.replace(':', '/')}; `waybill lots apply` declares it.") from None


def find_arc(get: GetRecord, id: str) -> tuple[ArcDeclaration, ArcStart] | None:
    """Return what is declared of an arc; None: it has ended, or never was."""
    try:
        record = get(ARC.name, id)
    except NotFound:
        return None
    return (record.document(ArcDeclaration), record.document(ArcStart)) if record.open else None


def find_starts(get: GetRecord, tables: LotTables, dataset_id: str, lots: Iterable[Lot], *, at: str) -> LotStarts:
    """Return the runs that lots of a dataset start: for each arc that subscribes to it, one for each of its lots.

    Safe to repeat: the catalogue says which generation of a run these sources need, and its record has its name.
    """
    runs: dict[Ref, New] = {}
    subscribers = read_dataset(get, dataset_id).document(DatasetSubscribers)
    found = [arc for arc in (find_arc(get, arc_id) for arc_id in subscribers.arcs) if arc is not None]
    published = list(lots)
    if not found or not published:
        return LotStarts()
    with tables.tables.transaction():  # records are read before: whoever has them may wait for this transaction
        for arc, start in found:
            begin = minute_of_begin(start.begin)
            for lot in dict.fromkeys(lot.coarsen(arc.lot_unit) for lot in published):
                if lot.minute + lot.unit.minutes <= begin:
                    continue
                new, generation = prepare_run(tables, arc, lot, at=at)
                if new is not None:
                    runs[Ref(RUN.name, run_id_of(arc.id, lot, generation))] = new
    return LotStarts(tuple(runs.values()), tuple(runs))


def prepare_run(
    tables: LotTables, arc: ArcDeclaration, lot: Lot, *, at: str, is_replay: bool = False, priority: int = LIVE_PRIORITY, reason: str = "",
) -> tuple[New | None, int]:  # fmt: skip
    """Return the run that an arc needs for a lot, and its generation; None: it has begun already, or is done."""
    generation = tables.assign_run(arc.id, lot, sum_sources(tables, arc, lot), at=at, is_replay=is_replay)
    row = tables.find_run(arc.id, lot, generation)
    if row is None or row.state != "waiting":
        return None, generation
    document = RunDocument(arc.id, str(lot), generation, arc.limit, reason)
    new = New(RUN.name, (document,), id=run_id_of(arc.id, lot, generation), is_child=False, priority=priority)
    return new, generation


def sum_sources(tables: LotTables, arc: ArcDeclaration, lot: Lot) -> int:
    return sum(tables.sum_generations(source.dataset, *interval_of(lot, source.lot_unit)) for source in arc.sources)


def interval_of(lot: Lot, unit: LotUnit) -> tuple[Lot, Lot]:
    """Return the first lot of a finer unit that is in a lot, and the one after the last."""
    return Lot(unit, lot.minute), Lot(unit, lot.minute + lot.unit.minutes)


def iter_source_lots(tables: LotTables, arc: ArcDeclaration, lot: Lot) -> Iterator[tuple[str, str, Lot, LotRow | None]]:
    """Yield for each role of an arc, and each lot of its source in a lot: the role, the dataset, the lot, and its newest
    generation.
    """
    for source in arc.sources:
        first, after = interval_of(lot, source.lot_unit)
        present = dict(tables.iter_newest_lots(source.dataset, first, after))
        for minute in range(first.minute, after.minute, first.unit.minutes):
            each = Lot(first.unit, minute)
            yield source.role, source.dataset, each, present.get(each)
