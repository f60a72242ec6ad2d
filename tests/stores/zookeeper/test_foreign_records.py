"""Services that are not Waybill in the same tree: they write node after node, lock without a trace, die between two
writes.
"""

import json
import threading
from collections.abc import Callable, Iterator
from itertools import pairwise
from typing import Any

import pytest
from kazoo.client import KazooClient

from tests.budget import Budget
from tests.stores.zookeeper import nodedump
from tests.stores.zookeeper.harness import MerrittHarness
from tests.stores.zookeeper.merritt_service import MerrittService, ServiceKilled
from tests.stores.zookeeper.records import claim, commit, make_batch, make_job, make_jobs, make_move, move
from waybill.record import ClaimLost, CommitGroup, CommitResult, Conflict, RecordNotFound, Ref, WorkQueue
from waybill.stores.zookeeper import ZookeeperStore
from waybill.stores.zookeeper.paths import layout_of

FOREIGN_CAUSE = "changed by another service"


@pytest.fixture
def merritt_services(merritt: MerrittHarness, store: ZookeeperStore) -> Iterator[Callable[..., MerrittService]]:
    made: list[MerrittService] = []

    def make(**more: Any) -> MerrittService:
        made.append(MerrittService(merritt.hosts + merritt.root, **more))
        return made[-1]

    yield make
    for service in made:
        service.close()


def session_of(store: ZookeeperStore) -> str:
    return store.open_session(host="h", ttl=50, about={})


# --- what others locked


def test_a_lock_that_another_service_left_behind_is_listed_and_can_be_removed(
    store: ZookeeperStore, zk: KazooClient, merritt_services: Callable[..., MerrittService]
) -> None:
    batch = merritt_services().create_batch({"batchID": "bid-1"})
    merritt_services().create_job(batch, {})
    zk.create("/locks/storage/ark_99999_fk4", b"")
    assert [(owned.name, owned.owners) for owned in store.list_locks()] == [("storage/ark_99999_fk4", ())]
    lock = "storage/ark:/99999/fk4"
    session = session_of(store)
    (mine,) = claim(store, session)
    move(store, mine, "Processing", session=None, locks=(lock,))
    assert store.claim([WorkQueue("job", "Processing")], session, 10) == []
    assert store.remove_foreign_lock(lock) is True
    assert store.remove_foreign_lock(lock) is False
    (taken,) = store.claim([WorkQueue("job", "Processing")], session, 10)
    assert [(owned.name, owned.owners) for owned in store.list_locks()] == [(lock, (taken.record.ref,))]
    assert zk.exists("/locks/storage/ark_99999_fk4") is not None


# --- what others created and moved


def test_a_batch_that_another_service_made_is_found_by_its_batch_id(
    store: ZookeeperStore, zk: KazooClient, merritt_services: Callable[..., MerrittService]
) -> None:
    batch = merritt_services().create_batch({"batchID": "bid-1"})
    found = store.get_by_idempotency_key("batch", "bid-1")
    assert (found.id, found.documents["submission"]) == (batch, {"batchID": "bid-1"})
    zk.create("/batch-uuids/odd", b"../jobs")
    for request in ("bid-2", "odd", "..", "a/b"):
        with pytest.raises(RecordNotFound):
            store.get_by_idempotency_key("batch", request)


def test_a_job_that_another_service_made_is_claimed_and_moved(
    store: ZookeeperStore, zk: KazooClient, merritt_services: Callable[..., MerrittService]
) -> None:
    service = merritt_services()
    batch = service.create_batch({"batchID": "bid-1"})
    job = service.create_job(batch, {"profile": "p"}, priority=28)
    read = store.get("job", job)
    assert (read.state, read.parent, read.priority, read.open, read.documents["configuration"]) == (
        "Pending",
        Ref("batch", batch),
        28,
        True,
        {"profile": "p"},
    )
    assert store.count_by_state("job") == {"Pending": 1}
    assert store.find("job", parent=Ref("batch", batch)).records[0].id == job
    (mine,) = claim(store, session_of(store))
    assert mine.version > read.version
    moved = move(store, mine, "Estimating", session=None, last_done="Pending")
    assert store.get("job", job) == moved
    assert [entry.cause for entry in store.history("job", job)] == [FOREIGN_CAUSE, "done"]
    assert service.acquire_job("Estimating") == job, "and the other service goes on with it"
    assert nodedump.faults(zk) == []
    assert list(store.check()) == []


@pytest.mark.parametrize("ruby", [False, True])
def test_a_move_by_another_service_is_added_to_the_history_when_found_b13(
    store: ZookeeperStore, zk: KazooClient, merritt_services: Callable[..., MerrittService], ruby: bool
) -> None:
    job = make_job(store, make_batch(store), blocked_by="wait", error_count=3)
    service = merritt_services(ruby=ruby)
    assert service.work("Pending", "Estimating") == job.id
    read = store.get("job", job.id)
    assert (read.state, read.blocked_by, read.error_count, read.session) == ("Estimating", None, 0, None)
    assert read.version > job.version
    assert [(entry.cause, entry.before, entry.after) for entry in store.history("job", job.id)][-1] == (
        FOREIGN_CAUSE,
        "Pending",
        "Estimating",
    )
    (answer,) = store.commit([CommitGroup((make_move(job, "Held"),))])
    assert type(answer) is Conflict, "what was read before the move is out of date"
    (mine,) = claim(store, session_of(store), "Estimating")
    assert mine.version == read.version + 1
    move(store, mine, "Provisioning", session=None)
    assert [entry.cause for entry in store.history("job", job.id)] == ["submit", FOREIGN_CAUSE, "done"], "written once"
    assert list(store.check()) == []
    assert nodedump.faults(zk) == []


@pytest.mark.parametrize("blocked_by", ["wait", "children"])
def test_a_wait_is_void_when_another_service_moved_the_record_there_and_back(
    merritt: MerrittHarness, store: ZookeeperStore, merritt_services: Callable[..., MerrittService], blocked_by: str
) -> None:
    """The parked note that hides it from claims must not hide it for ever."""
    job = make_job(store, make_batch(store), blocked_by=blocked_by)
    service = merritt_services()
    service.work("Pending", "Failed")
    service.work("Failed", "Pending")
    assert store.get("job", job.id).blocked_by is None
    if blocked_by == "wait":
        merritt.tick(1)
        assert store.release_due_waits().released_count == 1
    else:
        assert store.maintain_indexes() == 1
    assert [entry.cause for entry in store.history("job", job.id)] == ["submit", FOREIGN_CAUSE]
    assert [record.id for record in claim(store, session_of(store))] == [job.id]
    assert list(store.check()) == []


def test_a_move_by_another_service_is_added_to_the_history_by_maintenance_too_b13(
    store: ZookeeperStore, zk: KazooClient, merritt_services: Callable[..., MerrittService]
) -> None:
    batch = make_batch(store, blocked_by="wait")
    job = make_job(store, batch, owner="ann", locks=("own/k",))
    service = merritt_services()
    service.work("Pending", "Estimating")
    service.acquire_pending_batch()
    service.set_batch_status(batch.id, "Processing")
    service.unlock(f"/batches/{batch.id}")
    before = [store.get("job", job.id), store.get("batch", batch.id)]
    assert store.maintain_indexes() == 2
    assert [store.get("job", job.id), store.get("batch", batch.id)] == before, "only the history changes"
    assert [entry.cause for entry in store.history("batch", batch.id)] == ["submit", FOREIGN_CAUSE]
    assert store.count_by_state("batch") == {"Processing": 1}
    assert store.maintain_indexes() == 0
    assert list(store.check()) == []
    assert nodedump.faults(zk) == []


def test_a_batch_that_another_service_made_is_found_and_claimed(
    store: ZookeeperStore, merritt_services: Callable[..., MerrittService]
) -> None:
    session = session_of(store)
    assert claim(store, session, kind="batch") == []
    batch = merritt_services().create_batch({"batchID": "bid-1", "profile": "p"})
    (mine,) = claim(store, session, kind="batch")
    assert (mine.id, mine.documents["submission"]["profile"]) == (batch, "p")
    move(store, mine, "Processing", session=None)
    assert store.count_by_state("batch") == {"Processing": 1}
    assert list(store.check()) == []


def test_a_batch_that_another_service_moved_is_handed_out_in_its_new_state(
    store: ZookeeperStore, merritt_services: Callable[..., MerrittService]
) -> None:
    batch, session, service = make_batch(store), session_of(store), merritt_services()
    assert service.acquire_pending_batch() == batch.id
    service.set_batch_status(batch.id, "Reporting")
    service.unlock(f"/batches/{batch.id}")
    assert claim(store, session, kind="batch") == [], "it is not pending any more; the claim corrects its entry"
    (mine,) = claim(store, session, "Reporting", kind="batch")
    assert mine.id == batch.id
    assert store.count_by_state("batch") == {"Reporting": 1}


# --- A1, A2: foreign locks


def test_a_late_commit_never_takes_the_lock_of_another_service_a1(
    merritt: MerrittHarness, store: ZookeeperStore, merritt_services: Callable[..., MerrittService]
) -> None:
    job = make_job(store, make_batch(store))
    late = merritt.open()
    session = session_of(late)
    (mine,) = claim(late, session)
    merritt.expire_session(late, session)
    service = merritt_services()
    assert service.acquire_job("Pending") == job.id
    for change in (
        make_move(mine, "Estimating", session=None),
        make_move(mine, "Estimating"),
        make_move(mine, "Pending", cause=""),
    ):
        (answer,) = late.commit([CommitGroup((change,))])
        assert type(answer) is ClaimLost
    assert service.zk.exists(f"/jobs/{job.id}/lock").ephemeralOwner == service.zk.client_id[0]
    assert store.get("job", job.id).state == "Pending"


def test_an_action_is_refused_while_another_service_holds_the_record_a2(
    store: ZookeeperStore, merritt_services: Callable[..., MerrittService]
) -> None:
    job = make_job(store, make_batch(store))
    service = merritt_services()
    assert service.acquire_job("Pending") == job.id
    (answer,) = store.commit([CommitGroup((make_move(job, "Held", cause="hold"),))])
    assert type(answer) is Conflict
    assert "claimed by" in str(answer)
    service.unlock(f"/jobs/{job.id}")
    assert move(store, job, "Held", cause="hold").state == "Held"


def test_an_action_that_reads_just_before_the_foreign_lock_is_refused_by_the_transaction_a2(
    merritt: MerrittHarness,
    store: ZookeeperStore,
    merritt_services: Callable[..., MerrittService],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The lock comes between our reading and our writing: only the transaction itself can see it."""
    job = make_job(store, make_batch(store))
    service = merritt_services()
    submit = store._connection.submit

    def lock_first(ops: Any) -> Any:
        monkeypatch.undo()
        assert service.acquire_job("Pending") == job.id
        return submit(ops)

    monkeypatch.setattr(store._connection, "submit", lock_first)
    (answer,) = store.commit([CommitGroup((make_move(job, "Held", cause="hold"),))])
    assert type(answer) is Conflict
    assert store.get("job", job.id).state == "Pending"


# --- A6: joins with foreign writers


def test_a_batch_is_never_closed_early_while_another_service_moves_its_job_a6(
    merritt: MerrittHarness, store: ZookeeperStore, merritt_services: Callable[..., MerrittService], budget: Budget
) -> None:
    """With every move it deletes the job's entry in batch-processing and makes it again; an empty reading proves
    nothing.
    """
    steps = [
        "Pending",
        "Estimating",
        "Provisioning",
        "Downloading",
        "Processing",
        "Storing",
        "Recording",
        "Notify",
        "Completed",
    ]
    observer = merritt.open()
    for round in range(budget.pick(small=6, long=60)):
        service = merritt_services(ruby=round % 3 == 2)
        batch = store.get("batch", service.create_batch({}))
        job = service.create_job(batch.id, {})

        def run(service: MerrittService = service, job: str = job) -> None:
            for state, then in pairwise(steps):
                assert service.work(state, then) == job

        worker = threading.Thread(target=run)
        worker.start()
        closed_in: str | None = None
        while closed_in is None:
            moved = make_move(observer.get("batch", batch.id), "Reporting", requires_children_settled=True)
            alive = worker.is_alive()
            (answer,) = observer.commit([CommitGroup((moved,))])
            if isinstance(answer, CommitResult):
                closed_in = service.state(job)
            else:
                assert isinstance(answer, Conflict)
                assert alive or service.state(job) == "Completed"
        worker.join()
        assert closed_in == "Completed"
        assert observer.parents_with_open_children([batch.ref]) == set()


@pytest.mark.parametrize("writes", range(1, 6))
def test_a_batch_is_not_closed_while_a_job_is_being_made_a6(
    store: ZookeeperStore, merritt_services: Callable[..., MerrittService], writes: int
) -> None:
    """The job's node is there and does not say yet whose it is, or where it is."""
    batch = make_batch(store, state="Processing")
    service = merritt_services(dies_after=writes, ruby=True)
    with pytest.raises(ServiceKilled):
        service.create_job(batch.id, {})
    (answer,) = store.commit([CommitGroup((make_move(batch, "Reporting", requires_children_settled=True),))])
    assert type(answer) is Conflict
    assert store.parents_with_open_children([batch.ref]) == {batch.ref}


def test_a_batch_with_no_jobs_settles_a6(store: ZookeeperStore, zk: KazooClient) -> None:
    for state in ("Pending", "Processing"):
        batch = make_batch(store, state=state)
        assert move(store, batch, "Reporting", requires_children_settled=True).state == "Reporting"
    assert nodedump.faults(zk) == []


def test_a_closing_batch_sees_a_job_that_comes_between_reading_and_writing_a6(
    store: ZookeeperStore, merritt_services: Callable[..., MerrittService], monkeypatch: pytest.MonkeyPatch
) -> None:
    batch = make_batch(store, state="Processing")
    service, submit = merritt_services(), store._connection.submit

    def create_first(ops: Any) -> Any:
        monkeypatch.undo()
        service.create_job(batch.id, {})
        return submit(ops)

    monkeypatch.setattr(store._connection, "submit", create_first)
    (answer,) = store.commit([CommitGroup((make_move(batch, "Reporting", requires_children_settled=True),))])
    assert type(answer) is Conflict
    assert store.get("batch", batch.id).state == "Processing"


# --- A7: entries after a foreign kill


@pytest.mark.parametrize("writes", range(10))
def test_a_service_that_dies_between_two_writes_neither_loses_nor_doubles_a_job_a7(
    store: ZookeeperStore, zk: KazooClient, merritt_services: Callable[..., MerrittService], writes: int
) -> None:
    """lock, status, entry gone, entry made, [folder], place gone, place made, unlock: a kill after each, then we go
    on.
    """
    batch = make_batch(store)
    job = make_job(store, batch)
    service = merritt_services(dies_after=writes)
    try:
        service.work("Pending", "Failed")
    except ServiceKilled:
        assert writes < service.writes + 1
    store.maintain_indexes()
    session = session_of(store)
    found = claim(store, session) + claim(store, session, "Failed")
    assert [record.id for record in found] == [job.id]
    moved = move(store, found[0], "Provisioning", session=None)
    assert store.get("job", job.id) == moved
    assert store.count_by_state("job") == {"Provisioning": 1}
    assert nodedump.faults(zk) == []
    assert list(store.check()) == []


@pytest.mark.parametrize("writes", range(10))
def test_a_commit_repairs_what_a_killed_service_left_a7(
    store: ZookeeperStore, zk: KazooClient, merritt_services: Callable[..., MerrittService], writes: int
) -> None:
    """No sweep comes between: an action on the record itself must not jam on entries that are not where they should
    be.
    """
    job = make_job(store, make_batch(store))
    service = merritt_services(dies_after=writes)
    try:
        service.work("Pending", "Failed")
    except ServiceKilled:
        assert writes < service.writes + 1
    moved = move(store, store.get("job", job.id), "Downloading", cause="resume")
    assert moved.state == "Downloading"
    assert nodedump.faults(zk) == []
    assert list(store.check()) == []


def test_a_priority_written_without_its_entry_is_repaired_by_the_next_commit_a7(
    store: ZookeeperStore, zk: KazooClient
) -> None:
    """Ruby's set_priority writes the priority node alone."""
    first, second = make_jobs(store, make_batch(store), 2)
    for job in (first, second):
        zk.set(f"/jobs/{job.id}/priority", b"9")
    session = session_of(store)
    mine = claim(store, session)
    assert [record.priority for record in mine] == [9, 9]
    move(store, mine[0], "Estimating", session=None)
    move(store, mine[1], "Estimating")
    assert nodedump.faults(zk) == []
    zk.set(f"/jobs/{first.id}/priority", b"1")
    move(store, store.get("job", first.id), "Provisioning")
    assert zk.get_children("/jobs/states/provisioning") == [f"01-{first.id}"]
    assert nodedump.faults(zk) == []


def test_a_job_in_no_queue_is_found_by_maintenance_a7(store: ZookeeperStore, zk: KazooClient) -> None:
    jobs = make_jobs(store, make_batch(store), 3)
    zk.delete(f"/jobs/states/pending/05-{jobs[1].id}")
    zk.delete(f"/batches/bid0000000000/states/batch-processing/{jobs[2].id}")
    session = session_of(store)
    assert len(claim(store, session)) == 2
    assert sum(store.maintain_indexes() for _ in range(4)) == 1, "a claimed record is left alone"
    assert [record.id for record in claim(store, session)] == [jobs[1].id]
    store.close_session(session)
    assert sum(store.maintain_indexes() for _ in range(4)) == 1
    assert nodedump.faults(zk) == []


def test_what_another_service_is_just_writing_is_left_alone(
    merritt: MerrittHarness, store: ZookeeperStore, zk: KazooClient
) -> None:
    """Within the grace period, and while it is locked, maintenance must not create the entry that its creator is about to
    create.
    """
    job = make_job(store, make_batch(store))
    zk.delete(f"/jobs/states/pending/05-{job.id}")
    patient = ZookeeperStore(merritt.url, grace_period=60)
    assert sum(patient.maintain_indexes() for _ in range(4)) == 0
    patient.close()
    zk.create(f"/jobs/{job.id}/lock", ephemeral=True)
    assert sum(store.maintain_indexes() for _ in range(4)) == 0
    zk.delete(f"/jobs/{job.id}/lock")
    assert sum(store.maintain_indexes() for _ in range(4)) == 1


# --- both at work


def test_two_kinds_of_workers_take_every_job_through_every_state_once(
    merritt: MerrittHarness,
    store: ZookeeperStore,
    zk: KazooClient,
    merritt_services: Callable[..., MerrittService],
    budget: Budget,
) -> None:
    """Two services of Merritt's and two workers: every job passes every state exactly once, and the tree is consistent at the end."""
    steps = ["Pending", "Estimating", "Provisioning", "Downloading", "Completed"]
    batch = make_batch(store, state="Processing")
    count = budget.pick(small=12, long=200)
    jobs = [job.id for job in make_jobs(store, batch, count)]
    arrows = dict(pairwise(steps))
    moved: list[tuple[str, str]] = []

    def done() -> bool:
        return len(zk.get_children("/jobs/states/completed")) == count

    def run_service(service: MerrittService) -> None:
        while not done():
            for state, then in arrows.items():
                job = service.acquire_job(state)
                if job is None:
                    continue
                if service.state(job) == state:  # it does not look again before it locks
                    service.set_status(job, then)
                    moved.append((job, then))
                service.unlock(f"/jobs/{job}")

    def run_worker(worker: ZookeeperStore) -> None:
        session = worker.open_session(host="h", ttl=50, about={})
        while not done():
            claimed = worker.claim([WorkQueue("job", state) for state in arrows], session, 3)
            mine = [each.record for each in claimed]
            groups = [
                CommitGroup((make_move(job, arrows[job.state], session=None, last_done=job.state),)) for job in mine
            ]
            for each, answer in zip(claimed, worker.commit(groups), strict=True):
                assert isinstance(answer, CommitResult), answer
                moved.append((each.record.id, arrows[each.record.state]))

    threads = [threading.Thread(target=run_service, args=(merritt_services(),)) for _ in range(2)]
    threads += [threading.Thread(target=run_worker, args=(merritt.open(),)) for _ in range(2)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(240)
    assert not any(thread.is_alive() for thread in threads)
    assert sorted(moved) == sorted((job, then) for job in jobs for then in steps[1:])
    assert nodedump.faults(zk) == []
    assert list(store.check()) == []
    last = {json.loads(zk.get(f"/jobs/{job}/status")[0])["last_successful_status"] for job in jobs}
    assert last == {"Downloading"}, "whoever took the last step said what was done before"
    commit(store, make_move(store.get("batch", batch.id), "Reporting", requires_children_settled=True))


def test_an_entry_of_a_batch_that_others_removed_is_deleted_by_maintenance(
    store: ZookeeperStore, zk: KazooClient
) -> None:
    """Its engine node may have named another queue by then."""
    batch = make_batch(store, state="Processing")
    folder = layout_of("batch").folder_of("Reporting")
    zk.ensure_path(folder)
    zk.create(f"{folder}/{layout_of('batch').entry_name_of(5, 999, 999, 'bid0000000999')}")
    assert [finding.ref for finding in store.check()] == [Ref("batch", "bid0000000999")]
    assert sum(store.maintain_indexes() for _ in range(4)) == 1
    assert list(store.check()) == []
    assert store.get("batch", batch.id).state == "Processing"
