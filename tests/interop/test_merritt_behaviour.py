"""What Merritt's services do that a careful service would not, and how Waybill handles each of it."""

import json
import threading
from collections.abc import Callable

import pytest
from kazoo.client import KazooClient
from kazoo.exceptions import NodeExistsError

from tests.interop.merritt.admin import Admin
from tests.interop.merritt.batches import Batch, delete_completed_batches
from tests.interop.merritt.client import Client, Invalid
from tests.interop.merritt.jobs import Job, delete_deleted_jobs, list_jobs
from tests.interop.merritt.locks import is_locked, lock, unlock
from tests.interop.merritt.services import Service
from tests.interop.trees import assert_consistent, find_traces
from tests.interop.trivial_ingest import TrivialIngest
from tests.servers.process import wait_until
from tests.stores.zookeeper import nodedump
from waybill.record import Ref

DIALECTS = pytest.mark.parametrize("ruby", [False, True], ids=["java", "ruby"])
ClientFactory = Callable[..., Client]
HOLD = "collections/p"


# --- a last_successful_status of "Failed"


def test_resume_continues_after_the_last_state_done_also_when_java_writes_failed_as_the_last_success(
    ingest: TrivialIngest, make_client: ClientFactory
) -> None:
    batch = ingest.submit()
    ingest.failures["Recording"] = "no inventory"
    with ingest.run_worker():
        (job,) = ingest.wait_for_jobs(batch.id, 1)
        ingest.wait_for("job", job, "Failed")
    java = Job(make_client(), job).load()
    assert java.lock()
    java.set_status_with_retry("Recording")
    java.fail("not yet")
    java.unlock()
    assert json.loads(java.client.zk.get(f"/jobs/{job}/status")[0])["last_successful_status"] == "Failed"
    assert not Admin(make_client(ruby=True)).requeue(job), "their own requeue does not know where to"
    record = ingest.store.get("job", job)
    assert (record.state, record.last_done, record.resume_count) == ("Failed", "Storing", 1)
    ingest.failures.clear()
    ingest.step_runs.clear()
    with ingest.run_worker():
        assert ingest.engine.act(Ref("job", job), "resume").record.state == "Recording"
        assert ingest.wait_for("job", job, "Completed").resume_count == 2
    assert [state for id, state in ingest.step_runs if id == job] == ["Recording", "Notify"], (
        "nothing is done a second time"
    )
    assert_consistent(ingest, java.client)


def test_the_last_state_done_of_their_job_is_remembered_since_it_was_first_read(
    ingest: TrivialIngest, make_client: ClientFactory
) -> None:
    """It was never claimed here; a round of maintenance read it once."""
    client = make_client()
    service = Service(client)
    job = Job.create(client, Batch.create(client, {}).id, {"profile": "p"})
    for state in ("Pending", "Estimating", "Provisioning", "Downloading", "Processing"):
        assert service.work(state) is not None
    assert service.work("Storing", fails="no room") is not None
    ingest.run_maintenance()
    again = Job(client, job.id).load()
    again.set_status_with_retry("Storing")
    again.fail("still no room")
    assert ingest.store.get("job", job.id).last_done == "Processing"
    ingest.run_maintenance()
    assert ingest.store.get("job", job.id).last_done == "Processing"
    assert ingest.engine.act(Ref("job", job.id), "resume").record.state == "Storing"
    assert_consistent(ingest, client)


# --- batches: "Reporting" while jobs run, and readers that take an empty folder for the end


@DIALECTS
def test_reporting_while_jobs_run_is_a_batch_that_waits_for_them(
    ingest: TrivialIngest, make_client: ClientFactory, ruby: bool
) -> None:
    client = make_client(ruby=ruby)
    Batch.create(client, {"batchID": "bid-1", "profile": "p"})
    batch = Service(client).take_batch(lambda submission: [{"profile": "p"}] * 3)
    assert batch is not None
    assert ingest.store.get("batch", batch.id).state == "Reporting"
    resume = ingest.blocked_steps["Notify"] = threading.Event()
    with ingest.run_worker():
        jobs = ingest.wait_for_jobs(batch.id, 3)
        wait_until(lambda: sum(state == "Notify" for _, state in ingest.step_runs) == 3, "all jobs to be about to end")
        assert ingest.store.get("batch", batch.id).state == "Reporting"
        resume.set()
        ingest.wait_for("batch", batch.id, "Completed")
    assert [state for id, state in ingest.step_runs if id == batch.id] == ["Reporting"], "reported once"
    order = [id for id, _ in ingest.step_runs]
    assert order.index(batch.id) > max(order.index(job) for job in jobs)
    assert_consistent(ingest, client)


@DIALECTS
def test_a_batch_that_has_no_jobs_yet_is_not_reported_by_them(
    ingest: TrivialIngest, make_client: ClientFactory, ruby: bool
) -> None:
    batch = ingest.submit(jobs=3)
    with ingest.run_worker(queues=["batch.Pending"]):
        ingest.wait_for("batch", batch.id, "Processing")
    client = make_client(ruby=ruby)
    assert Service(client).report() is None
    assert Batch.acquire_pending(client) is None
    assert_consistent(ingest, client)
    with ingest.run_worker():
        assert ingest.wait_for("batch", batch.id, "Completed").documents["status-report"] == {
            "counts": {"Completed": 3}
        }


@DIALECTS
def test_a_batch_that_they_reported_is_left_alone(
    ingest: TrivialIngest, make_client: ClientFactory, ruby: bool
) -> None:
    """Waybill's own jobs, done by Waybill; the other side was faster with the report."""
    batch = ingest.submit(jobs=2)
    with ingest.run_worker(queues=["batch.Pending", "batch.Processing", "job"]):
        for job in ingest.wait_for_jobs(batch.id, 2):
            ingest.wait_for("job", job, "Completed")
        ingest.wait_for("batch", batch.id, "Reporting")
    reported = Service(make_client(ruby=ruby)).report()
    assert reported is not None
    with ingest.run_worker():
        record = ingest.wait_for("batch", batch.id, "Completed")
    assert (record.state, "Reporting" in [state for id, state in ingest.step_runs if id == batch.id]) == (
        "Completed",
        False,
    )
    assert [entry.cause for entry in ingest.store.history("batch", batch.id)][-1] == "changed by another service"
    ingest.run_maintenance()
    assert_consistent(ingest, reported.client)


# --- holds


@DIALECTS
def test_a_held_batch_is_not_acquired_as_a_pending_one(
    ingest: TrivialIngest, make_client: ClientFactory, ruby: bool
) -> None:
    ingest.store.set_hold(HOLD, "ann", "inventory")
    batch = ingest.submit(batchID="bid-1")
    client = make_client(ruby=ruby)
    with ingest.run_worker():
        ingest.wait_for("batch", batch.id, "Held")
        for _ in range(3):
            assert Batch.acquire_pending(client) is None
            assert Service(client).report() is None
        assert not client.exists(f"/batches/{batch.id}/lock")
        assert_consistent(ingest, client)
        ingest.store.clear_hold(HOLD)
        ingest.engine.act(batch.ref, "release")
        ingest.wait_for("batch", batch.id, "Completed")
    assert_consistent(ingest, client)


def test_a_batch_that_is_held_just_before_java_acquires_it_survives_that(
    ingest: TrivialIngest, make_client: ClientFactory
) -> None:
    """Java saw it pending, then it was held, then Java locks it, fails, and leaves its lock until its session ends."""
    batch = ingest.submit(batchID="bid-1")
    java = make_client()
    assert not java.exists(f"/batches/{batch.id}/states")
    ingest.engine.act(batch.ref, "hold")
    seen = Batch(java, batch.id)
    assert seen.lock()
    with pytest.raises(NodeExistsError):
        seen.take()
    assert ingest.store.get("batch", batch.id).state == "Held"
    java.close()
    client = make_client()
    wait_until(lambda: not client.exists(f"/batches/{batch.id}/lock"), "their lock to end with the session")
    ingest.engine.act(batch.ref, "release")
    with ingest.run_worker():
        ingest.wait_for("batch", batch.id, "Completed")
    assert_consistent(ingest, client)


@DIALECTS
def test_a_collection_that_they_locked_holds_their_jobs_here_too(
    ingest: TrivialIngest, make_client: ClientFactory, ruby: bool
) -> None:
    """The hold names of a job of theirs are computed when it is first claimed."""
    client = make_client(ruby=ruby)
    assert lock(client, "collections", "p")
    batch = Batch.create(client, {"batchID": "bid-1", "profile": "other"})
    job = Job.create(client, batch.id, {"profile": "p"})
    free = Job.create(client, batch.id, {"profile": "q"})
    with ingest.run_worker():
        assert ingest.wait_for("job", job.id, "Held").message == "held by collections/p"
        ingest.wait_for("job", free.id, "Completed")
        assert_consistent(ingest, client)
        unlock(client, "collections", "p")
        assert Admin(make_client(ruby=True)).release(job.id)
        ingest.wait_for("batch", batch.id, "Completed")
    assert [entry.after for entry in ingest.store.history("job", job.id)][:3] == ["Pending", "Held", "Pending"]
    assert_consistent(ingest, client)


@DIALECTS
def test_their_pause_of_ingest_stops_us(ingest: TrivialIngest, make_client: ClientFactory, ruby: bool) -> None:
    client = make_client(ruby=ruby)
    assert lock(client, "queue", "ingest")
    batch = ingest.submit()
    assert ingest.run_one_step() is None
    unlock(client, "queue", "ingest")
    with ingest.run_worker():
        ingest.wait_for("batch", batch.id, "Completed")


# --- locks of objects


@DIALECTS
def test_an_object_that_they_store_is_waited_for(ingest: TrivialIngest, make_client: ClientFactory, ruby: bool) -> None:
    client = make_client(ruby=ruby)
    ark = "ark:/99999/fk4abc"
    batch = Batch.create(client, {"batchID": "bid-1"})
    job = Job.create(client, batch.id, {"profile": "p"}, identifiers={"primary_id": ark, "local_id": []})
    assert lock(client, "storage", ark)
    with ingest.run_worker():
        wait_until(
            lambda: ingest.store.get("job", job.id).blocked_by == f"lock storage/{ark}",
            "the job to wait for the object",
        )
        assert ("Processing" in [state for id, state in ingest.step_runs if id == job.id]) is False
        unlock(client, "storage", ark)
        ingest.wait_for("job", job.id, "Completed")
    assert not is_locked(client, "storage", ark)
    assert_consistent(ingest, client)


@DIALECTS
def test_they_cannot_lock_what_is_stored_here_and_nothing_stays_locked(
    ingest: TrivialIngest, make_client: ClientFactory, ruby: bool
) -> None:
    client = make_client(ruby=ruby)
    resume = ingest.blocked_steps["Storing"] = threading.Event()
    batch = ingest.submit()
    with ingest.run_worker():
        (job,) = ingest.wait_for_jobs(batch.id, 1)
        wait_until(lambda: (job, "Storing") in ingest.step_runs, "the job to be stored")
        assert not lock(client, "storage", f"ark:/99999/{job}")
        resume.set()
        ingest.wait_for("batch", batch.id, "Completed")
    assert [client.children(f"/locks/{family}") for family in ("storage", "inventory", "localid")] == [[], [], []]


def test_locks_of_a_job_that_they_moved_on_are_free_for_others(
    ingest: TrivialIngest, make_client: ClientFactory
) -> None:
    """Waybill stopped in Storing with the object's lock; Java ends the job, and would never drop the lock."""
    batch = ingest.submit()
    with ingest.run_worker(
        queues=[
            "batch",
            *(f"job.{name}" for name in ("Pending", "Estimating", "Provisioning", "Downloading", "Processing")),
        ]
    ):
        (job,) = ingest.wait_for_jobs(batch.id, 1)
        ingest.wait_for("job", job, "Storing")
    client = make_client()
    assert is_locked(client, "storage", f"ark:/99999/{job}")
    other = Job.create(
        client, batch.id, {"profile": "p"}, identifiers={"primary_id": f"ark:/99999/{job}", "local_id": []}
    )
    java = Job(client, job).load()
    java.lock()
    for _ in range(3):
        java.success()
    java.unlock()
    with ingest.run_worker():
        ingest.wait_for("job", other.id, "Completed")
        ingest.wait_for("batch", batch.id, "Completed")
    assert client.children("/locks/storage") == []
    assert_consistent(ingest, client)


# --- writes to records that we have claimed


def test_a_job_that_the_admin_forces_to_fail_is_lost_to_our_step_and_can_be_resumed(
    ingest: TrivialIngest, make_client: ClientFactory
) -> None:
    resume = ingest.blocked_steps["Storing"] = threading.Event()
    batch = ingest.submit()
    with ingest.run_worker():
        (job,) = ingest.wait_for_jobs(batch.id, 1)
        wait_until(lambda: (job, "Storing") in ingest.step_runs, "the job to be stored")
        Admin(make_client(ruby=True)).force_fail(job)
        assert ingest.store.get("job", job).state == "Failed"
        resume.set()
        ingest.blocked_steps.clear()
        ingest.wait_for("batch", batch.id, "Failed")
        assert ingest.store.get("job", job).state == "Failed", "what the step did is not counted"
        ingest.engine.act(Ref("job", job), "resume")
        ingest.wait_for("job", job, "Completed")
        ingest.engine.act(batch.ref, "report")
        ingest.wait_for("batch", batch.id, "Completed")
    assert_consistent(ingest, make_client())


@DIALECTS
def test_a_status_written_without_asking_who_holds_the_job_ends_our_claim_and_frees_the_job(
    ingest: TrivialIngest, make_client: ClientFactory, ruby: bool
) -> None:
    """The worker lives on, and its lock node on the job must be deleted."""
    resume = ingest.blocked_steps["Storing"] = threading.Event()
    batch = ingest.submit()
    with ingest.run_worker():
        (job,) = ingest.wait_for_jobs(batch.id, 1)
        wait_until(lambda: (job, "Storing") in ingest.step_runs, "the job to be stored")
        Job(make_client(ruby=ruby), job).load().fail("over your heads")
        resume.set()
        record = ingest.wait_for("job", job, "Failed")
        assert (record.message, record.last_done) == ("over your heads", "Processing")
        ingest.blocked_steps.clear()
        ingest.engine.act(record.ref, "resume")
        ingest.wait_for("job", job, "Completed")
    assert_consistent(ingest, make_client())


@DIALECTS
def test_a_job_that_is_deleted_under_our_step_harms_nobody(
    ingest: TrivialIngest, make_client: ClientFactory, ruby: bool
) -> None:
    resume = ingest.blocked_steps["Storing"] = threading.Event()
    batch = ingest.submit(jobs=2)
    client = make_client(ruby=ruby)
    with ingest.run_worker():
        first, second = ingest.wait_for_jobs(batch.id, 2)
        wait_until(lambda: {(first, "Storing"), (second, "Storing")} <= set(ingest.step_runs), "both jobs to be stored")
        doomed = Job(client, first).load()
        doomed.fail()
        doomed.set_status("Deleted")
        doomed.delete()
        resume.set()
        ingest.wait_for("job", second, "Completed")
        ingest.wait_for("batch", batch.id, "Completed")
        wait_until(
            lambda: not find_traces(client.zk, first, below="/waybill/records"), "our nodes beside it to be removed"
        )
    assert find_traces(client.zk, first, below="/locks") == []
    assert_consistent(ingest, client)


# --- what cannot be read


@pytest.mark.parametrize(
    "status", [b'{"status":"completed","retry_count":0}', b'{"status":"Dreaming"}', b"no json", b"", b"[1]"]
)
def test_a_status_that_nobody_understands_does_not_stop_the_others(
    ingest: TrivialIngest, make_client: ClientFactory, status: bytes
) -> None:
    client = make_client()
    batch = Batch.create(client, {"batchID": "bid-1"})
    odd, fine = (Job.create(client, batch.id, {"profile": "p"}) for _ in range(2))
    client.zk.set(f"/jobs/{odd.id}/status", status)
    with pytest.raises(Invalid):
        list_jobs(client)
    with ingest.run_worker():
        ingest.wait_for("job", fine.id, "Completed")
        ingest.wait_for("batch", batch.id, "Processing")
    listed = {record.id for record in ingest.store.find("job").records}
    assert fine.id in listed
    assert sum(ingest.store.count_by_state("job").values()) >= 1
    assert ingest.store.find("job", parent=Ref("batch", batch.id), documents=True).records
    assert ingest.store.get("batch", batch.id).state == "Processing", "nobody knows whether that job has settled"


@pytest.mark.parametrize("number", [b"100", b"-3", b"high", b"", b"007"])
@pytest.mark.parametrize("queued", [True, False], ids=["queued by it", "queued by the old one"])
def test_a_priority_that_no_entry_has_room_for_does_not_stop_the_worker(
    ingest: TrivialIngest, make_client: ClientFactory, zk: KazooClient, number: bytes, queued: bool
) -> None:
    """Their services do not check it.

    A worker that could neither store such a job nor give it back went from session to session for ever.
    """
    client = make_client()
    batch = Batch.create(client, {"batchID": "bid-1"})
    odd, fine = (Job.create(client, batch.id, {"profile": "p"}) for _ in range(2))
    zk.set(f"/jobs/{odd.id}/priority", number)
    if queued and number.lstrip(b"-").isdigit():
        zk.delete(f"/jobs/states/pending/05-{odd.id}")
        zk.create(f"/jobs/states/pending/{int(number):02d}-{odd.id}")
    with ingest.run_worker():
        ingest.wait_for("job", fine.id, "Completed")
        ingest.wait_for("job", odd.id, "Completed")
        ingest.wait_for("batch", batch.id, "Completed")
    assert 0 <= int(zk.get(f"/jobs/{odd.id}/priority")[0]) <= 99
    assert_consistent(ingest, client)


@pytest.mark.parametrize("message", ["a stack trace " * 30_000, "half\0read"], ids=["long", "with a null character"])
def test_a_message_that_cannot_be_written_again_does_not_stop_the_worker(
    ingest: TrivialIngest, make_client: ClientFactory, zk: KazooClient, message: str
) -> None:
    client = make_client()
    batch = Batch.create(client, {"batchID": "bid-1"})
    odd, fine = (Job.create(client, batch.id, {"profile": "p"}) for _ in range(2))
    status = json.loads(zk.get(f"/jobs/{odd.id}/status")[0])
    zk.set(f"/jobs/{odd.id}/status", json.dumps({**status, "message": message}).encode())
    with ingest.run_worker():
        ingest.wait_for("job", fine.id, "Completed")
        ingest.wait_for("job", odd.id, "Completed")
        ingest.wait_for("batch", batch.id, "Completed")
    assert_consistent(ingest, client)


@pytest.mark.parametrize("empty", [None, b""], ids=["null", "empty"])
def test_null_and_empty_data_are_read_alike(
    ingest: TrivialIngest, zk: KazooClient, make_client: ClientFactory, empty: bytes | None
) -> None:
    client = make_client(ruby=empty is None)
    batch = Batch.create(client, {})
    job = Job.create(client, batch.id, {}, identifiers={"primary_id": "ark:/1/x", "local_id": []})
    for name in ("identifiers", "configuration"):
        zk.set(f"/jobs/{job.id}/{name}", empty)
    zk.set(f"/batches/{batch.id}/submission", empty)
    assert ingest.store.get("job", job.id).documents["identifiers"] == {}
    with ingest.run_worker():
        ingest.wait_for("batch", batch.id, "Completed")


# --- removal, by either side


def is_gone_after_maintenance(ingest: TrivialIngest, batch: str) -> bool:
    ingest.run_maintenance()
    return ingest.is_gone("batch", batch)


@DIALECTS
def test_batches_that_they_removed_leave_nothing_of_ours(
    ingest: TrivialIngest, make_client: ClientFactory, ruby: bool
) -> None:
    client = make_client(ruby=ruby)
    batch = ingest.submit(jobs=3, batchID="bid-1")
    with ingest.run_worker():
        ingest.wait_for("batch", batch.id, "Completed")
        jobs = ingest.wait_for_jobs(batch.id, 3)
    assert delete_completed_batches(client) == [batch.id]
    ingest.run_maintenance()
    ingest.run_maintenance()
    assert find_traces(client.zk, batch.id, *jobs, "bid-1") == []
    assert ingest.store.count_by_state("batch") == {}
    assert_consistent(ingest, client)


@DIALECTS
def test_a_batch_deleted_here_harms_neither_their_reporter_nor_their_cleaner_and_goes_with_its_jobs(
    ingest: TrivialIngest, make_client: ClientFactory, ruby: bool
) -> None:
    ingest.failures["Storing"] = "broken"
    batch = ingest.submit(jobs=2, batchID="bid-1")
    with ingest.run_worker(queues=["batch", "job"]):
        jobs = ingest.wait_for_jobs(batch.id, 2)
        ingest.wait_for("batch", batch.id, "Failed")
    ingest.engine.act(batch.ref, "delete", confirmed=True)
    client = make_client(ruby=ruby)
    assert Service(client).report() is None, (
        "their reporter fails on a deleted batch that has an empty batch-processing"
    )
    assert not client.exists(f"/batches/{batch.id}/lock")
    assert nodedump.faults(client.zk) == []
    if ruby:
        assert delete_completed_batches(client) == [batch.id]
    wait_until(lambda: is_gone_after_maintenance(ingest, batch.id), "retention to remove it")
    ingest.run_maintenance()
    assert find_traces(client.zk, batch.id, *jobs, "bid-1") == []
    assert_consistent(ingest, client)


@DIALECTS
def test_a_batch_of_theirs_that_they_deleted_is_removed_here_with_its_jobs(
    ingest: TrivialIngest, make_client: ClientFactory, ruby: bool
) -> None:
    client, admin = make_client(ruby=ruby), Admin(make_client(ruby=True))
    Batch.create(client, {"batchID": "bid-1"})
    batch = Service(client).take_batch(lambda submission: [{"profile": "p"}] * 2)
    assert batch is not None
    jobs = ingest.wait_for_jobs(batch.id, 2)
    for job in jobs:
        admin.force_fail(job)
    with ingest.run_worker(queues=["batch"]):
        ingest.wait_for("batch", batch.id, "Failed")
    admin.delete_batch(batch.id)
    wait_until(lambda: is_gone_after_maintenance(ingest, batch.id), "retention to remove it")
    ingest.run_maintenance()
    assert find_traces(client.zk, batch.id, *jobs, "bid-1") == []


@DIALECTS
def test_deleted_jobs_that_they_removed_are_not_counted(
    ingest: TrivialIngest, make_client: ClientFactory, ruby: bool
) -> None:
    client = make_client(ruby=ruby)
    batch = ingest.submit(jobs=2)
    ingest.failures["Storing"] = "broken"
    with ingest.run_worker():
        first, second = ingest.wait_for_jobs(batch.id, 2)
        ingest.wait_for("batch", batch.id, "Failed")
    ingest.engine.act(Ref("job", first), "delete", confirmed=True)
    assert delete_deleted_jobs(client) == [first]
    ingest.run_maintenance()
    assert find_traces(client.zk, first) == []
    assert [record.id for record in ingest.store.find("job", parent=batch.ref).records] == [second]
    assert_consistent(ingest, client)


class SlowClient:
    """A client that is slow between two of its reads: `meanwhile` is called in the first `exists` of that path."""

    def __init__(self, client: Client, path: str, meanwhile: Callable[[], object]) -> None:
        self._ask, self._path, self._meanwhile = client.exists, path, [meanwhile]
        client.exists = self  # type: ignore[method-assign, assignment]

    def __call__(self, path: str) -> bool:
        if path == self._path and self._meanwhile:
            self._meanwhile.pop()()
        return self._ask(path)


@DIALECTS
@pytest.mark.parametrize("outcome", ["resume", "delete"])
def test_an_entry_of_a_client_that_loaded_a_job_just_before_we_moved_it_is_deleted(
    ingest: TrivialIngest, make_client: ClientFactory, ruby: bool, outcome: str
) -> None:
    """They load every job to remove deleted ones, and a load without a lock creates the entry of the state that it read."""
    client = make_client(ruby=ruby)
    ingest.failures["Recording"] = "no"
    batch = ingest.submit(batchID="bid-1")
    with ingest.run_worker():
        (job,) = ingest.wait_for_jobs(batch.id, 1)
        ingest.wait_for("job", job, "Failed")
        ingest.wait_for("batch", batch.id, "Failed")
    entry = client.children("/jobs/states/failed")
    assert len(entry) == 1
    SlowClient(
        client, f"/jobs/states/failed/{entry[0]}", lambda: ingest.engine.act(Ref("job", job), outcome, confirmed=True)
    )
    Job(client, job).load()
    assert client.children("/jobs/states/failed") == entry, "it is there again"
    ingest.failures.clear()
    with ingest.run_worker():
        ingest.wait_for("job", job, "Completed" if outcome == "resume" else "Deleted")
    ingest.run_maintenance()
    assert client.children("/jobs/states/failed") == []
    assert_consistent(ingest, client)


def test_an_entry_of_a_job_that_does_not_exist_is_deleted(
    ingest: TrivialIngest, make_client: ClientFactory, zk: KazooClient
) -> None:
    batch = ingest.submit(batchID="bid-1")
    with ingest.run_worker():
        ingest.wait_for("batch", batch.id, "Completed")
    zk.create("/jobs/states/failed/05-jid0000000077", b"")
    zk.create("/jobs/states/estimating/05-jid0000000078", b"")
    ingest.run_maintenance()
    assert zk.get_children("/jobs/states/failed") == zk.get_children("/jobs/states/estimating") == []
    assert_consistent(ingest, make_client())
