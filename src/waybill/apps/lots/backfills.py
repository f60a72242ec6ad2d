"""Backfill and replay: which lots of a range would run, and why.

missing   lots that were never made, or were cleaned, and whose sources are there
failed    lots whose run is partial: only their failed parts run again
stale     lots that are complete, and a source has a newer generation
all       every lot of the range whose sources are there; a complete one is made again, as a new generation
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any, Literal, NamedTuple, get_args

from waybill.apps.lots.catalogue import LotTables
from waybill.apps.lots.catalogue.calendar import CLASSES, LotClass, iter_days
from waybill.apps.lots.catalogue.lot_tables import subject_of_arc
from waybill.apps.lots.declaration.documents import ArcDeclaration, title_of_dataset
from waybill.apps.lots.machine import BACKFILL, BackfillProgress, BackfillRequest
from waybill.apps.lots.publishing import interval_of
from waybill.apps.lots.units import Lot, iter_lots
from waybill.engine import Engine
from waybill.errors import InputError
from waybill.record import Record
from waybill.step import New

Which = Literal["missing", "failed", "stale", "all"]
CHOICES: tuple[Which, ...] = get_args(Which)
SELECTED: dict[Which, tuple[LotClass, ...]] = {
    "missing": ("never", "missing"),
    "failed": ("partial",),
    "stale": ("stale",),
    "all": ("never", "missing", "partial", "stale", "complete", "empty"),
}
WHY: dict[LotClass, str] = {
    "never": "it was never made",
    "missing": "it was cleaned",
    "partial": "some of its parts failed; only those run",
    "stale": "a source has a newer generation",
    "complete": "it is made again, as a new generation",
    "empty": "it is made again, as a new generation",
}
MAX_LISTED = 1000


class BackfillLot(NamedTuple):
    """A lot of the range that was chosen. `blocked`: why it cannot run now."""

    lot: Lot
    name: LotClass
    blocked: str = ""

    @property
    def why(self) -> str:
        return self.blocked or WHY[self.name]


@dataclass
class BackfillPreview:
    """What a backfill would do."""

    arc: str
    first: Lot
    after: Lot
    which: Which
    counts: Counter[str] = field(default_factory=Counter)  # of those that run, by their reason
    blocked: int = 0
    lots: list[BackfillLot] = field(default_factory=list)  # the first of them

    @property
    def run_count(self) -> int:
        return self.counts.total()

    def describe(self) -> dict[str, Any]:
        return {
            "arc": self.arc, "first": str(self.first), "after": str(self.after), "which": self.which, "runs": self.run_count,
            "why": dict(self.counts), "blocked": self.blocked,
            "lots": [{"lot": str(each.lot), "class": each.name, "runs": not each.blocked, "why": each.why} for each in self.lots],
        }  # fmt: skip


def check_which(text: str) -> Which:
    for each in CHOICES:
        if each == text:
            return each
    raise InputError(f"{text!r} is no choice of lots; choose {', '.join(CHOICES)}.")


def iter_chosen(tables: LotTables, arc: ArcDeclaration, first: Lot, after: Lot, which: Which) -> Iterator[BackfillLot]:
    """Yield the lots of a range that a backfill looks at, in order."""
    wanted = SELECTED[which]
    for day in iter_days(tables.tables, subject_of_arc(arc.id), first, after):
        for place, letter in enumerate(day.letters):
            name = CLASSES[letter]
            if name in wanted:
                lot = Lot(first.unit, day.first + place * first.unit.minutes)
                yield BackfillLot(lot, name, _find_obstacle(tables, arc, lot) if name != "partial" else "")


def _find_obstacle(tables: LotTables, arc: ArcDeclaration, lot: Lot) -> str:
    """Return which source is not there; a roll-up that starts without what is missing needs one lot at least."""
    for source in arc.sources:
        begin, end = interval_of(lot, source.lot_unit)
        present = {each for each, _ in tables.iter_newest_lots(source.dataset, begin, end)}
        absent = next((each for each in iter_lots(begin, end) if each not in present), None)
        if absent is not None and (arc.after is None or not present):
            return f"{title_of_dataset(source.dataset)} {absent} is not there"
    return ""


def preview_backfill(tables: LotTables, arc: ArcDeclaration, first: Lot, after: Lot, which: Which) -> BackfillPreview:
    """Return exactly what would run, how many, and why each."""
    preview = BackfillPreview(arc.title, first, after, which)
    for each in iter_chosen(tables, arc, first, after, which):
        if each.blocked:
            preview.blocked += 1
        else:
            preview.counts[each.why] += 1
        if len(preview.lots) < MAX_LISTED:
            preview.lots.append(each)
    return preview


def start_backfill(
    engine: Engine, arc: ArcDeclaration, first: Lot, after: Lot, which: Which, *, at_once: int, a_minute: int, who: str, reason: str = ""
) -> Record:  # fmt: skip
    """Start it, and return its record."""
    if not 1 <= at_once <= 1000 or not 0 <= a_minute <= 100_000:
        raise InputError("A backfill runs 1 to 1000 lots at once, and at most 100000 a minute (0: no limit).")
    request = BackfillRequest(arc.id, str(first), str(after), which, reason, at_once, a_minute)
    return engine.submit(
        New(BACKFILL.name, (request, BackfillProgress(next=first.minute)), owner=who), who=who, why=reason
    )
