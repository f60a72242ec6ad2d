"""Records and action requests out of rows."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from waybill.record import NO_DOCUMENTS, ActionRequest, Record, RecordDocuments, Ref

# In the order of the fields of Record; a parent is two columns.
COLUMNS = (
    "kind",
    "id",
    "state",
    "parent_kind",
    "parent_id",
    "owner",
    "scope",
    "priority",
    "last_done",
    "resume_count",
    "error_count",
    "message",
    "session",
    "locks",
    "hold_names",
    "blocked_by",
    "open",
    "host",
    "idempotency_key",
    "queue_position",
    "seq",
    "version",
    "wake_count",
    "wake_at",
    "created",
    "updated",
)
COLUMN_COUNT = len(COLUMNS)
SELECT_LIST = ", ".join(f"r.{name}" for name in COLUMNS)


def record_of(row: Sequence[Any], documents: RecordDocuments = NO_DOCUMENTS) -> Record:
    """The record of a row that begins with COLUMNS."""
    parent = None if row[3] is None else Ref(row[3], row[4])
    fields = [*row[:3], parent, *row[5:13], tuple(row[13]), tuple(row[14]), *row[15:COLUMN_COUNT], documents]
    return Record(*fields)


def documents_of(names: Sequence[str] | None, bodies: Sequence[bytes] | None) -> RecordDocuments:
    return NO_DOCUMENTS if names is None or bodies is None else RecordDocuments(dict(zip(names, bodies, strict=True)))


def full_record_of(row: Sequence[Any]) -> Record:
    """The same for a row that continues with the names and the bodies of its documents."""
    return record_of(row, documents_of(row[COLUMN_COUNT], row[COLUMN_COUNT + 1]))


def action_request_of(row: Sequence[Any]) -> ActionRequest:
    kind, id, action, who, why, args = row
    return ActionRequest(Ref(kind, id), action, who, why, args)
