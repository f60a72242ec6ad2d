"""commit: one transaction for all groups of a call.

    validate -> for each group: its changes, wakes, locks -> state counts of all groups -> commit -> idle parents

A group that cannot be written is rolled back alone. Most groups are one change whose only possible refusal is that its
UPDATE finds no row: those need no savepoint. If an unexpected error stops such a group half way, the whole call is
rolled back and repeated with a savepoint around every group, and the error becomes the answer of that group alone.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence

import apsw
import msgspec

from waybill.record import (
    ActionRequest,
    Change,
    CommitAnswer,
    CommitGroup,
    CommitResult,
    Conflict,
    LockUnavailable,
    ParentClosed,
    Record,
    RecordBusy,
    RecordExists,
    Ref,
    StoreError,
    lock_names_of,
)
from waybill.stores.group_validation import validate_groups
from waybill.stores.sqlite import locks
from waybill.stores.sqlite.database import Execute, SqliteDatabase
from waybill.stores.sqlite.queries import conflict_of, load_documents
from waybill.stores.sqlite.rows import SQL, blocked_by_of, create_row_of, record_of, update_row_of

UPDATE_CLAIMED, UPDATE_RELEASED = SQL["update_claimed"], SQL["update_released"]
GET_WAKE_COUNT, APPEND_HISTORY = SQL["get_wake_count"], SQL["append_history"]
UNSTORABLE_ERRORS = (
    apsw.ConstraintError,
    apsw.MismatchError,
    apsw.TooBigError,
    UnicodeError,
    OverflowError,
    TypeError,
    ValueError,
)
CountKey = tuple[str, str, str, str]  # of a row of state_count: kind, the parent's kind and id, state
# Where a record is counted: its parent, its scope and owner, and its state. None: it is not there (before it is made, after it is gone)
CountedPlace = tuple[Ref | None, str, str, str] | None
# kind, place before and after: hundreds of changes in one call are the same few moves
StateMove = tuple[str, CountedPlace, CountedPlace]
replace = msgspec.structs.replace


def commit(database: SqliteDatabase, groups: Sequence[CommitGroup], now: float) -> list[CommitAnswer]:
    refusals = validate_groups(groups)
    if all(refusals):
        return [refusal for refusal in refusals if refusal is not None]
    try:
        call = _write(database, groups, refusals, now, use_savepoints=False)
    except UNSTORABLE_ERRORS:
        call = _write(database, groups, refusals, now, use_savepoints=True)
    with database.translate_errors():
        call.add_idle_parents(database.execute)
    return call.answers


def _write(
    database: SqliteDatabase,
    groups: Sequence[CommitGroup],
    refusals: Sequence[StoreError | None],
    now: float,
    *,
    use_savepoints: bool,
) -> SqliteCommitCall:
    with database.write() as execute:
        call = SqliteCommitCall(database, execute, now, use_savepoints)
        for group, refusal in zip(groups, refusals, strict=True):
            call.answers.append(refusal or call.write_group(group))
        call.finish()
    return call


class SqliteCommitCall:
    """One call of commit, within its transaction."""

    def __init__(self, database: SqliteDatabase, execute: Execute, now: float, use_savepoints: bool) -> None:
        self.execute = execute
        self.count_changed_rows = database.db.changes
        self.now = now
        self.use_savepoints = use_savepoints
        self.answers: list[CommitAnswer] = []
        self.moves: Counter[StateMove] = Counter()
        # by index of the answer: the parents of records that the group closed
        self.closed_parents: list[tuple[int, list[Ref]]] = []
        self.has_action_requests = bool(execute(SQL["has_action_requests"]).fetchall())
        self.holds = {name for name, _, _ in execute(SQL["list_holds"])}
        self._group_moves: list[StateMove] = []
        self._group_parents: list[Ref] = []
        self._group_requests: list[ActionRequest] = []
        self._queue_positions: dict[tuple[str, Ref | None], int] = {}
        self._seqs: Iterator[int] = iter(())

    def write_group(self, group: CommitGroup) -> CommitAnswer:
        self._group_moves, self._group_parents, self._group_requests = [], [], []
        changes = group.changes
        if (
            len(changes) == 1
            and not group.wake
            and not group.requests
            and not self.use_savepoints
            and (pair := _plain_pair_of(changes[0])) is not None
        ):
            try:
                records: list[Record | None] = [self._update(changes[0], *pair)]
            except StoreError as refusal:
                return refusal
        else:
            known = [self._find_by_idempotency_key(change) for change in changes]
            if any(known):
                return CommitResult(tuple(known))
            self._queue_positions = {}
            self.execute("savepoint commit_group")
            self._seqs = self._allocate_seqs(sum(change.before is None for change in changes))
            try:
                records = [self._write_change(change) for change in changes]
                self._finish_group(group)
                if self.use_savepoints:
                    self._write_counts_now()
            except StoreError as refusal:
                self._undo()
                return refusal
            except UNSTORABLE_ERRORS as error:
                if not self.use_savepoints:
                    raise
                self._undo()
                return StoreError(f"This cannot be stored: {error}.")
            self.execute("release commit_group")
        for move in self._group_moves:
            self.moves[move] += 1
        if self._group_parents:
            self.closed_parents.append((len(self.answers), self._group_parents))
        return CommitResult(tuple(records), (), tuple(self._group_requests))

    def _undo(self) -> None:
        self.execute("rollback to commit_group")
        self.execute("release commit_group")

    def _write_counts_now(self) -> None:
        """Write the counts inside the group: then a count below zero is an error of this group, and not of the call."""
        write_counts(self.execute, Counter(self._group_moves))
        self._group_moves = []

    def finish(self) -> None:
        """Write what is written once for the whole call."""
        write_counts(self.execute, self.moves)
        self.execute(SQL["note_write_time"], (self.now,))

    def add_idle_parents(self, execute: Execute) -> None:
        """Add to the answers which parents have no open child left. Read after the commit: when two commits close the
        last two children, the later one sees both closed.
        """
        for index, parents in self.closed_parents:
            idle = tuple(ref for ref in dict.fromkeys(parents) if execute(SQL["is_idle_parent"], ref).fetchall())
            answer = self.answers[index]
            if idle and isinstance(answer, CommitResult):
                self.answers[index] = replace(answer, idle_parents=idle)

    # --- one change

    def _find_by_idempotency_key(self, change: Change) -> Record | None:
        after = change.after
        if change.before is not None or after is None or after.idempotency_key is None:
            return None
        rows = self.execute(SQL["get_by_idempotency_key"], (after.kind, after.idempotency_key)).fetchall()
        if not rows:
            return None
        return load_documents(self.execute, [record_of(rows[0])])[0]

    def _write_change(self, change: Change) -> Record | None:
        if change.before is None:
            assert change.after is not None
            return self._create(change, change.after)
        if change.after is None:
            self._remove(change.before)
            return None
        return self._update(change, change.before, change.after)

    def _finish_group(self, group: CommitGroup) -> None:
        """Check and write what depends on all changes of the group."""
        for change in group.changes:
            if change.requires_children_settled and self.execute(SQL["has_open_child"], change.ref).fetchall():
                raise Conflict(f"{change.ref} has a child that is still open. Close the child first, then try again.")
            if change.requires_open_parent and change.after is not None and change.after.parent is not None:
                self._require_open(change.after.parent)
        for (kind, parent), position in self._queue_positions.items():
            if parent is None:
                self.execute(SQL["write_parentless_position"], (kind, position))
        for request in group.requests:
            self._add_request(request)
        for ref in group.wake:
            self.execute(SQL["wake_record"], ref)

    def _require_open(self, parent: Ref) -> None:
        rows = self.execute(SQL["get_state_and_open"], parent).fetchall()
        if not rows or not rows[0][1]:
            raise ParentClosed(f"{parent} is {rows[0][0] if rows else 'gone'}, and takes no more children.")

    def _add_request(self, request: ActionRequest) -> None:
        """The session of the record cannot end before this transaction does: there is one writer."""
        rows = self.execute(SQL["get_claimed_seq"], request.ref).fetchall()
        if not rows:
            raise Conflict(f"{request.ref} is gone or no longer claimed. Read it again, then decide again.")
        ((seq,),) = rows
        self.execute(SQL["add_action_request"], (seq, *request[1:]))
        if self.count_changed_rows() != 1:
            ((action, *rest),) = self.execute(SQL["get_action_request"], (seq,)).fetchall()
            if not ActionRequest(request.ref, action, *rest).is_repeated_by(request):
                raise RecordBusy(f"{action} was requested of {request.ref} and is not answered yet.")
        self.has_action_requests = True  # a later group of this call may release the record

    def _create(self, change: Change, after: Record) -> Record:
        execute, now = self.execute, self.now
        blocked_by = blocked_by_of(after)
        wake_at = now + change.delay if blocked_by == "wait" else 0.0
        while True:
            seq = next(self._seqs, None) or next(self._allocate_seqs(1))
            is_minted = after.id.endswith("*")
            id = f"{after.id[:-1]}{seq:010d}" if is_minted else after.id
            position = self._queue_position_of(after, seq)
            execute(SQL["create_record"], create_row_of(after, seq, id, position, blocked_by, wake_at, now))
            if self.count_changed_rows() == 1:
                break
            if not is_minted:
                raise RecordExists(f"There is a {after.kind} {after.id} already.")
        self._group_moves.append((after.kind, None, _place_of(after)))
        if after.locks:
            locks.note_limits(execute, (), after.locks, now)
        self._write_documents(seq, change)
        if change.cause:
            execute(APPEND_HISTORY, (seq, seq, now, change.who, change.cause, None, after.state, change.why))
        return replace(
            after,
            id=id,
            queue_position=position,
            seq=seq,
            version=seq,
            blocked_by=blocked_by,
            wake_at=wake_at,
            wake_count=0,
            created=now,
            updated=now,
            documents=after.documents.with_changes(change.documents),
        )

    def _allocate_seqs(self, n: int) -> Iterator[int]:
        """The next `n` creation numbers, taken from the counter at once."""
        if n == 0:
            return iter(())
        ((last,),) = self.execute(SQL["advance_counter"], (n, 0)).fetchall()
        return iter(range(last - n + 1, last + 1))

    def _queue_position_of(self, after: Record, seq: int) -> int:
        """The queue position of a new record. The children of a parent are one family, the records of a kind that have
        no parent another: families take turns, each starting from the highest position that was claimed.
        """
        if after.queue_position is not None:
            return after.queue_position
        kind, parent = family = (after.kind, after.parent)
        if family in self._queue_positions:
            position = self._queue_positions[family] + 1
        else:
            positions = self.execute(SQL["get_queue_positions"], (kind,)).fetchall()
            highest, last = positions[0] if positions else (0, 0)
            if parent is not None:
                children = self.execute(SQL["get_last_child_position"], (kind, *parent)).fetchall()
                last = children[0][0] if children else -1
            position = max(highest, last + 1)
        self._queue_positions[family] = position
        return position

    def _remove(self, before: Record) -> None:
        self.execute(SQL["remove_record"], (before.seq, before.version, before.session, before.state))
        if self.count_changed_rows() != 1:
            raise conflict_of(self.execute, before)
        self.execute(SQL["advance_counter"], (0, before.version)).fetchall()
        locks.unblock_next_waiters(self.execute, lock_names_of(before.locks))
        self._group_moves.append((before.kind, _place_of(before), None))
        if before.open and before.parent is not None:
            self._group_parents.append(before.parent)

    def _update(self, change: Change, before: Record, after: Record) -> Record:
        execute, now, session = self.execute, self.now, after.session
        position = before.queue_position if after.queue_position is None else after.queue_position
        unavailable = (
            locks.find_unavailable_lock(execute, after.locks, before.seq, after.priority)
            if session is not None and after.locks
            else None
        )
        if (
            session is not None
            and change.cause
            and (unavailable or (after.hold_names and not self.holds.isdisjoint(after.hold_names)))
        ):
            session = None  # it continues without the claim
        wake_count, blocked_by, wake_at = before.wake_count, None, 0.0
        if session is not None:
            execute(UPDATE_CLAIMED, update_row_of(before, after, position, now))
            if self.count_changed_rows() != 1:
                raise conflict_of(self.execute, before)
            if unavailable:
                raise LockUnavailable(locks.explain_unavailable_lock(execute, unavailable), lock=unavailable)
            if after.locks:
                locks.take_locks(execute, after.locks, before.seq)
        else:
            blocked_by = blocked_by_of(after)
            for (wake_count,) in execute(GET_WAKE_COUNT, (before.seq,)):
                if wake_count != before.wake_count:
                    blocked_by = None  # it was woken since it was read, and a wait would lose that wake
            wake_at = now + change.delay if blocked_by == "wait" else 0.0
            execute(UPDATE_RELEASED, (*update_row_of(before, after, position, now), blocked_by, wake_at))
            if self.count_changed_rows() != 1:
                raise conflict_of(self.execute, before)
        if before.locks:
            locks.drop_locks(execute, before, after.locks)
        if after.locks:
            locks.note_limits(execute, before.locks, after.locks, now)
        version = before.version + 1
        if change.cause:
            execute(
                APPEND_HISTORY,
                (before.seq, version, now, change.who, change.cause, before.state, after.state, change.why),
            )
        if change.documents:
            self._write_documents(before.seq, change)
        if change.answers_request:
            execute(SQL["remove_action_request"], (before.seq,))
        elif self.has_action_requests and session is None and before.session is not None:
            self._group_requests += [
                ActionRequest(before.ref, *row) for row in execute(SQL["get_action_request"], (before.seq,))
            ]
        if before.state != after.state or before.owner != after.owner or before.scope != after.scope:
            self._group_moves.append((before.kind, _place_of(before), _place_of(after)))
        if before.open and not after.open and before.parent is not None:
            self._group_parents.append(before.parent)
        return replace(
            after,
            session=session,
            queue_position=position,
            seq=before.seq,
            version=version,
            blocked_by=blocked_by,
            wake_at=wake_at,
            wake_count=wake_count,
            created=before.created,
            updated=now,
            documents=after.documents.with_changes(change.documents) if change.documents else after.documents,
        )

    def _write_documents(self, seq: int, change: Change) -> None:
        for name, body in change.documents.items():
            if body is None:
                self.execute(SQL["remove_document"], (seq, name))
            else:
                self.execute(SQL["write_document"], (seq, name, body))


def _place_of(record: Record) -> CountedPlace:
    return record.parent, record.scope, record.owner, record.state


def _plain_pair_of(change: Change) -> tuple[Record, Record] | None:
    """Both sides of a change that a single UPDATE accepts or refuses, with nothing written before it; otherwise None."""
    before, after = change.before, change.after
    if before is None or after is None or before.locks or after.locks or change.requires_children_settled:
        return None
    return before, after


def write_counts(execute: Execute, moves: Counter[StateMove]) -> None:
    """Subtract each move from the place before and add it to the place after: for its kind, its parent, and its scope and
    owner.
    """
    counts: Counter[CountKey] = Counter()
    for (kind, before, after), n in moves.items():
        for place, change in ((before, -n), (after, n)):
            if place is not None:
                parent, scope, owner, state = place
                counts[kind, "", "", state] += change
                if parent is not None:
                    counts[kind, *parent, state] += change
                if scope or owner:
                    counts[kind, f"@{scope}", owner, state] += change
    for count_key, n in counts.items():
        if n > 0:
            execute(SQL["add_count"], (*count_key, n))
        elif n < 0:
            execute(SQL["subtract_count"], (*count_key, n))
            execute(SQL["remove_empty_count"], count_key)
