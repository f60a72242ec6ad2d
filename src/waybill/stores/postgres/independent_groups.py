"""Groups of one commit that do not depend on each other, as the rows that commit_groups() takes.

    find_touched_names -> admit -> add -> to_args

Two groups of a call that touch the same lock, idempotency key or parent are written one after the other, in two calls of
commit_groups(), as if they came in two commits; all others are written together.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from functools import lru_cache

from waybill.record import COUNTED, EXCLUSIVE, ActionRequest, Change, CommitGroup, Record, Ref, parse_lock
from waybill.stores.postgres.binary_rows import (
    CompositeArray,
    encode_bigint,
    encode_boolean,
    encode_bytes,
    encode_double,
    encode_integer,
    encode_row,
    encode_row_header,
    encode_text,
    encode_texts,
)

ChangePosition = tuple[int, int]  # of a change: index of the group in the call, index of the change in the group
TouchedNames = tuple[set[object], set[object]]  # exclusive, shared
NO_NAMES: TouchedNames = (set(), set())  # of a plain group: it touches nothing but its record
CHANGE_ROW_COLUMNS = 35  # of change_row
# version, session, state, wake_count, owner and scope of a record that does not exist yet
NO_BEFORE = (None, None, None, 0, None, None)
CACHE_SIZE = 4_000  # encoded pieces cached of each sort


class IndependentGroups:
    """Groups that are sent in one call of commit_groups()."""

    def __init__(self) -> None:
        self.group_indexes: list[int] = []
        self.changes: list[bytes] = []
        self.creations: list[bytes] = []
        self.documents: list[bytes] = []
        self.locks: list[bytes] = []
        self.wakes: list[bytes] = []
        self.requirements: list[bytes] = []
        self.change_positions: dict[int, ChangePosition] = {}  # by n
        self.is_plain = True  # whether every group is plain; see functions.sql
        self._names: list[tuple[str, str]] = []  # of the records of plain changes, which are sent in this order
        self._exclusive: set[object] = set()  # what only one of the groups may touch
        self._shared: set[object] = set()  # what several may touch, if none needs it exclusively

    def admit(self, touched: TouchedNames) -> bool:
        """Whether a group that touches these names can be added; if not, it must be sent after this set."""
        if touched is NO_NAMES:
            return True
        exclusive, shared = touched
        if not (
            self._exclusive.isdisjoint(exclusive)
            and self._exclusive.isdisjoint(shared)
            and self._shared.isdisjoint(exclusive)
        ):
            return False
        self._exclusive |= exclusive
        self._shared |= shared
        return True

    def add(self, index: int, group: CommitGroup) -> None:
        """Add a group. Raises where a value cannot be encoded, and then adds nothing."""
        if (before := _plain_record_of(group)) is not None:
            self._add_plain(index, group.changes[0], before)
            return
        self.is_plain = False
        changes, creations = len(self.changes), len(self.creations)
        encoded: list[tuple[list[bytes], bytes]] = []
        positions: dict[int, ChangePosition] = {}
        for i, change in enumerate(group.changes):
            if change.before is None:
                creations += 1
                n = -creations
            else:
                changes += 1
                n = changes
            positions[n] = (index, i)
            encoded.append(
                (self.creations if change.before is None else self.changes, _encode_change(n, index, change))
            )
            encoded.extend((self.locks, row) for row in _encode_locks(n, index, change))
            if change.after is not None:
                encoded.extend(
                    (self.documents, _encode_document(min(n, 0), index, change, name, body))
                    for name, body in change.documents.items()
                )
        encoded.extend(
            (self.wakes, encode_row(encode_integer(index), encode_text(ref.kind), encode_text(ref.id)))
            for ref in group.wake
        )
        encoded.extend((self.requirements, row) for row in _encode_requirements(index, group, positions))
        for rows, row in encoded:
            rows.append(row)
        self.change_positions.update(positions)
        self.group_indexes.append(index)

    def _add_plain(self, index: int, change: Change, before: Record) -> None:
        """The same for a plain group, as most are, with less work."""
        n = len(self.changes) + 1
        row = _encode_change(n, index, change)
        documents = (
            [_encode_document(0, index, change, name, body) for name, body in change.documents.items()]
            if change.documents
            else ()
        )
        self.changes.append(row)
        self.documents.extend(documents)
        self.change_positions[n] = (index, 0)
        self.group_indexes.append(index)
        self._names.append((before.kind, before.id))

    def to_args(self, queue_positions: Mapping[str, int]) -> list[CompositeArray | bool]:
        positions = (
            [encode_row(encode_text(kind), encode_bigint(position)) for kind, position in queue_positions.items()]
            if self.creations
            else []
        )
        changes = (
            [row for _, row in sorted(zip(self._names, self.changes, strict=True))] if self.is_plain else self.changes
        )
        return [
            CompositeArray("change_row", changes),
            CompositeArray("change_row", self.creations),
            CompositeArray("document_row", self.documents),
            CompositeArray("lock_row", self.locks),
            CompositeArray("wake_row", self.wakes),
            CompositeArray("requirement_row", self.requirements),
            CompositeArray("queue_position_row", positions),
            self.is_plain,
        ]


def find_touched_names(groups: Sequence[CommitGroup]) -> list[TouchedNames]:
    """What each group touches exclusively, and what it may share with others.

    (validate_groups has refused two groups that change one record.)
    """
    # whether a group depends on records that it does not change
    waking = any(
        group.wake or group.requests or any(change.requires_open_parent for change in group.changes) for group in groups
    )
    closing = any(change.requires_children_settled for group in groups for change in group.changes)
    touched = []
    for group in groups:
        if not (waking or closing) and _plain_record_of(group) is not None:
            touched.append(NO_NAMES)
            continue
        exclusive: set[object] = {request.ref for request in group.requests}
        shared: set[object] = set(group.wake)
        for change in group.changes:
            before, after = change.before, change.after
            if before is None and after is not None and after.idempotency_key is not None:
                exclusive.add(("idempotency_key", after.kind, after.idempotency_key))
            for lock in (*(before.locks if before is not None else ()), *(after.locks if after is not None else ())):
                request = parse_lock(lock)
                # commit_groups() counts the owners of shared and counted locks one after the other
                (exclusive if request.sort == EXCLUSIVE else shared).add(("lock", request.name))
            if waking:
                exclusive.add(change.ref)
            if change.requires_open_parent and after is not None:
                shared.add(after.parent)
            if closing:
                record = after if after is not None else before
                if record is not None and record.parent is not None:
                    shared.add(("children", record.parent))
                if change.requires_children_settled:
                    exclusive.add(("children", change.ref))
        touched.append((exclusive, shared - exclusive))
    return touched


def _plain_record_of(group: CommitGroup) -> Record | None:
    """The record of a plain group, which is one change that touches nothing else (see is_plain in functions.sql);
    otherwise None.
    """
    if len(group.changes) != 1 or group.wake or group.requests:
        return None
    change = group.changes[0]
    before, after = change.before, change.after
    return (
        before
        if before is not None
        and after is not None
        and not (before.locks or after.locks or change.requires_children_settled)
        else None
    )


def _operation_of(change: Change) -> str:
    if change.before is None:
        return "create"
    if change.after is None:
        return "remove"
    return "save" if change.is_checkpoint else "continue" if change.is_continuation else "write"


def _encode_change(n: int, index: int, change: Change) -> bytes:
    """A change_row. Of its 35 cells few differ from one change of a worker to the next: the others are cached in pieces."""
    before = change.before
    record = change.after if change.after is not None else before
    assert record is not None
    version, session_before, state_before, wake_count, owner_before, scope_before = (
        (before.version, before.session, before.state, before.wake_count, before.owner, before.scope)
        if before is not None
        else NO_BEFORE
    )
    state = record.state if change.after is not None else None
    return b"".join(
        (
            encode_row_header(CHANGE_ROW_COLUMNS),
            encode_integer(n),
            encode_integer(index),
            _encode_operation(_operation_of(change), record.kind),
            encode_text(record.id),
            encode_bigint(version),
            _encode_state(
                session_before,
                state_before,
                owner_before,
                scope_before,
                record.parent,
                state,
                record.owner,
                record.scope,
                record.priority,
            ),
            encode_bigint(record.queue_position),
            _encode_counts(record.last_done, record.resume_count, record.error_count),
            encode_text(record.message),
            _encode_claim(record.session, record.locks, record.hold_names, record.blocked_by, record.open, record.host),
            encode_text(record.idempotency_key),
            encode_bigint(wake_count),
            encode_double(change.delay),
            _encode_history(change.requires_children_settled, change.answers_request, change.cause, change.who),
            encode_text(change.why),
        )
    )


@lru_cache(CACHE_SIZE)
def _encode_operation(operation: str, kind: str) -> bytes:
    return encode_text(operation) + encode_text(kind)


@lru_cache(CACHE_SIZE)
def _encode_state(
    session_before: str | None,
    state_before: str | None,
    owner_before: str | None,
    scope_before: str | None,
    parent: Ref | None,
    state: str | None,
    owner: str,
    scope: str,
    priority: int,
) -> bytes:
    kind, id = parent if parent is not None else (None, None)
    return b"".join(
        (
            encode_text(session_before),
            encode_text(state_before),
            encode_text(owner_before),
            encode_text(scope_before),
            encode_text(kind),
            encode_text(id),
            encode_text(state),
            encode_text(owner),
            encode_text(scope),
            encode_integer(priority),
        )
    )


@lru_cache(CACHE_SIZE)
def _encode_counts(last_done: str | None, resume_count: int, error_count: int) -> bytes:
    return encode_text(last_done) + encode_integer(resume_count) + encode_integer(error_count)


@lru_cache(CACHE_SIZE)
def _encode_claim(
    session: str | None,
    locks: tuple[str, ...],
    hold_names: tuple[str, ...],
    blocked_by: str | None,
    open: bool,
    host: str,
) -> bytes:
    return b"".join(
        (
            encode_text(session),
            encode_texts(locks),
            encode_texts(hold_names),
            encode_text(blocked_by),
            encode_boolean(open),
            encode_text(host),
        )
    )


@lru_cache(CACHE_SIZE)
def _encode_history(requires_children_settled: bool, answers_request: bool, cause: str, who: str) -> bytes:
    return b"".join(
        (
            encode_boolean(requires_children_settled),
            encode_boolean(answers_request),
            encode_text(cause),
            encode_text(who),
        )
    )


def _encode_document(n: int, index: int, change: Change, name: str, body: bytes | None) -> bytes:
    kind, id = change.ref
    return encode_row(
        encode_integer(n),
        encode_integer(index),
        encode_text(kind),
        encode_text(id),
        encode_text(name),
        encode_bytes(body),
    )


def _encode_requirements(index: int, group: CommitGroup, positions: Mapping[int, ChangePosition]) -> Iterator[bytes]:
    for n, (_, i) in positions.items():
        change = group.changes[i]
        if change.requires_open_parent and change.after is not None and change.after.parent is not None:
            yield _encode_requirement(n, index, "open", ActionRequest(change.after.parent, "", "", "", b""))
    for request in group.requests:
        yield _encode_requirement(0, index, "claimed", request)


def _encode_requirement(n: int, index: int, requirement: str, request: ActionRequest) -> bytes:
    return encode_row(
        encode_integer(n),
        encode_integer(index),
        encode_text(requirement),
        encode_text(request.ref.kind),
        encode_text(request.ref.id),
        encode_text(request.action),
        encode_text(request.who),
        encode_text(request.why),
        encode_bytes(request.args),
    )


def _encode_locks(n: int, index: int, change: Change) -> Iterator[bytes]:
    """The lock_rows of a change. A claimed record takes all its locks; a lock that it no longer asks for in this sort is
    dropped, if it owns it. A lock that an unclaimed record still asks for may not be owned by it; then it is offered to
    other waiters. A counted lock that is asked for anew says how many may own it.
    """
    before, after = change.before, change.after
    record = before if before is not None else after
    if record is None or not (record.locks or (after is not None and after.locks)):
        return
    owned = before.locks if before is not None else ()
    kept = after.locks if after is not None else ()
    asked = {request.name: request.sort for request in map(parse_lock, kept)}
    old = [parse_lock(lock) for lock in owned]
    uses = [("drop", request) for request in old if asked.get(request.name) != request.sort]
    if after is not None and after.session is not None:
        uses += [("take", parse_lock(lock)) for lock in dict.fromkeys(kept)]
    else:
        uses += [("offer", request) for request in old if asked.get(request.name) == request.sort]
    uses += [("limit", parse_lock(lock)) for lock in kept if lock not in owned and parse_lock(lock).sort == COUNTED]
    priority = after.priority if after is not None else record.priority
    for lock_use, request in uses:
        yield encode_row(
            encode_integer(n),
            encode_integer(index),
            encode_text(_operation_of(change)),
            encode_text(lock_use),
            encode_text(record.kind),
            encode_text(record.id),
            encode_text(request.name),
            encode_text(request.sort),
            encode_integer(request.limit),
            encode_integer(priority),
            encode_bigint(record.seq),
        )
