"""Waybill and services built on Merritt's library at work in one tree."""

from collections.abc import Callable

import pytest

from tests.interop.merritt import jobs as their_jobs
from tests.interop.merritt.batches import Batch
from tests.interop.merritt.client import Client
from tests.interop.merritt.jobs import Job
from tests.interop.merritt.services import LINE, Service
from tests.interop.ours import Ours
from tests.stores.zookeeper import nodedump

DIALECTS = pytest.mark.parametrize("ruby", [False, True], ids=["java", "ruby"])
Theirs = Callable[..., Client]


def sound(ours: Ours, client: Client) -> None:
    """Merritt's own test and ours find nothing, and its library can list everything."""
    assert nodedump.faults(client.zk) == []
    assert list(ours.store.check()) == []
    their_jobs.list_jobs(client)


@DIALECTS
def test_a_batch_and_jobs_that_they_made_are_finished_here(ours: Ours, theirs: Theirs, ruby: bool) -> None:
    client = theirs(ruby=ruby)
    batch = Batch.create(client, {"batchID": "bid-1", "profile": "p", "update": False})
    jobs = [Job.create(client, batch.id, {"profile": "p", "jobID": f"jid-{n}"}, priority=5 + 10 * n) for n in range(3)]
    with ours.working():
        for job in jobs:
            assert ours.until("job", job.id, "Completed").last_done == "Notify"
        ours.until("batch", batch.id, "Completed")
    assert [Job(client, job.id).load(writes=False).status for job in jobs] == ["Completed"] * 3
    assert Batch(client, batch.id).load().status == "Completed"
    sound(ours, client)


@DIALECTS
def test_a_submission_that_they_left_is_taken_up_and_its_jobs_made_here(ours: Ours, theirs: Theirs, ruby: bool) -> None:
    client = theirs(ruby=ruby)
    batch = Batch.create(client, {"batchID": "bid-1", "profile": "p", "jobs": 5, "update": False})
    with ours.working():
        record = ours.until("batch", batch.id, "Completed")
    assert record.docs["status-report"] == {"counts": {"Completed": 5}}
    assert len(Batch(client, batch.id).load().jobs("batch-completed")) == 5
    sound(ours, client)


@DIALECTS
@pytest.mark.parametrize("state", LINE)
def test_they_take_a_job_that_waybill_made_at_any_state_and_finish_it(
    make_ours: Callable[..., Ours], theirs: Theirs, state: str, ruby: bool
) -> None:
    """Waybill leads it to the state and stops; from there on it is theirs, and the batch is reported by them.

    Storing is left to them by the settings: who stores for himself keeps the object's lock from Processing on.
    """
    ours = make_ours(outside=("Storing",) if state == "Storing" else ())
    batch = ours.submit()
    before = [f"job.{name}" for name in LINE[: LINE.index(state)]]
    with ours.working(roles=["batch.Pending", "batch.Processing", *before]):
        ours.until("batch", batch.id, "Processing")
        (job,) = _jobs(ours, batch.id, 1)
        ours.until("job", job, state)
    client = theirs(ruby=ruby)
    service = Service(client)
    sound(ours, client)
    for name in LINE[LINE.index(state) :]:
        done = service.work(name)
        assert done is not None, name
        assert done.id == job
        assert nodedump.faults(client.zk) == []
    record = ours.store.get("job", job)
    assert (record.state, record.last_done, record.open, record.keys) == ("Completed", "Notify", False, ())
    reported = service.report()
    assert reported is not None
    assert reported.id == batch.id
    assert ours.store.get("batch", batch.id).state == "Completed"
    ours.rounds()
    assert client.children("/locks/storage") == []
    sound(ours, client)


def _jobs(ours: Ours, batch: str, count: int) -> list[str]:
    from waybill.record import Ref

    while len(found := ours.store.find("job", parent=Ref("batch", batch)).records) < count:
        ours.store.watch(0.05)
    return [record.id for record in found]
