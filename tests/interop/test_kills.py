"""A service of theirs killed between any two of its writes: every operation, every place; then Waybill goes on with
what is left.

Each test runs its operation again and again, in one tree: killed after no write, after one, after two ... until it
comes to its end.
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
from tests.interop.ours import Ours
from tests.interop.trees import sound, traces
from tests.stores.zookeeper import nodedump
from waybill.record import Ref
from waybill.stores.zookeeper import kin

DIALECTS = pytest.mark.parametrize("ruby", [False, True], ids=["java", "ruby"])
Theirs = Callable[..., Client]
MOST = 60  # writes of any operation


def killed_everywhere(
    theirs: Theirs, ruby: bool, operation: Callable[[Client], Any], before: Callable[[], Any], stride: int = 1
) -> Iterator[int]:
    """After each kill the test looks at what is left. `stride`: only at every so many places."""
    for writes in range(0, MOST, stride):
        before()
        client = theirs(ruby=ruby, dies_after=writes)
        try:
            operation(client)
        except Killed:
            yield writes
            continue
        assert client.writes <= writes
        return
    raise AssertionError("the operation never came to its end")


def mended(ours: Ours) -> None:
    """What the duties do in time: rounds, and the store's own rules looked at and mended."""
    for _ in range(4):
        ours.rounds()
        for finding in ours.store.check():
            if finding.mendable:
                ours.store.mend(finding)
    assert list(ours.store.check()) == []


@pytest.fixture
def husks_are_old(monkeypatch: pytest.MonkeyPatch) -> None:
    """A job whose maker died is waited for no longer."""
    monkeypatch.setattr(kin, "HUSK", 0.0)


@DIALECTS
def test_a_batch_whose_maker_died_is_worked_on_or_cleared_away(ours: Ours, theirs: Theirs, ruby: bool) -> None:
    places = []
    for writes in killed_everywhere(
        theirs,
        ruby,
        lambda client: Batch.create(client, {"batchID": f"bid-{len(places)}", "profile": "p"}),
        lambda: None,
    ):
        places.append(writes)
        mended(ours)
        assert nodedump.faults(theirs().zk) == [], writes
    assert len(places) == 4
    client = theirs(ruby=ruby)
    with ours.working():
        for name in client.children("/batches"):
            ours.until("batch", name, "Completed")
    sound(ours, client)


@DIALECTS
def test_a_job_whose_maker_died_is_worked_on_or_cleared_away(
    ours: Ours, theirs: Theirs, ruby: bool, husks_are_old: None
) -> None:
    client = theirs(ruby=ruby)
    Batch.create(client, {"batchID": "bid-1", "profile": "p"})
    batch = Service(client).take_batch(lambda submission: [])
    assert batch is not None
    places = 0
    for writes in killed_everywhere(
        theirs,
        ruby,
        lambda client: Job.create(client, batch.id, {"profile": "p"}, priority=28, metadata={"erc_who": "x"}),
        lambda: None,
    ):
        places = writes
        mended(ours)
        assert nodedump.faults(client.zk) == [], writes
    assert places > 8
    jobs = [name for name in client.children("/jobs") if name != "states"]
    with ours.working():
        for job in jobs:
            # its status was lost, and it was in no queue
            if ours.until("job", job, "Completed", "Failed").state == "Failed":
                ours.engine.act(Ref("job", job), "resume")
        for job in jobs:
            ours.until("job", job, "Completed")
        ours.until("batch", batch.id, "Completed", "Failed")
    sound(ours, client)


@pytest.mark.parametrize("operation", ["success", "fail", "retry", "priority", "hold", "resume", "force", "store"])
@DIALECTS
def test_a_job_that_somebody_was_moving_when_he_died_goes_on_once(
    ours: Ours, theirs: Theirs, ruby: bool, operation: str
) -> None:
    """No doctor: a round of the duties mends what is left, and then every job ends, none is lost, none is in two
    places.
    """
    client = theirs(ruby=ruby)
    Batch.create(client, {"batchID": "bid-1", "profile": "p"})
    batch = Service(client).take_batch(lambda submission: [])
    assert batch is not None
    jobs: list[str] = []

    def another() -> None:
        job = Job.create(
            client, batch.id, {"profile": "p"}, identifiers={"primary_id": f"ark:/1/{len(jobs)}", "local_id": []}
        )
        if operation in ("retry", "resume"):
            job.set_status("Estimating")
            job.fail("no")
        jobs.append(job.id)

    def operate(client: Client) -> None:
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

    for writes in killed_everywhere(theirs, ruby, operate, another):
        ours.rounds()
        assert nodedump.faults(client.zk) == [], writes
        assert list(ours.store.check()) == [], writes
    assert len(jobs) > 3
    with ours.working():
        for job in jobs:
            record = ours.until("job", job, "Completed", "Failed", "Held")
            if record.state != "Completed":
                ours.engine.act(record.ref, "resume" if record.state == "Failed" else "release")
                ours.until("job", job, "Completed")
        ours.until("batch", batch.id, "Completed", "Failed")
    sound(ours, client)


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
def test_a_batch_whose_taker_died_is_reported_with_the_jobs_that_it_has(
    ours: Ours, theirs: Theirs, ruby: bool, husks_are_old: None, budget: Budget
) -> None:
    """Between its lock and its last job: the batch is taken up again when it is still pending, and ends when it was
    not.
    """
    made: list[str] = []
    for writes in killed_everywhere(
        theirs,
        ruby,
        lambda client: Service(client).take_batch(lambda submission: [{"profile": "p"}] * 2),
        lambda: made.append(Batch.create(theirs(ruby=ruby), {"batchID": f"bid-{len(made)}", "jobs": 1}).id),
        budget.pick(small=3, long=1),
    ):
        mended(ours)
        with ours.working():
            batch = ours.until("batch", made[-1], "Completed", "Failed")
            for job in ours.store.find("job", parent=batch.ref).records:
                assert not job.open
        assert nodedump.faults(theirs().zk) == [], writes


@DIALECTS
def test_a_report_whose_maker_died_is_made_here(ours: Ours, theirs: Theirs, ruby: bool) -> None:
    made: list[str] = []

    def ready() -> None:
        batch = ours.submit(jobs=1)
        with ours.working(roles=["batch.Pending", "batch.Processing", "job"]):
            ours.until("batch", batch.id, "Reporting")
        made.append(batch.id)

    for writes in killed_everywhere(theirs, ruby, lambda client: Service(client).report(), ready):
        with ours.working():
            ours.until("batch", made[-1], "Completed")
        ours.rounds()
        sound(ours, theirs())
        assert writes < 4


@DIALECTS
def test_what_a_cleaner_left_that_died_is_cleared_away_here(
    ours: Ours, theirs: Theirs, ruby: bool, budget: Budget
) -> None:
    """Jobs half gone, a batch half gone: mended or buried, and at last nothing speaks of them."""
    made: list[tuple[str, ...]] = []

    def ready() -> None:
        batch = ours.submit(jobs=1, batchID=f"uuid-{len(made)}-")
        with ours.working():
            ours.until("batch", batch.id, "Completed")
        made.append((batch.id, *ours.jobs(batch.id, 1), f"uuid-{len(made)}-"))

    last = 0
    for writes in killed_everywhere(theirs, ruby, delete_completed_batches, ready, budget.pick(small=3, long=1)):
        last = writes
        mended(ours)
        assert nodedump.faults(theirs().zk) == [], writes
    assert last > 10
    client = theirs(ruby=True)
    for batch, *_ in made:
        if not ours.gone("batch", batch):
            record = ours.store.get("batch", batch)
            if record.state == "Failed":
                ours.engine.act(record.ref, "delete", confirmed=True)
            elif record.open:
                with ours.working():
                    record = ours.until("batch", batch, "Completed", "Failed")
            if record.state == "Completed":
                ours.engine.remove(record.ref)
    for _ in range(3):
        mended(ours)
    assert {names: found for names in made if (found := traces(client.zk, *names))} == {}


@DIALECTS
def test_a_cleaner_of_deleted_jobs_that_died_leaves_nothing(ours: Ours, theirs: Theirs, ruby: bool) -> None:
    batch = ours.submit(jobs=1)
    with ours.working():
        ours.until("batch", batch.id, "Completed")
    deleted: list[str] = []

    def ready() -> None:
        job = Job.create(theirs(), batch.id, {"profile": "p"})
        job.fail()
        job.set_status("Deleted")
        deleted.append(job.id)

    for writes in killed_everywhere(theirs, ruby, delete_deleted_jobs, ready):
        mended(ours)
        assert nodedump.faults(theirs().zk) == [], writes
    delete_deleted_jobs(theirs(ruby=ruby))
    mended(ours)
    left = [record.id for record in ours.store.find("job", parent=batch.ref).records if record.id in deleted]
    assert [ours.store.get("job", id).state for id in left] == ["Failed"] * len(left), (
        "those whose status was gone already"
    )


@DIALECTS
def test_an_assembly_whose_maker_or_worker_died_is_made_or_cleared_away(ours: Ours, theirs: Theirs, ruby: bool) -> None:
    for operation in (
        lambda client: Assembly.create(client, "small", {"token": "t"}),
        lambda client: Service(client).assemble("small"),
    ):
        for _ in killed_everywhere(theirs, ruby, operation, lambda: Assembly.create(theirs(), "small", {"token": "u"})):
            mended(ours)
    with ours.working():
        for record in ours.store.find("access-small").records:
            ours.until("access-small", record.id, "Completed")
    assert list(ours.store.check()) == []
