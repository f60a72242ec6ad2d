"""The locks that a record asks for: three sorts, each written as one text.

    family/name                 exclusive   one record owns it
    shared family/name          shared      any number of records own it together, and nobody exclusively
    at most 3 of family/name    counted     at most three records own it at a time

`Record.locks` holds these texts. Everything else (what a record is blocked by, lists of locks, errors) speaks of the plain
name, "family/name": a name is one lock, whatever the sort in which it is asked for.

    asked for      in `Record.locks`; the next claim, or a save under a claim, takes it
    owned          until a commit no longer asks for it in this sort, through waits and the death of the worker
    waited for     in the order of priority, and then of age: whoever drops a lock unblocks those at the head who can take it

A record that wants a lock beside other owners (shared, counted) does not pass the first waiter, if that asks for another sort
and stands before it: a stream of readers never keeps a writer waiting. A record that asks for a lock in another sort than it owns gives up
what it owns, unless it can have the other sort in the same commit: two readers that both want to write cannot wait for
each other.

The limit of a counted lock is that of the commit that asked for it last: a new limit holds for those who wait, too.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from functools import lru_cache
from typing import Literal, NamedTuple

LockSort = Literal["exclusive", "shared", "counted"]
EXCLUSIVE: LockSort = "exclusive"
SHARED: LockSort = "shared"
COUNTED: LockSort = "counted"

MAX_LOCK_LIMIT = 999_999_999
MAX_UNBLOCKED_WAITERS = 100  # of one lock at once; each of them, when it has done, unblocks the next
MAX_LISTED_OWNERS = 20  # of one lock in a list of locks

_MARKED = re.compile(r"(?:shared|at most ([1-9][0-9]{0,8}) of) ([^ /]+/.*)", re.DOTALL)


class LockRequest(NamedTuple):
    """One lock that a record asks for."""

    name: str  # "family/name"
    sort: LockSort = EXCLUSIVE
    limit: int = 0  # of a counted lock: how many records may own it

    @property
    def family(self) -> str:
        return self.name.partition("/")[0]

    def to_text(self) -> str:
        """Return it as it stands in `Record.locks`."""
        if self.sort == SHARED:
            return f"shared {self.name}"
        return f"at most {self.limit} of {self.name}" if self.sort == COUNTED else self.name


@lru_cache(4_000)
def parse_lock(text: str) -> LockRequest:
    if not text.startswith(("shared ", "at most ")) or (match := _MARKED.fullmatch(text)) is None:
        return LockRequest(text)
    limit, name = match.groups()
    return LockRequest(name, COUNTED, int(limit)) if limit is not None else LockRequest(name, SHARED)


def lock_names_of(locks: Iterable[str]) -> tuple[str, ...]:
    """Return the plain names of the locks of a record."""
    return tuple(parse_lock(text).name for text in locks)


def find_lock_request(locks: Iterable[str], name: str) -> LockRequest | None:
    """Return how a record asks for the lock of that name."""
    return next((request for request in map(parse_lock, locks) if request.name == name), None)


def find_locks_problem(locks: Sequence[str]) -> str | None:
    """Return what is wrong with the locks of one record, whatever others own."""
    sorts: dict[str, str] = {}
    for text in locks:
        request = parse_lock(text)
        if request.sort == EXCLUSIVE and " " in request.family and text.startswith(("shared ", "at most ")):
            return f"{text!r} is no lock: write FAMILY/NAME, shared FAMILY/NAME, or at most N of FAMILY/NAME with N from 1 on"
        if sorts.setdefault(request.name, text) != text:
            return (
                f"it asks for the lock {request.name} in two sorts at once ({sorts[request.name]!r} and {text!r}); "
                "ask for it in one"
            )
    return None


def is_lock_available(sort: LockSort, limit: int, other_sort: LockSort | None, other_count: int) -> bool:
    """Return whether a record can own a lock beside `other_count` owners, who all own it in `other_sort`."""
    if other_sort is None or other_count == 0:
        return True
    return sort == other_sort and (sort == SHARED or (sort == COUNTED and other_count < limit))


def count_next_waiters(
    waiters: Iterable[LockRequest], limit: int | None, owner_sort: LockSort | None, owner_count: int
) -> int:
    """Return how many at the head of these waiters can own their lock together, beside its owners.

    `limit`: of the lock, if it is counted; None: as each of them says.
    """
    count = 0
    for waiter in waiters:
        if count == MAX_UNBLOCKED_WAITERS or not is_lock_available(
            waiter.sort, limit or waiter.limit, owner_sort, owner_count + count
        ):
            break
        owner_sort, count = waiter.sort, count + 1
    return count
