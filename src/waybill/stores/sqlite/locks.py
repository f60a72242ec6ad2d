"""Locks that records own, inside a transaction: whether one is available, taking, dropping, and unblocking the next waiters.

There is one writer at a time, so what is read here holds until the transaction ends. `waybill.record.locks` has the rules.
"""

from __future__ import annotations

from collections.abc import Sequence

from waybill.record import (
    COUNTED,
    EXCLUSIVE,
    MAX_UNBLOCKED_WAITERS,
    LockRequest,
    LockSort,
    Record,
    Ref,
    count_next_waiters,
    find_lock_request,
    is_lock_available,
    lock_names_of,
    parse_lock,
)
from waybill.stores.sqlite.database import Execute
from waybill.stores.sqlite.rows import SQL, names_of

GET_OTHER_OWNER, TAKE_LOCK, DROP_LOCK = SQL["get_other_owner"], SQL["take_lock"], SQL["drop_lock"]
LIST_LOCK_WAITERS, UNBLOCK_WAITER = SQL["list_lock_waiters"], SQL["unblock_waiter"]
WAITERS_PAGE = MAX_UNBLOCKED_WAITERS + 1

Waiter = tuple[int, int, LockRequest]  # seq, priority, how it asks for the lock


def find_unavailable_lock(execute: Execute, locks: Sequence[str], seq: int, priority: int) -> str | None:
    """The name of the first of these locks that the record cannot own now."""
    for request in map(parse_lock, locks):
        owner = execute(GET_OTHER_OWNER, (request.name, seq)).fetchall()
        if request.sort == EXCLUSIVE:
            if owner:
                return request.name
        elif not _can_share(execute, request, seq, priority, owner[0][1] if owner else None):
            return request.name
    return None


def _can_share(execute: Execute, request: LockRequest, seq: int, priority: int, other_sort: LockSort | None) -> bool:
    """Whether a record can own a shared or counted lock beside its owners, and before those who wait for it."""
    name, sort = request.name, request.sort
    if execute(SQL["get_own_sort"], (name, seq)).fetchall() == [(sort,)]:
        return True  # it owns it, even if the limit has become lower
    count = _count_owners(execute, name, seq) if sort == other_sort == COUNTED else 1
    if not is_lock_available(sort, _limit_of(execute, name) or request.limit, other_sort, count):
        return False
    first = _list_waiters(execute, name, 1)
    return not first or first[0][2].sort == sort or first[0][1::-1] > (priority, seq)


def _count_owners(execute: Execute, name: str, seq: int = 0) -> int:
    ((count,),) = execute(SQL["count_other_owners"], (name, seq)).fetchall()
    return int(count)


def _limit_of(execute: Execute, name: str) -> int | None:
    rows = execute(SQL["get_lock_limit"], (name,)).fetchall()
    return rows[0][0] if rows else None


def _list_waiters(execute: Execute, name: str, limit: int) -> list[Waiter]:
    rows = execute(LIST_LOCK_WAITERS, (f"lock {name}", limit)).fetchall()
    return [
        (seq, priority, find_lock_request(names_of(text), name) or LockRequest(name)) for seq, priority, text in rows
    ]


def explain_unavailable_lock(execute: Execute, name: str) -> str:
    rows = execute(SQL["get_lock_owner"], (name, 1)).fetchall()
    return f"{name} is owned by {Ref(*rows[0])}." if rows else f"Another record waits for {name} before this one."


def take_locks(execute: Execute, locks: Sequence[str], seq: int) -> None:
    for request in map(parse_lock, locks):
        execute(TAKE_LOCK, (request.name, seq, request.sort))


def drop_locks(execute: Execute, before: Record, keep: Sequence[str]) -> None:
    """Drop the locks that the record does not keep in their sort; a lock that it asked for and did not take goes to the next
    waiters.
    """
    for lock in before.locks:
        if lock not in keep:
            request = parse_lock(lock)
            kept = find_lock_request(keep, request.name)
            if kept is None or execute(SQL["get_own_sort"], (request.name, before.seq)).fetchall() != [(kept.sort,)]:
                execute(DROP_LOCK, (request.name, before.seq))
    unblock_next_waiters(execute, lock_names_of(before.locks))


def note_limits(execute: Execute, before: Sequence[str], after: Sequence[str], now: float) -> None:
    """The limit of a counted lock is what the latest commit says that asks for it, also for those who wait."""
    for request in (parse_lock(text) for text in after if text not in before):
        if request.sort == COUNTED and _limit_of(execute, request.name) != request.limit:
            execute(SQL["set_lock_limit"], (request.name, request.limit, now))
            unblock_next_waiters(execute, [request.name])


def unblock_next_waiters(execute: Execute, names: Sequence[str]) -> int:
    """Unblock the first waiters of each of these locks who can own it now. Returns how many."""
    unblocked = 0
    for name in names:
        waiters = _list_waiters(execute, name, WAITERS_PAGE)
        if not waiters:
            continue
        owner = execute(GET_OTHER_OWNER, (name, 0)).fetchall()
        sort: LockSort | None = owner[0][1] if owner else None
        is_counted = sort == COUNTED or waiters[0][2].sort == COUNTED
        count = count_next_waiters(
            (waiter for _, _, waiter in waiters),
            _limit_of(execute, name) if is_counted else None,
            sort,
            _count_owners(execute, name) if is_counted else len(owner),
        )
        for seq, _, _ in waiters[:count]:
            execute(UNBLOCK_WAITER, (seq,))
        unblocked += count
    return unblocked
