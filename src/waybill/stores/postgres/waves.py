"""Waves: groups of one commit that have nothing to do with each other, as the rows that commit_groups() takes.

    touched -> admits -> add -> args

Two groups of a call that touch the same key, request or parent are written one after the other, in two waves, as if
they came in two calls; all others go together.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from functools import lru_cache

from waybill.record import Change, Group, Record, Ref
from waybill.stores.postgres.wire import Rows, bigint, blob, boolean, double, head, integer, row, text, texts

Place = tuple[int, int]  # of a change: which group of the call, which change of the group
Touched = tuple[set[object], set[object]]
NOTHING: Touched = (set(), set())  # what a plain group touches besides its record
COLUMNS = 32  # of change_row
REMEMBERED = 4_000  # pieces kept of each sort


class Wave:
    """Groups that are sent together, as the rows that commit_groups() takes."""

    def __init__(self) -> None:
        self.groups: list[int] = []
        self.changes: list[bytes] = []
        self.creations: list[bytes] = []
        self.documents: list[bytes] = []
        self.keys: list[bytes] = []
        self.calls: list[bytes] = []
        self.places: dict[int, Place] = {}  # by n
        self.plain = True  # every group is; see functions.sql
        self._names: list[tuple[str, str]] = []  # of the records of plain changes, by which those are ordered
        self._alone: set[object] = set()  # what only one group of a wave may touch
        self._shared: set[object] = set()  # what several may touch, if none of them needs it alone

    def admits(self, touched: Touched) -> bool:
        """Make room for a group, unless it has to do with one that is here already; then it belongs to a later wave."""
        if touched is NOTHING:
            return True
        alone, shared = touched
        if not (self._alone.isdisjoint(alone) and self._alone.isdisjoint(shared) and self._shared.isdisjoint(alone)):
            return False
        self._alone |= alone
        self._shared |= shared
        return True

    def add(self, place: int, group: Group) -> None:
        """Raises where a value has no bytes, and leaves the wave as it was."""
        if (before := _plain(group)) is not None:
            self._add_plain(place, group.changes[0], before)
            return
        self.plain = False
        changes, creations = len(self.changes), len(self.creations)
        made: list[tuple[list[bytes], bytes]] = []
        places: dict[int, Place] = {}
        for i, change in enumerate(group.changes):
            if change.before is None:
                creations += 1
                n = -creations
            else:
                changes += 1
                n = changes
            places[n] = (place, i)
            made.append((self.creations if change.before is None else self.changes, _change_row(n, place, change)))
            made.extend((self.keys, key) for key in _key_rows(n, place, change))
            if change.after is not None:
                made.extend(
                    (self.documents, _document_row(min(n, 0), place, change, name, body))
                    for name, body in change.docs.items()
                )
        made.extend((self.calls, row(integer(place), text(ref.kind), text(ref.id))) for ref in group.nudges)
        for rows, one in made:
            rows.append(one)
        self.places.update(places)
        self.groups.append(place)

    def _add_plain(self, place: int, change: Change, before: Record) -> None:
        """The same for what most groups are, in fewer words."""
        n = len(self.changes) + 1
        one = _change_row(n, place, change)
        documents = (
            [_document_row(0, place, change, name, body) for name, body in change.docs.items()] if change.docs else ()
        )
        self.changes.append(one)
        self.documents.extend(documents)
        self.places[n] = (place, 0)
        self.groups.append(place)
        self._names.append((before.kind, before.id))

    def args(self, turns: Mapping[str, int]) -> list[Rows | bool]:
        noted = [row(text(kind), bigint(turn)) for kind, turn in turns.items()] if self.creations else []
        changes = (
            [one for _, one in sorted(zip(self._names, self.changes, strict=True))] if self.plain else self.changes
        )
        return [
            Rows("change_row", changes),
            Rows("change_row", self.creations),
            Rows("document_row", self.documents),
            Rows("key_row", self.keys),
            Rows("nudge_row", self.calls),
            Rows("turn_row", noted),
            self.plain,
        ]


def touched_by(groups: Sequence[Group]) -> list[Touched]:
    """What each group touches, for itself alone and together with others.

    (That no two change one record is seen to by vet.)
    """
    nudging = any(group.nudges for group in groups)
    closing = any(change.closes for group in groups for change in group.changes)
    touched = []
    for group in groups:
        if not (nudging or closing) and _plain(group) is not None:
            touched.append(NOTHING)
            continue
        alone: set[object] = set()
        shared: set[object] = set(group.nudges)
        for change in group.changes:
            before, after = change.before, change.after
            if before is None and after is not None and after.request is not None:
                alone.add(("request", after.kind, after.request))
            if before is not None and (before.keys or (after is not None and after.keys)):
                alone.update(("key", name) for name in (*before.keys, *(after.keys if after is not None else ())))
            if nudging:
                alone.add(change.ref)
            if closing:
                record = after if after is not None else before
                if record is not None and record.parent is not None:
                    shared.add(("children", record.parent))
                if change.closes:
                    alone.add(("children", change.ref))
        touched.append((alone, shared - alone))
    return touched


def _plain(group: Group) -> Record | None:
    """The record of a group that is one change of it and has to do with nothing else (see `plain` in functions.sql),
    or None.
    """
    if len(group.changes) != 1 or group.nudges:
        return None
    change = group.changes[0]
    before, after = change.before, change.after
    return (
        before
        if before is not None and after is not None and not (before.keys or after.keys or change.closes)
        else None
    )


def _operation(change: Change) -> str:
    if change.before is None:
        return "create"
    if change.after is None:
        return "remove"
    return "save" if change.saves else "go on" if change.goes_on else "write"


def _change_row(n: int, place: int, change: Change) -> bytes:
    """A row has 32 cells, of which few differ from one change of a worker to the next: the others are remembered in
    pieces.
    """
    before = change.before
    record = change.after if change.after is not None else before
    assert record is not None
    version, holder, was, nudges = (
        (before.version, before.session, before.state, before.nudges) if before is not None else NEW
    )
    state = record.state if change.after is not None else None
    return b"".join(
        (
            head(COLUMNS),
            integer(n),
            integer(place),
            _operation_cells(_operation(change), record.kind),
            text(record.id),
            bigint(version),
            _state_cells(holder, was, record.parent, state, record.owner, record.priority),
            bigint(record.turn),
            _try_cells(record.last_done, record.retries, record.tries),
            text(record.message),
            _hold_cells(record.session, record.keys, record.gates, record.parked, record.open, record.host),
            text(record.request),
            bigint(nudges),
            double(change.delay),
            _event_cells(change.closes, change.answers, change.event, change.who),
            text(change.why),
        )
    )


NEW = (None, None, None, 0)  # version, holder, state and nudges of what is not there yet


@lru_cache(REMEMBERED)
def _operation_cells(operation: str, kind: str) -> bytes:
    return text(operation) + text(kind)


@lru_cache(REMEMBERED)
def _state_cells(
    holder: str | None, was: str | None, parent: Ref | None, state: str | None, owner: str, priority: int
) -> bytes:
    kind, id = parent if parent is not None else (None, None)
    return b"".join((text(holder), text(was), text(kind), text(id), text(state), text(owner), integer(priority)))


@lru_cache(REMEMBERED)
def _try_cells(last_done: str | None, retries: int, tries: int) -> bytes:
    return text(last_done) + integer(retries) + integer(tries)


@lru_cache(REMEMBERED)
def _hold_cells(
    session: str | None, keys: tuple[str, ...], gates: tuple[str, ...], parked: str | None, open: bool, host: str
) -> bytes:
    return b"".join((text(session), texts(keys), texts(gates), text(parked), boolean(open), text(host)))


@lru_cache(REMEMBERED)
def _event_cells(closes: bool, answers: bool, event: str, who: str) -> bytes:
    return b"".join((boolean(closes), boolean(answers), text(event), text(who)))


def _document_row(n: int, place: int, change: Change, name: str, body: bytes | None) -> bytes:
    kind, id = change.ref
    return row(integer(n), integer(place), text(kind), text(id), text(name), blob(body))


def _key_rows(n: int, place: int, change: Change) -> Iterator[bytes]:
    """A record that is held takes all its keys; a key that it no longer has is dropped, if it held it; one that it
    keeps while it is free is perhaps not held, and then others who wait for it may try.
    """
    before, after = change.before, change.after
    if before is None or not (before.keys or (after is not None and after.keys)):
        return
    keeps = after.keys if after is not None else ()
    uses = [("drop", name) for name in before.keys if name not in keeps]
    if after is not None and after.session is not None:
        uses += [("take", name) for name in dict.fromkeys(keeps)]
    else:
        uses += [("pass", name) for name in before.keys if name in keeps]
    for use, name in uses:
        yield row(
            integer(n),
            integer(place),
            text(_operation(change)),
            text(use),
            text(before.kind),
            text(before.id),
            text(name),
        )
