"""Waves: groups of one commit that have nothing to do with each other, as the rows that commit_groups() takes.

    touched -> admits -> add -> args

Two groups of a call that touch the same key, request or parent are written one after the other, in two waves, as if they came in two calls;
all others go together.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

from waybill.record import Change, Group
from waybill.stores.postgres.wire import Rows, bigint, blob, boolean, double, integer, row, text, texts

Place = tuple[int, int]  # of a change: which group of the call, which change of the group
Touched = tuple[set[object], set[object]]


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
        self._alone: set[object] = set()  # what only one group of a wave may touch
        self._shared: set[object] = set()  # what several may touch, if none of them needs it alone

    def admits(self, touched: Touched) -> bool:
        """Make room for a group, unless it has to do with one that is here already; then it belongs to a later wave."""
        alone, shared = touched
        if not (self._alone.isdisjoint(alone) and self._alone.isdisjoint(shared) and self._shared.isdisjoint(alone)):
            return False
        self._alone |= alone
        self._shared |= shared
        return True

    def add(self, place: int, group: Group) -> None:
        """Raises where a value has no bytes, and leaves the wave as it was."""
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
                made.extend((self.documents, _document_row(min(n, 0), place, change, name, body)) for name, body in change.docs.items())
        made.extend((self.calls, row(integer(place), text(ref.kind), text(ref.id))) for ref in group.nudges)
        for rows, one in made:
            rows.append(one)
        self.places.update(places)
        self.groups.append(place)

    def args(self, turns: Mapping[str, int]) -> list[Rows]:
        noted = [row(text(kind), bigint(turn)) for kind, turn in turns.items()] if self.creations else []
        return [
            Rows("change_row", self.changes),
            Rows("change_row", self.creations),
            Rows("document_row", self.documents),
            Rows("key_row", self.keys),
            Rows("nudge_row", self.calls),
            Rows("turn_row", noted),
        ]


def touched_by(groups: Sequence[Group]) -> list[Touched]:
    """What each group touches, for itself alone and together with others. (That no two change one record is seen to by vet.)"""
    nudging = any(group.nudges for group in groups)
    closing = any(change.closes for group in groups for change in group.changes)
    touched = []
    for group in groups:
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


def _operation(change: Change) -> str:
    if change.before is None:
        return "create"
    if change.after is None:
        return "remove"
    return "save" if change.saves else "go on" if change.goes_on else "write"


def _change_row(n: int, place: int, change: Change) -> bytes:
    before = change.before
    record = change.after if change.after is not None else before
    assert record is not None
    parent = record.parent
    return row(
        integer(n),
        integer(place),
        text(_operation(change)),
        text(record.kind),
        text(record.id),
        bigint(before.version if before is not None else None),
        text(before.session if before is not None else None),
        text(before.state if before is not None else None),
        text(parent.kind if parent is not None else None),
        text(parent.id if parent is not None else None),
        text(record.state if change.after is not None else None),
        text(record.owner),
        integer(record.priority),
        bigint(record.turn),
        text(record.last_done),
        integer(record.retries),
        integer(record.tries),
        text(record.message),
        text(record.session),
        texts(record.keys),
        texts(record.gates),
        text(record.parked),
        boolean(record.open),
        text(record.host),
        text(record.request),
        bigint(before.nudges if before is not None else 0),
        double(change.delay),
        boolean(change.closes),
        boolean(change.answers),
        text(change.event),
        text(change.who),
        text(change.why),
    )


def _document_row(n: int, place: int, change: Change, name: str, body: bytes | None) -> bytes:
    kind, id = change.ref
    return row(integer(n), integer(place), text(kind), text(id), text(name), blob(body))


def _key_rows(n: int, place: int, change: Change) -> Iterator[bytes]:
    """A record that is held takes all its keys; a key that it no longer has is dropped, if it held it; one that it keeps while it is free
    is perhaps not held, and then others who wait for it may try."""
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
        yield row(integer(n), integer(place), text(_operation(change)), text(use), text(before.kind), text(before.id), text(name))
