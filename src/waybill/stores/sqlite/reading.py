"""get, find, tally, history: each of one moment. A page is asked for by one filter, and every filter has its index."""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

from waybill.record import MAX_PAGE, ClaimLost, Conflict, Docs, Idle, Line, NotFound, Page, Record, Ref
from waybill.stores import portions
from waybill.stores.sqlite.database import Database, Execute
from waybill.stores.sqlite.rows import SQL, record_of

NEWEST = {
    name: text.replace("seq > ?2", "seq < ?2").replace("order by seq", "order by seq desc")
    for name, text in SQL.items()
}
LAST = (1 << 63) - 1


def get(database: Database, kind: str, id: str) -> Record:
    with database.read() as execute:
        rows = execute(SQL["get"], (kind, id)).fetchall()
        if not rows:
            raise NotFound(f"There is no {kind} {id}.")
        (record,) = load(execute, [record_of(rows[0])])
    return record


def requested(database: Database, kind: str, request: str) -> Record:
    with database.read() as execute:
        rows = execute(SQL["requested"], (kind, request)).fetchall()
        if not rows:
            raise NotFound(f"No {kind} was made by the request {request}.")
        (record,) = load(execute, [record_of(rows[0])])
    return record


def find(
    database: Database,
    kind: str,
    state: str | None,
    parent: Ref | None,
    owner: str | None,
    after: int | None,
    newest: bool,
    limit: int,
    docs: bool,
) -> Page:
    filters: dict[str, tuple[str, ...]] = {}
    if state is not None:
        filters["find_state"] = (state,)
    if owner is not None:
        filters["find_owner"] = (owner,)
    if parent is not None:
        filters["find_parent"] = tuple(parent)
    if len(filters) > 1:
        raise ValueError("find by a state, a parent or an owner, not by several of them")
    name, values = next(iter(filters.items()), ("find", ()))
    limit = max(1, min(limit, MAX_PAGE))
    begin = after if after is not None else LAST if newest else 0
    with database.read() as execute:
        rows = execute((NEWEST if newest else SQL)[name], (kind, begin, limit + 1, *values)).fetchall()
        records = [record_of(row) for row in rows[:limit]]
        if docs:
            records = load(execute, records)
    return Page(records, records[-1].seq if len(rows) > limit else None)


def load(execute: Execute, records: Sequence[Record]) -> list[Record]:
    """The records with their documents."""
    found: dict[int, dict[str, bytes]] = {}
    seqs = msgspec.json.encode([record.seq for record in records]).decode()
    for seq, name, body in execute(SQL["documents_of"], (seqs,)):
        found.setdefault(seq, {})[name] = body
    return [
        msgspec.structs.replace(record, docs=Docs(found[record.seq])) if record.seq in found else record
        for record in records
    ]


def tally(database: Database, kind: str, parent: Ref | None) -> dict[str, int]:
    with database.sentences():
        return dict(database.execute(SQL["tally"], (kind, *(parent or ("", "")))).fetchall())


def open_parents(database: Database, refs: Sequence[Ref]) -> set[Ref]:
    with database.read() as execute:
        return {ref for ref in refs if execute(SQL["has_open_child"], ref).fetchall()}


def idle_parents(database: Database, after: str, limit: int) -> Idle:
    with database.sentences():
        return portions.idle(database.execute(SQL["idle_parents"], (*portions.begin(after), limit)).fetchall(), limit)


def history(database: Database, kind: str, id: str) -> list[Line]:
    with database.sentences():
        return [Line(*row) for row in database.execute(SQL["history"], (kind, id)).fetchall()]


def why_lost(execute: Execute, before: Record) -> Conflict:
    """Why a row was not at the version and holder that it was read at."""
    found = execute(SQL["held_by"], (before.seq, before.kind, before.id)).fetchall()
    if before.session is not None and (not found or found[0][1] != before.session):
        return ClaimLost(
            f"{before.ref} is no longer held by {before.session}: its claim ended, and perhaps another worker has it now."
        )
    if not found:
        return Conflict(f"{before.ref} is gone.")
    version, holder = found[0]
    held = f" and held by {holder}" if holder else ""
    return Conflict(
        f"{before.ref} was read at version {before.version} and is at {version}{held} now. Read it, then decide again."
    )
