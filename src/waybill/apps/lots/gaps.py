"""The gap report: what every lot of a range is, as runs of lots that are alike.

    20230101PT5M000 .. 20230103PT5M017   complete   594
    20230103PT5M018                      never        1   orders/1 never arrived
    ...

A run is as long as the class and the cause stay the same; single lots are `iter_lots` of it. The cause of a lot that is
not there is the first thing upstream that is not there either: it is found by walking from an arc to the datasets that it
reads, and from a dataset to the arc that makes it.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from typing import Protocol

from waybill.apps.lots.catalogue.calendar import CLASSES, GAPS, LETTERS, CalendarDay, LotClass, coarsen_letters
from waybill.apps.lots.units import Lot, LotUnit, iter_lots

_SAME_LETTERS = re.compile(r"(.)\1*", re.DOTALL)
_GOOD = LETTERS["complete"] + LETTERS["empty"]


@dataclass(frozen=True, slots=True)
class LotRun:
    """Lots of one class and one cause, side by side. `after`: the lot behind the last."""

    name: LotClass
    first: Lot
    after: Lot
    cause: str = ""

    @property
    def count(self) -> int:
        return self.first.count_to(self.after)

    @property
    def is_gap(self) -> bool:
        return self.name in GAPS

    def iter_lots(self) -> Iterator[Lot]:
        return iter_lots(self.first, self.after)


class LotSubject(Protocol):
    """A dataset or an arc, as the report needs it."""

    @property
    def title(self) -> str: ...

    @property
    def unit(self) -> LotUnit: ...

    @property
    def upstream(self) -> Iterable[LotSubject]:
        """What it is made from: an arc for its sink, datasets for an arc; nothing for what arrives."""

    def iter_days(self, first: Lot, after: Lot) -> Iterator[CalendarDay]: ...


@dataclass
class GapReport:
    """Counts of a range. The runs themselves are streamed."""

    counts: Counter[LotClass] = field(default_factory=Counter)

    def note(self, run: LotRun) -> LotRun:
        self.counts[run.name] += run.count
        return run

    @property
    def gap_count(self) -> int:
        return sum(self.counts[name] for name in GAPS)


def iter_runs(subject: LotSubject, first: Lot, after: Lot, *, with_causes: bool = True) -> Iterator[LotRun]:
    """Yield the runs of a range, in order; they cover it without a gap or an overlap."""
    unit = subject.unit
    begin, name, cause = first.minute, "", ""
    causes = _CauseFinder(subject, first, after) if with_causes else None
    for day in subject.iter_days(first, after):
        for match in _SAME_LETTERS.finditer(day.letters):
            letter = match[1]
            start = day.first + match.start() * unit.minutes
            if causes is None or letter in _GOOD:
                pieces = [(start, "")]
            else:
                pieces = list(causes.split(start, day.first + match.end() * unit.minutes))
            for at, why in pieces:
                if (letter, why) != (name, cause):
                    if name:
                        yield LotRun(CLASSES[name], Lot(unit, begin), Lot(unit, at), cause)
                    begin, name, cause = at, letter, why
    if name:
        yield LotRun(CLASSES[name], Lot(unit, begin), after, cause)


class _CauseFinder:
    """Finds what upstream is to blame, in one pass beside the report: the days of each source are read once."""

    def __init__(self, subject: LotSubject, first: Lot, after: Lot) -> None:
        self._unit = subject.unit
        self._sources = [
            _SourceCursor(each, subject.unit, first, after)
            for each in subject.upstream
            if each.unit.nests_in(subject.unit)
        ]

    def split(self, start: int, end: int) -> Iterator[tuple[int, str]]:
        """Yield where the cause changes between two minutes, and what it is from there; empty: nothing upstream."""
        last: str | None = None
        for minute in range(start, end, self._unit.minutes):
            why = ""
            for source in self._sources:
                if (letter := source.letter_at(minute)) not in _GOOD:
                    why = source.explain(minute, letter)
                    break
            if why != last:
                yield minute, why
                last = why


class _SourceCursor:
    """The letters of one source, moving forward with the report."""

    def __init__(self, source: LotSubject, unit: LotUnit, first: Lot, after: Lot) -> None:
        self._source, self._unit = source, unit
        begin, end = Lot(source.unit, first.minute), Lot(source.unit, after.minute)
        self._range = begin, end
        self._days = coarsen_letters(source.iter_days(begin, end), source.unit, unit)
        self._day = CalendarDay(0, "")
        self._causes: _CauseFinder | None = None

    def letter_at(self, minute: int) -> str:
        while minute >= self._day.first + len(self._day.letters) * self._unit.minutes:
            following = next(self._days, None)
            if following is None:
                return LETTERS["never"]
            self._day = following
        return self._day.letters[(minute - self._day.first) // self._unit.minutes]

    def explain(self, minute: int, letter: str) -> str:
        """Return the first thing upstream that is not there: further up, or this source."""
        if self._causes is None:
            self._causes = _CauseFinder(self._source, *self._range)
        at = minute - minute % self._source.unit.minutes
        further = next((why for _, why in self._causes.split(at, at + self._source.unit.minutes)), "")
        return further or f"{self._source.title} is {CLASSES[letter]}"
