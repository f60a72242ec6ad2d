"""Validation of commit groups before a store writes them: what no store can write is refused here, alike on all stores.

A driver's `commit` begins with `validate_groups(groups)`: one refusal or None for each group. A refused group is answered
and left out; the other groups are written. So a worker that commits many records at once never loses the work on one
record to an error in another.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

from waybill.record import (
    Change,
    CommitGroup,
    CommitTooLarge,
    Record,
    Ref,
    StoreError,
    Visibility,
    check_group_size,
    find_locks_problem,
)

SHORT_TEXT = 100_000  # characters: far within MAX_GROUP, whatever their encoding


def validate_groups(groups: Sequence[CommitGroup]) -> list[StoreError | None]:
    """For each group the reason why no store can write it, or None."""
    seen: set[tuple[str, str]] = set()
    return [_validate_group(group, seen) for group in groups]


def _validate_group(group: CommitGroup, seen: set[tuple[str, str]]) -> StoreError | None:
    changes = group.changes
    idempotency_keys: set[tuple[str, str]] = set()
    own_names: list[tuple[str, str]] = []
    for change in changes:
        before, after = change.before, change.after
        record = after if after is not None else before
        if record is None:
            return StoreError("A change needs a before or an after.")
        problem = find_change_problem(change)
        if problem is not None:
            return StoreError(f"{record.kind} {record.id}: {problem}")
        if before is None:
            if record.idempotency_key is not None:
                if (record.kind, record.idempotency_key) in idempotency_keys:
                    return StoreError(
                        f"Two records of one group have the idempotency key {record.idempotency_key}; a key creates one {record.kind}."
                    )
                idempotency_keys.add((record.kind, record.idempotency_key))
            if record.id.endswith("*"):
                continue
        name = (record.kind, record.id)
        if name in seen:
            return StoreError(
                f"{record.kind} {record.id} is changed twice in one call; a record appears in at most one group."
            )
        seen.add(name)
        own_names.append(name)
        if (
            len(changes) == 1
            and not group.requests
            and not change.documents
            and len(record.message) + len(change.why) < SHORT_TEXT
        ):
            return None  # the usual case: nothing in it can be too large
    if group.requests and (problem := _find_request_problem(group)) is not None:
        seen.difference_update(own_names)
        return StoreError(problem)
    try:
        check_group_size(group)
    except CommitTooLarge as error:
        seen.difference_update(own_names)  # it is not written, so another group may still change the same record
        return error
    return None


def _find_request_problem(group: CommitGroup) -> str | None:
    names = {change.ref for change in group.changes}
    for request in group.requests:
        if request.ref in names:
            return f"{request.ref} is changed, or requested to act, twice in one group."
        names.add(request.ref)
        texts = (request.action, request.who, request.why)
        if any("\0" in text for text in texts):
            return f"The request to {request.ref} contains a null character, which PostgreSQL cannot store."
        try:
            "".join(texts).encode()
            request.args.decode()
        except UnicodeError:
            return f"The request to {request.ref} contains half a character, which no store can keep."
    return None


def _find_text_problem(change: Change, after: Record) -> str | None:
    """What is wrong with the texts of a change: each is stored, compared or part of a name on some store."""
    texts = [
        after.message,
        change.why,
        change.who,
        change.cause,
        after.owner,
        after.state,
        after.host,
        *after.locks,
        *after.hold_names,
    ]
    texts.extend(change.documents)
    if change.before is None:
        texts += (after.kind, after.id, after.idempotency_key or "")
    try:
        joined = "".join(texts)
    except TypeError:
        return f"{next(text for text in texts if not isinstance(text, str))!r} is no text"
    if "\0" in joined:
        return "its text contains a null character, which PostgreSQL cannot store"
    if not joined.isascii():
        try:
            joined.encode()
        except UnicodeEncodeError:
            return "its text contains half a character (a lone surrogate), which no store can keep"
    if "" in change.documents:
        return "a document needs a name"
    return None


def find_change_problem(change: Change) -> str | None:
    """What is wrong with the change by itself, whatever the store contains."""
    before, after = change.before, change.after
    if after is None:
        return None
    if not isinstance(after.priority, int) or not 0 <= after.priority <= 99:
        return f"priority {after.priority} is not a whole number within 0..99"
    if not 0 <= change.delay < math.inf:
        return f"{change.delay} seconds is not a delay"
    if (problem := _find_text_problem(change, after)) is not None:
        return problem
    if after.locks and (problem := find_locks_problem(after.locks)) is not None:
        return problem
    if after.session is not None:
        if before is None:
            return "a record is created unclaimed; claim it afterwards"
        if before.session != after.session:
            return "only claim() and claim_one() give a record to a session"
        if after.blocked_by is not None:
            return f"a claimed record cannot be blocked ({after.blocked_by})"
    if change.requires_open_parent and (before is not None or after.parent is None):
        return "only a record that is created below a parent can require that its parent is open"
    if before is not None:
        if before.kind != after.kind or before.id != after.id:
            return f"before and after are different records ({before.kind} {before.id})"
        if before.parent != after.parent:
            return "the parent of a record cannot change"
        if before.idempotency_key != after.idempotency_key:
            return "the idempotency key of a record cannot change"
    return None


def check_count_filters(parent: Ref | None, visibility: Visibility | None) -> None:
    if parent is not None and visibility is not None:
        raise ValueError("count the children of a parent, or what somebody may see, not both")
