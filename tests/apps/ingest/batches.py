"""Batches in a test: made, and their jobs brought to an end without doing their work.

batch = submit(ingest, url=..., type=Type.FILES)
for job in jobs(ingest, batch): settle(ingest, job, "Completed")
"""

from __future__ import annotations

from typing import Any

from tests.apps.ingest.ingest_fixture import IngestFixture
from waybill import rules
from waybill.apps.ingest.profile import Profile, to_document
from waybill.apps.ingest.submission import PayloadType, Submission
from waybill.record import Change, CommitGroup, CommitResult, Record, Ref
from waybill.step import New

HEAD = (
    "#%checkm_0.7\n#%profile | http://uc3.cdlib.org/registry/ingest/manifest/mrt-{kind}-manifest\n"
    "#%prefix | mrt: | http://merritt.cdlib.org/terms#\n"
)


def manifest(kind: str, *rows: str) -> bytes:
    """A batch manifest of that kind: batch, container-batch, single-file-batch."""
    return (HEAD.format(kind=kind) + "".join(f"{row}\n" for row in rows) + "#%eof\n").encode()


def files(count: int) -> bytes:
    """A manifest of so many single files."""
    return manifest("single-file-batch", *(f"http://127.0.0.1/{n}.txt |  |  |  |  | {n}.txt" for n in range(count)))


def submit(ingest: IngestFixture, *, type: PayloadType | None = None, url: str = "", **fields: Any) -> Record:
    submission = Submission(
        profile=fields.pop("profile", "demo"), url=url, type=type, **({"batch_id": "bid-1"} | fields)
    )
    with ingest.engine() as engine:
        return engine.submit(New("batch", {"submission": submission.to_document()}, owner="jane"), who="jane")


def profile(ingest: IngestFixture, **fields: Any) -> None:
    body = to_document(Profile(**({"name": "demo"} | fields)))
    with ingest.engine() as engine:
        engine.submit(New("profile", {"profile": body}, id=body["name"]))


def jobs(ingest: IngestFixture, batch: Record) -> list[Record]:
    """All jobs of a batch, in the order in which they were made."""
    found: list[Record] = []
    with ingest.engine() as engine:
        after: int | None = None
        while True:
            page = engine.store.find("job", parent=batch.ref, after=after, documents=True)
            found += page.records
            if page.after is None:
                return found
            after = page.after


def settle(ingest: IngestFixture, job: Record | Ref, state: str, message: str = "") -> Record:
    """The job as if its steps had brought it there."""
    with ingest.engine() as engine:
        record = engine.store.get(job.kind, job.id)
        machine = engine.machines["job"]
        after = rules.enter_state(
            machine, record, state, message=message, last_done="Notify" if state == "Completed" else record.last_done
        )
        (answer,) = engine.store.commit(
            [CommitGroup((Change(record, after, "done" if state == "Completed" else "fail", "test", message),))]
        )
        assert isinstance(answer, CommitResult), answer
        if answer.idle_parents:
            engine.store.commit([CommitGroup((), answer.idle_parents)])
        made = answer.records[0]
        assert made is not None
        return made


def every(ingest: IngestFixture, kind: str) -> list[Record]:
    with ingest.engine() as engine:
        return engine.store.find(kind, documents=True, limit=1000).records
