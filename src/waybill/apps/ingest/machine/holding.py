"""Holding: the marks that keep deposits from beginning, and what all machines of ingest have in common."""

from __future__ import annotations

from collections.abc import Iterable

from waybill.apps.ingest import submission
from waybill.machine import Backoff
from waybill.record import Record, Store

PAUSE = "queue/ingest"
MARK = "collections/"  # and a name: of a collection, or of a profile
PATIENT = Backoff(5, 2, 300)


def gates(record: Record) -> Iterable[str]:
    said = submission.of_batch(record) if record.kind == "batch" else submission.of_job(record)
    return [f"{MARK}{name}" for name in dict.fromkeys((*said.collections, said.profile)) if name]


def collection_is_open(record: Record, store: Store) -> str | None:
    held = sorted(set(gates(record)) & set(store.marks()))
    return f"It is still on hold: {', '.join(held)} is set. Release that first." if held else None
