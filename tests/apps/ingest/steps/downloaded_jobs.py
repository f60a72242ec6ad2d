"""Jobs whose files are fetched already: as a job is when it comes to Processing, with its working folder."""

import hashlib
import uuid
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from tests.apps.ingest.documents import by_name
from tests.apps.ingest.ingest_fixture import IngestFixture
from waybill.apps.ingest.profile import Profile, to_document
from waybill.apps.ingest.submission import PayloadType, Submission
from waybill.record import Record
from waybill.step import New

OWNER = "ark:/99999/fk4owner"


def sha256(data: bytes) -> str:
    return hashlib.sha256(data).hexdigest()


@contextmanager
def stopping_at_notify(folder: Path, profile: Profile) -> Iterator[IngestFixture]:
    """A ingest whose jobs stay in Notify, with their working folders."""
    with IngestFixture(folder, settings={"external_states": ["Notify"]}) as ingest:
        add_profile(ingest, profile)
        yield ingest


def add_profile(ingest: IngestFixture, profile: Profile) -> None:
    with ingest.engine() as engine:
        engine.submit(New("profile", id=profile.name, documents={"profile": to_document(profile)}))


def folder_of(ingest: IngestFixture, job: Record) -> Path:
    document = job.documents["configuration"]
    return ingest.root / "queue" / document["batchID"] / document["jobID"]


def fetched(
    ingest: IngestFixture,
    files: Mapping[str, bytes],
    *,
    done: str = "Downloading",
    more: Mapping[str, Any] | None = None,
    keep: Iterable[str] | None = None,
    **said: Any,
) -> Record:
    """A job after Downloading, taken up again: Processing is its next state. `keep`: which files are really in the
    working folder.
    """
    fields = {
        "profile": "p",
        "url": "http://127.0.0.1/x",
        "type": PayloadType.OBJECT,
        "filename": "x.checkm",
        "owner": OWNER,
        "submitter": "ann",
    }
    token = str(uuid.uuid4())
    submission = Submission(**{**fields, "batch_id": f"bid-{token}", "job_id": f"jid-{token}", **said})
    rows = [
        {"path": f"producer/{name}", "size": len(d), "sha256": sha256(d), "mime": "text/plain"}
        for name, d in files.items()
    ]
    folder = ingest.root / "queue" / submission.batch_id / submission.job_id / "producer"
    for name in files if keep is None else keep:
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_bytes(files[name])
    docs = {
        **by_name(*submission.to_job_documents()),
        "downloaded": {"count": len(rows), "rows": rows, "attempt": 1, "bytes": sum(map(len, files.values()))},
        **(more or {}),
    }
    with ingest.engine() as engine:
        job = engine.submit(
            New("job", documents={k: v for k, v in docs.items() if v is not None}, state="Failed", last_done=done)
        )
        return engine.act(job.ref, "resume").record


def run(ingest: IngestFixture, job: Record, *states: str) -> Record:
    """Until the job has settled, or is recorded."""
    with ingest.workers(queues=["job"]):
        return ingest.wait("job", job.id, *(states or ("Notify", "Completed", "Failed")))


def files_of(ingest: IngestFixture, ark: str, number: int = 0) -> dict[str, bytes]:
    """All files of a version by their paths, read through its manifest."""
    storage = ingest.resources.storage
    found = {}
    with storage.open_manifest(storage.get_version(ark, number)) as reader:
        for entry in reader:
            with storage.read(ark, entry.extra["place"]) as body:
                found[entry.uri] = body.read()
    return found
