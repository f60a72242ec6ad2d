"""The rules that all stores share, in plain dicts: what a group of changes does, and who may be handed what.

`World` holds a `Shelf`, all that a store keeps, and a clock. Groups are applied whole or put back whole; keys are
taken, dropped and passed on; sessions end. The model store (model.py) is a connection to a world, and the reference
that every driver is compared with.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from typing import Any

import msgspec

from waybill.record import (
    Answer,
    Ask,
    Change,
    Claimed,
    ClaimLost,
    Committed,
    Conflict,
    Exists,
    Group,
    Line,
    Record,
    Ref,
    SessionInfo,
    StoreError,
    Taken,
)

replace = msgspec.structs.replace


class Shelf(msgspec.Struct):
    """All that a store keeps. Its values are never changed in place, so a copy of its dicts is a snapshot."""

    records: dict[Ref, Record] = {}  # in creation order
    lines: dict[Ref, tuple[Line, ...]] = {}
    keys: dict[str, Ref] = {}
    marks: dict[str, str] = {}
    sessions: dict[str, tuple[SessionInfo, float]] = {}  # with the ttl
    asks: dict[Ref, Ask] = {}
    kept: dict[str, str] = {}
    turns: dict[str, int] = {}  # the highest turn claimed of each kind
    seq: int = 0
    opened: int = 0  # sessions so far
    rung: int = 0  # how often something may have become claimable

    def copy(self) -> Shelf:
        fields: dict[str, Any] = {
            n: dict(v) if isinstance(v, dict) else v for n, v in msgspec.structs.asdict(self).items()
        }
        return Shelf(**fields)


class World:
    """A shelf and a clock. `world.shelf.copy()` is a snapshot; assigned to `world.shelf` it is put back."""

    def __init__(self, clock: Callable[[], float]) -> None:
        self.clock = clock
        self.shelf = Shelf()
        self.bell = threading.Condition()

    def ring(self) -> None:
        self.shelf.rung += 1
        with self.bell:
            self.bell.notify_all()

    # --- one group

    def apply(self, group: Group) -> Answer:
        """Write the group or put everything back."""
        known = [self._requested(change) for change in group.changes]
        if any(known):
            return Committed(tuple(known))
        saved = self.shelf.copy()
        now = self.clock()
        try:
            written = [self._write(change, now) for change in group.changes]
            for change in group.changes:
                if change.closes and self.has_open_child(change.ref):
                    raise Conflict(f"{change.ref} has a child that is open.")
            for ref in group.nudges:
                self._nudge(ref)
        except StoreError as refusal:
            self.shelf = saved
            return refusal
        self.ring()
        freed = [
            r.ref
            for c, r in zip(group.changes, written, strict=True)
            if r and not r.session and c.before and c.before.session
        ]
        return Committed(
            tuple(written), self._idle(group), tuple(self.shelf.asks[ref] for ref in freed if ref in self.shelf.asks)
        )

    def _requested(self, change: Change) -> Record | None:
        if change.before is not None or change.after is None or change.after.request is None:
            return None
        kind, request = change.after.kind, change.after.request
        return next((r for r in self.shelf.records.values() if r.kind == kind and r.request == request), None)

    def _idle(self, group: Group) -> tuple[Ref, ...]:
        closed = [
            c.before.parent for c in group.changes if c.before and c.before.open and not (c.after and c.after.open)
        ]
        return tuple(ref for ref in dict.fromkeys(closed) if ref in self.shelf.records and not self.has_open_child(ref))

    def _write(self, change: Change, now: float) -> Record | None:
        before, after = change.before, change.after
        if before is None:
            assert after is not None
            return self._create(change, after, now)
        current = self.shelf.records.get(before.ref)
        if current is None or (current.version, current.session) != (before.version, before.session):
            lost = before.session is not None and (current is None or current.session != before.session)
            raise (ClaimLost if lost else Conflict)(f"{before.ref} is no longer as it was at version {before.version}.")
        if change.answers:
            self.shelf.asks.pop(before.ref, None)
        if after is None:
            del self.shelf.records[before.ref]
            self.shelf.lines.pop(before.ref, None)
            self.shelf.asks.pop(before.ref, None)
            # so that no later life of this id comes to this version again
            self.shelf.seq = max(self.shelf.seq, before.version)
            self._drop(current, ())
            return None
        return self._update(change, current, after, now)

    def _create(self, change: Change, after: Record, now: float) -> Record:
        shelf = self.shelf
        shelf.seq += 1
        ref = Ref(after.kind, after.id if not after.id.endswith("*") else f"{after.id[:-1]}{shelf.seq:010d}")
        if ref in shelf.records:
            raise Exists(f"There is a {ref} already.")
        turn = after.turn
        if turn is None:
            last = [r.turn or 0 for r in shelf.records.values() if r.kind == ref.kind and r.parent == after.parent]
            turn = shelf.seq if after.parent is None else max(shelf.turns.get(ref.kind, 0), last[-1] + 1 if last else 0)
        parked = _parked(after)
        made = replace(
            after,
            id=ref.id,
            turn=turn,
            seq=shelf.seq,
            version=shelf.seq,
            parked=parked,
            wake_at=now + change.delay if parked == "wait" else 0.0,
            nudges=0,
            created=now,
            updated=now,
            docs=after.docs.with_changes(change.docs),
        )
        shelf.records[ref] = made
        self._note(change, made, None, now)
        return made

    def _update(self, change: Change, current: Record, after: Record, now: float) -> Record:
        ref, session, parked = current.ref, after.session, _parked(after)
        if session is not None:
            taken = next((key for key in after.keys if self.shelf.keys.get(key, ref) != ref), None)
            if change.goes_on and (taken or any(gate in self.shelf.marks for gate in after.gates)):
                session = None
            elif taken:
                raise Taken(f"{taken} is held by {self.shelf.keys[taken]}.", key=taken)
            else:
                self.shelf.keys.update(dict.fromkeys(after.keys, ref))
        if parked in ("wait", "children") and current.nudges != change_nudges(change):
            parked = None
        made = replace(
            after,
            session=session,
            turn=current.turn if after.turn is None else after.turn,
            seq=current.seq,
            version=current.version + 1,
            parked=parked,
            wake_at=now + change.delay if parked == "wait" else 0.0,
            nudges=current.nudges,
            created=current.created,
            updated=now,
            docs=current.docs.with_changes(change.docs),
        )
        self.shelf.records[ref] = made
        self._drop(current, after.keys)
        self._note(change, made, current.state, now)
        loaded = after.docs.with_changes(change.docs)
        return replace(made, docs=loaded, nudges=made.nudges if session is None else change_nudges(change))

    def _note(self, change: Change, made: Record, before: str | None, now: float) -> None:
        if change.event:
            line = Line(made.version, now, change.who, change.event, before, made.state, change.why)
            self.shelf.lines[made.ref] = (*self.shelf.lines.get(made.ref, ()), line)

    def _nudge(self, ref: Ref) -> None:
        record = self.shelf.records.get(ref)
        if record is not None:
            free = record.parked in ("wait", "children")
            self.shelf.records[ref] = replace(
                record,
                nudges=record.nudges + 1,
                parked=None if free else record.parked,
                wake_at=0.0 if free else record.wake_at,
            )

    # --- keys and claims

    def _drop(self, before: Record, kept: tuple[str, ...]) -> None:
        """Let go of the keys that it held and does not keep; those that it did not take are for the next one."""
        for key in before.keys:
            if self.shelf.keys.get(key) == before.ref and key not in kept:
                del self.shelf.keys[key]
        self.pass_turn(before.keys)

    def pass_turn(self, keys: Sequence[str]) -> int:
        """Unpark the first waiter of each of these keys that nobody holds."""
        unparked = 0
        for key in keys:
            waiters = [r for r in self.shelf.records.values() if r.parked == f"key {key}"]
            if waiters and key not in self.shelf.keys:
                first = min(waiters, key=urgency)
                self.shelf.records[first.ref] = replace(first, parked=None)
                unparked += 1
        return unparked

    def hand_out(self, ref: Ref, session: str, holds: bool) -> Claimed | str:
        """Claim it, or answer what it is to be parked on."""
        shelf = self.shelf
        record = shelf.records[ref]
        mark = next((gate for gate in record.gates if gate in shelf.marks), None)
        taken = next((key for key in record.keys if shelf.keys.get(key, ref) != ref), None)
        if mark is not None and not holds:
            return f"mark {mark}"
        if mark is None and taken is not None:
            return f"key {taken}"
        if mark is None:
            shelf.keys.update(dict.fromkeys(record.keys, ref))
        shelf.turns[ref.kind] = max(shelf.turns.get(ref.kind, 0), record.turn or 0)
        shelf.records[ref] = replace(record, session=session, version=record.version + 1, parked=None, wake_at=0.0)
        self.pass_turn(record.keys)
        return Claimed(shelf.records[ref], mark, shelf.asks.get(ref))

    def park(self, ref: Ref, reason: str) -> None:
        self.shelf.records[ref] = replace(self.shelf.records[ref], parked=reason)
        self.pass_turn(self.shelf.records[ref].keys)

    def unpark(self, reasons: Callable[[str], bool], limit: int) -> int:
        found = [r for r in self.shelf.records.values() if r.parked is not None and reasons(r.parked)][:limit]
        for record in found:
            self.shelf.records[record.ref] = replace(record, parked=None)
        return len(found)

    def end_session(self, name: str) -> None:
        self.shelf.sessions.pop(name, None)
        for record in list(self.shelf.records.values()):
            if record.session == name:
                self.shelf.records[record.ref] = replace(record, session=None, version=record.version + 1)
        self.ring()

    def has_open_child(self, ref: Ref) -> bool:
        return any(r.parent == ref and r.open for r in self.shelf.records.values())


def _parked(after: Record) -> str | None:
    """Only a claim parks on keys and marks; what a change says of them may be out of date."""
    return after.parked if after.parked in ("wait", "children") else None


def urgency(record: Record) -> tuple[int, int, int]:
    return (record.priority, record.turn or 0, record.seq)


def change_nudges(change: Change) -> int:
    assert change.before is not None
    return change.before.nudges
