"""Locks that records own, inside a transaction: finding the owner, taking, dropping, and unblocking the next waiter."""

from __future__ import annotations

from collections.abc import Sequence

from waybill.record import Record
from waybill.stores.sqlite.database import Execute
from waybill.stores.sqlite.rows import SQL

GET_LOCK_OWNER_SEQ, TAKE_LOCK, DROP_LOCK, UNBLOCK_NEXT_WAITER = (
    SQL["get_lock_owner_seq"],
    SQL["take_lock"],
    SQL["drop_lock"],
    SQL["unblock_next_waiter"],
)


def find_unavailable_lock(execute: Execute, locks: Sequence[str], seq: int) -> str | None:
    """The first of these locks that a record other than `seq` owns."""
    for lock in locks:
        owner = execute(GET_LOCK_OWNER_SEQ, (lock,)).fetchall()
        if owner and owner[0][0] != seq:
            return lock
    return None


def take_locks(execute: Execute, locks: Sequence[str], seq: int) -> None:
    for lock in locks:
        execute(TAKE_LOCK, (lock, seq))


def drop_locks(execute: Execute, before: Record, keep: Sequence[str]) -> None:
    """Drop the locks that the record does not keep; a lock that it asked for and did not take goes to the next waiter."""
    for lock in before.locks:
        if lock not in keep:
            execute(DROP_LOCK, (lock, before.seq))
    unblock_next_waiters(execute, before.locks)


def unblock_next_waiters(execute: Execute, locks: Sequence[str]) -> None:
    """Unblock the first waiter of each of these locks that no record owns."""
    for lock in locks:
        if not execute(GET_LOCK_OWNER_SEQ, (lock,)).fetchall():
            execute(UNBLOCK_NEXT_WAITER, (f"lock {lock}",))
