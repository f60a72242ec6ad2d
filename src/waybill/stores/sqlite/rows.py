"""Records as rows of the table `record`, both ways, and the statements that read and write them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import msgspec

from waybill.record import NO_DOCUMENTS, BadStore, Record, RecordDocuments, Ref
from waybill.sql_statements import load_statements

COLUMNS = (
    "kind, id, state, parent_kind, parent_id, owner, scope, priority, last_done, resume_count, error_count, message, session, locks, "
    "hold_names, blocked_by, open, host, idempotency_key, queue_position, seq, version, wake_count, wake_at, created, updated"
)
SEEN = (
    "((owner <> '' and +owner in (select value from json_each(?5)))"
    " or (scope <> '' and +scope in (select value from json_each(?6))))"
)
SQL = {
    name: text.replace("$columns", COLUMNS).replace("$seen", SEEN)
    for name, text in load_statements(__package__, "statements.sql").items()
}

Row = tuple[Any, ...]
_decode_names = msgspec.json.Decoder(tuple[str, ...]).decode


def names_of(text: str) -> tuple[str, ...]:
    """The names in a column of locks or hold_names. Most records have none: an empty text, which is not decoded."""
    try:
        return _decode_names(text) if text else ()
    except msgspec.MsgspecError:
        raise BadStore(
            f"A record's list of locks or holds is damaged ({text!r}); `waybill doctor` names the record."
        ) from None


def text_of(names: Sequence[str]) -> str:
    return msgspec.json.encode(names).decode() if names else ""


def record_of(row: Row, documents: RecordDocuments = NO_DOCUMENTS) -> Record:
    (
        kind,
        id,
        state,
        parent_kind,
        parent_id,
        owner,
        scope,
        priority,
        last_done,
        resume_count,
        error_count,
        message,
        session,
        locks,
        hold_names,
        blocked_by,
        open,
        host,
        idempotency_key,
        queue_position,
        seq,
        version,
        wake_count,
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
        scope,
        priority,
        last_done,
        resume_count,
        error_count,
        message,
        session,
        names_of(locks),
        names_of(hold_names),
        blocked_by,
        open == 1,
        host,
        idempotency_key,
        queue_position,
        seq,
        version,
        wake_count,
        wake_at,
        created,
        updated,
        documents,
    )


def blocked_by_of(after: Record) -> str | None:
    """What a change may be blocked by. Only a claim blocks on locks and holds: in a change they may be out of date, and
    the next claim decides again.
    """
    return after.blocked_by if after.blocked_by == "wait" or after.blocked_by == "children" else None


def update_row_of(before: Record, after: Record, queue_position: int | None, now: float) -> Row:
    """The parameters that update_claimed and update_released share: the new values, then the row, version, session and
    state that are expected.
    """
    return (
        after.state,
        after.owner,
        after.scope,
        after.priority,
        after.last_done,
        after.resume_count,
        after.error_count,
        after.message,
        text_of(after.locks) if after.locks else "",
        text_of(after.hold_names) if after.hold_names else "",
        1 if after.open else 0,
        after.host,
        queue_position,
        now,
        before.seq,
        before.version,
        before.session,
        before.state,
    )


def create_row_of(
    after: Record, seq: int, id: str, queue_position: int, blocked_by: str | None, wake_at: float, now: float
) -> Row:
    """The parameters of create_record."""
    parent = after.parent or (None, None)
    return (
        seq,
        after.kind,
        id,
        after.state,
        *parent,
        after.owner,
        after.scope,
        after.priority,
        queue_position,
        after.last_done,
        after.resume_count,
        after.error_count,
        after.message,
        text_of(after.locks),
        text_of(after.hold_names),
        blocked_by,
        1 if after.open else 0,
        after.host,
        after.idempotency_key,
        wake_at,
        now,
    )
