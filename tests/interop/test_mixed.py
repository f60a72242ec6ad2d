"""Waybill and services built on Merritt's library at work in one tree."""

from collections.abc import Callable

import pytest

from tests.interop.merritt.access import Assembly
from tests.interop.merritt.admin import Admin
from tests.interop.merritt.batches import Batch
from tests.interop.merritt.client import Client
from tests.interop.merritt.jobs import Job
from tests.interop.merritt.services import LINE, Service
from tests.interop.ours import Ours
from tests.interop.trees import sound, traces
from tests.stores.zookeeper import nodedump
from waybill.step import New

DIALECTS = pytest.mark.parametrize("ruby", [False, True], ids=["java", "ruby"])
Theirs = Callable[..., Client]


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
        (job,) = ours.jobs(batch.id, 1)
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


@pytest.mark.parametrize("outside", [("Recording",), ("Storing",), ("Storing", "Recording")], ids="+".join)
def test_a_state_that_the_settings_leave_outside_is_done_by_them(
    make_ours: Callable[..., Ours], theirs: Theirs, outside: tuple[str, ...]
) -> None:
    ours = make_ours(outside=outside)
    batch = ours.submit(jobs=2)
    client = theirs()
    service = Service(client)
    with ours.working():
        jobs = ours.jobs(batch.id, 2)
        for state in outside:
            for job in jobs:
                ours.until("job", job, state)
            sound(ours, client)
            done = [service.work(state) for _ in jobs]
            assert sorted(job.id for job in done if job is not None) == jobs
        ours.until("batch", batch.id, "Completed")
    assert {state for _, state in ours.done} & set(outside) == set()
    assert client.children("/locks/storage") == client.children("/locks/inventory") == []
    sound(ours, client)


def test_without_the_switch_there_is_no_storing_as_with_their_older_services(
    make_ours: Callable[..., Ours], theirs: Theirs
) -> None:
    ours = make_ours(storing=False)
    client = theirs()
    service = Service(client, storing=False)
    batch = ours.submit(jobs=2)
    with ours.working(roles=["batch", *(f"job.{name}" for name in LINE[:4])]):
        jobs = ours.jobs(batch.id, 2)
        for job in jobs:
            ours.until("job", job, "Processing")
    done = [service.work("Processing") for _ in jobs]
    assert [job.status for job in done if job is not None] == ["Recording", "Recording"]
    with ours.working():
        ours.until("batch", batch.id, "Completed")
    sound(ours, client)


@DIALECTS
def test_assemblies_go_both_ways(ours: Ours, theirs: Theirs, ruby: bool) -> None:
    client, admin = theirs(ruby=ruby), Admin(theirs(ruby=True))
    token = {
        "token": "t",
        "delivery-node": 9001,
        "cloud-content-byte": 10,
        "status": 202,
        "url": "",
        "anticipated-availability-time": "",
    }
    made = [Assembly.create(client, size, token) for size in ("small", "large")]
    mine = ours.engine.submit(New("access-small", {"token": token}))
    assert Service(client).assemble("small", fails=True) is not None, "the first of the queue is the one they made"
    admin.requeue_assembly("small", made[0].id)
    done = Service(client).assemble("small")
    assert done is not None
    assert ours.store.get("access-small", done.id).state == "Completed"
    with ours.working():
        for kind, id in (("access-small", made[0].id), ("access-large", made[1].id), ("access-small", mine.id)):
            ours.until(kind, id, "Completed")
    assert list(ours.store.check()) == []
    admin.delete_assembly("small", mine.id)
    ours.rounds()
    assert traces(client.zk, mine.id, below="/waybill/records/access-small") == []
    assert list(ours.store.check()) == []
