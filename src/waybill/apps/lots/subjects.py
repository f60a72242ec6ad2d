"""Datasets and arcs as the reports need them: their days in the catalogue, their unit, and what they are made from."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import datetime, timedelta

from waybill.apps.lots.catalogue import LotTables, calendar
from waybill.apps.lots.catalogue.calendar import LETTERS, CalendarDay
from waybill.apps.lots.catalogue.lot_tables import subject_of_arc, subject_of_dataset
from waybill.apps.lots.declaration.checks import AppliedDeclarations
from waybill.apps.lots.declaration.documents import ArcDeclaration, DatasetDeclaration
from waybill.apps.lots.declaration.project_file import dataset_id_of, minute_of_begin
from waybill.apps.lots.gaps import LotSubject
from waybill.apps.lots.units import Lot, LotUnit, parse_instant
from waybill.errors import InputError, NotFound

_RELATIVE = re.compile(r"(\d+)\s*([mhdw])")
_MINUTES = {"m": 1, "h": 60, "d": 1440, "w": 10080}


@dataclass
class DatasetSubject:
    """A dataset in a report. Nothing is missing before it begins."""

    declared: DatasetDeclaration
    applied: AppliedDeclarations
    tables: LotTables

    @property
    def title(self) -> str:
        return self.declared.title

    @property
    def unit(self) -> LotUnit:
        return self.declared.lot_unit

    @property
    def upstream(self) -> list[LotSubject]:
        kind, _, owner = self.declared.owner.partition(" ")
        arc = self.applied.arcs.get(owner) if kind == "arc" else None
        return [ArcSubject(arc, self.applied, self.tables)] if arc is not None else []

    def iter_days(self, first: Lot, after: Lot) -> Iterator[CalendarDay]:
        return calendar.iter_days(self.tables.tables, subject_of_dataset(self.declared.id), first, after)


@dataclass
class ArcSubject:
    """An arc in a report."""

    declared: ArcDeclaration
    applied: AppliedDeclarations
    tables: LotTables

    @property
    def title(self) -> str:
        return f"arc {self.declared.title}"

    @property
    def unit(self) -> LotUnit:
        return self.declared.lot_unit

    @property
    def upstream(self) -> list[LotSubject]:
        found: list[LotSubject] = []
        for source in self.declared.sources:
            dataset = self.applied.datasets.get(source.dataset)
            if dataset is not None:
                found.append(DatasetSubject(dataset, self.applied, self.tables))
        return found

    def iter_days(self, first: Lot, after: Lot) -> Iterator[CalendarDay]:
        return calendar.iter_days(self.tables.tables, subject_of_arc(self.declared.id), first, after)


Subject = DatasetSubject | ArcSubject


def find_subject(name: str, applied: AppliedDeclarations, tables: LotTables) -> Subject:
    """Return the dataset NAME/VERSION (or NAME) or the arc PROJECT/NAME, or an arc by its name alone."""
    text = name.removeprefix("dataset ").removeprefix("arc ").strip()
    arc = find_arc_named(text, applied)
    try:
        dataset = applied.datasets.get(dataset_id_of(text))
    except InputError:
        dataset = None
    if dataset is not None and (arc is None or not name.startswith("arc ")):
        return DatasetSubject(dataset, applied, tables)
    if arc is not None:
        return ArcSubject(arc, applied, tables)
    known = sorted(
        [*(each.title for each in applied.datasets.values()), *(each.title for each in applied.arcs.values())]
    )
    raise NotFound(
        f"There is no dataset or arc {name!r}; there are {', '.join(known[:20]) or 'none: `waybill lots apply` declares them'}."
    )


def find_arc_named(name: str, applied: AppliedDeclarations) -> ArcDeclaration | None:
    id = name.replace("/", ":", 1)
    if id in applied.arcs:
        return applied.arcs[id]
    matching = [arc for arc in applied.arcs.values() if arc.name == name]
    return matching[0] if len(matching) == 1 else None


def find_dataset_named(name: str, applied: AppliedDeclarations) -> DatasetDeclaration:
    dataset = applied.datasets.get(dataset_id_of(name))
    if dataset is None:
        known = ", ".join(sorted(each.title for each in applied.datasets.values()))
        raise NotFound(
            f"There is no dataset {name!r}; there are {known or 'none: `waybill lots apply` declares them'}."
        )
    return dataset


def begin_of(subject: Subject, applied: AppliedDeclarations, starts: dict[str, str]) -> int | None:
    """Return the minute before which nothing of a subject is missing; None: that is not said."""
    if isinstance(subject, ArcSubject):
        start = starts.get(subject.declared.id)
    else:
        kind, _, owner = subject.declared.owner.partition(" ")
        start = subject.declared.begins or starts.get(subject.declared.owner if kind == "boundary" else owner)
    return minute_of_begin(start) if start else None


def parse_range(
    subject: Subject, first: str, after: str, *, now: datetime, begin: int | None = None, default: str = "1d"
) -> tuple[Lot, Lot]:
    """Return the first lot of a range and the one after its last: each a lot, an instant, or so long ago (12h, 7d)."""
    unit = subject.unit
    end = parse_point(after, unit, now) if after else Lot.at(now, unit)
    start = parse_point(first, unit, now) if first else parse_point(default, unit, now)
    if begin is not None and start.minute < begin:
        start = Lot(unit, begin - begin % unit.minutes)
    return (start, end) if start.minute <= end.minute else (end, end)


def parse_point(text: str, unit: LotUnit, now: datetime) -> Lot:
    match = _RELATIVE.fullmatch(text.strip().lower())
    if match is not None:
        return Lot.at(now - timedelta(minutes=int(match[1]) * _MINUTES[match[2]]), unit)
    if text == "now":
        return Lot.at(now, unit)
    if re.match(r"\d+P", text, re.IGNORECASE):
        return Lot.at(Lot.parse(text).start, unit)
    return Lot.at(parse_instant(text), unit)


__all__ = [
    "LETTERS",
    "ArcSubject",
    "DatasetSubject",
    "Subject",
    "find_arc_named",
    "find_dataset_named",
    "find_subject",
    "parse_point",
    "parse_range",
]
