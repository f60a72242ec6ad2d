"""Reports over a range of lots: status, gaps with their causes, and what stands in the way of one lot.

A report reads the days of the calendar and nothing else, so ten years of five minutes are some thousand rows; single lots are
streamed. What happened before a dataset begins, or an arc starts, is not missing.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from waybill.apps.lots.catalogue import LotTables
from waybill.apps.lots.catalogue.calendar import LETTERS, LotClass, worst_class
from waybill.apps.lots.declaration.changes import read_applied
from waybill.apps.lots.declaration.checks import AppliedDeclarations
from waybill.apps.lots.gaps import GapReport, LotRun, iter_runs
from waybill.apps.lots.machine import ARC, BOUNDARY, ArcStart, BoundaryPosition
from waybill.apps.lots.subjects import ArcSubject, DatasetSubject, Subject, begin_of, find_subject, parse_range
from waybill.apps.lots.units import MINUTES_OF_DAY, Lot, format_instant
from waybill.record import Store

BAD: tuple[LotClass, ...] = ("partial", "missing", "never", "stale")
UNDER_WAY: tuple[LotClass, ...] = ("running", "waiting")


@dataclass
class LotReports:
    """What is declared, and the catalogue: enough for every report."""

    applied: AppliedDeclarations
    starts: dict[str, str]  # from which lot on each arc runs, and each boundary is open
    tables: LotTables
    now: datetime

    @classmethod
    def read(cls, store: Store, tables: LotTables, now: datetime) -> LotReports:
        starts = {
            record.id: record.document(ArcStart).begin for record in store.each(ARC.name, documents=True) if record.open
        }
        applied = read_applied(store)
        for record in store.each(BOUNDARY.name, documents=True):
            if record.open:
                starts[f"boundary {record.id}"] = record.document(BoundaryPosition).open_since
        return cls(applied, starts, tables, now)

    def find(self, name: str) -> Subject:
        return find_subject(name, self.applied, self.tables)

    def list_subjects(self) -> list[Subject]:
        datasets = [DatasetSubject(each, self.applied, self.tables) for each in self.applied.datasets.values()]
        arcs = [ArcSubject(each, self.applied, self.tables) for each in self.applied.arcs.values()]
        return [*sorted(datasets, key=lambda each: each.title), *sorted(arcs, key=lambda each: each.title)]

    def parse_range(self, subject: Subject, first: str, after: str, *, default: str = "1d") -> tuple[Lot, Lot]:
        begin = begin_of(subject, self.applied, self.starts)
        return parse_range(subject, first, after, now=self.now, begin=begin, default=default)

    def iter_runs(self, subject: Subject, first: Lot, after: Lot) -> Iterator[LotRun]:
        return iter_runs(subject, first, after)

    def count(self, subject: Subject, first: Lot, after: Lot) -> Counter[LotClass]:
        """Return how many lots of a range are of each class."""
        letters: Counter[str] = Counter()
        for day in subject.iter_days(first, after):
            letters.update(day.letters)
        return Counter({name: letters[letter] for name, letter in LETTERS.items() if letters[letter]})

    def describe_status(self, subject: Subject, first: Lot, after: Lot) -> dict[str, Any]:
        """Return a line of the status report."""
        counts = self.count(subject, first, after)
        gap_count = sum(counts[name] for name in ("never", "partial", "missing"))
        found: dict[str, Any] = {
            "name": subject.title,
            "unit": subject.unit.name,
            "first": str(first),
            "after": str(after),
            "lots": first.count_to(after),
            "counts": dict(counts),
            "gaps": gap_count,
            "latest": None,
        }
        if first.minute < after.minute:
            latest = next(
                (
                    Lot(subject.unit, day.first + place * subject.unit.minutes)
                    for day in reversed(list(subject.iter_days(first, after)))
                    for place in range(len(day.letters) - 1, -1, -1)
                    if day.letters[place] in (LETTERS["complete"], LETTERS["empty"])
                ),
                None,
            )
            found["latest"] = str(latest) if latest is not None else None
        return found

    def report_gaps(
        self, subject: Subject, first: Lot, after: Lot, *, everything: bool = False
    ) -> tuple[GapReport, Iterator[LotRun]]:
        """Return the counts, which are complete when the runs were read, and the runs that somebody may have to look at."""
        report = GapReport()

        def iter_noted() -> Iterator[LotRun]:
            for run in self.iter_runs(subject, first, after):
                report.note(run)
                if everything or run.name in BAD or run.name in UNDER_WAY:
                    yield run

        return report, iter_noted()

    def list_days(self, subject: Subject, first: Lot, after: Lot) -> Iterator[tuple[int, LotClass]]:
        """Yield for each day its number, since the beginning of year 1, and its worst class."""
        for day in subject.iter_days(first, after):
            if day.letters:
                yield day.first // MINUTES_OF_DAY, worst_class(day.letters)


def describe_run(run: LotRun) -> dict[str, Any]:
    """Return a run of equal lots for scripts."""
    return {
        "class": run.name,
        "first": str(run.first),
        "last": str(run.after.previous),
        "count": run.count,
        "start": format_instant(run.first.start),
        "end": format_instant(run.after.start),
        "cause": run.cause or None,
    }
