"""Groups, looked at before a store sees them: what no store could write is answered here, alike on all stores.

A driver's `commit` begins with `vet(groups)`: one refusal or None for each group. A refused group is answered and left
out; its neighbours are written. So a worker that commits for many records at once never loses the work of one to the
mistake of another.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

from waybill.record import Change, Group, Record, StoreError, TooLarge, check_group

SHORT = 100_000  # characters: far within MAX_GROUP, whatever their encoding


def vet(groups: Sequence[Group]) -> list[StoreError | None]:
    """For each group the reason why it cannot be written on any store, or None."""
    seen: set[tuple[str, str]] = set()
    return [_refusal(group, seen) for group in groups]


def _refusal(group: Group, seen: set[tuple[str, str]]) -> StoreError | None:
    changes = group.changes
    requests: set[tuple[str, str]] = set()
    mine: list[tuple[str, str]] = []
    for change in changes:
        before, after = change.before, change.after
        record = after if after is not None else before
        if record is None:
            return StoreError("A change needs a before or an after.")
        problem = misshapen(change)
        if problem is not None:
            return StoreError(f"{record.kind} {record.id}: {problem}")
        if before is None:
            if record.request is not None:
                if (record.kind, record.request) in requests:
                    return StoreError(
                        f"Two records of one group ask for the request {record.request}; a request makes one {record.kind}."
                    )
                requests.add((record.kind, record.request))
            if record.id.endswith("*"):
                continue
        name = (record.kind, record.id)
        if name in seen:
            return StoreError(
                f"{record.kind} {record.id} is changed twice in one call; a record appears in at most one group."
            )
        seen.add(name)
        mine.append(name)
        if len(changes) == 1 and not change.docs and len(record.message) + len(change.why) < SHORT:
            return None  # as most are: nothing in it can be too large
    try:
        check_group(group)
    except TooLarge as error:
        seen.difference_update(mine)  # it is not written, so a neighbour may still change the same record
        return error
    return None


def _mistold(change: Change, after: Record) -> str | None:
    """What is wrong with its texts: each is kept, compared or part of a name on some store."""
    words = [
        after.message,
        change.why,
        change.who,
        change.event,
        after.owner,
        after.state,
        after.host,
        *after.keys,
        *after.gates,
    ]
    words.extend(change.docs)
    if change.before is None:
        words += (after.kind, after.id, after.request or "")
    try:
        said = "".join(words)
    except TypeError:
        return f"{next(word for word in words if not isinstance(word, str))!r} is no text"
    if "\0" in said:
        return "its text holds a null character, which PostgreSQL cannot keep"
    if not said.isascii():
        try:
            said.encode()
        except UnicodeEncodeError:
            return "its text holds half a character (a lone surrogate), which no store can keep"
    if "" in change.docs:
        return "a document needs a name"
    return None


def misshapen(change: Change) -> str | None:
    """What is wrong with the pair as such, whatever the store holds."""
    before, after = change.before, change.after
    if after is None:
        return None
    if not isinstance(after.priority, int) or not 0 <= after.priority <= 99:
        return f"priority {after.priority} is not a whole number within 0..99"
    if not 0 <= change.delay < math.inf:
        return f"a delay of {change.delay} seconds is none"
    if (problem := _mistold(change, after)) is not None:
        return problem
    if after.session is not None:
        if before is None:
            return "a record is created free; claim it afterwards"
        if before.session != after.session:
            return "only claim() and take() give a record to a session"
        if after.parked is not None:
            return f"a record that is held cannot be parked ({after.parked})"
    if before is not None:
        if before.kind != after.kind or before.id != after.id:
            return f"before and after are two records ({before.kind} {before.id})"
        if before.parent != after.parent:
            return "a record keeps its parent"
        if before.request != after.request:
            return "a record keeps the request that made it"
    return None
