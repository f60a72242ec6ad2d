"""A service of Merritt's killed between any two of its writes, for every operation; then Waybill continues with what is
left.

Each test runs its operation again and again, in one tree: killed after no write, after one, after two ... until it is
complete.
"""

from collections.abc import Callable, Iterator
from typing import Any

import pytest

from tests.budget import Budget
from tests.interop.merritt.access import Assembly
from tests.interop.merritt.admin import Admin
from tests.interop.merritt.batches import Batch, delete_completed_batches
from tests.interop.merritt.client import Client, Killed
from tests.interop.merritt.jobs import Job, delete_deleted_jobs
from tests.interop.merritt.services import Service
from tests.interop.trees import assert_consistent, find_traces
from tests.interop.trivial_ingest import TrivialIngest
from tests.stores.zookeeper import nodedump
from waybill.record import Ref
from waybill.stores.zookeeper import children

DIALECTS = pytest.mark.parametrize("ruby", [False, True], ids=["java", "ruby"])
ClientFactory = Callable[..., Client]
MAX_WRITES = 60  # of any operation


def kill_at_every_write(
    make_client: ClientFactory,
    ruby: bool,
    operation: Callable[[Client], Any],
    before: Callable[[], Any],
    stride: int = 1,
) -> Iterator[int]:
    """Yield after each kill, for the test to examine what is left. `stride`: kill only after every so many writes."""
    for writes in range(0, MAX_WRITES, stride):
        before()
        client = make_client(ruby=ruby, dies_after=writes)
        try:
            operation(client)
        except Killed:
            yield writes
            continue
        assert client.writes <= writes
        return
    raise AssertionError("the operation was never complete")


def repair_all(ingest: TrivialIngest) -> None:
    """Do what the maintenance routines and `waybill doctor --fix` do: rounds, then check and repair."""
    for _ in range(4):
        ingest.run_maintenance()
        for finding in ingest.store.check():
            if finding.repairable:
                ingest.store.repair(finding)
    assert list(ingest.store.check()) == []


@pytest.fixture
def no_incomplete_job_age(monkeypatch: pytest.MonkeyPatch) -> None:
    """Do not wait for a job whose creator died."""
    monkeypatch.setattr(children, "INCOMPLETE_JOB_AGE", 0.0)


@DIALECTS
def test_a_batch_whose_creator_died_is_worked_on_or_removed(
    ingest: TrivialIngest, make_client: ClientFactory, ruby: bool
) -> None:
    kills: list[int] = []
    for writes in kill_at_every_write(
        make_client,
        ruby,
        lambda client: Batch.create(client, {"batchID": f"bid-{len(kills)}", "profile": "p"}),
        lambda: None,
    ):
        kills.append(writes)
        repair_all(ingest)
        assert nodedump.faults(make_client().zk) == [], writes
    assert len(kills) == 4
    client = make_client(ruby=ruby)
    with ingest.run_worker():
        for name in client.children("/batches"):
            ingest.wait_for("batch", name, "Completed")
    assert_consistent(ingest, client)


@DIALECTS
def test_a_job_whose_creator_died_is_worked_on_or_removed(
    ingest: TrivialIngest, make_client: ClientFactory, ruby: bool, no_incomplete_job_age: None
) -> None:
    client = make_client(ruby=ruby)
    Batch.create(client, {"batchID": "bid-1", "profile": "p"})
    batch = Service(client).take_batch(lambda submission: [])
    assert batch is not None
    kills = 0
    for writes in kill_at_every_write(
        make_client,
        ruby,
        lambda client: Job.create(client, batch.id, {"profile": "p"}, priority=28, metadata={"erc_who": "x"}),
        lambda: None,
    ):
        kills = writes
        repair_all(ingest)
        assert nodedump.faults(client.zk) == [], writes
    assert kills > 8
    jobs = [name for name in client.children("/jobs") if name != "states"]
    with ingest.run_worker():
        for job in jobs:
            # its status was lost, and it was in no queue
            if ingest.wait_for("job", job, "Completed", "Failed").state == "Failed":
                ingest.engine.act(Ref("job", job), "resume")
        for job in jobs:
            ingest.wait_for("job", job, "Completed")
        ingest.wait_for("batch", batch.id, "Completed", "Failed")
    assert_consistent(ingest, client)


@pytest.mark.parametrize("operation", ["success", "fail", "retry", "priority", "hold", "resume", "force", "store"])
@DIALECTS
def test_a_job_that_a_killed_service_was_moving_continues_once(
    ingest: TrivialIngest, make_client: ClientFactory, ruby: bool, operation: str
) -> None:
    """Without `doctor`: a round of maintenance repairs what is left, and then every job ends, none is lost, none is in two
    queues.
    """
    client = make_client(ruby=ruby)
    Batch.create(client, {"batchID": "bid-1", "profile": "p"})
    batch = Service(client).take_batch(lambda submission: [])
    assert batch is not None
    jobs: list[str] = []

    def create_job() -> None:
        job = Job.create(
            client, batch.id, {"profile": "p"}, identifiers={"primary_id": f"ark:/1/{len(jobs)}", "local_id": []}
        )
        if operation in ("retry", "resume"):
            job.set_status("Estimating")
            job.fail("no")
        jobs.append(job.id)

    def run_operation(client: Client) -> None:
        if operation == "resume" and client.ruby:
            assert Admin(client).requeue(jobs[-1])
        elif operation == "hold" and client.ruby:
            assert Admin(client).hold(jobs[-1])
        elif operation == "force" and client.ruby:
            Admin(client).force_fail(jobs[-1])
        else:
            job = Job(client, jobs[-1])
            assert job.lock()
            job.load()
            _move(job, operation)
            job.unlock()

    for writes in kill_at_every_write(make_client, ruby, run_operation, create_job):
        ingest.run_maintenance()
        assert nodedump.faults(client.zk) == [], writes
        assert list(ingest.store.check()) == [], writes
    assert len(jobs) > 3
    with ingest.run_worker():
        for job in jobs:
            record = ingest.wait_for("job", job, "Completed", "Failed", "Held")
            if record.state != "Completed":
                ingest.engine.act(record.ref, "resume" if record.state == "Failed" else "release")
                ingest.wait_for("job", job, "Completed")
        ingest.wait_for("batch", batch.id, "Completed", "Failed")
    assert_consistent(ingest, client)


def _move(job: Job, operation: str) -> None:
    if operation == "success":
        job.set_status("Estimating")
    elif operation in ("fail", "force"):
        job.fail("no")
    elif operation in ("retry", "resume"):
        job.set_status_with_retry("Provisioning")
    elif operation == "priority":
        job.set_status_with_priority("Pending", 42)
    elif operation == "hold":
        job.set_status("Held")
    elif operation == "store":
        job.set_space_needed(77)
        job.set_identifiers({"primary_id": "ark:/1/y", "local_id": []})
        job.set_store("http://x", "add/1/ark")
        job.set_inventory("http://x", "add")


@DIALECTS
def test_a_batch_whose_consumer_died_is_reported_with_the_jobs_that_it_has(
    ingest: TrivialIngest, make_client: ClientFactory, ruby: bool, no_incomplete_job_age: None, budget: Budget
) -> None:
    """Killed between its lock and its last job: a batch that is still pending is acquired again, and any other one ends."""
    made: list[str] = []
    for writes in kill_at_every_write(
        make_client,
        ruby,
        lambda client: Service(client).take_batch(lambda submission: [{"profile": "p"}] * 2),
        lambda: made.append(Batch.create(make_client(ruby=ruby), {"batchID": f"bid-{len(made)}", "jobs": 1}).id),
        budget.pick(small=3, long=1),
    ):
        repair_all(ingest)
        with ingest.run_worker():
            batch = ingest.wait_for("batch", made[-1], "Completed", "Failed")
            for job in ingest.store.find("job", parent=batch.ref).records:
                assert not job.open
        assert nodedump.faults(make_client().zk) == [], writes


@DIALECTS
def test_a_report_whose_reporter_died_is_written_here(
    ingest: TrivialIngest, make_client: ClientFactory, ruby: bool
) -> None:
    made: list[str] = []

    def prepare() -> None:
        batch = ingest.submit(jobs=1)
        with ingest.run_worker(queues=["batch.Pending", "batch.Processing", "job"]):
            ingest.wait_for("batch", batch.id, "Reporting")
        made.append(batch.id)

    for writes in kill_at_every_write(make_client, ruby, lambda client: Service(client).report(), prepare):
        with ingest.run_worker():
            ingest.wait_for("batch", made[-1], "Completed")
        ingest.run_maintenance()
        assert_consistent(ingest, make_client())
        assert writes < 4


@DIALECTS
def test_what_a_killed_cleaner_left_is_removed_here(
    ingest: TrivialIngest, make_client: ClientFactory, ruby: bool, budget: Budget
) -> None:
    """Jobs half removed, a batch half removed: repaired or removed, and at last no trace of them is left."""
    made: list[tuple[str, ...]] = []

    def prepare() -> None:
        batch = ingest.submit(jobs=1, batchID=f"uuid-{len(made)}-")
        with ingest.run_worker():
            ingest.wait_for("batch", batch.id, "Completed")
        made.append((batch.id, *ingest.wait_for_jobs(batch.id, 1), f"uuid-{len(made)}-"))

    last = 0
    for writes in kill_at_every_write(
        make_client, ruby, delete_completed_batches, prepare, budget.pick(small=3, long=1)
    ):
        last = writes
        repair_all(ingest)
        assert nodedump.faults(make_client().zk) == [], writes
    assert last > 10
    client = make_client(ruby=True)
    for batch, *_ in made:
        if not ingest.is_gone("batch", batch):
            record = ingest.store.get("batch", batch)
            if record.state == "Failed":
                ingest.engine.act(record.ref, "delete", confirmed=True)
            elif record.open:
                with ingest.run_worker():
                    record = ingest.wait_for("batch", batch, "Completed", "Failed")
            if record.state == "Completed":
                ingest.engine.remove(record.ref)
    for _ in range(3):
        repair_all(ingest)
    assert {names: found for names in made if (found := find_traces(client.zk, *names))} == {}


@DIALECTS
def test_a_killed_cleaner_of_deleted_jobs_leaves_nothing(
    ingest: TrivialIngest, make_client: ClientFactory, ruby: bool
) -> None:
    batch = ingest.submit(jobs=1)
    with ingest.run_worker():
        ingest.wait_for("batch", batch.id, "Completed")
    deleted: list[str] = []

    def prepare() -> None:
        job = Job.create(make_client(), batch.id, {"profile": "p"})
        job.fail()
        job.set_status("Deleted")
        deleted.append(job.id)

    for writes in kill_at_every_write(make_client, ruby, delete_deleted_jobs, prepare):
        repair_all(ingest)
        assert nodedump.faults(make_client().zk) == [], writes
    delete_deleted_jobs(make_client(ruby=ruby))
    repair_all(ingest)
    left = [record.id for record in ingest.store.find("job", parent=batch.ref).records if record.id in deleted]
    assert [ingest.store.get("job", id).state for id in left] == ["Failed"] * len(left), (
        "those whose status was gone already"
    )


@DIALECTS
def test_an_assembly_whose_creator_or_worker_died_is_finished_or_removed(
    ingest: TrivialIngest, make_client: ClientFactory, ruby: bool
) -> None:
    for operation in (
        lambda client: Assembly.create(client, "small", {"token": "t"}),
        lambda client: Service(client).assemble("small"),
    ):
        for _ in kill_at_every_write(
            make_client, ruby, operation, lambda: Assembly.create(make_client(), "small", {"token": "u"})
        ):
            repair_all(ingest)
    with ingest.run_worker():
        for record in ingest.store.find("access-small").records:
            ingest.wait_for("access-small", record.id, "Completed")
    assert list(ingest.store.check()) == []
