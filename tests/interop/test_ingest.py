"""The real ingest, with its real steps, beside services of Merritt's: files are fetched, stored, recorded and
announced all the same.
"""

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import pytest

from tests.apps.ingest.batches import profile
from tests.apps.ingest.site import Site
from tests.interop.merritt.admin import Admin
from tests.interop.merritt.batches import Batch, find_by_uuid
from tests.interop.merritt.client import Client
from tests.interop.merritt.jobs import Job, list_jobs
from tests.interop.merritt.locks import lock, unlock
from tests.interop.merritt.services import Service
from tests.servers.process import wait_until
from tests.stores.zookeeper import nodedump
from waybill.apps.ingest.submission import Submission, Type
from waybill.record import Ref
from waybill.step import New

DIALECTS = pytest.mark.parametrize("ruby", [False, True], ids=["java", "ruby"])
Theirs = Callable[..., Client]


@pytest.fixture
def site(zookeeper_url: str, tmp_path: Path) -> Iterator[Site]:
    with Site(tmp_path, store=f"{zookeeper_url}?grace=0&listing=0.1", settings={"storing": True}) as site:
        yield site


@pytest.fixture
def their_client(site: Site) -> Callable[..., Client]:
    parts = urlsplit(site.depot.config.store)
    return lambda **more: Client(parts.netloc + parts.path, **more)


@pytest.fixture
def theirs(site: Site, their_client: Callable[..., Client]) -> Iterator[Theirs]:
    made: list[Client] = []

    def make(**more: Any) -> Client:
        made.append(their_client(**more))
        return made[-1]

    yield make
    for each in made:
        each.close()


def configuration(site: Site, name: str, data: bytes = b"hello", **more: Any) -> dict[str, Any]:
    """As their ingest writes it, with the design's payload_url."""
    url = site.web.put(name, data)
    return {
        "profile": "p",
        "type": "file",
        "update": False,
        "filename": name,
        "payload_url": url,
        "submitter": "jane",
        **more,
    }


def look_after(site: Site) -> None:
    """What the duties do in time."""
    with site.engine() as engine:
        engine.store.sweep()
        engine.nudge(engine.store.idle_parents().refs)


@DIALECTS
def test_jobs_that_they_made_are_fetched_stored_and_recorded_here(site: Site, theirs: Theirs, ruby: bool) -> None:
    client = theirs(ruby=ruby)
    Batch.create(client, {"batchID": "bid-1", "profile": "p", "update": False})
    said = [configuration(site, f"{n}.txt", jobID=f"jid-{n}", batchID="bid-1") for n in range(3)]
    batch = Service(client).take_batch(lambda submission: said)
    assert batch is not None
    with site.workers(), site.engine() as engine:
        jobs = [record.id for record in engine.store.find("job", parent=Ref("batch", batch.id)).records]
        assert len(jobs) == 3
        for job in jobs:
            site.wait("job", job, "Completed")
        look_after(site)
        site.wait("batch", batch.id, "Completed")
    for job in jobs:
        record = site.get("job", job)
        ark = record.docs["identifiers"]["primary_id"]
        assert (record.last_done, ark.startswith("ark:/99999/fk4")) == ("Notify", True)
        assert client.json(f"/jobs/{job}/inventory")["mode"] == "add"
        assert Job(client, job).load(writes=False).status == "Completed"
    assert (
        client.children("/locks/storage")
        == client.children("/locks/inventory")
        == client.children("/locks/localid")
        == []
    )
    assert nodedump.faults(client.zk) == []


@DIALECTS
def test_hold_take_over_fail_requeue_delete_and_report_in_one_mixed_run(site: Site, theirs: Theirs, ruby: bool) -> None:
    """One submission of ours with five objects; the other side has a hand in each of them."""
    client, admin = theirs(ruby=ruby), Admin(theirs(ruby=True))
    service = Service(client)
    rows = "".join(f"{site.web.put(f'{n}.txt', b'%d' % n)} |  |  |  |  | {n}.txt\n" for n in range(5))
    manifest = (
        "#%checkm_0.7\n#%profile | http://uc3.cdlib.org/registry/ingest/manifest/mrt-single-file-batch-manifest\n"
        f"#%prefix | mrt: | http://merritt.cdlib.org/terms#\n{rows}#%eof\n"
    )
    url = site.web.put("batch.checkm", manifest.encode())
    said = Submission(profile="p", url=url, type=Type.FILES, batch_id="bid-1", submitter="jane")
    assert lock(client, "collections", "p"), "they hold the collection"
    with site.engine() as engine:
        batch = engine.submit(New("batch", {"submission": said.document()}, owner="jane", request="bid-1"))
    with site.workers(), site.engine() as engine:
        site.wait("batch", batch.id, "Held")
        assert Batch.acquire_pending(client) is None, "and a held batch is not taken for a pending one"
        assert service.report() is None
        unlock(client, "collections", "p")
        engine.hold("queue/job.Provisioning", who="ann")
        engine.act(batch.ref, "release")
        site.wait("batch", batch.id, "Processing")
        jobs: list[str] = []
        while len(jobs) < 5:
            engine.store.watch(0.1)
            jobs = [record.id for record in engine.store.find("job", parent=batch.ref).records]
        for job in jobs:
            site.wait("job", job, "Provisioning")
        found = find_by_uuid(client, "bid-1")
        assert found is not None
        assert (found.id, len(list_jobs(client, "Provisioning"))) == (batch.id, 5)
        assert nodedump.faults(client.zk) == []

        admin.force_fail(jobs[0])
        assert admin.delete(jobs[0]), "one is given up by them"
        admin.force_fail(jobs[1])
        assert admin.requeue(jobs[1]), "one is requeued by them"
        taken = Job(client, jobs[2])
        assert taken.lock()
        taken.load().fail("their disk is full")
        taken.unlock()
        engine.release("queue/job.Provisioning", who="ann")
        for job in (jobs[1], jobs[3], jobs[4]):
            site.wait("job", job, "Completed")
        look_after(site)
        site.wait("batch", batch.id, "Failed")
        report = site.get("batch", batch.id).docs["status-report"]
        engine.act(Ref("job", jobs[2]), "resume", who="ann")
        site.wait("job", jobs[2], "Completed")
        admin.update_reporting(batch.id)
        look_after(site)
        site.wait("batch", batch.id, "Completed")
    assert report != site.get("batch", batch.id).docs["status-report"]
    assert len(Batch(client, batch.id).load().jobs("batch-completed")) == 4
    assert Batch(client, batch.id).jobs("batch-deleted") == [jobs[0]]
    assert nodedump.faults(client.zk) == []
    with site.engine() as engine:
        engine.store.sweep()
        assert list(engine.store.check()) == []


def test_a_job_that_they_led_into_a_state_without_our_files_is_not_lost(site: Site, theirs: Theirs) -> None:
    """They downloaded on a disk of their own and died in Processing: Waybill says what is the matter, or fetches it
    again.
    """
    client = theirs()
    service = Service(client)
    batch = Batch.create(client, {"batchID": "bid-1", "profile": "p"})
    job = Job.create(client, batch.id, configuration(site, "a.txt", jobID="jid-1", batchID="bid-1"))
    for state in ("Pending", "Estimating", "Provisioning", "Downloading"):
        assert service.work(state) is not None
    with site.workers():
        record = site.wait("job", job.id, "Completed", "Failed")
        if record.state == "Failed":
            assert record.message
            with site.engine() as engine:
                engine.act(record.ref, "restart", who="ann")
        record = site.wait("job", job.id, "Completed")
    assert record.docs["identifiers"]["primary_id"].startswith("ark:/99999/fk4")
    assert nodedump.faults(client.zk) == []


def led_back(client: Client, batch: str) -> None:
    """The operator's tool lets a failed batch begin again: Failed -> Pending, and the node `states` stays."""
    theirs = Batch(client, batch)
    assert theirs.lock()
    theirs.load().set_status("Pending")
    theirs.unlock()


def report_of(site: Site, batch: str) -> dict[str, Any]:
    report = site.get("batch", batch).docs["status-report"]
    assert isinstance(report, dict)
    return report


def wait_for_report(site: Site, batch: str, number: int, state: str) -> None:
    """Until it has been reported so many times, and is in the state."""

    def reported() -> bool:
        look_after(site)
        return bool(report_of(site, batch)["report"] == number)

    wait_until(reported, f"report {number} of {batch}")
    site.wait("batch", batch, state)


HEAD = "#%checkm_0.7\n#%profile | http://uc3.cdlib.org/registry/ingest/manifest/mrt-single-file-batch-manifest\n"


def submit(site: Site, manifest: bytes) -> str:
    said = Submission(
        profile="p", url=site.web.put("batch.checkm", manifest), type=Type.FILES, batch_id="bid-1", submitter="jane"
    )
    with site.engine() as engine:
        return engine.submit(New("batch", {"submission": said.document()}, owner="jane", request="bid-1")).id


@DIALECTS
def test_a_batch_that_they_let_begin_again_reads_its_payload_anew(site: Site, theirs: Theirs, ruby: bool) -> None:
    client = theirs(ruby=ruby)
    batch = submit(site, b"no manifest\n")
    with site.workers():
        site.wait("batch", batch, "Failed")
        rows = "".join(f"{site.web.put(f'{n}.txt', b'%d' % n)} | | | | | {n}.txt\n" for n in range(2))
        site.web.put("batch.checkm", f"{HEAD}{rows}#%eof\n".encode())
        led_back(client, batch)
        wait_for_report(site, batch, 2, "Completed")
    assert "trouble" not in site.get("batch", batch).docs
    assert report_of(site, batch)["counts"] == {"completed": 2, "failed": 0, "deleted": 0}
    assert len(Batch(client, batch).load().jobs("batch-completed")) == 2
    assert nodedump.faults(client.zk) == []


@DIALECTS
def test_a_batch_that_they_let_begin_again_makes_no_job_twice(site: Site, theirs: Theirs, ruby: bool) -> None:
    """What failed is mended job by job; each time the depositor is told how things stand."""
    client = theirs(ruby=ruby)
    rows = f"{site.web.put('0.txt', b'0')} | | | | | 0.txt\n{site.web.url}/late.txt | | | | | late.txt\n"
    batch = submit(site, f"{HEAD}{rows}#%eof\n".encode())
    with site.workers():
        site.wait("batch", batch, "Failed")
        (failed,) = Batch(client, batch).load().jobs("batch-failed")
        led_back(client, batch)
        wait_for_report(site, batch, 2, "Failed")
        assert report_of(site, batch)["counts"] == {"completed": 1, "failed": 1, "deleted": 0}
        site.web.put("late.txt", b"late")
        with site.engine() as engine:
            engine.act(Ref("job", failed), "resume", who="ann")
        led_back(client, batch)
        wait_for_report(site, batch, 3, "Completed")
    assert report_of(site, batch)["counts"] == {"completed": 2, "failed": 0, "deleted": 0}
    assert len(list_jobs(client)) == 2
    assert nodedump.faults(client.zk) == []


def test_a_batch_that_they_let_begin_again_has_the_jobs_that_they_made(site: Site, theirs: Theirs) -> None:
    """Its payload could be read here too; but its jobs are there."""
    client = theirs()
    url = site.web.put("a.txt", b"a")
    Batch.create(client, {"batchID": "bid-1", "profile": "p", "update": False, "type": "file", "payload_url": url})
    taken = Service(client).take_batch(
        lambda submission: [configuration(site, "a.txt", jobID="jid-1", batchID="bid-1")]
    )
    assert taken is not None
    theirs_again = Batch(client, taken.id).load()
    if theirs_again.status == "Processing":
        theirs_again.set_status("Failed")
    else:
        theirs_again.fail()
    led_back(client, taken.id)
    with site.workers():
        look_after(site)
        site.wait("batch", taken.id, "Completed")
    assert len(list_jobs(client)) == 1
    assert nodedump.faults(client.zk) == []


@DIALECTS
def test_what_they_made_without_naming_a_profile_is_done_and_reported(site: Site, theirs: Theirs, ruby: bool) -> None:
    """Their library demands nothing of a submission but that it is there."""
    client = theirs(ruby=ruby)
    batch = Batch.create(client, {"batchID": "bid-1"})
    job = Job.create(
        client,
        batch.id,
        {"type": "file", "filename": "a.txt", "payload_url": site.web.put("a.txt", b"a"), "jobID": "jid-1"},
    )
    with site.workers():
        done = site.wait("job", job.id, "Completed")
        look_after(site)
        site.wait("batch", batch.id, "Completed")
    assert done.message.startswith("With warnings: The deposit names no profile: the object has no owner")
    assert report_of(site, batch.id)["warnings"] == 1
    assert nodedump.faults(client.zk) == []


@pytest.mark.parametrize("known", [True, False])
def test_what_names_a_profile_that_is_not_here_says_so(site: Site, theirs: Theirs, known: bool) -> None:
    """Theirs may be another's, or the file that was never imported: somebody must hear of it."""
    if known:
        profile(site, name="p")
    client = theirs()
    batch = Batch.create(client, {"batchID": "bid-1", "profile": "p"})
    job = Job.create(client, batch.id, configuration(site, "a.txt", jobID="jid-1"))
    with site.workers():
        done = site.wait("job", job.id, "Completed")
        look_after(site)
        site.wait("batch", batch.id, "Completed")
    assert done.message == ("" if known else f"With warnings: {done.docs['warnings']['first'][0]}")
    assert known or done.message.startswith(
        "With warnings: There is no profile 'p' here: the object has no owner and is in no collection"
    )
    assert report_of(site, batch.id).get("warnings", 0) == (0 if known else 1)


@DIALECTS
def test_who_what_and_when_that_they_noted_beside_the_configuration_describe_the_object(
    site: Site, theirs: Theirs, ruby: bool
) -> None:
    client = theirs(ruby=ruby)
    batch = Batch.create(client, {"batchID": "bid-1", "profile": "p"})
    noted = {"erc_who": "Jane", "erc_what": "A title", "erc_when": "2026", "erc_where": "(:unas)"}
    said = [configuration(site, f"{n}.txt", jobID=f"jid-{n}") for n in range(2)]
    said[1] |= {"creator": "Ann", "title": "", "date": "1999"}
    jobs = [Job.create(client, batch.id, each, metadata=noted) for each in said]
    with site.workers():
        for job in jobs:
            site.wait("job", job.id, "Completed")
    ark = site.get("job", jobs[0].id).docs["identifiers"]["primary_id"]
    assert client.json(f"/jobs/{jobs[0].id}/metadata") == {**noted, "erc_where": ark}
    with site.depot.outfit("job").storage.open(ark, "system/mrt-erc.txt", 1) as erc:
        assert b"who: Jane" in erc.read()
    found = client.json(f"/jobs/{jobs[1].id}/metadata")
    assert (found["erc_who"], found["erc_what"], found["erc_when"]) == ("Ann", "A title", "1999"), (
        "the configuration stands before it"
    )
