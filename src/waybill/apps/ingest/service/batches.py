"""Batches and their jobs, as depositors and operators see them."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

from waybill.apps.ingest.documents import BatchFailure, BatchJobs
from waybill.apps.ingest.machine.batch import BATCH
from waybill.apps.ingest.submission import Submission
from waybill.engine import Engine
from waybill.errors import NotFound
from waybill.files import names
from waybill.machine import Machine
from waybill.record import Record, RecordNotFound
from waybill.rules import find_id_problem
from waybill.views import compose_record_message, format_time

_STORE_ID = re.compile(r"bid[0-9]{10,}")
_UUID = re.compile(r"[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}")


def find_batch(engine: Engine, id_or_batch_id: str) -> Record:
    """A batch by its id, or by its batchID, with or without `bid-` before the uuid; raises NotFound if there is none."""
    try:
        if _STORE_ID.fullmatch(id_or_batch_id):
            return engine.store.get("batch", id_or_batch_id)
        if find_id_problem(id_or_batch_id) is None:
            return engine.store.get_by_idempotency_key(
                "batch", f"bid-{id_or_batch_id}" if _UUID.fullmatch(id_or_batch_id) else id_or_batch_id
            )
    except RecordNotFound:
        pass
    raise NotFound(
        f"There is no batch {names.quote_text(id_or_batch_id)}: check the id. Completed batches are removed after a while."
    )


def find_job(engine: Engine, id: str) -> Record:
    try:
        if find_id_problem(id) is None:
            return engine.store.get("job", id)
    except RecordNotFound:
        pass
    raise NotFound(f"There is no job {names.quote_text(id)}: check the id. Jobs are removed with their batch.")


def build_batch_view(engine: Engine, batch: Record) -> dict[str, Any]:
    """A batch for its depositor: what was submitted, the states of its jobs, and the last report.

    `batch` has its documents.
    """
    submission, created = Submission.from_batch(batch), batch.find_document(BatchJobs)
    jobs = engine.store.count_by_state("job", parent=batch.ref)
    state = engine.machines["batch"].find_state(batch.state)
    is_report_due = is_repaired(engine.machines["job"], batch, jobs)
    return {
        "id": batch.id,
        "batch_id": submission.batch_id,
        "state": batch.state,
        "state_description": state.description if state is not None else "",
        "message": compose_record_message(engine.machines["batch"], batch, engine.store.list_holds())
        if batch.state == BATCH.held
        else explain_repaired(batch)
        if is_report_due
        else batch.message,
        "report_due": is_report_due,
        "profile": submission.profile,
        "collections": list(submission.collections),
        "submitter": submission.submitter,
        "type": str(submission.type) if submission.type is not None else None,
        "update": submission.update,
        "filename": submission.filename,
        "size": submission.size,
        "digests": submission.received_digests,
        "title": submission.title,
        "creator": submission.creator,
        "date": submission.date,
        "primary_id": submission.primary_id,
        "local_ids": list(submission.local_ids),
        "note": submission.note,
        "submitted": submission.submitted_at or format_time(batch.created),
        "updated": format_time(batch.updated),
        "jobs": {"total": sum(jobs.values()), "states": jobs},
        "report": batch.documents.get("status-report"),
        "failure": batch.documents.get("failure"),
        "remarks": list(created.remarks) if created is not None else [],  # on its manifest, each with its line
        "links": links_of(batch),
    }


def is_repaired(job_machine: Machine, batch: Record, jobs: Mapping[str, int]) -> bool:
    """Whether a failed batch has no failed job any more: its jobs were resumed or deleted since, and only its report is old."""
    if batch.state != BATCH.failed or batch.find_document(BatchFailure) is not None:
        return False
    present = {state for state, count in jobs.items() if count}
    done = {state.name for state in job_machine.states if state.type == "end"}
    return bool(present) and present <= done


def explain_repaired(batch: Record) -> str:
    return f"All its jobs are done now; the report is due: waybill ingest report {batch.id} --send"


def links_of(batch: Record) -> dict[str, str]:
    """The paths of the batch and its parts on the server."""
    return {
        "batch": f"/api/v1/ingest/batches/{batch.id}",
        "jobs": f"/api/v1/records/job?parent=batch:{batch.id}",
        "record": f"/api/v1/records/batch/{batch.id}",
        "history": f"/api/v1/records/batch/{batch.id}/history",
    }
