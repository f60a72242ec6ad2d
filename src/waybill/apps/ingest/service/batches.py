"""Batches and their jobs, as their depositors and operators look at them."""

from __future__ import annotations

import re
from typing import Any

from waybill.apps.ingest import names, submission
from waybill.apps.ingest.service.refusals import Missing
from waybill.engine import Engine
from waybill.record import NotFound, Record
from waybill.rules import bad_id
from waybill.views import message, moment

_OF_STORE = re.compile(r"bid[0-9]{10,}")
_UUID = re.compile(r"[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}")


def find_batch(engine: Engine, name: str) -> Record:
    """A batch by its id, or by its batchID, with or without the `bid-` before the uuid; Missing if there is none."""
    try:
        if _OF_STORE.fullmatch(name):
            return engine.store.get("batch", name)
        if bad_id(name) is None:
            return engine.store.requested("batch", f"bid-{name}" if _UUID.fullmatch(name) else name)
    except NotFound:
        pass
    raise Missing(f"There is no batch {names.shown(name)}: look at the id. Completed ones are removed after a while.")


def find_job(engine: Engine, id: str) -> Record:
    try:
        if bad_id(id) is None:
            return engine.store.get("job", id)
    except NotFound:
        pass
    raise Missing(f"There is no job {names.shown(id)}: look at the id. Jobs are removed with their batch.")


def batch_view(engine: Engine, batch: Record) -> dict[str, Any]:
    """A batch in the words of its depositor: what was asked for, how its jobs stand, what was reported.

    `batch` has its documents.
    """
    said = submission.of_batch(batch)
    jobs = engine.store.tally("job", parent=batch.ref)
    state = engine.machines["batch"].state(batch.state)
    return {
        "id": batch.id,
        "batch_id": said.batch_id,
        "state": batch.state,
        "state_doc": state.doc if state is not None else "",
        "message": message(engine.machines["batch"], batch, engine.store.marks())
        if batch.state == "Held"
        else batch.message,
        "profile": said.profile,
        "collections": list(said.collections),
        "submitter": said.submitter,
        "type": str(said.type) if said.type is not None else None,
        "update": said.update,
        "filename": said.filename,
        "size": said.size,
        "digests": said.received,
        "title": said.title,
        "creator": said.creator,
        "date": said.date,
        "primary_id": said.primary_id,
        "local_ids": list(said.local_ids),
        "note": said.note,
        "submitted": said.submitted or moment(batch.created),
        "updated": moment(batch.updated),
        "jobs": {"total": sum(jobs.values()), "states": jobs},
        "report": batch.docs.get("status-report"),
        "trouble": batch.docs.get("trouble"),
        "remarks": _remarks(batch),
        "links": links_of(batch),
    }


def _remarks(batch: Record) -> list[str]:
    """What is no fault of its manifest but worth knowing, each with its line."""
    spawned = batch.docs.get("spawned")
    return list(spawned.get("remarks", ())) if isinstance(spawned, dict) else []


def links_of(batch: Record) -> dict[str, str]:
    """Where its parts are found, from the root of the server."""
    return {
        "batch": f"/api/v1/ingest/batches/{batch.id}",
        "jobs": f"/api/v1/records/job?parent=batch:{batch.id}",
        "record": f"/api/v1/records/batch/{batch.id}",
        "history": f"/api/v1/records/batch/{batch.id}/history",
    }
