"""Records as rows, both ways, and the statements that move them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import msgspec

from waybill.record import NO_DOCS, BadStore, Docs, Record, Ref
from waybill.statements import load

COLUMNS = (
    "kind, id, state, parent_kind, parent_id, owner, priority, last_done, retries, tries, message, session, keys, gates, parked, open, "
    "host, request, turn, seq, version, nudges, wake_at, created, updated"
)
SQL = {name: text.replace("$columns", COLUMNS) for name, text in load(__package__, "statements.sql").items()}

Row = tuple[Any, ...]
_read_names = msgspec.json.Decoder(tuple[str, ...]).decode


def names_of(text: str) -> tuple[str, ...]:
    """A list of names as a column holds it; most records have none, and an empty text is no JSON to decode."""
    try:
        return _read_names(text) if text else ()
    except msgspec.MsgspecError:
        raise BadStore(
            f"A record's list of keys or marks is damaged ({text!r}); `waybill doctor` says which."
        ) from None


def text_of(names: Sequence[str]) -> str:
    return msgspec.json.encode(names).decode() if names else ""


def record_of(row: Row, docs: Docs = NO_DOCS) -> Record:
    (
        kind,
        id,
        state,
        parent_kind,
        parent_id,
        owner,
        priority,
        last_done,
        retries,
        tries,
        message,
        session,
        keys,
        gates,
        parked,
        open,
        host,
        request,
        turn,
        seq,
        version,
        nudges,
        wake_at,
        created,
        updated,
    ) = row
    return Record(
        kind,
        id,
        state,
        Ref(parent_kind, parent_id) if parent_id is not None else None,
        owner,
        priority,
        last_done,
        retries,
        tries,
        message,
        session,
        names_of(keys),
        names_of(gates),
        parked,
        open == 1,
        host,
        request,
        turn,
        seq,
        version,
        nudges,
        wake_at,
        created,
        updated,
        docs,
    )


def parked_of(after: Record) -> str | None:
    """Only a claim parks on keys and marks; what a change says of them may be out of date, and the next claim
    decides again.
    """
    return after.parked if after.parked == "wait" or after.parked == "children" else None


def moved_row(before: Record, after: Record, turn: int | None, now: float) -> Row:
    """The parameters that `keep` and `let_go` share: the new values, then which row at which version of which
    holder.
    """
    return (
        after.state,
        after.owner,
        after.priority,
        after.last_done,
        after.retries,
        after.tries,
        after.message,
        text_of(after.keys) if after.keys else "",
        text_of(after.gates) if after.gates else "",
        1 if after.open else 0,
        after.host,
        turn,
        now,
        before.seq,
        before.version,
        before.session,
        before.state,
    )


def made_row(after: Record, seq: int, id: str, turn: int, parked: str | None, wake_at: float, now: float) -> Row:
    """The parameters of `create`."""
    parent = after.parent or (None, None)
    return (
        seq,
        after.kind,
        id,
        after.state,
        *parent,
        after.owner,
        after.priority,
        turn,
        after.last_done,
        after.retries,
        after.tries,
        after.message,
        text_of(after.keys),
        text_of(after.gates),
        parked,
        1 if after.open else 0,
        after.host,
        after.request,
        wake_at,
        now,
    )
