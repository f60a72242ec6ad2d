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
from tests.stores.zookeeper.peer import Died, Peer
from tests.stores.zookeeper.records import claim, commit, make_batch, make_job, make_jobs, move, moving
from waybill.record import ClaimLost, Committed, Conflict, Group, NotFound, Ref, Role
from waybill.stores.zookeeper import ZookeeperStore
from waybill.stores.zookeeper.layout import layout_of

OUTSIDE = "seen from outside"


@pytest.fixture
def peers(merritt: MerrittHarness, store: ZookeeperStore) -> Iterator[Callable[..., Peer]]:
    made: list[Peer] = []

    def make(**more: Any) -> Peer:
        made.append(Peer(merritt.hosts + merritt.root, **more))
        return made[-1]

    yield make
    for peer in made:
        peer.close()


def session_of(store: ZookeeperStore) -> str:
    return store.open_session(host="h", ttl=50, about={})


# --- what others locked


def test_a_lock_that_another_service_left_behind_is_listed_and_can_be_freed(
    store: ZookeeperStore, zk: KazooClient, peers: Callable[..., Peer]
) -> None:
    batch = peers().create_batch({"batchID": "bid-1"})
    peers().create_job(batch, {})
    zk.create("/locks/storage/ark_99999_fk4", b"")
    assert store.held_keys() == [("storage/ark_99999_fk4", None)]
    key = "storage/ark:/99999/fk4"
    session = session_of(store)
    (mine,) = claim(store, session)
    move(store, mine, "Processing", session=None, keys=(key,))
    assert store.claim([Role("job", "Processing")], session, 10) == []
    assert store.free_key(key) is True
    assert store.free_key(key) is False
    (taken,) = store.claim([Role("job", "Processing")], session, 10)
    assert store.held_keys() == [(key, taken.record.ref)]
    assert zk.exists("/locks/storage/ark_99999_fk4") is not None


# --- what others made and moved


def test_a_batch_that_another_service_made_is_found_by_its_batch_id(
    store: ZookeeperStore, zk: KazooClient, peers: Callable[..., Peer]
) -> None:
    batch = peers().create_batch({"batchID": "bid-1"})
    found = store.requested("batch", "bid-1")
    assert (found.id, found.docs["submission"]) == (batch, {"batchID": "bid-1"})
    zk.create("/batch-uuids/odd", b"../jobs")
    for request in ("bid-2", "odd", "..", "a/b"):
        with pytest.raises(NotFound):
            store.requested("batch", request)


def test_a_job_that_another_service_made_is_claimed_and_moved(
    store: ZookeeperStore, zk: KazooClient, peers: Callable[..., Peer]
) -> None:
    peer = peers()
    batch = peer.create_batch({"batchID": "bid-1"})
    job = peer.create_job(batch, {"profile": "p"}, priority=28)
    read = store.get("job", job)
    assert (read.state, read.parent, read.priority, read.open, read.docs["configuration"]) == (
        "Pending",
        Ref("batch", batch),
        28,
        True,
        {"profile": "p"},
    )
    assert store.tally("job") == {"Pending": 1}
    assert store.find("job", parent=Ref("batch", batch)).records[0].id == job
    (mine,) = claim(store, session_of(store))
    assert mine.version > read.version
    moved = move(store, mine, "Estimating", session=None, last_done="Pending")
    assert store.get("job", job) == moved
    assert [line.event for line in store.history("job", job)] == [OUTSIDE, "done"]
    assert peer.acquire_job("Estimating") == job, "and the other service goes on with it"
    assert nodedump.faults(zk) == []
    assert list(store.check()) == []


@pytest.mark.parametrize("ruby", [False, True])
def test_a_move_from_outside_is_noted_when_found_b13(
    store: ZookeeperStore, zk: KazooClient, peers: Callable[..., Peer], ruby: bool
) -> None:
    job = make_job(store, make_batch(store), parked="wait", tries=3)
    peer = peers(ruby=ruby)
    assert peer.work("Pending", "Estimating") == job.id
    read = store.get("job", job.id)
    assert (read.state, read.parked, read.tries, read.session) == ("Estimating", None, 0, None)
    assert read.version > job.version
    assert [(line.event, line.before, line.after) for line in store.history("job", job.id)][-1] == (
        OUTSIDE,
        "Pending",
        "Estimating",
    )
    (answer,) = store.commit([Group((moving(job, "Held"),))])
    assert type(answer) is Conflict, "what was read before the move is out of date"
    (mine,) = claim(store, session_of(store), "Estimating")
    assert mine.version == read.version + 1
    move(store, mine, "Provisioning", session=None)
    assert [line.event for line in store.history("job", job.id)] == ["submit", OUTSIDE, "done"], "written once"
    assert list(store.check()) == []
    assert nodedump.faults(zk) == []


@pytest.mark.parametrize("parked", ["wait", "children"])
def test_a_wait_is_void_when_another_service_moved_the_record_there_and_back(
    merritt: MerrittHarness, store: ZookeeperStore, peers: Callable[..., Peer], parked: str
) -> None:
    """The note that hides it from claims must not hide it for ever."""
    job = make_job(store, make_batch(store), parked=parked)
    peer = peers()
    peer.work("Pending", "Failed")
    peer.work("Failed", "Pending")
    assert store.get("job", job.id).parked is None
    if parked == "wait":
        merritt.tick(1)
        assert store.wake().woken == 1
    else:
        assert store.sweep() == 1
    assert [line.event for line in store.history("job", job.id)] == ["submit", OUTSIDE]
    assert [record.id for record in claim(store, session_of(store))] == [job.id]
    assert list(store.check()) == []


def test_a_move_from_outside_is_noted_by_the_walk_too_b13(
    store: ZookeeperStore, zk: KazooClient, peers: Callable[..., Peer]
) -> None:
    batch = make_batch(store, parked="wait")
    job = make_job(store, batch, owner="ann", keys=("own/k",))
    peer = peers()
    peer.work("Pending", "Estimating")
    peer.acquire_pending_batch()
    peer.set_batch_status(batch.id, "Processing")
    peer.unlock(f"/batches/{batch.id}")
    before = [store.get("job", job.id), store.get("batch", batch.id)]
    assert store.sweep() == 2
    assert [store.get("job", job.id), store.get("batch", batch.id)] == before, "noted, and nothing else"
    assert [line.event for line in store.history("batch", batch.id)] == ["submit", OUTSIDE]
    assert store.tally("batch") == {"Processing": 1}
    assert store.sweep() == 0
    assert list(store.check()) == []
    assert nodedump.faults(zk) == []


def test_a_batch_that_another_service_made_is_found_and_claimed(
    store: ZookeeperStore, peers: Callable[..., Peer]
) -> None:
    session = session_of(store)
    assert claim(store, session, kind="batch") == []
    batch = peers().create_batch({"batchID": "bid-1", "profile": "p"})
    (mine,) = claim(store, session, kind="batch")
    assert (mine.id, mine.docs["submission"]["profile"]) == (batch, "p")
    move(store, mine, "Processing", session=None)
    assert store.tally("batch") == {"Processing": 1}
    assert list(store.check()) == []


def test_a_batch_that_another_service_moved_is_handed_out_in_its_new_state(
    store: ZookeeperStore, peers: Callable[..., Peer]
) -> None:
    batch, session, peer = make_batch(store), session_of(store), peers()
    assert peer.acquire_pending_batch() == batch.id
    peer.set_batch_status(batch.id, "Reporting")
    peer.unlock(f"/batches/{batch.id}")
    assert claim(store, session, kind="batch") == [], "it is not pending any more; whoever looks there puts it right"
    (mine,) = claim(store, session, "Reporting", kind="batch")
    assert mine.id == batch.id
    assert store.tally("batch") == {"Reporting": 1}


# --- A1, A2: foreign locks


def test_a_late_commit_never_takes_the_lock_of_another_service_a1(
    merritt: MerrittHarness, store: ZookeeperStore, peers: Callable[..., Peer]
) -> None:
    job = make_job(store, make_batch(store))
    late = merritt.open()
    session = session_of(late)
    (mine,) = claim(late, session)
    merritt.expire(late, session)
    peer = peers()
    assert peer.acquire_job("Pending") == job.id
    for change in (
        moving(mine, "Estimating", session=None),
        moving(mine, "Estimating"),
        moving(mine, "Pending", event=""),
    ):
        (answer,) = late.commit([Group((change,))])
        assert type(answer) is ClaimLost
    assert peer.zk.exists(f"/jobs/{job.id}/lock").ephemeralOwner == peer.zk.client_id[0]
    assert store.get("job", job.id).state == "Pending"


def test_an_action_is_refused_while_another_service_holds_the_record_a2(
    store: ZookeeperStore, peers: Callable[..., Peer]
) -> None:
    job = make_job(store, make_batch(store))
    peer = peers()
    assert peer.acquire_job("Pending") == job.id
    (answer,) = store.commit([Group((moving(job, "Held", event="hold"),))])
    assert type(answer) is Conflict
    assert "held by" in str(answer)
    peer.unlock(f"/jobs/{job.id}")
    assert move(store, job, "Held", event="hold").state == "Held"


def test_an_action_that_reads_just_before_the_foreign_lock_is_refused_by_the_transaction_a2(
    merritt: MerrittHarness, store: ZookeeperStore, peers: Callable[..., Peer], monkeypatch: pytest.MonkeyPatch
) -> None:
    """The lock comes between our reading and our writing: only the transaction itself can see it."""
    job = make_job(store, make_batch(store))
    peer = peers()
    post = store._link.post

    def lock_first(ops: Any) -> Any:
        monkeypatch.undo()
        assert peer.acquire_job("Pending") == job.id
        return post(ops)

    monkeypatch.setattr(store._link, "post", lock_first)
    (answer,) = store.commit([Group((moving(job, "Held", event="hold"),))])
    assert type(answer) is Conflict
    assert store.get("job", job.id).state == "Pending"


# --- A6: joins with foreign writers


def test_a_batch_is_never_closed_early_while_another_service_moves_its_job_a6(
    merritt: MerrittHarness, store: ZookeeperStore, peers: Callable[..., Peer], budget: Budget
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
    looker = merritt.open()
    for round in range(budget.pick(small=6, long=60)):
        peer = peers(ruby=round % 3 == 2)
        batch = store.get("batch", peer.create_batch({}))
        job = peer.create_job(batch.id, {})

        def run(peer: Peer = peer, job: str = job) -> None:
            for state, then in pairwise(steps):
                assert peer.work(state, then) == job

        worker = threading.Thread(target=run)
        worker.start()
        closed_in: str | None = None
        while closed_in is None:
            moved = moving(looker.get("batch", batch.id), "Reporting", closes=True)
            alive = worker.is_alive()
            (answer,) = looker.commit([Group((moved,))])
            if isinstance(answer, Committed):
                closed_in = peer.state(job)
            else:
                assert isinstance(answer, Conflict)
                assert alive or peer.state(job) == "Completed"
        worker.join()
        assert closed_in == "Completed"
        assert looker.open_parents([batch.ref]) == set()


@pytest.mark.parametrize("writes", range(1, 6))
def test_a_batch_is_not_closed_while_a_job_is_being_made_a6(
    store: ZookeeperStore, peers: Callable[..., Peer], writes: int
) -> None:
    """The job's node is there and does not say yet whose it is, or where it is."""
    batch = make_batch(store, state="Processing")
    peer = peers(dies_after=writes, ruby=True)
    with pytest.raises(Died):
        peer.create_job(batch.id, {})
    (answer,) = store.commit([Group((moving(batch, "Reporting", closes=True),))])
    assert type(answer) is Conflict
    assert store.open_parents([batch.ref]) == {batch.ref}


def test_a_batch_with_no_jobs_settles_a6(store: ZookeeperStore, zk: KazooClient) -> None:
    for state in ("Pending", "Processing"):
        batch = make_batch(store, state=state)
        assert move(store, batch, "Reporting", closes=True).state == "Reporting"
    assert nodedump.faults(zk) == []


def test_a_closing_batch_sees_a_job_that_comes_between_reading_and_writing_a6(
    store: ZookeeperStore, peers: Callable[..., Peer], monkeypatch: pytest.MonkeyPatch
) -> None:
    batch = make_batch(store, state="Processing")
    peer, post = peers(), store._link.post

    def create_first(ops: Any) -> Any:
        monkeypatch.undo()
        peer.create_job(batch.id, {})
        return post(ops)

    monkeypatch.setattr(store._link, "post", create_first)
    (answer,) = store.commit([Group((moving(batch, "Reporting", closes=True),))])
    assert type(answer) is Conflict
    assert store.get("batch", batch.id).state == "Processing"


# --- A7: entries after a foreign kill


@pytest.mark.parametrize("writes", range(10))
def test_a_service_that_dies_between_two_writes_neither_loses_nor_doubles_a_job_a7(
    store: ZookeeperStore, zk: KazooClient, peers: Callable[..., Peer], writes: int
) -> None:
    """lock, status, entry gone, entry made, [folder], place gone, place made, unlock: a kill after each, then we go
    on.
    """
    batch = make_batch(store)
    job = make_job(store, batch)
    peer = peers(dies_after=writes)
    try:
        peer.work("Pending", "Failed")
    except Died:
        assert writes < peer.writes + 1
    store.sweep()
    session = session_of(store)
    found = claim(store, session) + claim(store, session, "Failed")
    assert [record.id for record in found] == [job.id]
    moved = move(store, found[0], "Provisioning", session=None)
    assert store.get("job", job.id) == moved
    assert store.tally("job") == {"Provisioning": 1}
    assert nodedump.faults(zk) == []
    assert list(store.check()) == []


@pytest.mark.parametrize("writes", range(10))
def test_our_commit_mends_what_a_service_left_that_died_a7(
    store: ZookeeperStore, zk: KazooClient, peers: Callable[..., Peer], writes: int
) -> None:
    """No sweep comes between: an action on the record itself must not jam on entries that are not where they should
    be.
    """
    job = make_job(store, make_batch(store))
    peer = peers(dies_after=writes)
    try:
        peer.work("Pending", "Failed")
    except Died:
        assert writes < peer.writes + 1
    moved = move(store, store.get("job", job.id), "Downloading", event="resume")
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


def test_a_job_in_no_queue_is_found_by_the_walk_a7(store: ZookeeperStore, zk: KazooClient) -> None:
    jobs = make_jobs(store, make_batch(store), 3)
    zk.delete(f"/jobs/states/pending/05-{jobs[1].id}")
    zk.delete(f"/batches/bid0000000000/states/batch-processing/{jobs[2].id}")
    session = session_of(store)
    assert len(claim(store, session)) == 2
    assert sum(store.sweep() for _ in range(4)) == 1, "what is held is left alone"
    assert [record.id for record in claim(store, session)] == [jobs[1].id]
    store.close_session(session)
    assert sum(store.sweep() for _ in range(4)) == 1
    assert nodedump.faults(zk) == []


def test_what_another_service_is_just_writing_is_left_alone(
    merritt: MerrittHarness, store: ZookeeperStore, zk: KazooClient
) -> None:
    """Within the grace, and while somebody holds it: the walk must not make the entry that its maker is about to
    make.
    """
    job = make_job(store, make_batch(store))
    zk.delete(f"/jobs/states/pending/05-{job.id}")
    patient = ZookeeperStore(merritt.url, grace=60)
    assert sum(patient.sweep() for _ in range(4)) == 0
    patient.close()
    zk.create(f"/jobs/{job.id}/lock", ephemeral=True)
    assert sum(store.sweep() for _ in range(4)) == 0
    zk.delete(f"/jobs/{job.id}/lock")
    assert sum(store.sweep() for _ in range(4)) == 1


# --- side by side


def test_two_kinds_of_workers_take_every_job_through_every_state_once(
    merritt: MerrittHarness, store: ZookeeperStore, zk: KazooClient, peers: Callable[..., Peer], budget: Budget
) -> None:
    """Two of theirs and two of ours: every job passes every state exactly once, and the tree is sound at the end."""
    steps = ["Pending", "Estimating", "Provisioning", "Downloading", "Completed"]
    batch = make_batch(store, state="Processing")
    count = budget.pick(small=12, long=200)
    jobs = [job.id for job in make_jobs(store, batch, count)]
    arrows = dict(pairwise(steps))
    moved: list[tuple[str, str]] = []

    def done() -> bool:
        return len(zk.get_children("/jobs/states/completed")) == count

    def theirs(peer: Peer) -> None:
        while not done():
            for state, then in arrows.items():
                job = peer.acquire_job(state)
                if job is None:
                    continue
                if peer.state(job) == state:  # it does not look again before it locks
                    peer.set_status(job, then)
                    moved.append((job, then))
                peer.unlock(f"/jobs/{job}")

    def ours(worker: ZookeeperStore) -> None:
        session = worker.open_session(host="h", ttl=50, about={})
        while not done():
            claimed = worker.claim([Role("job", state) for state in arrows], session, 3)
            mine = [each.record for each in claimed]
            groups = [Group((moving(job, arrows[job.state], session=None, last_done=job.state),)) for job in mine]
            for each, answer in zip(claimed, worker.commit(groups), strict=True):
                assert isinstance(answer, Committed), answer
                moved.append((each.record.id, arrows[each.record.state]))

    threads = [threading.Thread(target=theirs, args=(peers(),)) for _ in range(2)]
    threads += [threading.Thread(target=ours, args=(merritt.open(),)) for _ in range(2)]
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
    commit(store, moving(store.get("batch", batch.id), "Reporting", closes=True))


def test_an_entry_of_a_batch_that_others_removed_goes_with_the_next_rounds(
    store: ZookeeperStore, zk: KazooClient
) -> None:
    """Its notes may have told of another queue by then."""
    batch = make_batch(store, state="Processing")
    folder = layout_of("batch").folder("Reporting")
    zk.ensure_path(folder)
    zk.create(f"{folder}/{layout_of('batch').entry(5, 999, 999, 'bid0000000999')}")
    assert [finding.ref for finding in store.check()] == [Ref("batch", "bid0000000999")]
    assert sum(store.sweep() for _ in range(4)) == 1
    assert list(store.check()) == []
    assert store.get("batch", batch.id).state == "Processing"
