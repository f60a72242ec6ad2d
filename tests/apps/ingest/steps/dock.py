"""Jobs at the front of their way: submitted, and taken one step at a time."""

import hashlib
import uuid
from pathlib import Path
from typing import Any

from tests.apps.ingest.site import Site
from waybill.apps.ingest.checkm import Row, object_manifest
from waybill.apps.ingest.submission import Submission, Type
from waybill.record import Record
from waybill.step import New
from waybill.worker import Arrow, step_once


def sha256(data: bytes) -> str:
    return hashlib.sha256(data).hexdigest()


def md5(data: bytes) -> str:
    return hashlib.md5(data, usedforsecurity=False).hexdigest()


def manifest(*rows: Row) -> bytes:
    return b"".join(object_manifest(rows))


def submit(
    site: Site,
    url: str,
    type: Type | None = None,
    *,
    state: str | None = None,
    docs: dict[str, Any] | None = None,
    priority: int = 5,
    **said: Any,
) -> Record:
    token = str(uuid.uuid4())
    asked = Submission(
        **{"profile": "p", "url": url, "type": type, "batch_id": f"bid-{token}", "job_id": f"jid-{token}", **said}
    )
    written = {
        "configuration": asked.document(),
        "identifiers": asked.identifiers(),
        "metadata": asked.metadata(),
        **(docs or {}),
    }
    with site.engine() as engine:
        return engine.submit(New("job", written, state=state, priority=priority))


def resumed_after(site: Site, done: str, url: str, docs: dict[str, Any], type: Type = Type.FILE, **said: Any) -> Record:
    """A job that was done so far, failed, and is taken up again."""
    token = str(uuid.uuid4())
    asked = Submission(
        **{"profile": "p", "url": url, "type": type, "batch_id": f"bid-{token}", "job_id": f"jid-{token}", **said}
    )
    with site.engine() as engine:
        job = engine.submit(New("job", {"configuration": asked.document(), **docs}, state="Failed", last_done=done))
        return engine.act(job.ref, "resume").record


def upload(site: Site, name: str, data: bytes, **said: Any) -> dict[str, Any]:
    """What a submission says of bytes that were uploaded."""
    place = f"ingest/payloads/{uuid.uuid4()}/{name}"
    site.depot.objects.put(place, data)
    return {"url": f"waybill:{place}", "filename": name, "received": {"sha256": sha256(data)}, **said}


def step(site: Site, job: Record) -> Arrow:
    """One step of the job."""
    arrow = step_once(
        site.depot.open_store,
        site.depot.machines,
        host=site.depot.host,
        work_root=site.root,
        objects=site.depot.objects,
        target=job.ref,
        outfit=site.depot.outfit,
    )
    assert arrow is not None
    return arrow


def walk(site: Site, job: Record, *, upto: str = "Processing") -> Record:
    """Steps until the job is there, or fails, or waits."""
    while True:
        arrow = step(site, job)
        job = site.get("job", job.id)
        if job.state in (upto, "Failed") or arrow.before == arrow.after:
            return job


def folder_of(site: Site, job: Record) -> Path:
    said = job.docs["configuration"]
    return site.root / "queue" / said["batchID"] / said["jobID"]


def producer(site: Site, job: Record) -> dict[str, bytes]:
    """The files that were published, by name."""
    top = folder_of(site, job) / "producer"
    return {path.relative_to(top).as_posix(): path.read_bytes() for path in top.rglob("*") if path.is_file()}


def asked(site: Site, method: str) -> list[str]:
    return [path for verb, path in site.web.requests if verb == method]
