"""What a store answers and is asked: queues, claims, sessions, pages, findings."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple

import msgspec

from waybill.record.refusals import StoreError
from waybill.record.thing import Record, Ref

MAX_PAGE = 1000  # records in a page


class Role(NamedTuple):
    """A queue that a worker serves. `holds`: hand out records that a mark stops (they move to a rest state) instead
    of parking them.
    """

    kind: str
    state: str
    holds: bool = False


class Ask(NamedTuple):
    """What a person asked of a record while a worker held it."""

    ref: Ref
    action: str
    who: str
    why: str
    args: bytes = b"{}"


class Committed(msgspec.Struct, frozen=True, gc=False):
    """A group was written. `records` answers the changes in order (None: removed)."""

    records: tuple[Record | None, ...]
    # parents of records that the group closed, which have no open child left, read after the commit
    idle: tuple[Ref, ...] = ()
    asked: tuple[Ask, ...] = ()  # asked of records that the group released, and not yet answered


class Claimed(msgspec.Struct, frozen=True, gc=False):
    """A record that is now ours, its `version` being the attempt. `mark`: a mark in force that its role says it must
    yield to.
    """

    record: Record
    mark: str | None = None
    ask: Ask | None = None
    # another service made it, or led it into its state: its marks and keys have not been reckoned
    unfitted: bool = False


class Renewed(NamedTuple):
    alive: bool  # False: the session is gone, and all its claims with it
    asked: tuple[Ask, ...] = ()


# about a server on a SQLite file: only other hosts see it, and it is not among those who work
SERVES: Mapping[str, Any] = {"serves": True}


class SessionInfo(msgspec.Struct, frozen=True):
    """A worker as the others see it."""

    name: str
    host: str
    since: float
    expires: float
    about: dict[str, Any] = {}  # version and digest of the tables it works by, its roles, its process
    progress: dict[str, Any] = {}  # "kind id" -> [done, total, unit, state]


class Line(NamedTuple):
    """One line of a record's history."""

    version: int
    at: float
    who: str
    event: str
    before: str | None
    after: str | None
    why: str = ""


class Page(NamedTuple):
    records: list[Record]
    after: int | None  # the seq to go on from; None: this was the last page


class HeldKey(NamedTuple):
    """A key that is held now.

    `holder` is None for another service's, whose name may be written as that service writes it.
    """

    name: str
    holder: Ref | None


class Idle(NamedTuple):
    """A portion of the records that wait for children, looked through."""

    refs: list[Ref]  # those of which no child is open
    after: str | None  # where to go on; None: this was the last portion


class Due(NamedTuple):
    woken: int
    next: float | None  # seconds until the next wait is due; None: none waits


class Finding(msgspec.Struct, frozen=True):
    """A consistency rule that does not hold, in words, and what would mend it."""

    rule: str
    where: str
    problem: str
    remedy: str
    mendable: bool = True
    ref: Ref | None = None


Answer = Committed | StoreError
