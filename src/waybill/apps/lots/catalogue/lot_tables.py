"""The tables of lots, runs and arrivals, and the few things that are done to them.

Every change is one transaction and safe to repeat, because a step that makes it may run again: a lot that its producer has
published is published, a run of the same sources is the same run, an arrival that came before came before.

    arrive -> settle_arrivals      what arrived, and the generation of the lot whose manifest holds it
    publish_lot                    the next generation of a lot; the calendar says so
    assign_run -> change_run       the generation of an arc's run, and what it came to
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Literal, NamedTuple

import msgspec

from waybill.apps.lots.catalogue import calendar
from waybill.apps.lots.catalogue.calendar import LotClass
from waybill.apps.lots.naming import ManifestState
from waybill.apps.lots.units import Lot, LotUnit
from waybill.index import CatalogueTables

RunState = str  # waiting, or a state of an arc
PAGE_SIZE = 500
REPLAYS = 2**20  # replays of the same sources, at most


class LotCatalogue:
    """The catalogue, as the index needs it. Its rows are the truth."""

    name = "lots"
    package = "waybill.apps.lots.catalogue"
    durable: Literal[True] = True


@dataclass(frozen=True, slots=True)
class LotRow:
    """One generation of a lot of a dataset."""

    generation: int
    state: ManifestState
    manifest: str
    producer: str
    published: str
    count: int
    bytes: int | None


class RunRow(NamedTuple):
    """One generation of a run of an arc."""

    generation: int
    source_key: int
    state: RunState
    sources: dict[str, int]  # by role or lot, the generation that it read
    changed: str
    message: str


class Arrival(NamedTuple):
    """An object that arrived for a lot."""

    uri: str
    size: int | None = None
    sha256: str | None = None
    modified: str | None = None
    arrived: str = ""
    generation: int = 0  # of the lot whose manifest holds it; 0: none yet
    version: int = 0  # how often it came with other bytes


_decode_sources = msgspec.json.Decoder(dict[str, int]).decode


class LotTables:
    """The catalogue of one connection."""

    def __init__(self, tables: CatalogueTables) -> None:
        self.tables = tables

    # --- lots of datasets

    def find_lot(self, dataset: str, lot: Lot, generation: int | None = None) -> LotRow | None:
        """Return a generation of a lot, by default the newest; None: there is none."""
        if generation is None:
            rows = self.tables.query("newest_lot", dataset=dataset, minute=lot.minute)
        else:
            rows = self.tables.query("lot_generation", dataset=dataset, minute=lot.minute, generation=generation)
        return LotRow(**rows[0]) if rows else None

    def iter_newest_lots(self, dataset: str, first: Lot, after: Lot) -> Iterator[tuple[Lot, LotRow]]:
        """Yield the newest generation of each lot that there is in an interval, in order."""
        begin = first.minute
        while True:
            rows = self.tables.query(
                "newest_lots", dataset=dataset, first=begin, after=after.minute, row_limit=PAGE_SIZE
            )
            for row in rows:
                yield (
                    Lot(first.unit, row["minute"]),
                    LotRow(row["generation"], row["state"], row["manifest"], "", "", row["count"], row["bytes"]),
                )
            if len(rows) < PAGE_SIZE:
                return
            begin = rows[-1]["minute"] + 1

    def find_publication(self, dataset: str, lot: Lot, producer: str) -> int | None:
        """Return the generation that a producer has published."""
        rows = self.tables.query("lot_by_producer", dataset=dataset, minute=lot.minute, producer=producer)
        return int(rows[0]["generation"]) if rows else None

    def sum_generations(self, dataset: str, first: Lot, after: Lot) -> int:
        """Return the sum of the newest generations of the lots of an interval: it grows with each publication."""
        return sum(row.generation for _, row in self.iter_newest_lots(dataset, first, after))

    def publish_lot(
        self,
        dataset: str,
        lot: Lot,
        *,
        state: ManifestState,
        manifest: str,
        producer: str,
        at: str,
        count: int = 0,
        size: int | None = None,
    ) -> int:
        """Make the next generation of a lot the lot, and return its number. A second call of the same producer returns
        the number of the first.
        """
        with self.tables.transaction():
            known = self.find_publication(dataset, lot, producer)
            if known is not None:
                return known
            newest = self.find_lot(dataset, lot)
            generation = newest.generation + 1 if newest is not None else 1
            self.tables.execute(
                "enter_lot",
                dataset=dataset,
                minute=lot.minute,
                generation=generation,
                state=state,
                manifest=manifest,
                producer=producer,
                published=at,
                count=count,
                bytes=size,
            )
            calendar.change_class(
                self.tables, subject_of_dataset(dataset), lot, "empty" if state == "empty" else "complete"
            )
        return generation

    def mark_lot(self, dataset: str, lot: Lot, generation: int, *, state: ManifestState, manifest: str) -> None:
        """Say what has become of a superseded generation: its manifest lies elsewhere, or its data are removed."""
        self.tables.execute(
            "mark_lot", dataset=dataset, minute=lot.minute, generation=generation, state=state, manifest=manifest
        )

    # --- runs of arcs

    def find_run(self, arc: str, lot: Lot, generation: int | None = None) -> RunRow | None:
        """Return a generation of a run, by default the newest; None: there is none."""
        if generation is None:
            rows = self.tables.query("newest_run", arc=arc, minute=lot.minute)
        else:
            rows = self.tables.query("run", arc=arc, minute=lot.minute, generation=generation)
        return RunRow(**{**rows[0], "sources": _decode_sources(rows[0]["sources"])}) if rows else None

    def assign_run(self, arc: str, lot: Lot, source_count: int, *, at: str, is_replay: bool = False) -> int:
        """Return the generation of the run that these sources need.

        `source_count`: the sum of the generations of all its sources. It grows with each of them, so of two that publish at
        once and see each other or not, the larger one is the run that sees both; a smaller one that comes later belongs to
        it. A run that has not begun takes in what comes. A replay is a run of its own, unless one is waiting anyway.
        """
        with self.tables.transaction():
            newest = self.find_run(arc, lot)
            source_key = source_count * REPLAYS
            if newest is not None and newest.state == "waiting":
                if source_key > newest.source_key:
                    self.tables.execute(
                        "raise_source_key",
                        arc=arc,
                        minute=lot.minute,
                        generation=newest.generation,
                        source_key=source_key,
                    )
                return newest.generation
            if newest is not None and is_replay:
                source_key = max(source_key, newest.source_key + 1)
            elif newest is not None and newest.source_key // REPLAYS >= source_count:
                return newest.generation
            generation = newest.generation + 1 if newest is not None else 1
            self.tables.execute(
                "enter_run", arc=arc, minute=lot.minute, generation=generation, source_key=source_key, changed=at
            )
            # until the new run has begun, a complete lot is one whose sources are newer
            done = newest is not None and newest.state == "complete" and not is_replay
            calendar.change_class(self.tables, subject_of_arc(arc), lot, "stale" if done else "waiting")
        return generation

    def begin_run(
        self, arc: str, lot: Lot, generation: int, source_count: int, sources: dict[str, int], *, at: str
    ) -> bool:
        """Fix what a run reads. False: a source has published since its generations were read; read them again."""
        with self.tables.transaction():
            if not self.tables.execute(
                "begin_run",
                arc=arc,
                minute=lot.minute,
                generation=generation,
                sources=msgspec.json.encode(sources).decode(),
                changed=at,
                key_limit=(source_count + 1) * REPLAYS,
            ):
                return False
            newest = self.find_run(arc, lot)
            if newest is not None and newest.generation == generation:
                calendar.change_class(self.tables, subject_of_arc(arc), lot, "running")
        return True

    def change_run(
        self, arc: str, lot: Lot, generation: int, *, state: RunState, at: str, sources: dict[str, int] | None = None, message: str = "",
        shown: LotClass | None = None,
    ) -> None:  # fmt: skip
        """Write what has become of a run. The calendar shows the newest generation only; `shown`: as which class, if not
        as its state.
        """
        with self.tables.transaction():
            newest = self.find_run(arc, lot)
            row = self.find_run(arc, lot, generation)
            if newest is None or row is None:
                raise LookupError(f"There is no run {generation} of {arc} for {lot}.")
            self.tables.execute(
                "change_run",
                arc=arc,
                minute=lot.minute,
                generation=generation,
                state=state,
                sources=msgspec.json.encode(row.sources if sources is None else sources).decode(),
                changed=at,
                message=message,
            )
            if newest.generation == generation:
                letter = shown or class_of_run(state)
                calendar.change_class(self.tables, subject_of_arc(arc), lot, letter)

    # --- arrivals

    def enter_arrivals(self, dataset: str, lot: Lot, arrivals: Iterable[Arrival], *, at: str) -> int:
        """Take what arrived for a lot; when this returns it is on disk. Returns how many were new."""
        return self.tables.execute_all(
            "enter_arrival",
            (
                {
                    "dataset": dataset,
                    "minute": lot.minute,
                    "uri": each.uri,
                    "size": each.size,
                    "sha256": each.sha256,
                    "modified": each.modified,
                    "arrived": at,
                }
                for each in arrivals
            ),
        )

    def enter_origins(self, dataset: str, uris: Iterable[str], origin: str) -> None:
        """Say that objects are parts of a thing of another application, before they arrive."""
        self.tables.execute_all("enter_origin", ({"origin": origin, "dataset": dataset, "uri": uri} for uri in uris))

    def list_lots_of_origin(self, dataset: str, unit: LotUnit, origin: str, limit: int) -> list[Lot]:
        """Return the lots in which objects of a thing arrived."""
        rows = self.tables.query("lots_of_origin", dataset=dataset, origin=origin, row_limit=limit)
        return [Lot(unit, row["minute"]) for row in rows]

    def list_origins(self, dataset: str, lot: Lot, limit: int) -> list[str]:
        """Return the things of other applications whose objects arrived in a lot."""
        rows = self.tables.query("origins_of_lot", dataset=dataset, minute=lot.minute, row_limit=limit)
        return [row["origin"] for row in rows]

    def iter_arrivals(self, dataset: str, lot: Lot) -> Iterator[Arrival]:
        """Yield everything that arrived for a lot, in the order of the uris."""
        after = ""
        while True:
            rows = self.tables.query(
                "arrivals", dataset=dataset, minute=lot.minute, after_uri=after, row_limit=PAGE_SIZE
            )
            yield from (Arrival(**row) for row in rows)
            if len(rows) < PAGE_SIZE:
                return
            after = rows[-1]["uri"]

    def list_lots_with_new_arrivals(self, dataset: str, unit: LotUnit, *, first_minute: int = 0) -> list[Lot]:
        """Return lots with arrivals that are in no manifest, in order, a page of them."""
        rows = self.tables.query("new_arrival_minutes", dataset=dataset, first=first_minute, row_limit=PAGE_SIZE)
        return [Lot(unit, row["minute"]) for row in rows]

    def has_new_arrivals(self, dataset: str, first: int, after: int) -> bool:
        """Return whether something arrived between two minutes that is in no manifest."""
        return bool(self.tables.query("is_arrival_pending", dataset=dataset, first=first, after=after))

    def settle_arrivals(self, dataset: str, lot: Lot, arrivals: Iterable[Arrival], generation: int) -> int:
        """Say that the manifest of this generation holds these arrivals, as they are in it."""
        return self.tables.execute_all(
            "settle_arrival",
            (
                {
                    "dataset": dataset,
                    "minute": lot.minute,
                    "uri": each.uri,
                    "size": each.size,
                    "sha256": each.sha256,
                    "modified": each.modified,
                    "generation": generation,
                }
                for each in arrivals
            ),
        )

    # --- overdue lots

    def list_overdue(self, dataset: str, unit: LotUnit) -> list[Lot]:
        return [Lot(unit, row["minute"]) for row in self.tables.query("overdue", dataset=dataset, row_limit=PAGE_SIZE)]

    def note_overdue(self, dataset: str, lot: Lot, *, at: str) -> bool:
        """Return whether it was not noted before."""
        return bool(self.tables.execute("enter_overdue", dataset=dataset, minute=lot.minute, told=at))

    def forget_overdue(self, dataset: str, lot: Lot) -> bool:
        return bool(self.tables.execute("remove_overdue", dataset=dataset, minute=lot.minute))


def subject_of_dataset(dataset: str) -> str:
    return f"dataset {dataset}"


def subject_of_arc(arc: str) -> str:
    return f"arc {arc}"


def class_of_run(state: RunState) -> LotClass:
    """Return the class of a lot whose newest run is in this state."""
    for name in ("waiting", "running", "complete", "partial", "missing"):
        if state == name:
            return name
    raise LookupError(f"{state} is no state of a run.")
