"""One lot as people look at it: its generations, its run, the parts and attempts of it, and what stands in its way."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

from waybill.apps.lots.catalogue import LotTables
from waybill.apps.lots.gaps import iter_runs
from waybill.apps.lots.machine import PART, RUN, PartAttempts, PartDocument, run_id_of
from waybill.apps.lots.reports import LotReports
from waybill.apps.lots.subjects import DatasetSubject, Subject
from waybill.apps.lots.units import Lot, format_instant
from waybill.errors import InputError
from waybill.record import RecordNotFound, Ref, Store

MAX_GENERATIONS = 50
MAX_PARTS = 200


def describe_lot(reports: LotReports, store: Store, subject: Subject, lot: Lot) -> dict[str, Any]:
    """Return what is known of a lot of a dataset or an arc."""
    if lot.unit != subject.unit:
        raise InputError(f"{lot} is no lot of {subject.title}, whose lots are of {subject.unit}.")
    (run,) = iter_runs(subject, lot, lot.next)
    found: dict[str, Any] = {
        "name": subject.title,
        "lot": str(lot),
        "start": format_instant(lot.start),
        "end": format_instant(lot.end),
        "class": run.name,
        "cause": run.cause or None,
    }
    if isinstance(subject, DatasetSubject):
        found["generations"] = list_generations(reports.tables, subject.declared.id, lot)
        return found
    arc = subject.declared
    found["runs"] = []
    row = reports.tables.find_run(arc.id, lot)
    while row is not None:
        entry = {
            "generation": row.generation,
            "state": row.state,
            "changed": row.changed,
            "message": row.message,
            "sources": row.sources,
        }
        entry |= describe_run_record(store, run_id_of(arc.id, lot, row.generation))
        found["runs"].append(entry)
        if row.generation == 1 or len(found["runs"]) >= MAX_GENERATIONS:
            break
        row = reports.tables.find_run(arc.id, lot, row.generation - 1)
    found["sinks"] = {sink.role: list_generations(reports.tables, sink.dataset, lot) for sink in arc.sinks}
    return found


def list_generations(tables: LotTables, dataset: str, lot: Lot) -> list[dict[str, Any]]:
    """Return the generations of a lot of a dataset, the newest first."""
    rows = tables.tables.query(
        "lot_generations", dataset=dataset, minute=lot.minute, before=2**31 - 1, row_limit=MAX_GENERATIONS
    )
    return [dict(row) for row in rows]


def describe_run_record(store: Store, id: str) -> dict[str, Any]:
    """Return the record of a run with its parts; of one that was removed, nothing."""
    try:
        record = store.get(RUN.name, id)
    except RecordNotFound:
        return {}
    parts = store.find(PART.name, parent=Ref(RUN.name, id), limit=MAX_PARTS, documents=True)
    return {
        "record": id,
        "record_state": record.state,
        "now": record.message,
        "blocked_by": record.blocked_by,
        "parts": [_describe_part(part) for part in parts.records],
        "more_parts": parts.after is not None,
    }


def _describe_part(part: Any) -> dict[str, Any]:
    about = part.document(PartDocument)
    attempts = part.find_document(PartAttempts) or PartAttempts()
    return {
        "part": part.id,
        "number": about.number,
        "partition": about.partition,
        "state": part.state,
        "objects": about.count,
        "bytes": about.bytes,
        "attempts": [
            {
                "attempt": each.id, "state": each.state, "began": _time_of(each.began), "ended": _time_of(each.ended), "host": each.host,
                "exit_code": each.exit_code, "message": each.message, "stdout": each.stdout, "stderr": each.stderr,
                "sinks": [
                    {"role": sink.role, "prefix": sink.prefix, "manifest": sink.manifest, "count": sink.count}
                    for sink in each.sinks
                ],
            }
            for each in attempts.attempts
        ],
    }  # fmt: skip


def _time_of(seconds: float) -> str | None:
    return format_instant(datetime.fromtimestamp(seconds, UTC)) if seconds else None
