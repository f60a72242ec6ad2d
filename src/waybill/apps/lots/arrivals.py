"""Arrivals: objects that are there, for a boundary to gather into lots.

    report_arrivals    somebody says what has arrived; when it returns, that is on disk
    list_arrivals      a boundary finds out for itself, by listing its folder or bucket

An arrival belongs to the lot in which it arrived, or was last modified, or that its name says (`time` of the boundary). What
arrives again as it was is the arrival that is known; with other bytes it is another one.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from datetime import UTC, datetime
from itertools import islice
from typing import NamedTuple

import msgspec

from waybill.apps.lots.catalogue import Arrival, LotTables
from waybill.apps.lots.declaration.documents import BoundaryDeclaration, DatasetDeclaration
from waybill.apps.lots.locations import Locations
from waybill.apps.lots.path_filters import PathFilter
from waybill.apps.lots.units import Lot, format_instant, parse_instant
from waybill.errors import InputError

PAGE_SIZE = 1000  # arrivals of one transaction
MAX_URI = 2000  # characters


class ReportedArrival(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """What somebody says of an object that has arrived."""

    uri: str
    size: int | None = None
    sha256: str | None = None
    modified: str | None = None  # ISO 8601
    at: str | None = None  # when it arrived, if not now


class ArrivalCounts(NamedTuple):
    """What came of a report."""

    new: int  # arrivals that were not known
    known: int
    filtered: int  # that the boundary's filter leaves out


class BoundaryFilter:
    """Decides which objects belong to a boundary, and to which lot of it."""

    def __init__(self, boundary: BoundaryDeclaration, root: str) -> None:
        self._boundary, self._unit = boundary, boundary.lot_unit
        self._filter = PathFilter(root, boundary.include, boundary.exclude)
        self._pattern = re.compile(boundary.pattern) if boundary.time == "key" else None

    def keeps(self, uri: str) -> bool:
        return self._filter.keeps(uri)

    def find_lot(self, uri: str, *, arrived: datetime, modified: datetime | None) -> Lot:
        """Raises InputError when its time cannot be told."""
        if self._pattern is not None:
            return Lot.at(self._read_key(uri), self._unit)
        if self._boundary.time == "modified":
            if modified is None:
                raise InputError(
                    f"{uri}: the boundary {self._boundary.id} goes by the time of modification, and it has none."
                )
            return Lot.at(modified, self._unit)
        return Lot.at(arrived, self._unit)

    def _read_key(self, uri: str) -> datetime:
        assert self._pattern is not None
        match = self._pattern.search(uri)
        if match is None:
            raise InputError(
                f"{uri} does not match the pattern of the boundary {self._boundary.id}, {self._boundary.pattern!r}."
            )
        found = {name: int(value) for name, value in match.groupdict().items() if value is not None}
        try:
            return datetime(
                found["year"], found["month"], found["day"], found.get("hour", 0), found.get("minute", 0), tzinfo=UTC
            )
        except (ValueError, KeyError) as error:
            raise InputError(
                f"{uri} has no time that the pattern of the boundary {self._boundary.id} can read: {error}."
            ) from error


def report_arrivals(
    tables: LotTables,
    locations: Locations,
    dataset: DatasetDeclaration,
    boundary: BoundaryDeclaration,
    reported: Iterable[ReportedArrival],
    *,
    now: datetime,
) -> ArrivalCounts:
    """Take any number of arrivals; all that was taken is on disk when this returns, and may be reported again.

    What is known of them is what was said; of an object that can be looked at, size and time are looked up.
    """
    root = locations.absolute(dataset.path)
    chooser = BoundaryFilter(boundary, boundary.watch or root)
    new = taken = filtered = 0
    pending = iter(reported)
    while page := list(islice(pending, PAGE_SIZE)):
        by_lot: dict[Lot, dict[str, Arrival]] = {}
        for each in page:
            uri = check_uri(each.uri, locations)
            if not chooser.keeps(uri):
                filtered += 1
                continue
            arrived = parse_instant(each.at) if each.at else now
            arrival, modified = _complete(each, uri, locations)
            lot = chooser.find_lot(uri, arrived=arrived, modified=modified)
            by_lot.setdefault(lot, {})[uri] = arrival
            taken += 1
        with tables.tables.transaction():
            for lot, arrivals in by_lot.items():
                new += tables.enter_arrivals(dataset.id, lot, arrivals.values(), at=format_instant(now))
    return ArrivalCounts(new, taken - new, filtered)


def check_uri(uri: str, locations: Locations) -> str:
    """Return the URI of an object; a name without a scheme is one in Waybill's own store."""
    if not uri or len(uri) > MAX_URI or not uri.isprintable() or uri.endswith("/"):
        raise InputError(
            f"{uri[:100]!r} names no object: 1 to {MAX_URI} printable characters, without a slash at the end."
        )
    if "://" in uri:
        scheme = uri.partition("://")[0]
        if not re.fullmatch(r"[a-z][a-z0-9+.-]*", scheme):
            raise InputError(f"{uri[:100]!r} is no URI.")
        return uri
    return locations.uri_of(uri)


def _complete(each: ReportedArrival, uri: str, locations: Locations) -> tuple[Arrival, datetime | None]:
    size, modified_text = each.size, each.modified
    modified = parse_instant(modified_text) if modified_text else None
    if size is None and modified is None and uri.startswith(("file:", "s3:")):
        found = locations.head(uri)
        if found is None:
            raise InputError(f"There is no object {uri}; an arrival is reported when it is there.")
        size, modified = found.size, found.modified
    if size is not None and size < 0:
        raise InputError(f"{uri} cannot have {size} bytes.")
    if each.sha256 is not None and not re.fullmatch(r"[0-9a-f]{64}", each.sha256):
        raise InputError(f"{each.sha256!r}, of {uri}, is no SHA-256: 64 digits of 0-9 and a-f.")
    return Arrival(uri, size, each.sha256, format_instant(modified) if modified else None), modified


class ListedArrivals(NamedTuple):
    """What a complete listing found."""

    new: int
    has_doubtful: bool  # objects were found that arrived at an unknown time since the last listing


def list_arrivals(
    tables: LotTables,
    locations: Locations,
    dataset: DatasetDeclaration,
    boundary: BoundaryDeclaration,
    *,
    since: datetime | None,
    now: datetime,
) -> ListedArrivals:
    """List what a boundary watches, and take what is new. Returns only when the listing was complete.

    `since`: when the last complete listing began. With `time = "arrival"`, what was modified since then arrived then; of
    anything else that is new it is not known when it arrived, only that it is there now.
    """
    chooser = BoundaryFilter(boundary, boundary.watch)
    new, has_doubtful = 0, False
    pending = _iter_listed(chooser, locations, boundary, since=since, now=now)
    while page := list(islice(pending, PAGE_SIZE)):
        with tables.tables.transaction():
            for lot, is_doubtful, arrivals in _group(page):
                entered = tables.enter_arrivals(dataset.id, lot, arrivals, at=format_instant(now))
                new += entered
                has_doubtful = has_doubtful or (is_doubtful and entered > 0)
    return ListedArrivals(new, has_doubtful)


def _iter_listed(
    chooser: BoundaryFilter,
    locations: Locations,
    boundary: BoundaryDeclaration,
    *,
    since: datetime | None,
    now: datetime,
) -> Iterator[tuple[Lot, bool, Arrival]]:
    for found in locations.list(boundary.watch):
        if not chooser.keeps(found.uri):
            continue
        is_known_time = since is not None and since <= found.modified <= now
        arrived = found.modified if is_known_time else now
        try:
            lot = chooser.find_lot(found.uri, arrived=arrived, modified=found.modified)
        except InputError:
            continue  # a name without a time is of no lot; `check` and the docs say so
        arrival = Arrival(found.uri, found.size, None, format_instant(found.modified))
        yield lot, boundary.time == "arrival" and not is_known_time, arrival


def _group(page: list[tuple[Lot, bool, Arrival]]) -> Iterator[tuple[Lot, bool, list[Arrival]]]:
    groups: dict[tuple[Lot, bool], list[Arrival]] = {}
    for lot, is_doubtful, arrival in page:
        groups.setdefault((lot, is_doubtful), []).append(arrival)
    for (lot, is_doubtful), arrivals in groups.items():
        yield lot, is_doubtful, arrivals
