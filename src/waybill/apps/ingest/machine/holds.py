"""The holds that keep deposits from starting, and the back-off that all machines of ingest share."""

from __future__ import annotations

from collections.abc import Iterable

from waybill.apps.ingest.submission import Submission
from waybill.machine import Backoff
from waybill.record import Record, Store

PAUSE_HOLD = "queue/ingest"
MAX_SCOPE = 200  # characters
COLLECTION_HOLD_PREFIX = "collections/"  # followed by the mnemonic of a collection, or the name of a profile
PATIENT_BACKOFF = Backoff(5, 2, 300)


def hold_names_of(record: Record) -> Iterable[str]:
    submission = Submission.from_batch(record) if record.kind == "batch" else Submission.from_job(record)
    return [
        f"{COLLECTION_HOLD_PREFIX}{name}"
        for name in dict.fromkeys((*submission.collections, submission.profile))
        if name
    ]


def scope_of(record: Record) -> str:
    return deposit_scope_of(Submission.from_batch(record) if record.kind == "batch" else Submission.from_job(record))


def deposit_scope_of(submission: Submission) -> str:
    """The scope of a deposit: its first collection, or its profile where it has none. A name that cannot be part of a scope is
    none: nobody is given a role within it.
    """
    name = next(filter(None, (*submission.collections, submission.profile)), "")
    scope = f"ingest/collection/{name}"
    return scope if name and "/" not in name and name.isprintable() and len(scope) <= MAX_SCOPE else ""


def check_collection_is_open(record: Record, store: Store) -> str | None:
    in_force = sorted(set(hold_names_of(record)) & set(store.list_holds()))
    return f"It is still on hold: {', '.join(in_force)} is set. Release that first." if in_force else None
