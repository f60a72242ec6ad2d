"""Waybill and services built on Merritt's library at work in one tree."""

from collections.abc import Callable

import pytest

from tests.interop.merritt.access import Assembly
from tests.interop.merritt.admin import Admin
from tests.interop.merritt.batches import Batch
from tests.interop.merritt.client import Client
from tests.interop.merritt.jobs import Job
from tests.interop.merritt.services import LINE, Service
from tests.interop.trees import assert_consistent, find_traces
from tests.interop.trivial_ingest import TrivialIngest
from tests.stores.zookeeper import nodedump
from waybill.step import New

DIALECTS = pytest.mark.parametrize("ruby", [False, True], ids=["java", "ruby"])
ClientFactory = Callable[..., Client]


@DIALECTS
def test_a_batch_and_jobs_that_they_made_are_finished_here(
    ingest: TrivialIngest, make_client: ClientFactory, ruby: bool
) -> None:
    client = make_client(ruby=ruby)
    batch = Batch.create(client, {"batchID": "bid-1", "profile": "p", "update": False})
    jobs = [Job.create(client, batch.id, {"profile": "p", "jobID": f"jid-{n}"}, priority=5 + 10 * n) for n in range(3)]
    with ingest.run_worker():
        for job in jobs:
            assert ingest.wait_for("job", job.id, "Completed").last_done == "Notify"
        ingest.wait_for("batch", batch.id, "Completed")
    assert [Job(client, job.id).load(writes=False).status for job in jobs] == ["Completed"] * 3
    assert Batch(client, batch.id).load().status == "Completed"
    assert_consistent(ingest, client)


@DIALECTS
def test_a_submission_that_they_left_is_taken_up_and_its_jobs_made_here(
    ingest: TrivialIngest, make_client: ClientFactory, ruby: bool
) -> None:
    client = make_client(ruby=ruby)
    batch = Batch.create(client, {"batchID": "bid-1", "profile": "p", "jobs": 5, "update": False})
    with ingest.run_worker():
        record = ingest.wait_for("batch", batch.id, "Completed")
    assert record.documents["status-report"] == {"counts": {"Completed": 5}}
    assert len(Batch(client, batch.id).load().jobs("batch-completed")) == 5
    assert_consistent(ingest, client)


@DIALECTS
@pytest.mark.parametrize("state", LINE)
def test_they_take_a_job_that_waybill_made_at_any_state_and_finish_it(
    make_ingest: Callable[..., TrivialIngest], make_client: ClientFactory, state: str, ruby: bool
) -> None:
    """Waybill moves it to the state and stops; from there on it is theirs, and they report the batch.

    Storing is left to them by the settings: a service that stores keeps the object's lock from Processing on.
    """
    ingest = make_ingest(external_states=("Storing",) if state == "Storing" else ())
    batch = ingest.submit()
    before = [f"job.{name}" for name in LINE[: LINE.index(state)]]
    with ingest.run_worker(queues=["batch.Pending", "batch.Processing", *before]):
        ingest.wait_for("batch", batch.id, "Processing")
        (job,) = ingest.wait_for_jobs(batch.id, 1)
        ingest.wait_for("job", job, state)
    client = make_client(ruby=ruby)
    service = Service(client)
    assert_consistent(ingest, client)
    for name in LINE[LINE.index(state) :]:
        done = service.work(name)
        assert done is not None, name
        assert done.id == job
        assert nodedump.faults(client.zk) == []
    record = ingest.store.get("job", job)
    assert (record.state, record.last_done, record.open, record.locks) == ("Completed", "Notify", False, ())
    reported = service.report()
    assert reported is not None
    assert reported.id == batch.id
    assert ingest.store.get("batch", batch.id).state == "Completed"
    ingest.run_maintenance()
    assert client.children("/locks/storage") == []
    assert_consistent(ingest, client)


@pytest.mark.parametrize("outside", [("Recording",), ("Storing",), ("Storing", "Recording")], ids="+".join)
def test_a_state_that_the_settings_leave_to_them_is_done_by_them(
    make_ingest: Callable[..., TrivialIngest], make_client: ClientFactory, outside: tuple[str, ...]
) -> None:
    ingest = make_ingest(external_states=outside)
    batch = ingest.submit(jobs=2)
    client = make_client()
    service = Service(client)
    with ingest.run_worker():
        jobs = ingest.wait_for_jobs(batch.id, 2)
        for state in outside:
            for job in jobs:
                ingest.wait_for("job", job, state)
            assert_consistent(ingest, client)
            done = [service.work(state) for _ in jobs]
            assert sorted(job.id for job in done if job is not None) == jobs
        ingest.wait_for("batch", batch.id, "Completed")
    assert {state for _, state in ingest.step_runs} & set(outside) == set()
    assert client.children("/locks/storage") == client.children("/locks/inventory") == []
    assert_consistent(ingest, client)


def test_without_the_switch_there_is_no_storing_as_with_their_older_services(
    make_ingest: Callable[..., TrivialIngest], make_client: ClientFactory
) -> None:
    ingest = make_ingest(storing_state=False)
    client = make_client()
    service = Service(client, storing=False)
    batch = ingest.submit(jobs=2)
    with ingest.run_worker(queues=["batch", *(f"job.{name}" for name in LINE[:4])]):
        jobs = ingest.wait_for_jobs(batch.id, 2)
        for job in jobs:
            ingest.wait_for("job", job, "Processing")
    done = [service.work("Processing") for _ in jobs]
    assert [job.status for job in done if job is not None] == ["Recording", "Recording"]
    with ingest.run_worker():
        ingest.wait_for("batch", batch.id, "Completed")
    assert_consistent(ingest, client)


@DIALECTS
def test_assemblies_go_both_ways(ingest: TrivialIngest, make_client: ClientFactory, ruby: bool) -> None:
    client, admin = make_client(ruby=ruby), Admin(make_client(ruby=True))
    token = {
        "token": "t",
        "delivery-node": 9001,
        "cloud-content-byte": 10,
        "status": 202,
        "url": "",
        "anticipated-availability-time": "",
    }
    made = [Assembly.create(client, size, token) for size in ("small", "large")]
    mine = ingest.engine.submit(New("access-small", {"token": token}))
    assert Service(client).assemble("small", fails=True) is not None, "the first of the queue is the one they made"
    admin.requeue_assembly("small", made[0].id)
    done = Service(client).assemble("small")
    assert done is not None
    assert ingest.store.get("access-small", done.id).state == "Completed"
    with ingest.run_worker():
        for kind, id in (("access-small", made[0].id), ("access-large", made[1].id), ("access-small", mine.id)):
            ingest.wait_for(kind, id, "Completed")
    assert list(ingest.store.check()) == []
    admin.delete_assembly("small", mine.id)
    ingest.run_maintenance()
    assert find_traces(client.zk, mine.id, below="/waybill/records/access-small") == []
    assert list(ingest.store.check()) == []
