"""The rules that all stores share, in plain dicts: what a commit group does, and which records may be claimed.

A `ModelDatabase` has a clock and its contents, a `StoreSnapshot` of all that a store keeps. Groups are applied whole or
not at all; locks are taken, dropped and offered to the next waiters; sessions end. The model store (model.py) is a
connection to such a database, and the reference that every driver is compared with.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from typing import Any

import msgspec

from waybill.record import (
    COUNTED,
    EXCLUSIVE,
    ActionRequest,
    Change,
    ClaimedRecord,
    ClaimLost,
    CommitAnswer,
    CommitGroup,
    CommitResult,
    Conflict,
    HistoryEntry,
    LockRequest,
    LockSort,
    LockUnavailable,
    ParentClosed,
    Record,
    RecordBusy,
    RecordExists,
    Ref,
    SessionInfo,
    StoreError,
    count_next_waiters,
    find_lock_request,
    is_lock_available,
    lock_names_of,
    parse_lock,
)

replace = msgspec.structs.replace


class StoreSnapshot(msgspec.Struct):
    """All that a store keeps. The values are never changed in place, so a copy of the dicts is a snapshot."""

    records: dict[Ref, Record] = {}  # in creation order
    history: dict[Ref, tuple[HistoryEntry, ...]] = {}
    locks: dict[str, dict[Ref, LockSort]] = {}  # the owners of each lock, by name; the values are replaced, too
    lock_limits: dict[str, int] = {}  # of counted locks
    holds: dict[str, str] = {}
    sessions: dict[str, tuple[SessionInfo, float]] = {}  # with the ttl
    action_requests: dict[Ref, ActionRequest] = {}
    remembered_values: dict[str, str] = {}
    queue_positions: dict[str, int] = {}  # the highest position claimed, of each kind
    seq: int = 0
    session_count: int = 0  # sessions opened so far
    change_count: int = 0  # how often something may have become claimable

    def copy(self) -> StoreSnapshot:
        fields: dict[str, Any] = {
            n: dict(v) if isinstance(v, dict) else v for n, v in msgspec.structs.asdict(self).items()
        }
        return StoreSnapshot(**fields)


class ModelDatabase:
    """A clock and the contents. `contents.copy()` is a snapshot; assigned to `contents` it is restored."""

    def __init__(self, clock: Callable[[], float]) -> None:
        self.clock = clock
        self.contents = StoreSnapshot()
        self.change_condition = threading.Condition()

    def notify_watchers(self) -> None:
        self.contents.change_count += 1
        with self.change_condition:
            self.change_condition.notify_all()

    # --- one group

    def apply(self, group: CommitGroup) -> CommitAnswer:
        """Write the group, or restore the contents and return the refusal."""
        known = [self._find_by_idempotency_key(change) for change in group.changes]
        if any(known):
            return CommitResult(tuple(known))
        saved = self.contents.copy()
        now = self.clock()
        try:
            written = [self._write(change, now) for change in group.changes]
            for change in group.changes:
                if change.requires_children_settled and self.has_open_child(change.ref):
                    raise Conflict(f"{change.ref} has a child that is open.")
                if change.requires_open_parent and change.after is not None:
                    self._require_open_parent(change.after)
            for request in group.requests:
                self.add_request(request)
            for ref in group.wake:
                self._wake(ref)
        except StoreError as refusal:
            self.contents = saved
            return refusal
        self.notify_watchers()
        released = [
            r.ref
            for c, r in zip(group.changes, written, strict=True)
            if r and not r.session and c.before and c.before.session
        ]
        return CommitResult(
            tuple(written),
            self._find_idle_parents(group),
            tuple(self.contents.action_requests[ref] for ref in released if ref in self.contents.action_requests),
        )

    def _find_by_idempotency_key(self, change: Change) -> Record | None:
        if change.before is not None or change.after is None or change.after.idempotency_key is None:
            return None
        kind, key = change.after.kind, change.after.idempotency_key
        return next((r for r in self.contents.records.values() if r.kind == kind and r.idempotency_key == key), None)

    def _find_idle_parents(self, group: CommitGroup) -> tuple[Ref, ...]:
        closed = [
            c.before.parent for c in group.changes if c.before and c.before.open and not (c.after and c.after.open)
        ]
        return tuple(
            ref for ref in dict.fromkeys(closed) if ref in self.contents.records and not self.has_open_child(ref)
        )

    def _write(self, change: Change, now: float) -> Record | None:
        before, after = change.before, change.after
        if before is None:
            assert after is not None
            return self._create(change, after, now)
        current = self.contents.records.get(before.ref)
        if current is None or (current.version, current.session) != (before.version, before.session):
            lost = before.session is not None and (current is None or current.session != before.session)
            raise (ClaimLost if lost else Conflict)(f"{before.ref} is no longer as it was at version {before.version}.")
        if change.answers_request:
            self.contents.action_requests.pop(before.ref, None)
        if after is None:
            del self.contents.records[before.ref]
            self.contents.history.pop(before.ref, None)
            self.contents.action_requests.pop(before.ref, None)
            # so that a later record with this id never reaches this version again
            self.contents.seq = max(self.contents.seq, before.version)
            self._drop_locks(current, ())
            return None
        return self._update(change, current, after, now)

    def _create(self, change: Change, after: Record, now: float) -> Record:
        contents = self.contents
        contents.seq += 1
        ref = Ref(after.kind, after.id if not after.id.endswith("*") else f"{after.id[:-1]}{contents.seq:010d}")
        if ref in contents.records:
            raise RecordExists(f"There is a {ref} already.")
        position = after.queue_position
        if position is None:
            last = [
                r.queue_position or 0
                for r in contents.records.values()
                if r.kind == ref.kind and r.parent == after.parent
            ]
            position = max(contents.queue_positions.get(ref.kind, 0), last[-1] + 1 if last else 0)
        blocked_by = _blocked_by_of(after)
        created = replace(
            after,
            id=ref.id,
            queue_position=position,
            seq=contents.seq,
            version=contents.seq,
            blocked_by=blocked_by,
            wake_at=now + change.delay if blocked_by == "wait" else 0.0,
            wake_count=0,
            created=now,
            updated=now,
            documents=after.documents.with_changes(change.documents),
        )
        contents.records[ref] = created
        self._note_limits((), created.locks)
        self._append_history(change, created, None, now)
        return created

    def _update(self, change: Change, current: Record, after: Record, now: float) -> Record:
        ref, session, blocked_by = current.ref, after.session, _blocked_by_of(after)
        if session is not None:
            unavailable = self._find_unavailable_lock(replace(current, locks=after.locks, priority=after.priority))
            is_on_hold = any(name in self.contents.holds for name in after.hold_names)
            if change.is_continuation and (unavailable or is_on_hold):
                session = None
            elif unavailable:
                raise LockUnavailable(self.explain_unavailable_lock(unavailable), lock=unavailable)
            else:
                self._take_locks(after.locks, ref)
        if blocked_by in ("wait", "children") and current.wake_count != wake_count_of(change):
            blocked_by = None
        updated = replace(
            after,
            session=session,
            queue_position=current.queue_position if after.queue_position is None else after.queue_position,
            seq=current.seq,
            version=current.version + 1,
            blocked_by=blocked_by,
            wake_at=now + change.delay if blocked_by == "wait" else 0.0,
            wake_count=current.wake_count,
            created=current.created,
            updated=now,
            documents=current.documents.with_changes(change.documents),
        )
        self.contents.records[ref] = updated
        self._drop_locks(current, after.locks)
        self._note_limits(current.locks, after.locks)
        self._append_history(change, updated, current.state, now)
        loaded = after.documents.with_changes(change.documents)
        return replace(
            updated, documents=loaded, wake_count=updated.wake_count if session is None else wake_count_of(change)
        )

    def _require_open_parent(self, child: Record) -> None:
        parent = self.contents.records.get(child.parent) if child.parent is not None else None
        if parent is None or not parent.open:
            raise ParentClosed(
                f"{child.parent} is {parent.state if parent is not None else 'gone'}, and takes no more children."
            )

    def add_request(self, request: ActionRequest) -> None:
        """Leave it for the worker that has claimed the record, unless the same was requested before."""
        record = self.contents.records.get(request.ref)
        if record is None or record.session is None:
            raise Conflict(f"{request.ref} is {'gone' if record is None else 'no longer claimed'}.")
        pending = self.contents.action_requests.setdefault(request.ref, request)
        if not pending.is_repeated_by(request):
            raise RecordBusy(f"{pending.action} was requested of {request.ref} and is not answered yet.")

    def _append_history(self, change: Change, record: Record, before: str | None, now: float) -> None:
        if change.cause:
            entry = HistoryEntry(record.version, now, change.who, change.cause, before, record.state, change.why)
            self.contents.history[record.ref] = (*self.contents.history.get(record.ref, ()), entry)

    def _wake(self, ref: Ref) -> None:
        record = self.contents.records.get(ref)
        if record is not None:
            unblocks = record.blocked_by in ("wait", "children")
            self.contents.records[ref] = replace(
                record,
                wake_count=record.wake_count + 1,
                blocked_by=None if unblocks else record.blocked_by,
                wake_at=0.0 if unblocks else record.wake_at,
            )

    # --- locks and claims

    def _find_unavailable_lock(self, record: Record) -> str | None:
        """Return the name of the first lock that the record asks for and cannot own now."""
        for request in map(parse_lock, record.locks):
            owners = self.contents.locks.get(request.name, {})
            if owners.get(record.ref) == request.sort:
                continue
            others = [sort for ref, sort in owners.items() if ref != record.ref]
            limit = self.contents.lock_limits.get(request.name, request.limit)
            if not is_lock_available(request.sort, limit, others[0] if others else None, len(others)):
                return request.name
            if request.sort != EXCLUSIVE and self._must_yield(request, record):
                return request.name
        return None

    def _must_yield(self, request: LockRequest, record: Record) -> bool:
        """Whether the first waiter asks for another sort and stands before the record: it would wait as long as others keep
        sharing the lock.
        """
        waiters = self._list_waiters(request.name)[:1]
        return any(
            request_of_waiter(waiter, request.name).sort != request.sort and turn_of(waiter) < turn_of(record)
            for waiter in waiters
        )

    def _list_waiters(self, name: str) -> list[Record]:
        return sorted((r for r in self.contents.records.values() if r.blocked_by == f"lock {name}"), key=turn_of)

    def explain_unavailable_lock(self, name: str) -> str:
        owners = ", ".join(map(str, self.contents.locks.get(name, ())))
        return f"{name} is owned by {owners}." if owners else f"Another record waits for {name} before this one."

    def _take_locks(self, locks: Sequence[str], ref: Ref) -> None:
        for request in map(parse_lock, locks):
            self.contents.locks[request.name] = {**self.contents.locks.get(request.name, {}), ref: request.sort}

    def _drop_locks(self, before: Record, keep: tuple[str, ...]) -> None:
        """Drop the locks that the record does not keep in their sort; a lock that it did not take goes to the next waiter."""
        kept = {request.name: request.sort for request in map(parse_lock, keep)}
        names = lock_names_of(before.locks)
        for name in names:
            owners = self.contents.locks.get(name, {})
            if before.ref in owners and owners[before.ref] != kept.get(name):
                others = {ref: sort for ref, sort in owners.items() if ref != before.ref}
                self.contents.locks.pop(name)
                if others:
                    self.contents.locks[name] = others
        self.unblock_next_waiters(names)

    def _note_limits(self, before: Sequence[str], after: Sequence[str]) -> None:
        """The limit of a counted lock is what the latest commit says that asks for it, also for those who wait."""
        for request in (parse_lock(text) for text in after if text not in before):
            if request.sort == COUNTED and self.contents.lock_limits.get(request.name) != request.limit:
                self.contents.lock_limits[request.name] = request.limit
                self.unblock_next_waiters([request.name])

    def unblock_next_waiters(self, names: Sequence[str]) -> int:
        """Unblock the first waiters of each of these locks who can own it now. Returns how many."""
        unblocked = 0
        for name in names:
            waiters, owners = self._list_waiters(name), self.contents.locks.get(name, {})
            count = count_next_waiters(
                [request_of_waiter(waiter, name) for waiter in waiters],
                self.contents.lock_limits.get(name),
                next(iter(owners.values()), None),
                len(owners),
            )
            for waiter in waiters[:count]:
                self.contents.records[waiter.ref] = replace(waiter, blocked_by=None)
            unblocked += count
        return unblocked

    def try_claim(self, ref: Ref, session: str, claims_on_hold: bool) -> ClaimedRecord | str:
        """Claim the record, or return what it is blocked by."""
        contents = self.contents
        record = contents.records[ref]
        hold = next((name for name in record.hold_names if name in contents.holds), None)
        unavailable = self._find_unavailable_lock(record)
        if hold is not None and not claims_on_hold:
            return f"hold {hold}"
        if hold is None and unavailable is not None:
            return f"lock {unavailable}"
        if hold is None:
            self._take_locks(record.locks, ref)
        contents.queue_positions[ref.kind] = max(contents.queue_positions.get(ref.kind, 0), record.queue_position or 0)
        contents.records[ref] = replace(
            record, session=session, version=record.version + 1, blocked_by=None, wake_at=0.0
        )
        self.unblock_next_waiters(lock_names_of(record.locks))
        return ClaimedRecord(contents.records[ref], hold, contents.action_requests.get(ref))

    def block(self, ref: Ref, blocked_by: str) -> None:
        self.contents.records[ref] = replace(self.contents.records[ref], blocked_by=blocked_by)
        self.unblock_next_waiters(lock_names_of(self.contents.records[ref].locks))

    def unblock(self, matches: Callable[[str], bool], limit: int) -> int:
        blocked = [r for r in self.contents.records.values() if r.blocked_by is not None and matches(r.blocked_by)]
        for record in blocked[:limit]:
            self.contents.records[record.ref] = replace(record, blocked_by=None)
        return len(blocked[:limit])

    def end_session(self, name: str) -> None:
        self.contents.sessions.pop(name, None)
        for record in list(self.contents.records.values()):
            if record.session == name:
                self.contents.records[record.ref] = replace(record, session=None, version=record.version + 1)
        self.notify_watchers()

    def has_open_child(self, ref: Ref) -> bool:
        return any(r.parent == ref and r.open for r in self.contents.records.values())


def _blocked_by_of(after: Record) -> str | None:
    """What a change may be blocked by. Only a claim blocks on locks and holds: in a change they may be out of date."""
    return after.blocked_by if after.blocked_by in ("wait", "children") else None


def turn_of(waiter: Record) -> tuple[int, int]:
    """The order of those who wait for a lock: by priority, and then first come, first served."""
    return (waiter.priority, waiter.seq)


def request_of_waiter(waiter: Record, name: str) -> LockRequest:
    """How a waiter asks for the lock that it waits for."""
    return find_lock_request(waiter.locks, name) or LockRequest(name)


def wake_count_of(change: Change) -> int:
    assert change.before is not None
    return change.before.wake_count
