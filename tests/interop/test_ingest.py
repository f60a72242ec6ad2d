"""The real ingest, with its real steps, beside services of Merritt's: files are fetched, stored, recorded and
announced all the same.
"""

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import pytest

from tests.apps.ingest.batches import profile
from tests.apps.ingest.ingest_fixture import IngestFixture
from tests.interop.merritt.admin import Admin
from tests.interop.merritt.batches import Batch, find_by_uuid
from tests.interop.merritt.client import Client
from tests.interop.merritt.jobs import Job, list_jobs
from tests.interop.merritt.locks import lock, unlock
from tests.interop.merritt.services import Service
from tests.servers.process import wait_until
from tests.stores.zookeeper import nodedump
from waybill.apps.ingest.submission import PayloadType, Submission
from waybill.record import Ref
from waybill.step import New

DIALECTS = pytest.mark.parametrize("ruby", [False, True], ids=["java", "ruby"])
ClientFactory = Callable[..., Client]


@pytest.fixture
def ingest(zookeeper_url: str, tmp_path: Path) -> Iterator[IngestFixture]:
    with IngestFixture(
        tmp_path, store=f"{zookeeper_url}?grace_period=0&listing_ttl=0.1", settings={"storing_state": True}
    ) as ingest:
        yield ingest


@pytest.fixture
def their_client(ingest: IngestFixture) -> Callable[..., Client]:
    parts = urlsplit(ingest.environment.config.store)
    return lambda **more: Client(parts.netloc + parts.path, **more)


@pytest.fixture
def make_client(ingest: IngestFixture, their_client: Callable[..., Client]) -> Iterator[ClientFactory]:
    made: list[Client] = []

    def make(**more: Any) -> Client:
        made.append(their_client(**more))
        return made[-1]

    yield make
    for each in made:
        each.close()


def configuration(ingest: IngestFixture, name: str, data: bytes = b"hello", **more: Any) -> dict[str, Any]:
    """As their ingest writes it, with the design's payload_url."""
    url = ingest.web.put(name, data)
    return {
        "profile": "p",
        "type": "file",
        "update": False,
        "filename": name,
        "payload_url": url,
        "submitter": "jane",
        **more,
    }


def run_maintenance(ingest: IngestFixture) -> None:
    """Do what the maintenance routines do in time."""
    with ingest.engine() as engine:
        engine.store.maintain_indexes()
        engine.wake(engine.store.find_idle_parents().refs)


@DIALECTS
def test_jobs_that_they_made_are_fetched_stored_and_recorded_here(
    ingest: IngestFixture, make_client: ClientFactory, ruby: bool
) -> None:
    client = make_client(ruby=ruby)
    Batch.create(client, {"batchID": "bid-1", "profile": "p", "update": False})
    configurations = [configuration(ingest, f"{n}.txt", jobID=f"jid-{n}", batchID="bid-1") for n in range(3)]
    batch = Service(client).take_batch(lambda submission: configurations)
    assert batch is not None
    with ingest.workers(), ingest.engine() as engine:
        jobs = [record.id for record in engine.store.find("job", parent=Ref("batch", batch.id)).records]
        assert len(jobs) == 3
        for job in jobs:
            ingest.wait("job", job, "Completed")
        run_maintenance(ingest)
        ingest.wait("batch", batch.id, "Completed")
    for job in jobs:
        record = ingest.get("job", job)
        ark = record.documents["identifiers"]["primary_id"]
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
def test_hold_take_over_fail_requeue_delete_and_report_in_one_mixed_run(
    ingest: IngestFixture, make_client: ClientFactory, ruby: bool
) -> None:
    """One submission of ours with five objects; the other side changes each of them."""
    client, admin = make_client(ruby=ruby), Admin(make_client(ruby=True))
    service = Service(client)
    rows = "".join(f"{ingest.web.put(f'{n}.txt', b'%d' % n)} |  |  |  |  | {n}.txt\n" for n in range(5))
    manifest = (
        "#%checkm_0.7\n#%profile | http://uc3.cdlib.org/registry/ingest/manifest/mrt-single-file-batch-manifest\n"
        f"#%prefix | mrt: | http://merritt.cdlib.org/terms#\n{rows}#%eof\n"
    )
    url = ingest.web.put("batch.checkm", manifest.encode())
    submission = Submission(profile="p", url=url, type=PayloadType.FILES, batch_id="bid-1", submitter="jane")
    assert lock(client, "collections", "p"), "they hold the collection"
    with ingest.engine() as engine:
        batch = engine.submit(
            New("batch", {"submission": submission.to_document()}, owner="jane", idempotency_key="bid-1")
        )
    with ingest.workers(), ingest.engine() as engine:
        ingest.wait("batch", batch.id, "Held")
        assert Batch.acquire_pending(client) is None, "and a held batch is not taken for a pending one"
        assert service.report() is None
        unlock(client, "collections", "p")
        engine.set_hold("queue/job.Provisioning", who="ann")
        engine.act(batch.ref, "release")
        ingest.wait("batch", batch.id, "Processing")
        jobs: list[str] = []
        while len(jobs) < 5:
            engine.store.watch(0.1)
            jobs = [record.id for record in engine.store.find("job", parent=batch.ref).records]
        for job in jobs:
            ingest.wait("job", job, "Provisioning")
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
        engine.clear_hold("queue/job.Provisioning")
        for job in (jobs[1], jobs[3], jobs[4]):
            ingest.wait("job", job, "Completed")
        run_maintenance(ingest)
        ingest.wait("batch", batch.id, "Failed")
        report = ingest.get("batch", batch.id).documents["status-report"]
        engine.act(Ref("job", jobs[2]), "resume", who="ann")
        ingest.wait("job", jobs[2], "Completed")
        admin.update_reporting(batch.id)
        run_maintenance(ingest)
        ingest.wait("batch", batch.id, "Completed")
    assert report != ingest.get("batch", batch.id).documents["status-report"]
    assert len(Batch(client, batch.id).load().jobs("batch-completed")) == 4
    assert Batch(client, batch.id).jobs("batch-deleted") == [jobs[0]]
    assert nodedump.faults(client.zk) == []
    with ingest.engine() as engine:
        engine.store.maintain_indexes()
        assert list(engine.store.check()) == []


def test_a_job_that_they_moved_to_a_state_without_our_files_is_not_lost(
    ingest: IngestFixture, make_client: ClientFactory
) -> None:
    """They downloaded on a disk of their own and died in Processing: Waybill says what is wrong, or fetches it
    again.
    """
    client = make_client()
    service = Service(client)
    batch = Batch.create(client, {"batchID": "bid-1", "profile": "p"})
    job = Job.create(client, batch.id, configuration(ingest, "a.txt", jobID="jid-1", batchID="bid-1"))
    for state in ("Pending", "Estimating", "Provisioning", "Downloading"):
        assert service.work(state) is not None
    with ingest.workers():
        record = ingest.wait("job", job.id, "Completed", "Failed")
        if record.state == "Failed":
            assert record.message
            with ingest.engine() as engine:
                engine.act(record.ref, "restart", who="ann")
        record = ingest.wait("job", job.id, "Completed")
    assert record.documents["identifiers"]["primary_id"].startswith("ark:/99999/fk4")
    assert nodedump.faults(client.zk) == []


def move_back_to_pending(client: Client, batch: str) -> None:
    """The operator's tool lets a failed batch begin again: Failed -> Pending, and the node `states` stays."""
    theirs = Batch(client, batch)
    assert theirs.lock()
    theirs.load().set_status("Pending")
    theirs.unlock()


def report_of(ingest: IngestFixture, batch: str) -> dict[str, Any]:
    report = ingest.get("batch", batch).documents["status-report"]
    assert isinstance(report, dict)
    return report


def wait_for_report(ingest: IngestFixture, batch: str, number: int, state: str) -> None:
    """Wait until it has been reported so many times, and is in the state."""

    def reported() -> bool:
        run_maintenance(ingest)
        return bool(report_of(ingest, batch)["report"] == number)

    wait_until(reported, f"report {number} of {batch}")
    ingest.wait("batch", batch, state)


HEAD = "#%checkm_0.7\n#%profile | http://uc3.cdlib.org/registry/ingest/manifest/mrt-single-file-batch-manifest\n"


def submit(ingest: IngestFixture, manifest: bytes) -> str:
    submission = Submission(
        profile="p",
        url=ingest.web.put("batch.checkm", manifest),
        type=PayloadType.FILES,
        batch_id="bid-1",
        submitter="jane",
    )
    with ingest.engine() as engine:
        return engine.submit(
            New("batch", {"submission": submission.to_document()}, owner="jane", idempotency_key="bid-1")
        ).id


@DIALECTS
def test_a_batch_that_they_let_begin_again_reads_its_payload_anew(
    ingest: IngestFixture, make_client: ClientFactory, ruby: bool
) -> None:
    client = make_client(ruby=ruby)
    batch = submit(ingest, b"no manifest\n")
    with ingest.workers():
        ingest.wait("batch", batch, "Failed")
        rows = "".join(f"{ingest.web.put(f'{n}.txt', b'%d' % n)} | | | | | {n}.txt\n" for n in range(2))
        ingest.web.put("batch.checkm", f"{HEAD}{rows}#%eof\n".encode())
        move_back_to_pending(client, batch)
        wait_for_report(ingest, batch, 2, "Completed")
    assert "failure" not in ingest.get("batch", batch).documents
    assert report_of(ingest, batch)["counts"] == {"completed": 2, "failed": 0, "deleted": 0}
    assert len(Batch(client, batch).load().jobs("batch-completed")) == 2
    assert nodedump.faults(client.zk) == []


@DIALECTS
def test_a_batch_that_they_let_begin_again_makes_no_job_twice(
    ingest: IngestFixture, make_client: ClientFactory, ruby: bool
) -> None:
    """Each failed job is repaired by itself; the depositor gets a report each time."""
    client = make_client(ruby=ruby)
    rows = f"{ingest.web.put('0.txt', b'0')} | | | | | 0.txt\n{ingest.web.url}/late.txt | | | | | late.txt\n"
    batch = submit(ingest, f"{HEAD}{rows}#%eof\n".encode())
    with ingest.workers():
        ingest.wait("batch", batch, "Failed")
        (failed,) = Batch(client, batch).load().jobs("batch-failed")
        move_back_to_pending(client, batch)
        wait_for_report(ingest, batch, 2, "Failed")
        assert report_of(ingest, batch)["counts"] == {"completed": 1, "failed": 1, "deleted": 0}
        ingest.web.put("late.txt", b"late")
        with ingest.engine() as engine:
            engine.act(Ref("job", failed), "resume", who="ann")
        move_back_to_pending(client, batch)
        wait_for_report(ingest, batch, 3, "Completed")
    assert report_of(ingest, batch)["counts"] == {"completed": 2, "failed": 0, "deleted": 0}
    assert len(list_jobs(client)) == 2
    assert nodedump.faults(client.zk) == []


def test_a_batch_that_they_let_begin_again_has_the_jobs_that_they_made(
    ingest: IngestFixture, make_client: ClientFactory
) -> None:
    """Its payload could be read here too, but its jobs exist already."""
    client = make_client()
    url = ingest.web.put("a.txt", b"a")
    Batch.create(client, {"batchID": "bid-1", "profile": "p", "update": False, "type": "file", "payload_url": url})
    taken = Service(client).take_batch(
        lambda submission: [configuration(ingest, "a.txt", jobID="jid-1", batchID="bid-1")]
    )
    assert taken is not None
    theirs_again = Batch(client, taken.id).load()
    if theirs_again.status == "Processing":
        theirs_again.set_status("Failed")
    else:
        theirs_again.fail()
    move_back_to_pending(client, taken.id)
    with ingest.workers():
        run_maintenance(ingest)
        ingest.wait("batch", taken.id, "Completed")
    assert len(list_jobs(client)) == 1
    assert nodedump.faults(client.zk) == []


@DIALECTS
def test_what_they_made_without_naming_a_profile_is_done_and_reported(
    ingest: IngestFixture, make_client: ClientFactory, ruby: bool
) -> None:
    """Their library requires nothing of a submission but that it exists."""
    client = make_client(ruby=ruby)
    batch = Batch.create(client, {"batchID": "bid-1"})
    job = Job.create(
        client,
        batch.id,
        {"type": "file", "filename": "a.txt", "payload_url": ingest.web.put("a.txt", b"a"), "jobID": "jid-1"},
    )
    with ingest.workers():
        done = ingest.wait("job", job.id, "Completed")
        run_maintenance(ingest)
        ingest.wait("batch", batch.id, "Completed")
    assert done.message.startswith("With warnings: The deposit names no profile: the object has no owner")
    assert report_of(ingest, batch.id)["warnings"] == 1
    assert nodedump.faults(client.zk) == []


@pytest.mark.parametrize("known", [True, False])
def test_what_names_a_profile_that_is_not_here_says_so(
    ingest: IngestFixture, make_client: ClientFactory, known: bool
) -> None:
    """The profile may be another service's, or was never imported: the warning says so."""
    if known:
        profile(ingest, name="p")
    client = make_client()
    batch = Batch.create(client, {"batchID": "bid-1", "profile": "p"})
    job = Job.create(client, batch.id, configuration(ingest, "a.txt", jobID="jid-1"))
    with ingest.workers():
        done = ingest.wait("job", job.id, "Completed")
        run_maintenance(ingest)
        ingest.wait("batch", batch.id, "Completed")
    assert done.message == ("" if known else f"With warnings: {done.documents['warnings']['first'][0]}")
    assert known or done.message.startswith(
        "With warnings: There is no profile 'p' here: the object has no owner and is in no collection"
    )
    assert report_of(ingest, batch.id).get("warnings", 0) == (0 if known else 1)


@DIALECTS
def test_who_what_and_when_that_they_noted_beside_the_configuration_describe_the_object(
    ingest: IngestFixture, make_client: ClientFactory, ruby: bool
) -> None:
    client = make_client(ruby=ruby)
    batch = Batch.create(client, {"batchID": "bid-1", "profile": "p"})
    noted = {"erc_who": "Jane", "erc_what": "A title", "erc_when": "2026", "erc_where": "(:unas)"}
    configurations = [configuration(ingest, f"{n}.txt", jobID=f"jid-{n}") for n in range(2)]
    configurations[1] |= {"creator": "Ann", "title": "", "date": "1999"}
    jobs = [Job.create(client, batch.id, each, metadata=noted) for each in configurations]
    with ingest.workers():
        for job in jobs:
            ingest.wait("job", job.id, "Completed")
    ark = ingest.get("job", jobs[0].id).documents["identifiers"]["primary_id"]
    assert client.json(f"/jobs/{jobs[0].id}/metadata") == {**noted, "erc_where": ark}
    with ingest.environment.resources_of("ingest").storage.open_file(ark, "system/mrt-erc.txt", 1) as erc:
        assert b"who: Jane" in erc.read()
    found = client.json(f"/jobs/{jobs[1].id}/metadata")
    assert (found["erc_who"], found["erc_what"], found["erc_when"]) == ("Ann", "A title", "1999"), (
        "the configuration stands before it"
    )
