"""get, find, count_by_state, history: each reads one snapshot. A page has at most one filter, and every filter its index."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import msgspec

from waybill.record import (
    MAX_PAGE,
    ClaimLost,
    Conflict,
    HistoryEntry,
    IdleParents,
    Page,
    Record,
    RecordDocuments,
    RecordNotFound,
    Ref,
    Visibility,
)
from waybill.stores import idle_parents
from waybill.stores.sqlite.database import Execute, SqliteDatabase
from waybill.stores.sqlite.rows import SQL, record_of

NEWEST_FIRST = {
    name: text.replace("seq > ?2", "seq < ?2").replace("order by seq", "order by seq desc")
    for name, text in SQL.items()
}
AFTER_LAST_SEQ = (1 << 63) - 1


def get(database: SqliteDatabase, kind: str, id: str) -> Record:
    with database.read() as execute:
        rows = execute(SQL["get"], (kind, id)).fetchall()
        if not rows:
            raise RecordNotFound(f"There is no {kind} {id}.")
        (record,) = load_documents(execute, [record_of(rows[0])])
    return record


def get_many(database: SqliteDatabase, refs: Sequence[Ref]) -> dict[Ref, Record]:
    with database.read() as execute:
        rows = [row for ref in dict.fromkeys(refs) for row in execute(SQL["get"], ref).fetchall()]
        found = load_documents(execute, [record_of(row) for row in rows]) if rows else []
    return {record.ref: record for record in found}


def get_by_idempotency_key(database: SqliteDatabase, kind: str, idempotency_key: str) -> Record:
    with database.read() as execute:
        rows = execute(SQL["get_by_idempotency_key"], (kind, idempotency_key)).fetchall()
        if not rows:
            raise RecordNotFound(f"No {kind} was created with the idempotency key {idempotency_key}.")
        (record,) = load_documents(execute, [record_of(rows[0])])
    return record


def find(
    database: SqliteDatabase,
    kind: str,
    state: str | None,
    parent: Ref | None,
    owner: str | None,
    visibility: Visibility | None,
    after: int | None,
    newest: bool,
    limit: int,
    documents: bool,
) -> Page:
    filters: dict[str, tuple[str, ...]] = {}
    if state is not None:
        filters["find_by_state"] = (state,)
    if owner is not None:
        filters["find_by_owner"] = (owner,)
    if parent is not None:
        filters["find_by_parent"] = tuple(parent)
    if len(filters) > 1:
        raise ValueError("find by a state, a parent or an owner, not by several of them")
    name, values = next(iter(filters.items()), ("find", ()))
    limit = max(1, min(limit, MAX_PAGE))
    start = after if after is not None else AFTER_LAST_SEQ if newest else 0
    with database.read() as execute:
        if visibility is None:
            rows = execute((NEWEST_FIRST if newest else SQL)[name], (kind, start, limit + 1, *values)).fetchall()
        else:
            rows = _find_seen(execute, kind, name, values, visibility, start, newest, limit + 1)
        records = [record_of(row) for row in rows[:limit]]
        if documents:
            records = load_documents(execute, records)
    return Page(records, records[-1].seq if len(rows) > limit else None)


def _find_seen(
    execute: Execute,
    kind: str,
    filter_name: str,
    values: tuple[str, ...],
    visibility: Visibility,
    start: int,
    newest: bool,
    limit: int,
) -> list[Any]:
    """A page of what somebody may see: by their owners and scopes, each through its index, or by the filter, where that
    selects less.
    """
    statements = NEWEST_FIRST if newest else SQL
    owners, scopes = (msgspec.json.encode(names).decode() for names in visibility)
    state = values[0] if filter_name == "find_by_state" else None
    if filter_name == "find" or (state is not None and not _is_state_smaller(execute, kind, state, visibility)):
        seqs = {
            seq
            for name, names in (("find_seen_of_owner", visibility.owners), ("find_seen_of_scope", visibility.scopes))
            for each in names
            for (seq,) in execute(statements[name], (kind, start, limit, each, state))
        }
        page = sorted(seqs, reverse=newest)[:limit]
        rows = execute(SQL["get_by_seqs"], (msgspec.json.encode(page).decode(),)).fetchall()
        return rows[::-1] if newest else rows
    statement = statements[filter_name.replace("find_by", "find_seen_by")]
    return list(execute(statement, (kind, start, limit, values[0], owners, scopes, *values[1:])))


def _is_state_smaller(execute: Execute, kind: str, state: str, visibility: Visibility) -> bool:
    """Whether fewer records are in the state than somebody may see."""
    in_state: int = dict(execute(SQL["count_by_state"], (kind, "", "")).fetchall()).get(state, 0)
    return in_state < sum(_count_seen(execute, kind, visibility).values())


def _count_seen(execute: Execute, kind: str, visibility: Visibility) -> dict[str, int]:
    owners = msgspec.json.encode([owner for owner in visibility.owners if owner]).decode()
    scopes = msgspec.json.encode([f"@{scope}" for scope in visibility.scopes if scope]).decode()
    return dict(execute(SQL["count_seen_by_state"], (kind, owners, scopes)).fetchall())


def load_documents(execute: Execute, records: Sequence[Record]) -> list[Record]:
    """The records with their documents."""
    bodies: dict[int, dict[str, bytes]] = {}
    seqs = msgspec.json.encode([record.seq for record in records]).decode()
    for seq, name, body in execute(SQL["get_documents"], (seqs,)):
        bodies.setdefault(seq, {})[name] = body
    return [
        msgspec.structs.replace(record, documents=RecordDocuments(bodies[record.seq]))
        if record.seq in bodies
        else record
        for record in records
    ]


def count_by_state(database: SqliteDatabase, kind: str, parent: Ref | None) -> dict[str, int]:
    with database.translate_errors():
        return dict(database.execute(SQL["count_by_state"], (kind, *(parent or ("", "")))).fetchall())


def count_seen_by_state(database: SqliteDatabase, kind: str, visibility: Visibility) -> dict[str, int]:
    with database.translate_errors():
        return _count_seen(database.execute, kind, visibility)


def parents_with_open_children(database: SqliteDatabase, refs: Sequence[Ref]) -> set[Ref]:
    with database.read() as execute:
        return {ref for ref in refs if execute(SQL["has_open_child"], ref).fetchall()}


def find_idle_parents(database: SqliteDatabase, after: str, limit: int) -> IdleParents:
    with database.translate_errors():
        return idle_parents.idle_page_of(
            database.execute(SQL["find_idle_parents"], (*idle_parents.parse_position(after), limit)).fetchall(), limit
        )


def get_history(database: SqliteDatabase, kind: str, id: str) -> list[HistoryEntry]:
    with database.translate_errors():
        return [HistoryEntry(*row) for row in database.execute(SQL["get_history"], (kind, id)).fetchall()]


def conflict_of(execute: Execute, before: Record) -> Conflict:
    """Why a row does not have the version and session with which it was read."""
    rows = execute(SQL["get_version_and_session"], (before.seq, before.kind, before.id)).fetchall()
    if before.session is not None and (not rows or rows[0][1] != before.session):
        return ClaimLost(
            f"{before.ref} is no longer claimed by {before.session}: the claim ended, and another worker may have claimed it."
        )
    if not rows:
        return Conflict(f"{before.ref} is gone.")
    version, session = rows[0]
    claimed = f" and claimed by {session}" if session else ""
    return Conflict(
        f"{before.ref} was read at version {before.version} and is at {version}{claimed} now. Read it, then decide again."
    )
