"""Jobs at the front of their way: submitted, and taken one step at a time."""

import hashlib
import uuid
from pathlib import Path
from typing import Any

from tests.apps.ingest.documents import by_name
from tests.apps.ingest.ingest_fixture import IngestFixture
from waybill.apps.ingest.formats.checkm import ManifestRow, write_object_manifest
from waybill.apps.ingest.submission import PayloadType, Submission
from waybill.record import Record
from waybill.step import New
from waybill.worker import StepTransition


def sha256(data: bytes) -> str:
    return hashlib.sha256(data).hexdigest()


def md5(data: bytes) -> str:
    return hashlib.md5(data, usedforsecurity=False).hexdigest()


def manifest(*rows: ManifestRow) -> bytes:
    return b"".join(write_object_manifest(rows))


def submit(
    ingest: IngestFixture,
    url: str,
    type: PayloadType | None = None,
    *,
    state: str | None = None,
    docs: dict[str, Any] | None = None,
    priority: int = 5,
    **fields: Any,
) -> Record:
    token = str(uuid.uuid4())
    submission = Submission(
        **{"profile": "p", "url": url, "type": type, "batch_id": f"bid-{token}", "job_id": f"jid-{token}", **fields}
    )
    written = {**by_name(*submission.to_job_documents()), **(docs or {})}
    with ingest.engine() as engine:
        return engine.submit(New("job", written, state=state, priority=priority))


def resume_after(
    ingest: IngestFixture,
    done: str,
    url: str,
    docs: dict[str, Any],
    type: PayloadType = PayloadType.FILE,
    **fields: Any,
) -> Record:
    """A job that was done so far, failed, and is taken up again."""
    token = str(uuid.uuid4())
    submission = Submission(
        **{"profile": "p", "url": url, "type": type, "batch_id": f"bid-{token}", "job_id": f"jid-{token}", **fields}
    )
    with ingest.engine() as engine:
        job = engine.submit(
            New("job", {"configuration": submission.to_document(), **docs}, state="Failed", last_done=done)
        )
        return engine.act(job.ref, "resume").record


def upload(ingest: IngestFixture, name: str, data: bytes, **fields: Any) -> dict[str, Any]:
    """What a submission says of bytes that were uploaded."""
    place = f"ingest/payloads/{uuid.uuid4()}/{name}"
    ingest.environment.objects.put(place, data)
    return {"url": f"waybill:{place}", "filename": name, "received_digests": {"sha256": sha256(data)}, **fields}


def step(ingest: IngestFixture, job: Record) -> StepTransition:
    """One step of the job."""
    arrow = ingest.step(job.ref)
    assert arrow is not None
    return arrow


def walk(ingest: IngestFixture, job: Record, *, upto: str = "Processing") -> Record:
    """Steps until the job is there, or fails, or waits."""
    while True:
        arrow = step(ingest, job)
        job = ingest.get("job", job.id)
        if job.state in (upto, "Failed") or arrow.before == arrow.after:
            return job


def folder_of(ingest: IngestFixture, job: Record) -> Path:
    document = job.documents["configuration"]
    return ingest.root / "queue" / document["batchID"] / document["jobID"]


def producer(ingest: IngestFixture, job: Record) -> dict[str, bytes]:
    """The files that were published, by name."""
    top = folder_of(ingest, job) / "producer"
    return {path.relative_to(top).as_posix(): path.read_bytes() for path in top.rglob("*") if path.is_file()}


def list_requested_paths(ingest: IngestFixture, method: str) -> list[str]:
    return [path for verb, path in ingest.web.requests if verb == method]
