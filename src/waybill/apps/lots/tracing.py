"""The way of a lot, as `waybill trace` shows it: what arrived in it, the run that read it, the lots that were published.

    object -> lot -> run -> lot

A lot is found as NAME/VERSION/LOT, or by LOT alone in every dataset; a run by the id of its record, PROJECT:ARC:LOT:gN. All
is read from the catalogue, which keeps it for ever, with the things of other applications whose objects arrived.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING, cast
from urllib.parse import quote

from waybill.apps.lots.catalogue import LotTables
from waybill.apps.lots.declaration.changes import read_applied
from waybill.apps.lots.declaration.checks import AppliedDeclarations
from waybill.apps.lots.declaration.documents import ArcDeclaration, DatasetDeclaration
from waybill.apps.lots.machine import run_id_of
from waybill.apps.lots.resources import LotsResources
from waybill.apps.lots.units import Lot
from waybill.errors import InputError
from waybill.record import Store
from waybill.tracing import TraceEdge, TraceNode, key_of, name_in

if TYPE_CHECKING:
    from waybill.environment import Environment

APPLICATION = "lots"
MAX_FOUND = 50  # lots of one name, things of one lot
_RUN = re.compile(r"(?P<arc>.+):(?P<lot>\d+P[^:]+):g(?P<generation>\d{1,9})")


class LotsTracer:
    """Its nodes are lots of datasets and runs of arcs."""

    def __init__(self, environment: Environment, store: Store) -> None:
        self._resources = cast(LotsResources, environment.resources_of(APPLICATION))
        self._applied: AppliedDeclarations = read_applied(store)

    def find(self, text: str) -> Iterator[str]:
        if (run := _parse_run(text)) is not None:
            yield key_of(APPLICATION, "run", run_id_of(*run))
            return
        dataset, _, name = text.rpartition("/")
        lot = _parse_lot(name)
        if lot is None:
            return
        with self._resources.open_catalogue() as tables:
            for each in self._applied.datasets.values():
                is_meant = not dataset or dataset in (each.title, each.name)
                if is_meant and each.lot_unit == lot.unit and tables.find_lot(each.id, lot) is not None:
                    yield _key_of_lot(each, lot)

    def describe(self, key: str) -> TraceNode | None:
        with self._resources.open_catalogue() as tables:
            if (found := self._parse_lot_key(key)) is not None:
                return self._describe_lot(tables, key, *found)
            if (run := _parse_run(name_in(key, APPLICATION, "run") or "")) is not None:
                return self._describe_run(tables, key, *run)
        return None

    def list_edges(self, key: str) -> Iterable[TraceEdge]:
        with self._resources.open_catalogue() as tables:
            if (found := self._parse_lot_key(key)) is not None:
                return list(self._iter_edges_of_lot(tables, key, *found))
            if (run := _parse_run(name_in(key, APPLICATION, "run") or "")) is not None:
                return list(self._iter_edges_of_run(tables, key, *run))
            return list(self._iter_lots_of_thing(tables, key))

    def _describe_lot(self, tables: LotTables, key: str, dataset: DatasetDeclaration, lot: Lot) -> TraceNode | None:
        row = tables.find_lot(dataset.id, lot)
        if row is None:
            return None
        state = row.state if row.generation == 1 else f"{row.state}, generation {row.generation}"
        page = f"/lots/datasets/{quote(dataset.title)}/lots/{lot}"
        return TraceNode(key, "lot", f"{dataset.title} {lot}", APPLICATION, state=state, at=row.published, page=page)

    def _describe_run(self, tables: LotTables, key: str, arc: str, lot: Lot, generation: int) -> TraceNode | None:
        row = tables.find_run(arc, lot, generation)
        if row is None:
            return None
        label = f"{arc.replace(':', '/')} {lot}" + (f" generation {generation}" if generation > 1 else "")
        page = f"/records/arc-run/{quote(run_id_of(arc, lot, generation), safe='')}"
        return TraceNode(key, "run", label, APPLICATION, state=row.state, at=row.changed, is_data=False, page=page)

    def _iter_edges_of_lot(
        self, tables: LotTables, key: str, dataset: DatasetDeclaration, lot: Lot
    ) -> Iterator[TraceEdge]:
        for origin in tables.list_origins(dataset.id, lot, MAX_FOUND):
            yield TraceEdge(origin, key, "in")
        kind, _, owner = dataset.owner.partition(" ")
        if kind == "arc":
            arc = owner.partition(" ")[0]
            if (row := tables.find_run(arc, lot)) is not None:
                yield TraceEdge(key_of(APPLICATION, "run", run_id_of(arc, lot, row.generation)), key, "published")
        for id in self._applied.list_readers(dataset.id):
            reader = self._applied.arcs[id]
            coarse = Lot.at(lot.start, reader.lot_unit)
            if (row := tables.find_run(id, coarse)) is not None and any(
                name.endswith(f" {lot}") for name in row.sources
            ):
                yield TraceEdge(key, key_of(APPLICATION, "run", run_id_of(id, coarse, row.generation)), "read by")

    def _iter_edges_of_run(
        self, tables: LotTables, key: str, arc_id: str, lot: Lot, generation: int
    ) -> Iterator[TraceEdge]:
        row, arc = tables.find_run(arc_id, lot, generation), self._applied.arcs.get(arc_id)
        if row is None or arc is None:
            return
        datasets = {source.role: source.dataset for source in arc.sources}
        for name in sorted(row.sources):
            role, _, source_lot = name.rpartition(" ")
            dataset = self._applied.datasets.get(datasets.get(role, ""))
            parsed = _parse_lot(source_lot)
            if dataset is not None and parsed is not None:
                yield TraceEdge(_key_of_lot(dataset, parsed), key, "read by")
        newest = tables.find_run(arc_id, lot)
        if newest is not None and newest.generation == generation:
            yield from self._iter_sinks(tables, key, arc, lot)

    def _iter_sinks(self, tables: LotTables, key: str, arc: ArcDeclaration, lot: Lot) -> Iterator[TraceEdge]:
        for sink in arc.sinks:
            dataset = self._applied.datasets.get(sink.dataset)
            if dataset is not None and tables.find_lot(dataset.id, lot) is not None:
                yield TraceEdge(key, _key_of_lot(dataset, lot), "published")

    def _iter_lots_of_thing(self, tables: LotTables, key: str) -> Iterator[TraceEdge]:
        for dataset in self._applied.datasets.values():
            for lot in tables.list_lots_of_origin(dataset.id, dataset.lot_unit, key, MAX_FOUND):
                yield TraceEdge(key, _key_of_lot(dataset, lot), "in")

    def _parse_lot_key(self, key: str) -> tuple[DatasetDeclaration, Lot] | None:
        title, _, name = (name_in(key, APPLICATION, "lot") or "").rpartition("/")
        lot = _parse_lot(name)
        dataset = next((each for each in self._applied.datasets.values() if each.title == title), None)
        return (dataset, lot) if dataset is not None and lot is not None else None


def _key_of_lot(dataset: DatasetDeclaration, lot: Lot) -> str:
    return key_of(APPLICATION, "lot", f"{dataset.title}/{lot}")


def _parse_lot(text: str) -> Lot | None:
    try:
        return Lot.parse(text)
    except InputError:
        return None


def _parse_run(text: str) -> tuple[str, Lot, int] | None:
    match = _RUN.fullmatch(text)
    lot = _parse_lot(match["lot"]) if match is not None else None
    return (match["arc"], lot, int(match["generation"])) if match is not None and lot is not None else None
