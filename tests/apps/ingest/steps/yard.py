"""Jobs whose files are fetched already: as a job is when it comes to Processing, with its working folder."""

import hashlib
import uuid
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from tests.apps.ingest.site import Site
from waybill.apps.ingest.profile import Profile, to_document
from waybill.apps.ingest.submission import Submission, Type
from waybill.record import Record
from waybill.step import New

OWNER = "ark:/99999/fk4owner"


def sha256(data: bytes) -> str:
    return hashlib.sha256(data).hexdigest()


@contextmanager
def stopping_at_notify(folder: Path, profile: Profile) -> Iterator[Site]:
    """A site whose jobs stay in Notify, with their working folders."""
    with Site(folder, settings={"outside": ["Notify"]}) as site:
        add_profile(site, profile)
        yield site


def add_profile(site: Site, profile: Profile) -> None:
    with site.engine() as engine:
        engine.submit(New("profile", id=profile.name, docs={"profile": to_document(profile)}))


def folder_of(site: Site, job: Record) -> Path:
    said = job.docs["configuration"]
    return site.root / "queue" / said["batchID"] / said["jobID"]


def fetched(
    site: Site,
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
    told = {
        "profile": "p",
        "url": "http://127.0.0.1/x",
        "type": Type.OBJECT,
        "filename": "x.checkm",
        "owner": OWNER,
        "submitter": "ann",
    }
    token = str(uuid.uuid4())
    asked = Submission(**{**told, "batch_id": f"bid-{token}", "job_id": f"jid-{token}", **said})
    rows = [
        {"path": f"producer/{name}", "size": len(d), "sha256": sha256(d), "mime": "text/plain"}
        for name, d in files.items()
    ]
    folder = site.root / "queue" / asked.batch_id / asked.job_id / "producer"
    for name in files if keep is None else keep:
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_bytes(files[name])
    docs = {
        "configuration": asked.document(),
        "identifiers": asked.identifiers(),
        "metadata": asked.metadata(),
        "downloaded": {"count": len(rows), "rows": rows, "attempt": 1, "bytes": sum(map(len, files.values()))},
        **(more or {}),
    }
    with site.engine() as engine:
        job = engine.submit(
            New("job", docs={k: v for k, v in docs.items() if v is not None}, state="Failed", last_done=done)
        )
        return engine.act(job.ref, "resume").record


def run(site: Site, job: Record, *states: str) -> Record:
    """Until the job has settled, or is recorded."""
    with site.workers(roles=["job"]):
        return site.wait("job", job.id, *(states or ("Notify", "Completed", "Failed")))


def files_of(site: Site, ark: str, number: int = 0) -> dict[str, bytes]:
    """All files of a version by their paths, read through its manifest."""
    storage = site.depot.outfit("job").storage
    found = {}
    with storage.manifest(storage.stored(ark, number)) as reader:
        for entry in reader:
            with storage.read(ark, entry.extra["place"]) as body:
                found[entry.uri] = body.read()
    return found
