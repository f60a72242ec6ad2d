"""Batches in a test: made, and their jobs brought to an end without doing their work.

batch = submit(site, url=..., type=Type.FILES)
for job in jobs(site, batch): settle(site, job, "Completed")
"""

from __future__ import annotations

from typing import Any

from tests.apps.ingest.site import Site
from waybill import rules
from waybill.apps.ingest.profile import Profile, to_document
from waybill.apps.ingest.submission import Submission, Type
from waybill.record import Change, Committed, Group, Record, Ref
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


def submit(site: Site, *, type: Type | None = None, url: str = "", **said: Any) -> Record:
    told = Submission(profile=said.pop("profile", "demo"), url=url, type=type, **({"batch_id": "bid-1"} | said))
    with site.engine() as engine:
        return engine.submit(New("batch", {"submission": told.document()}, owner="jane"), who="jane")


def profile(site: Site, **said: Any) -> None:
    body = to_document(Profile(**({"name": "demo"} | said)))
    with site.engine() as engine:
        engine.submit(New("profile", {"profile": body}, id=body["name"]))


def jobs(site: Site, batch: Record) -> list[Record]:
    """All jobs of a batch, in the order in which they were made."""
    found: list[Record] = []
    with site.engine() as engine:
        after: int | None = None
        while True:
            page = engine.store.find("job", parent=batch.ref, after=after, docs=True)
            found += page.records
            if page.after is None:
                return found
            after = page.after


def settle(site: Site, job: Record | Ref, state: str, message: str = "") -> Record:
    """The job as if its steps had brought it there."""
    with site.engine() as engine:
        record = engine.store.get(job.kind, job.id)
        machine = engine.machines["job"]
        after = rules.enter(
            machine, record, state, message=message, last_done="Notify" if state == "Completed" else record.last_done
        )
        (answer,) = engine.store.commit(
            [Group((Change(record, after, "done" if state == "Completed" else "fail", "test", message),))]
        )
        assert isinstance(answer, Committed), answer
        if answer.idle:
            engine.store.commit([Group((), answer.idle)])
        made = answer.records[0]
        assert made is not None
        return made


def every(site: Site, kind: str) -> list[Record]:
    with site.engine() as engine:
        return engine.store.find(kind, docs=True, limit=1000).records
