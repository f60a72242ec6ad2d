"""The calendar of a dataset or an arc: the class of each lot, one letter each, one row a day.

Ten years of five minutes are a million lots and 3,653 rows; a report over them reads these rows and nothing else. A letter
is changed in the transaction that changes what it tells of. A day that has no row has nothing but `never`.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Literal, NamedTuple

from waybill.apps.lots.units import MINUTES_OF_DAY, Lot, LotUnit
from waybill.index import CatalogueTables

LotClass = Literal["never", "empty", "complete", "partial", "missing", "running", "waiting", "stale"]

# The letter of each class, from the one that needs somebody most to the one that needs nobody: the first that a day has
# is the day's.
LETTERS: dict[LotClass, str] = {
    "partial": "p",
    "missing": "m",
    "never": ".",
    "stale": "s",
    "running": "r",
    "waiting": "w",
    "empty": "e",
    "complete": "c",
}
CLASSES = {letter: name for name, letter in LETTERS.items()}
NEVER = LETTERS["never"]
GAPS: tuple[LotClass, ...] = (
    "never",
    "partial",
    "missing",
)  # the classes that are gaps; the others are there or on their way

_PAGE_SIZE = 500  # days


class CalendarDay(NamedTuple):
    """The letters of a day's lots; `first`: the minute at which the first of them starts."""

    first: int
    letters: str


def change_class(tables: CatalogueTables, subject: str, lot: Lot, name: LotClass) -> None:
    """Write the class of a lot. Call it in the transaction that changes what it tells of."""
    day, place = lot.minute // MINUTES_OF_DAY, lot.ordinal
    if not tables.execute("change_class", subject=subject, day=day, place=place, class_letter=LETTERS[name]):
        tables.execute("enter_day", subject=subject, day=day, classes=NEVER * lot.unit.lots_of_day)
        tables.execute("change_class", subject=subject, day=day, place=place, class_letter=LETTERS[name])


def iter_days(tables: CatalogueTables, subject: str, first: Lot, after: Lot) -> Iterator[CalendarDay]:
    """Yield the letters of the lots from `first` to the one before `after`, day by day, the days without a row too."""
    unit = first.unit
    begin, end = first.minute, after.minute
    stored: dict[int, str] = {}
    read_until = begin // MINUTES_OF_DAY
    day = read_until
    nothing = NEVER * unit.lots_of_day
    while day * MINUTES_OF_DAY < end:
        if day >= read_until:
            read_until = min(day + _PAGE_SIZE, -(-end // MINUTES_OF_DAY))
            stored = {
                row["day"]: row["classes"]
                for row in tables.query("days", subject=subject, first=day, after=read_until, row_limit=_PAGE_SIZE)
            }
        start = max(begin, day * MINUTES_OF_DAY)
        until = min(end, (day + 1) * MINUTES_OF_DAY)
        letters = stored.get(day, nothing)
        offset = day * MINUTES_OF_DAY
        yield CalendarDay(start, letters[(start - offset) // unit.minutes : (until - offset) // unit.minutes])
        day += 1


def find_letter(tables: CatalogueTables, subject: str, lot: Lot) -> str:
    """Return the letter of one lot."""
    return next(iter_days(tables, subject, lot, lot.next)).letters


def worst_class(letters: str) -> LotClass:
    """Return the class of a day: that of the lot which needs somebody most."""
    return next(name for name, letter in LETTERS.items() if letter in letters)


def coarsen_letters(days: Iterator[CalendarDay], finer: LotUnit, coarser: LotUnit) -> Iterator[CalendarDay]:
    """Yield the days with one letter for each lot of a coarser unit: the worst of the finer ones. A part of a coarser lot
    at the beginning or the end counts as one.
    """
    order = "".join(LETTERS.values())
    size = coarser.minutes // finer.minutes
    for day in days:
        skipped = (day.first % coarser.minutes) // finer.minutes
        pieces = [day.letters[max(0, at) : at + size] for at in range(-skipped, len(day.letters), size)]
        yield CalendarDay(day.first - skipped * finer.minutes, "".join(min(piece, key=order.index) for piece in pieces))
