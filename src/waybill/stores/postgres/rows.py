"""Rows of the table `record`, read as records."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from waybill.record import NO_DOCS, Ask, Docs, Record, Ref

# In the order of Record's own fields, a parent being two columns.
COLUMNS = (
    "kind",
    "id",
    "state",
    "parent_kind",
    "parent_id",
    "owner",
    "priority",
    "last_done",
    "retries",
    "tries",
    "message",
    "session",
    "keys",
    "gates",
    "parked",
    "open",
    "host",
    "request",
    "turn",
    "seq",
    "version",
    "nudges",
    "wake_at",
    "created",
    "updated",
)
WIDTH = len(COLUMNS)
SELECTED = ", ".join(f"r.{name}" for name in COLUMNS)


def record(row: Sequence[Any], docs: Docs = NO_DOCS) -> Record:
    """The record of a row that begins with COLUMNS."""
    parent = None if row[3] is None else Ref(row[3], row[4])
    fields = [*row[:3], parent, *row[5:12], tuple(row[12]), tuple(row[13]), *row[14:WIDTH], docs]
    return Record(*fields)


def documents(names: Sequence[str] | None, bodies: Sequence[bytes] | None) -> Docs:
    return NO_DOCS if names is None or bodies is None else Docs(dict(zip(names, bodies, strict=True)))


def record_with_documents(row: Sequence[Any]) -> Record:
    """The same for a row that goes on with the names and the bodies of its documents."""
    return record(row, documents(row[WIDTH], row[WIDTH + 1]))


def ask(row: Sequence[Any]) -> Ask:
    kind, id, action, who, why, args = row
    return Ask(Ref(kind, id), action, who, why, args)
