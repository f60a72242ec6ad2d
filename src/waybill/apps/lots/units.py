"""Units of time, and lots: one interval of a unit, with a name that says when and how long.

    20230206PT5M286    the 287th five minutes of 6 February 2023 in UTC: from 23:50 to 23:55, the end not included
    ^^^^^^^^           date
            ^^^^       unit, as ISO 8601 writes a duration
                ^^^    ordinal within the day, from 0; three digits, four for PT1M

Every instant is in exactly one lot of a unit, since each unit divides the day. A name is parsed strictly: a day that
does not exist or an ordinal past the end of the day is no lot. Lots are ordered by their start; of two that start
together the longer one comes first, as a folder comes before its files.

A unit **nests** in another when every lot of the coarser one consists of whole lots of the finer one: six PT10M are one
PT1H, but no number of them is one PT15M.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import UTC, date, datetime, timedelta
from functools import total_ordering

from waybill.errors import InputError

MINUTES_OF_DAY = 24 * 60
_FIRST_DAY = date(1, 1, 1)
_LAST_MINUTE = (date(9999, 12, 31) - _FIRST_DAY).days * MINUTES_OF_DAY + MINUTES_OF_DAY - 1


@dataclass(frozen=True, slots=True)
class LotUnit:
    """A length of time that divides the day."""

    name: str  # as ISO 8601 writes it
    minutes: int
    digits: int = 3  # of the ordinal

    @property
    def lots_of_day(self) -> int:
        return MINUTES_OF_DAY // self.minutes

    def nests_in(self, coarser: LotUnit) -> bool:
        return coarser.minutes % self.minutes == 0

    def __str__(self) -> str:
        return self.name


UNITS = {
    unit.name: unit
    for unit in (
        LotUnit("PT1M", 1, digits=4),
        LotUnit("PT5M", 5),
        LotUnit("PT10M", 10),
        LotUnit("PT15M", 15),
        LotUnit("PT30M", 30),
        LotUnit("PT1H", 60),
        LotUnit("P1D", MINUTES_OF_DAY),
    )
}
# parts of an hour, as project files of Clusterless name them
_UNIT_ALIASES = {"fourths": "PT15M", "sixths": "PT10M", "twelfths": "PT5M"}

_LOT_PATTERN = re.compile(r"(\d{4})(\d\d)(\d\d)(P(?:T\d+[MH]|1D))(\d{3,4})", re.ASCII)


def find_unit(name: str) -> LotUnit:
    """Return the unit of that name, in any case; raises InputError with the names there are."""
    unit = UNITS.get(_UNIT_ALIASES.get(name.lower(), name.upper()))
    if unit is None:
        raise InputError(
            f"There is no unit {name!r}; the units are {', '.join(UNITS)} (and Fourths, Sixths, Twelfths of an hour)."
        )
    return unit


@total_ordering
@dataclass(frozen=True, slots=True)
class Lot:
    """One interval of a unit. `minute`: its start, in minutes since the beginning of year 1."""

    unit: LotUnit
    minute: int

    @classmethod
    def at(cls, instant: datetime, unit: LotUnit) -> Lot:
        """Return the lot in which an instant is; the instant says its time zone."""
        if instant.tzinfo is None:
            raise InputError(f"{instant.isoformat()} has no time zone; write Z after it for UTC.")
        try:
            utc = instant.astimezone(UTC)
        except OverflowError:
            raise InputError(f"{instant.isoformat()} is before the year 1 or after the year 9999 in UTC.") from None
        minute = (utc.date() - _FIRST_DAY).days * MINUTES_OF_DAY + utc.hour * 60 + utc.minute
        return cls(unit, minute - minute % unit.minutes)

    @classmethod
    def parse(cls, name: str) -> Lot:
        """Return the lot of that name; raises InputError that says why it is none."""
        match = _LOT_PATTERN.fullmatch(name)
        if match is None:
            raise InputError(
                f"{name!r} is no lot. A lot is a date, a unit and an ordinal, such as 20230206PT5M286; the units are {', '.join(UNITS)}."
            )
        year, month, day, unit_name, ordinal = match.groups()
        unit = UNITS.get(unit_name)
        if unit is None:
            raise InputError(f"{name!r} is no lot: there is no unit {unit_name}; the units are {', '.join(UNITS)}.")
        if len(ordinal) != unit.digits:
            raise InputError(f"{name!r} is no lot: the ordinal of {unit} has {unit.digits} digits.")
        if int(ordinal) >= unit.lots_of_day:
            raise InputError(f"{name!r} is no lot: a day has {unit.lots_of_day} of {unit}, from {0:0{unit.digits}} to "
                             f"{unit.lots_of_day - 1:0{unit.digits}}.")  # fmt: skip
        try:
            days = (date(int(year), int(month), int(day)) - _FIRST_DAY).days
        except ValueError:
            raise InputError(f"{name!r} is no lot: there is no day {year}-{month}-{day}.") from None
        return cls(unit, days * MINUTES_OF_DAY + int(ordinal) * unit.minutes)

    @property
    def ordinal(self) -> int:
        """Which lot of its day it is, from 0."""
        return self.minute % MINUTES_OF_DAY // self.unit.minutes

    @property
    def day(self) -> date:
        return _FIRST_DAY + timedelta(days=self.minute // MINUTES_OF_DAY)

    @property
    def start(self) -> datetime:
        return instant_of(self.minute)

    @property
    def end(self) -> datetime:
        """The first instant that is no longer in it. Raises InputError for the last lot of the year 9999."""
        return instant_of(self.minute + self.unit.minutes)

    @property
    def previous(self) -> Lot:
        return self.shift(-1)

    @property
    def next(self) -> Lot:
        return self.shift(1)

    def shift(self, count: int) -> Lot:
        """Return the lot that comes so many lots later, or earlier."""
        minute = self.minute + count * self.unit.minutes
        if not 0 <= minute <= _LAST_MINUTE:
            raise InputError(
                f"There is no lot {abs(count)} {'after' if count > 0 else 'before'} {self}: years are 1 to 9999."
            )
        return Lot(self.unit, minute)

    def count_to(self, other: Lot) -> int:
        """Return by how many lots of the same unit `other` is later: `a.shift(a.count_to(b)) == b`."""
        if other.unit != self.unit:
            raise InputError(f"{self} and {other} are lots of different units; no number of lots is between them.")
        return (other.minute - self.minute) // self.unit.minutes

    def coarsen(self, unit: LotUnit) -> Lot:
        """Return the lot of a coarser unit that contains this one."""
        if not self.unit.nests_in(unit):
            raise InputError(
                f"Lots of {self.unit} do not nest in lots of {unit}; {unit} is no multiple of {self.unit}."
            )
        return Lot(unit, self.minute - self.minute % unit.minutes)

    def iter_parts(self, unit: LotUnit) -> Iterator[Lot]:
        """Yield the lots of a finer unit that this one consists of, in order."""
        if not unit.nests_in(self.unit):
            raise InputError(
                f"Lots of {unit} do not nest in lots of {self.unit}; {self.unit} is no multiple of {unit}."
            )
        return (Lot(unit, minute) for minute in range(self.minute, self.minute + self.unit.minutes, unit.minutes))

    def __str__(self) -> str:
        day = self.day
        return f"{day.year:04}{day.month:02}{day.day:02}{self.unit.name}{self.ordinal:0{self.unit.digits}}"

    def __lt__(self, other: Lot) -> bool:
        return (self.minute, -self.unit.minutes) < (other.minute, -other.unit.minutes)


def instant_of(minute: int) -> datetime:
    """Return the instant that so many minutes since the beginning of year 1 are, in UTC."""
    try:
        return datetime(1, 1, 1, tzinfo=UTC) + timedelta(minutes=minute)
    except OverflowError:
        raise InputError("That is after the year 9999, and no lot ends there.") from None


def iter_lots(first: Lot, after: Lot) -> Iterator[Lot]:
    """Yield the lots from `first` to the one before `after`, which is of the same unit."""
    first.count_to(after)  # of the same unit
    return (Lot(first.unit, minute) for minute in range(first.minute, after.minute, first.unit.minutes))


def parse_instant(text: str) -> datetime:
    """Return the instant of an ISO 8601 text with a time zone, or of a date, which means its beginning in UTC."""
    try:
        instant = datetime.fromisoformat(text.strip())
    except ValueError:
        raise InputError(f"{text!r} is no instant; write it as 2023-02-06T23:52:06Z, or a date alone.") from None
    if instant.tzinfo is None:
        if "T" in text or ":" in text:
            raise InputError(f"{text!r} has no time zone; write Z after it for UTC.")
        instant = instant.replace(tzinfo=UTC)
    return instant


def format_instant(instant: datetime) -> str:
    """Return an instant as ISO 8601 writes it, in UTC with a Z."""
    return instant.astimezone(UTC).isoformat().replace("+00:00", "Z")
