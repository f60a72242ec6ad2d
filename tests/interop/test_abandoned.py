"""A batch that another service took and left undone: none of its objects is lost, and none gets a second job."""

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.apps.ingest.site import Site
from tests.interop.merritt.admin import Admin
from tests.interop.merritt.batches import Batch
from tests.interop.merritt.client import Client
from tests.interop.merritt.jobs import Job, delete_deleted_jobs, list_jobs
from tests.servers.process import wait_until
from tests.stores.zookeeper import nodedump
from waybill.apps.ingest import submission
from waybill.apps.ingest.steps import comparing
from waybill.record import Record, Ref

DIALECTS = pytest.mark.parametrize("ruby", [False, True], ids=["java", "ruby"])
Theirs = Callable[..., Client]
HEAD = "#%checkm_0.7\n#%profile | http://uc3.cdlib.org/registry/ingest/manifest/mrt-single-file-batch-manifest\n"


@pytest.fixture
def site(zookeeper_url: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Site]:
    monkeypatch.setattr(comparing, "LOOK", 0.05)
    monkeypatch.setattr(comparing, "PATIENCE", 0.2)
    with Site(tmp_path, store=f"{zookeeper_url}?grace=0&listing=0.1") as site:
        yield site


def listed(site: Site, count: int, **more: Any) -> dict[str, Any]:
    """The submission of a batch with so many files, as their ingest writes it, with the design's payload_url."""
    rows = "".join(f"{site.web.put(f'{n}.txt', b'%d' % n)} | | | | | {n}.txt | | local-{n}\n" for n in range(count))
    url = site.web.put("batch.checkm", f"{HEAD}{rows}#%eof\n".encode())
    return {
        "batchID": "bid-1",
        "profile": "p",
        "type": "batchManifestFile",
        "update": False,
        "payload_url": url,
        **more,
    }


def row(site: Site, n: int, **more: Any) -> dict[str, Any]:
    return {
        "profile": "p",
        "type": "file",
        "update": False,
        "filename": f"{n}.txt",
        "payload_url": f"{site.web.url}/{n}.txt",
        "jobID": f"jid-{n}",
        "batchID": "bid-1",
        **more,
    }


def taken(client: Client, said: dict[str, Any], jobs: list[dict[str, Any]]) -> str:
    """The batch consumer takes it, and makes these jobs. The caller decides when it dies."""
    batch = Batch.create(client, said)
    assert (found := Batch.acquire_pending(client)) is not None
    assert found.id == batch.id
    for each in jobs:
        Job.create(client, batch.id, each)
    return batch.id


def ends(site: Site, batch: str, *states: str) -> Record:
    def over() -> bool:
        with site.engine() as engine:
            engine.store.sweep()
            engine.nudge(engine.store.idle_parents().refs)
            found = engine.store.get("batch", batch)
            return found.state in ("Completed", "Failed") and found.session is None

    wait_until(over, f"the end of {batch}")
    return site.wait("batch", batch, *states)


def files_of(site: Site, batch: str) -> list[str]:
    with site.engine() as engine:
        found = engine.store.find("job", parent=Ref("batch", batch), docs=True).records
    return sorted(submission.of_job(job).filename for job in found)


@DIALECTS
@pytest.mark.parametrize("made", [0, 1, 3])
def test_the_jobs_that_a_dead_taker_has_not_made_are_made_here(
    site: Site, theirs: Theirs, ruby: bool, made: int
) -> None:
    client = theirs(ruby=ruby)
    batch = taken(client, listed(site, 4), [row(site, n) for n in range(made)])
    client.close()
    with site.workers():
        done = ends(site, batch, "Completed")
    assert files_of(site, batch) == ["0.txt", "1.txt", "2.txt", "3.txt"], "each row once"
    assert done.docs["status-report"]["counts"] == {"completed": 4, "failed": 0, "deleted": 0}
    assert nodedump.faults(theirs().zk) == []


@DIALECTS
def test_nothing_is_made_while_the_taker_lives_however_slow_it_is(site: Site, theirs: Theirs, ruby: bool) -> None:
    slow = theirs(ruby=ruby)
    batch = taken(slow, listed(site, 3), [row(site, 0)])
    (job,) = [each.id for each in list_jobs(theirs())]
    with site.workers():
        site.wait("job", job, "Completed")
        with site.engine() as engine:
            for _ in range(10):  # every look that the duties would take
                engine.store.sweep()
                engine.nudge(engine.store.idle_parents().refs)
                engine.store.watch(0.1)
        assert files_of(site, batch) == ["0.txt"]
        for n in (1, 2):
            Job.create(slow, batch, row(site, n))
        found = Batch(slow, batch).load()
        found.set_status("Reporting")
        found.unlock()
        ends(site, batch, "Completed")
    assert files_of(site, batch) == ["0.txt", "1.txt", "2.txt"]


def test_rows_without_a_job_are_named_when_it_is_not_plain_what_the_taker_did(site: Site, theirs: Theirs) -> None:
    """Not the first rows: so it is not only death that kept the others from being made."""
    client = theirs()
    batch = taken(client, listed(site, 4), [row(site, 0), row(site, 2)])
    client.close()
    with site.workers():
        failed = ends(site, batch, "Failed")
        assert failed.message.startswith("2 of its 4 objects have no job. They are '1.txt', '3.txt'.")
        assert failed.docs["trouble"]["reasons"][0] == "Line 4: no job was made for '1.txt'."
        assert failed.docs["status-report"]["counts"] == {"completed": 2, "failed": 0, "deleted": 0}
        assert failed.docs["status-report"]["status"] == "Failed"
        with site.engine() as engine:
            engine.act(failed.ref, "report", who="ann")
        again = ends(site, batch, "Failed")
        assert again.docs["status-report"]["report"] == 2, "and it does not become whole by being reported again"
        other = theirs()
        for n in (1, 3):
            Job.create(other, batch, row(site, n))
        for each in list_jobs(other):
            site.wait("job", each.id, "Completed")
        with site.engine() as engine:
            engine.act(failed.ref, "report", who="ann")
        done = ends(site, batch, "Completed")
    assert "trouble" not in done.docs


def test_a_batch_that_they_called_made_is_compared_too(site: Site, theirs: Theirs) -> None:
    client = theirs()
    batch = taken(client, listed(site, 3), [row(site, 0)])
    found = Batch(client, batch).load()
    found.set_status("Reporting")
    client.close()
    with site.workers():
        failed = ends(site, batch, "Failed")
    assert failed.message.startswith("2 of its 3 objects have no job. They are '1.txt', '2.txt'.")
    assert files_of(site, batch) == ["0.txt"], (
        "whoever says that they are all there may have removed some: they are not made again"
    )


def test_a_job_that_was_there_and_was_deleted_and_cleared_away_is_not_missed(site: Site, theirs: Theirs) -> None:
    client = theirs()
    batch = taken(client, listed(site, 3), [row(site, n) for n in range(3)])
    del site.web.files["/2.txt"]
    found = Batch(client, batch).load()
    found.set_status("Reporting")
    found.unlock()
    with site.workers():
        failed = ends(site, batch, "Failed")
        (job,) = found.jobs("batch-failed")
        Admin(theirs(ruby=True)).delete(job)
        delete_deleted_jobs(client)
        with site.engine() as engine:
            engine.act(failed.ref, "report", who="ann")
        ends(site, batch, "Completed")
    assert files_of(site, batch) == ["0.txt", "1.txt"]


@pytest.mark.parametrize("said", ["", "Reporting"])
def test_where_the_manifest_cannot_be_read_the_jobs_of_the_taker_count_and_without_his_word_it_is_remarked(
    site: Site, theirs: Theirs, said: str
) -> None:
    client = theirs()
    submitted = {**listed(site, 3), "payload_url": "", "filename": "batch.checkm"}
    batch = taken(client, submitted, [row(site, n) for n in range(2)])
    if said:
        Batch(client, batch).load().set_status(said)
    client.close()
    with site.workers():
        ended = ends(site, batch, "Completed")
    remarked = ended.docs["status-report"].get("remark", "")
    assert ("made 2 jobs and has not said that these are all" in remarked) == (not said)
    assert ended.message == f"2 of 2 completed{f'. {remarked}' if remarked else ''}"


def test_jobs_that_name_no_address_are_known_by_their_files_and_else_counted(site: Site, theirs: Theirs) -> None:
    rows = [comparing.Row(line, f"http://x/{line}", f"{line}.txt") for line in range(3, 6)]

    def beside(*jobs: tuple[str, str]) -> comparing.Found:
        said = [submission.Submission(profile="p", url=url, filename=name) for url, name in jobs]
        return comparing._beside(rows, iter(said), submission.Type.FILES)

    assert beside(("http://x/3", "a"), ("", "4.txt"), ("", "5.txt")).whole
    assert beside(("", "batch.checkm"), ("", "batch.checkm"), ("", "batch.checkm")).whole, "as many jobs as rows"
    fewer = beside(("", "batch.checkm"), ("http://x/3", ""))
    assert (fewer.lacking, [each.line for each in fewer.bare], fewer.begun) == (1, [4, 5], False)
    twice = beside(("http://x/3", ""), ("http://x/3", ""), ("http://x/4", ""))
    assert (twice.lacking, [each.line for each in twice.bare], twice.begun) == (1, [5], False)
