"""The model store: what a store is, in plain dicts, for tests and the simulator. It keeps nothing when the process ends.

A `World` is the shared state with an injected clock; each `ModelStore` is one connection to it. Every call is atomic, nothing depends on
wall time, threads or the order of sets, so the same calls give the same answers: a simulator interleaves connections between calls, and
takes a snapshot of the world or puts one back.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

import msgspec

from waybill.record import (
    MAX_PAGE,
    NO_DOCS,
    Answer,
    Ask,
    Change,
    Claimed,
    ClaimLost,
    Committed,
    Conflict,
    Due,
    Exists,
    Finding,
    Group,
    Line,
    NotFound,
    Page,
    Record,
    Ref,
    Renewed,
    Role,
    SessionInfo,
    SessionLost,
    StoreError,
    Taken,
)
from waybill.stores.groups import vet
from waybill.stores.presence import Presence

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
        fields: dict[str, Any] = {n: dict(v) if isinstance(v, dict) else v for n, v in msgspec.structs.asdict(self).items()}
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
        freed = [r.ref for c, r in zip(group.changes, written, strict=True) if r and not r.session and c.before and c.before.session]
        return Committed(tuple(written), self._idle(group), tuple(self.shelf.asks[ref] for ref in freed if ref in self.shelf.asks))

    def _requested(self, change: Change) -> Record | None:
        if change.before is not None or change.after is None or change.after.request is None:
            return None
        kind, request = change.after.kind, change.after.request
        return next((r for r in self.shelf.records.values() if r.kind == kind and r.request == request), None)

    def _idle(self, group: Group) -> tuple[Ref, ...]:
        closed = [c.before.parent for c in group.changes if c.before and c.before.open and not (c.after and c.after.open)]
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
            self.shelf.seq = max(self.shelf.seq, before.version)  # so that no later life of this id comes to this version again
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
                first = min(waiters, key=_urgency)
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


def _urgency(record: Record) -> tuple[int, int, int]:
    return (record.priority, record.turn or 0, record.seq)


def change_nudges(change: Change) -> int:
    assert change.before is not None
    return change.before.nudges


class ModelStore:
    """One connection to a world."""

    def __init__(self, world: World) -> None:
        self.url = "model:"
        self.world = world
        self._presence = Presence(world.clock())
        self._heard = world.shelf.rung
        self._interrupted = False
        self._handed = 0

    @property
    def _shelf(self) -> Shelf:
        return self.world.shelf

    def now(self) -> float:
        now = self.world.clock()
        self._presence.touch(now)
        return now

    def commit(self, groups: Sequence[Group]) -> list[Answer]:
        self.now()
        return [refusal or self.world.apply(group) for group, refusal in zip(groups, vet(groups), strict=True)]

    # --- reading

    def get(self, kind: str, id: str) -> Record:
        try:
            return self._shelf.records[Ref(kind, id)]
        except KeyError:
            raise NotFound(f"There is no {kind} {id}.") from None

    def find(
        self,
        kind: str,
        *,
        state: str | None = None,
        parent: Ref | None = None,
        owner: str | None = None,
        after: int | None = None,
        newest: bool = False,
        limit: int = 100,
        docs: bool = False,
    ) -> Page:
        wanted = {name: value for name, value in (("state", state), ("parent", parent), ("owner", owner)) if value is not None}
        if len(wanted) > 1:
            raise ValueError(f"find by one of {', '.join(wanted)}, not by several")
        found = [r for r in self._shelf.records.values() if r.kind == kind and all(getattr(r, n) == v for n, v in wanted.items())]
        if newest:
            found.reverse()
        if after is not None:
            found = [r for r in found if (r.seq < after if newest else r.seq > after)]
        limit = min(limit, MAX_PAGE)
        page = [r if docs else replace(r, docs=NO_DOCS) for r in found[:limit]]
        return Page(page, page[-1].seq if len(found) > limit else None)

    def tally(self, kind: str, *, parent: Ref | None = None) -> dict[str, int]:
        counts: dict[str, int] = {}
        for record in self._shelf.records.values():
            if record.kind == kind and parent in (None, record.parent):
                counts[record.state] = counts.get(record.state, 0) + 1
        return counts

    def open_parents(self, refs: Sequence[Ref]) -> set[Ref]:
        return {ref for ref in refs if self.world.has_open_child(ref)}

    def history(self, kind: str, id: str) -> list[Line]:
        return list(self._shelf.lines.get(Ref(kind, id), ()))

    # --- sessions and claims

    def open_session(self, *, host: str, ttl: float, about: Mapping[str, Any]) -> str:
        now = self.now()
        self._shelf.opened += 1
        name = f"session-{self._shelf.opened}"
        self._shelf.sessions[name] = (SessionInfo(name, host, now, now + ttl, dict(about)), ttl)
        return name

    def renew(self, session: str, progress: Mapping[str, Any] | None = None) -> Renewed:
        now = self.now()
        if session not in self._shelf.sessions:
            return Renewed(False)
        info, ttl = self._shelf.sessions[session]
        info = replace(info, expires=now + ttl, progress=info.progress if progress is None else dict(progress))
        self._shelf.sessions[session] = (info, ttl)
        return Renewed(True, tuple(ask for ref, ask in self._shelf.asks.items() if self._shelf.records[ref].session == session))

    def close_session(self, session: str) -> None:
        self.now()
        self.world.end_session(session)

    def sessions(self) -> list[SessionInfo]:
        return [info for info, _ in self._shelf.sessions.values()]

    def claim(self, roles: Sequence[Role], session: str, limit: int) -> list[Claimed]:
        host = self._host(session)
        holds = {(role.kind, role.state): role.holds for role in roles}
        claimed: list[Claimed] = []
        while len(claimed) < limit:
            able = [r for r in self._shelf.records.values() if (r.kind, r.state) in holds and r.session is None and r.parked is None]
            able = [r for r in able if r.host in ("", host)]
            if not able:
                break
            by_age = self._handed % 10 == 9  # every tenth, so that no stream of urgent work shuts out the rest
            record = able[0] if by_age else min(able, key=_urgency)
            answer = self.world.hand_out(record.ref, session, holds[record.kind, record.state])
            if isinstance(answer, str):
                self.world.park(record.ref, answer)
            else:
                claimed.append(answer)
                self._handed += 1
        return claimed

    def take(self, kind: str, id: str, session: str) -> Claimed:
        host = self._host(session)
        record = self.get(kind, id)
        waits = record.wake_at - self.now() if record.parked == "wait" else 0.0
        if record.session is not None:
            raise Conflict(f"{kind} {id} is held by {record.session}.")
        if record.host not in ("", host):
            raise Conflict(f"{kind} {id} can only be worked on at {record.host}, where its files are.")
        if waits > 0 or record.parked == "children":
            raise Conflict(f"{kind} {id} waits for {f'another {waits:.0f} s' if waits > 0 else 'its children'}.")
        answer = self.world.hand_out(record.ref, session, False)
        if isinstance(answer, str):
            raise Conflict(f"{kind} {id} is stopped by {answer}.")
        return answer

    def _host(self, session: str) -> str:
        self.now()
        if session not in self._shelf.sessions:
            raise SessionLost()
        return self._shelf.sessions[session][0].host

    def ask(self, ask: Ask) -> bool:
        if self.get(*ask.ref).session is None:
            return False
        if ask.ref in self._shelf.asks:
            raise Conflict(f"{ask.ref} was asked to {self._shelf.asks[ask.ref].action} and has not answered yet.")
        self._shelf.asks[ask.ref] = ask
        return True

    def asks(self, limit: int = 100) -> list[Ask]:
        return [ask for ref, ask in self._shelf.asks.items() if self._shelf.records[ref].session is None][:limit]

    # --- marks, waits, upkeep

    def mark(self, name: str, on: bool, who: str = "", why: str = "") -> None:
        if on:
            self._shelf.marks[name] = f"{who}: {why}"
        elif self._shelf.marks.pop(name, None) is not None:
            self.world.unpark(lambda reason: reason == f"mark {name}", len(self._shelf.records))
            self.world.ring()

    def marks(self) -> dict[str, str]:
        return dict(sorted(self._shelf.marks.items()))

    def watch(self, timeout: float) -> bool:
        with self.world.bell:
            self.world.bell.wait_for(lambda: self._interrupted or self._heard != self._shelf.rung, timeout)
        heard, self._heard = self._heard != self._shelf.rung, self._shelf.rung
        self._interrupted = False
        return heard

    def interrupt(self) -> None:
        with self.world.bell:
            self._interrupted = True
            self.world.bell.notify_all()

    def wake(self, limit: int = MAX_PAGE) -> Due:
        now = self.now()
        waits = sorted((r for r in self._shelf.records.values() if r.parked == "wait"), key=lambda r: (r.wake_at, r.seq))
        due = [r for r in waits if r.wake_at <= now][:limit]
        for record in due:
            self._shelf.records[record.ref] = replace(record, parked=None, wake_at=0.0)
        if due:
            self.world.ring()
        return Due(len(due), max(0.0, waits[len(due)].wake_at - now) if len(waits) > len(due) else None)

    def reap(self) -> list[str]:
        now = self.now()
        dead = [n for n, (info, ttl) in self._shelf.sessions.items() if info.expires <= now and self._presence.since(ttl) + ttl <= now]
        for name in dead:
            self.world.end_session(name)
        return dead

    def sweep(self, limit: int = MAX_PAGE) -> int:
        waited = dict.fromkeys(r.parked[4:] for r in self._shelf.records.values() if r.parked and r.parked.startswith("key "))
        mended = self.world.pass_turn([key for key in waited if key not in self._shelf.keys][:limit])
        return mended + self.world.unpark(lambda reason: reason.startswith("mark ") and reason[5:] not in self._shelf.marks, limit)

    def idle_parents(self, limit: int = MAX_PAGE) -> list[Ref]:
        return [ref for ref, r in self._shelf.records.items() if r.parked == "children" and not self.world.has_open_child(ref)][:limit]

    def remember(self, name: str, value: str) -> str:
        return self._shelf.kept.setdefault(name, value)

    def check(self) -> Iterator[Finding]:
        for ref, record in self._shelf.records.items():
            if record.session is not None and record.session not in self._shelf.sessions:
                yield Finding("held by the living", str(ref), f"held by {record.session}, which has ended", "free it", ref=ref)
        for key, ref in self._shelf.keys.items():
            if ref not in self._shelf.records or key not in self._shelf.records[ref].keys:
                yield Finding("keys have holders", key, f"held by {ref}, which does not have it", "let go of it", ref=ref)

    def mend(self, finding: Finding) -> bool:
        if finding not in list(self.check()):
            return False
        record = self._shelf.records.get(finding.ref) if finding.ref else None
        if finding.rule == "keys have holders":
            del self._shelf.keys[finding.where]
        elif record is not None:
            self._shelf.records[record.ref] = replace(record, session=None, version=record.version + 1)
        return True

    def close(self) -> None:
        """Nothing to let go of."""
