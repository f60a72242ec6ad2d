"""What the other side does that a careful service would not: each habit, and how Waybill lives with it."""

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
from tests.interop.ours import Ours
from tests.interop.trees import sound, traces
from tests.servers.process import wait_until
from tests.stores.zookeeper import nodedump
from waybill.record import Ref

DIALECTS = pytest.mark.parametrize("ruby", [False, True], ids=["java", "ruby"])
Theirs = Callable[..., Client]
MARK = "collections/p"


# --- a last_successful_status of "Failed"


def test_resume_goes_on_after_the_last_state_done_also_when_java_notes_failed_as_the_last_success(
    ours: Ours, theirs: Theirs
) -> None:
    batch = ours.submit()
    ours.fails["Recording"] = "no inventory"
    with ours.working():
        (job,) = ours.jobs(batch.id, 1)
        ours.until("job", job, "Failed")
    java = Job(theirs(), job).load()
    assert java.lock()
    java.set_status_with_retry("Recording")
    java.fail("not yet")
    java.unlock()
    assert json.loads(java.client.zk.get(f"/jobs/{job}/status")[0])["last_successful_status"] == "Failed"
    assert not Admin(theirs(ruby=True)).requeue(job), "their own requeue is at a loss"
    record = ours.store.get("job", job)
    assert (record.state, record.last_done, record.retries) == ("Failed", "Storing", 1)
    ours.fails.clear()
    ours.done.clear()
    with ours.working():
        assert ours.engine.act(Ref("job", job), "resume").record.state == "Recording"
        assert ours.until("job", job, "Completed").retries == 2
    assert [state for id, state in ours.done if id == job] == ["Recording", "Notify"], "nothing is done a second time"
    sound(ours, java.client)


def test_what_a_job_of_theirs_has_done_is_remembered_since_it_was_first_looked_at(ours: Ours, theirs: Theirs) -> None:
    """Nobody here ever claimed it; a round of the duties saw it once."""
    client = theirs()
    service = Service(client)
    job = Job.create(client, Batch.create(client, {}).id, {"profile": "p"})
    for state in ("Pending", "Estimating", "Provisioning", "Downloading", "Processing"):
        assert service.work(state) is not None
    assert service.work("Storing", fails="no room") is not None
    ours.rounds()
    again = Job(client, job.id).load()
    again.set_status_with_retry("Storing")
    again.fail("still no room")
    assert ours.store.get("job", job.id).last_done == "Processing"
    ours.rounds()
    assert ours.store.get("job", job.id).last_done == "Processing"
    assert ours.engine.act(Ref("job", job.id), "resume").record.state == "Storing"
    sound(ours, client)


# --- batches: "Reporting" while jobs run, and readers that take an empty folder for the end


@DIALECTS
def test_reporting_while_jobs_run_is_a_batch_that_waits_for_them(ours: Ours, theirs: Theirs, ruby: bool) -> None:
    client = theirs(ruby=ruby)
    Batch.create(client, {"batchID": "bid-1", "profile": "p"})
    batch = Service(client).take_batch(lambda submission: [{"profile": "p"}] * 3)
    assert batch is not None
    assert ours.store.get("batch", batch.id).state == "Reporting"
    go = ours.blocks["Notify"] = threading.Event()
    with ours.working():
        jobs = ours.jobs(batch.id, 3)
        wait_until(lambda: sum(state == "Notify" for _, state in ours.done) == 3, "all jobs to be about to end")
        assert ours.store.get("batch", batch.id).state == "Reporting"
        go.set()
        ours.until("batch", batch.id, "Completed")
    assert [state for id, state in ours.done if id == batch.id] == ["Reporting"], "reported once"
    order = [id for id, _ in ours.done]
    assert order.index(batch.id) > max(order.index(job) for job in jobs)
    sound(ours, client)


@DIALECTS
def test_a_batch_that_has_no_jobs_yet_is_not_reported_by_them(ours: Ours, theirs: Theirs, ruby: bool) -> None:
    batch = ours.submit(jobs=3)
    with ours.working(roles=["batch.Pending"]):
        ours.until("batch", batch.id, "Processing")
    client = theirs(ruby=ruby)
    assert Service(client).report() is None
    assert Batch.acquire_pending(client) is None
    sound(ours, client)
    with ours.working():
        assert ours.until("batch", batch.id, "Completed").docs["status-report"] == {"counts": {"Completed": 3}}


@DIALECTS
def test_a_batch_that_they_reported_is_left_alone(ours: Ours, theirs: Theirs, ruby: bool) -> None:
    """Waybill's own jobs, done by Waybill; the other side was faster with the report."""
    batch = ours.submit(jobs=2)
    with ours.working(roles=["batch.Pending", "batch.Processing", "job"]):
        for job in ours.jobs(batch.id, 2):
            ours.until("job", job, "Completed")
        ours.until("batch", batch.id, "Reporting")
    reported = Service(theirs(ruby=ruby)).report()
    assert reported is not None
    with ours.working():
        record = ours.until("batch", batch.id, "Completed")
    assert (record.state, "Reporting" in [state for id, state in ours.done if id == batch.id]) == ("Completed", False)
    assert [line.event for line in ours.store.history("batch", batch.id)][-1] == "seen from outside"
    ours.rounds()
    sound(ours, reported.client)


# --- holds


@DIALECTS
def test_a_held_batch_is_not_poisoned_by_acquiring_pending_batches(ours: Ours, theirs: Theirs, ruby: bool) -> None:
    ours.store.mark(MARK, True, "ann", "inventory")
    batch = ours.submit(batchID="bid-1")
    client = theirs(ruby=ruby)
    with ours.working():
        ours.until("batch", batch.id, "Held")
        for _ in range(3):
            assert Batch.acquire_pending(client) is None
            assert Service(client).report() is None
        assert not client.exists(f"/batches/{batch.id}/lock")
        sound(ours, client)
        ours.store.mark(MARK, False)
        ours.engine.act(batch.ref, "release")
        ours.until("batch", batch.id, "Completed")
    sound(ours, client)


def test_a_batch_that_is_held_just_before_java_takes_it_outlives_that(ours: Ours, theirs: Theirs) -> None:
    """Java saw it pending, then it was held, then Java locks it, stumbles, and leaves its lock until its session
    ends.
    """
    batch = ours.submit(batchID="bid-1")
    java = theirs()
    assert not java.exists(f"/batches/{batch.id}/states")
    ours.engine.act(batch.ref, "hold")
    seen = Batch(java, batch.id)
    assert seen.lock()
    with pytest.raises(NodeExistsError):
        seen.take()
    assert ours.store.get("batch", batch.id).state == "Held"
    java.close()
    client = theirs()
    wait_until(lambda: not client.exists(f"/batches/{batch.id}/lock"), "their lock to go with the session")
    ours.engine.act(batch.ref, "release")
    with ours.working():
        ours.until("batch", batch.id, "Completed")
    sound(ours, client)


@DIALECTS
def test_a_collection_that_they_locked_holds_their_jobs_here_too(ours: Ours, theirs: Theirs, ruby: bool) -> None:
    """Nobody has reckoned for a job of theirs which marks stop it: that is done when it is first claimed."""
    client = theirs(ruby=ruby)
    assert lock(client, "collections", "p")
    batch = Batch.create(client, {"batchID": "bid-1", "profile": "other"})
    job = Job.create(client, batch.id, {"profile": "p"})
    free = Job.create(client, batch.id, {"profile": "q"})
    with ours.working():
        assert ours.until("job", job.id, "Held").message == "held by collections/p"
        ours.until("job", free.id, "Completed")
        sound(ours, client)
        unlock(client, "collections", "p")
        assert Admin(theirs(ruby=True)).release(job.id)
        ours.until("batch", batch.id, "Completed")
    assert [line.after for line in ours.store.history("job", job.id)][:3] == ["Pending", "Held", "Pending"]
    sound(ours, client)


@DIALECTS
def test_their_pause_of_ingest_stops_us(ours: Ours, theirs: Theirs, ruby: bool) -> None:
    client = theirs(ruby=ruby)
    assert lock(client, "queue", "ingest")
    batch = ours.submit()
    assert ours.once() is None
    unlock(client, "queue", "ingest")
    with ours.working():
        ours.until("batch", batch.id, "Completed")


# --- locks of objects


@DIALECTS
def test_an_object_that_they_store_is_waited_for(ours: Ours, theirs: Theirs, ruby: bool) -> None:
    client = theirs(ruby=ruby)
    ark = "ark:/99999/fk4abc"
    batch = Batch.create(client, {"batchID": "bid-1"})
    job = Job.create(client, batch.id, {"profile": "p"}, identifiers={"primary_id": ark, "local_id": []})
    assert lock(client, "storage", ark)
    with ours.working():
        wait_until(
            lambda: ours.store.get("job", job.id).parked == f"key storage/{ark}", "the job to wait for the object"
        )
        assert ("Processing" in [state for id, state in ours.done if id == job.id]) is False
        unlock(client, "storage", ark)
        ours.until("job", job.id, "Completed")
    assert not is_locked(client, "storage", ark)
    sound(ours, client)


@DIALECTS
def test_they_cannot_lock_what_is_stored_here_and_nothing_stays_locked(ours: Ours, theirs: Theirs, ruby: bool) -> None:
    client = theirs(ruby=ruby)
    go = ours.blocks["Storing"] = threading.Event()
    batch = ours.submit()
    with ours.working():
        (job,) = ours.jobs(batch.id, 1)
        wait_until(lambda: (job, "Storing") in ours.done, "the job to be stored")
        assert not lock(client, "storage", f"ark:/99999/{job}")
        go.set()
        ours.until("batch", batch.id, "Completed")
    assert [client.children(f"/locks/{family}") for family in ("storage", "inventory", "localid")] == [[], [], []]


def test_keys_of_a_job_that_they_led_on_are_free_for_others(ours: Ours, theirs: Theirs) -> None:
    """Waybill stopped in Storing with the object's lock; Java ends the job, and nobody would ever drop it."""
    batch = ours.submit()
    with ours.working(
        roles=[
            "batch",
            *(f"job.{name}" for name in ("Pending", "Estimating", "Provisioning", "Downloading", "Processing")),
        ]
    ):
        (job,) = ours.jobs(batch.id, 1)
        ours.until("job", job, "Storing")
    client = theirs()
    assert is_locked(client, "storage", f"ark:/99999/{job}")
    other = Job.create(
        client, batch.id, {"profile": "p"}, identifiers={"primary_id": f"ark:/99999/{job}", "local_id": []}
    )
    java = Job(client, job).load()
    java.lock()
    for _ in range(3):
        java.success()
    java.unlock()
    with ours.working():
        ours.until("job", other.id, "Completed")
        ours.until("batch", batch.id, "Completed")
    assert client.children("/locks/storage") == []
    sound(ours, client)


# --- writes over our heads


def test_a_job_that_the_admin_forces_to_fail_is_lost_to_our_step_and_can_be_resumed(ours: Ours, theirs: Theirs) -> None:
    go = ours.blocks["Storing"] = threading.Event()
    batch = ours.submit()
    with ours.working():
        (job,) = ours.jobs(batch.id, 1)
        wait_until(lambda: (job, "Storing") in ours.done, "the job to be stored")
        Admin(theirs(ruby=True)).force_fail(job)
        assert ours.store.get("job", job).state == "Failed"
        go.set()
        ours.blocks.clear()
        ours.until("batch", batch.id, "Failed")
        assert ours.store.get("job", job).state == "Failed", "what the step did is not counted"
        ours.engine.act(Ref("job", job), "resume")
        ours.until("job", job, "Completed")
        ours.engine.act(batch.ref, "report")
        ours.until("batch", batch.id, "Completed")
    sound(ours, theirs())


@DIALECTS
def test_a_status_written_without_asking_who_holds_the_job_ends_our_claim_and_frees_the_job(
    ours: Ours, theirs: Theirs, ruby: bool
) -> None:
    """The worker lives on: its lock on the job must not."""
    go = ours.blocks["Storing"] = threading.Event()
    batch = ours.submit()
    with ours.working():
        (job,) = ours.jobs(batch.id, 1)
        wait_until(lambda: (job, "Storing") in ours.done, "the job to be stored")
        Job(theirs(ruby=ruby), job).load().fail("over your heads")
        go.set()
        record = ours.until("job", job, "Failed")
        assert (record.message, record.last_done) == ("over your heads", "Processing")
        ours.blocks.clear()
        ours.engine.act(record.ref, "resume")
        ours.until("job", job, "Completed")
    sound(ours, theirs())


@DIALECTS
def test_a_job_that_is_deleted_under_our_step_harms_nobody(ours: Ours, theirs: Theirs, ruby: bool) -> None:
    go = ours.blocks["Storing"] = threading.Event()
    batch = ours.submit(jobs=2)
    client = theirs(ruby=ruby)
    with ours.working():
        first, second = ours.jobs(batch.id, 2)
        wait_until(lambda: {(first, "Storing"), (second, "Storing")} <= set(ours.done), "both jobs to be stored")
        doomed = Job(client, first).load()
        doomed.fail()
        doomed.set_status("Deleted")
        doomed.delete()
        go.set()
        ours.until("job", second, "Completed")
        ours.until("batch", batch.id, "Completed")
        wait_until(lambda: not traces(client.zk, first, below="/waybill/records"), "what was kept beside it to go")
    assert traces(client.zk, first, below="/locks") == []
    sound(ours, client)


# --- what cannot be read


@pytest.mark.parametrize(
    "status", [b'{"status":"completed","retry_count":0}', b'{"status":"Dreaming"}', b"no json", b"", b"[1]"]
)
def test_a_status_that_nobody_understands_does_not_stop_the_others(ours: Ours, theirs: Theirs, status: bytes) -> None:
    client = theirs()
    batch = Batch.create(client, {"batchID": "bid-1"})
    odd, fine = (Job.create(client, batch.id, {"profile": "p"}) for _ in range(2))
    client.zk.set(f"/jobs/{odd.id}/status", status)
    with pytest.raises(Invalid):
        list_jobs(client)
    with ours.working():
        ours.until("job", fine.id, "Completed")
        ours.until("batch", batch.id, "Processing")
    listed = {record.id for record in ours.store.find("job").records}
    assert fine.id in listed
    assert sum(ours.store.tally("job").values()) >= 1
    assert ours.store.find("job", parent=Ref("batch", batch.id), docs=True).records
    assert ours.store.get("batch", batch.id).state == "Processing", "nobody knows whether that job has settled"


@pytest.mark.parametrize("number", [b"100", b"-3", b"high", b"", b"007"])
@pytest.mark.parametrize("queued", [True, False], ids=["queued by it", "queued by the old one"])
def test_a_priority_that_no_entry_has_room_for_does_not_stop_the_worker(
    ours: Ours, theirs: Theirs, zk: KazooClient, number: bytes, queued: bool
) -> None:
    """Nothing of theirs checks it.

    A worker that could neither store such a job nor give it back went from session to session for ever.
    """
    client = theirs()
    batch = Batch.create(client, {"batchID": "bid-1"})
    odd, fine = (Job.create(client, batch.id, {"profile": "p"}) for _ in range(2))
    zk.set(f"/jobs/{odd.id}/priority", number)
    if queued and number.lstrip(b"-").isdigit():
        zk.delete(f"/jobs/states/pending/05-{odd.id}")
        zk.create(f"/jobs/states/pending/{int(number):02d}-{odd.id}")
    with ours.working():
        ours.until("job", fine.id, "Completed")
        ours.until("job", odd.id, "Completed")
        ours.until("batch", batch.id, "Completed")
    assert 0 <= int(zk.get(f"/jobs/{odd.id}/priority")[0]) <= 99
    sound(ours, client)


@pytest.mark.parametrize("message", ["a stack trace " * 30_000, "half\0read"], ids=["long", "with a null character"])
def test_a_message_that_cannot_be_written_again_does_not_stop_the_worker(
    ours: Ours, theirs: Theirs, zk: KazooClient, message: str
) -> None:
    client = theirs()
    batch = Batch.create(client, {"batchID": "bid-1"})
    odd, fine = (Job.create(client, batch.id, {"profile": "p"}) for _ in range(2))
    status = json.loads(zk.get(f"/jobs/{odd.id}/status")[0])
    zk.set(f"/jobs/{odd.id}/status", json.dumps({**status, "message": message}).encode())
    with ours.working():
        ours.until("job", fine.id, "Completed")
        ours.until("job", odd.id, "Completed")
        ours.until("batch", batch.id, "Completed")
    sound(ours, client)


@pytest.mark.parametrize("empty", [None, b""], ids=["null", "empty"])
def test_null_and_empty_data_are_read_alike(ours: Ours, zk: KazooClient, theirs: Theirs, empty: bytes | None) -> None:
    client = theirs(ruby=empty is None)
    batch = Batch.create(client, {})
    job = Job.create(client, batch.id, {}, identifiers={"primary_id": "ark:/1/x", "local_id": []})
    for name in ("identifiers", "configuration"):
        zk.set(f"/jobs/{job.id}/{name}", empty)
    zk.set(f"/batches/{batch.id}/submission", empty)
    assert ours.store.get("job", job.id).docs["identifiers"] == {}
    with ours.working():
        ours.until("batch", batch.id, "Completed")


# --- clearing up, by either side


@DIALECTS
def test_batches_that_they_cleared_away_leave_nothing_of_ours(ours: Ours, theirs: Theirs, ruby: bool) -> None:
    client = theirs(ruby=ruby)
    batch = ours.submit(jobs=3, batchID="bid-1")
    with ours.working():
        ours.until("batch", batch.id, "Completed")
        jobs = ours.jobs(batch.id, 3)
    assert delete_completed_batches(client) == [batch.id]
    ours.rounds()
    ours.rounds()
    assert traces(client.zk, batch.id, *jobs, "bid-1") == []
    assert ours.store.tally("batch") == {}
    sound(ours, client)


@DIALECTS
def test_a_batch_deleted_here_harms_neither_their_reporter_nor_their_cleaner_and_goes_with_its_jobs(
    ours: Ours, theirs: Theirs, ruby: bool
) -> None:
    ours.fails["Storing"] = "broken"
    batch = ours.submit(jobs=2, batchID="bid-1")
    with ours.working(roles=["batch", "job"]):
        jobs = ours.jobs(batch.id, 2)
        ours.until("batch", batch.id, "Failed")
    ours.engine.act(batch.ref, "delete", confirmed=True)
    client = theirs(ruby=ruby)
    assert Service(client).report() is None, (
        "their reporter stumbles over what is deleted and has an empty batch-processing"
    )
    assert not client.exists(f"/batches/{batch.id}/lock")
    assert nodedump.faults(client.zk) == []
    if ruby:
        assert delete_completed_batches(client) == [batch.id]
    wait_until(lambda: (ours.rounds(), ours.gone("batch", batch.id))[1], "retention to remove it")
    ours.rounds()
    assert traces(client.zk, batch.id, *jobs, "bid-1") == []
    sound(ours, client)


@DIALECTS
def test_a_batch_of_theirs_that_they_deleted_is_removed_here_with_its_jobs(
    ours: Ours, theirs: Theirs, ruby: bool
) -> None:
    client, admin = theirs(ruby=ruby), Admin(theirs(ruby=True))
    Batch.create(client, {"batchID": "bid-1"})
    batch = Service(client).take_batch(lambda submission: [{"profile": "p"}] * 2)
    assert batch is not None
    jobs = ours.jobs(batch.id, 2)
    for job in jobs:
        admin.force_fail(job)
    with ours.working(roles=["batch"]):
        ours.until("batch", batch.id, "Failed")
    admin.delete_batch(batch.id)
    wait_until(lambda: (ours.rounds(), ours.gone("batch", batch.id))[1], "retention to remove it")
    ours.rounds()
    assert traces(client.zk, batch.id, *jobs, "bid-1") == []


@DIALECTS
def test_deleted_jobs_that_they_clear_away_are_counted_no_longer(ours: Ours, theirs: Theirs, ruby: bool) -> None:
    client = theirs(ruby=ruby)
    batch = ours.submit(jobs=2)
    ours.fails["Storing"] = "broken"
    with ours.working():
        first, second = ours.jobs(batch.id, 2)
        ours.until("batch", batch.id, "Failed")
    ours.engine.act(Ref("job", first), "delete", confirmed=True)
    assert delete_deleted_jobs(client) == [first]
    ours.rounds()
    assert traces(client.zk, first) == []
    assert [record.id for record in ours.store.find("job", parent=batch.ref).records] == [second]
    sound(ours, client)


class Late:
    """A client that is slow between two of its questions: what happens meanwhile, happens in the first `exists` of
    that path.
    """

    def __init__(self, client: Client, path: str, meanwhile: Callable[[], object]) -> None:
        self._ask, self._path, self._meanwhile = client.exists, path, [meanwhile]
        client.exists = self  # type: ignore[method-assign, assignment]

    def __call__(self, path: str) -> bool:
        if path == self._path and self._meanwhile:
            self._meanwhile.pop()()
        return self._ask(path)


@DIALECTS
@pytest.mark.parametrize("outcome", ["resume", "delete"])
def test_an_entry_made_by_one_who_loaded_a_job_just_before_we_moved_it_goes_away(
    ours: Ours, theirs: Theirs, ruby: bool, outcome: str
) -> None:
    """They load every job to clear away deleted ones, and a load without a lock makes the entry of the state that it
    read.
    """
    client = theirs(ruby=ruby)
    ours.fails["Recording"] = "no"
    batch = ours.submit(batchID="bid-1")
    with ours.working():
        (job,) = ours.jobs(batch.id, 1)
        ours.until("job", job, "Failed")
        ours.until("batch", batch.id, "Failed")
    entry = client.children("/jobs/states/failed")
    assert len(entry) == 1
    Late(client, f"/jobs/states/failed/{entry[0]}", lambda: ours.engine.act(Ref("job", job), outcome, confirmed=True))
    Job(client, job).load()
    assert client.children("/jobs/states/failed") == entry, "it is there again"
    ours.fails.clear()
    with ours.working():
        ours.until("job", job, "Completed" if outcome == "resume" else "Deleted")
    ours.rounds()
    assert client.children("/jobs/states/failed") == []
    sound(ours, client)


def test_an_entry_of_a_job_that_is_gone_goes_too(ours: Ours, theirs: Theirs, zk: KazooClient) -> None:
    batch = ours.submit(batchID="bid-1")
    with ours.working():
        ours.until("batch", batch.id, "Completed")
    zk.create("/jobs/states/failed/05-jid0000000077", b"")
    zk.create("/jobs/states/estimating/05-jid0000000078", b"")
    ours.rounds()
    assert zk.get_children("/jobs/states/failed") == zk.get_children("/jobs/states/estimating") == []
    sound(ours, theirs())
