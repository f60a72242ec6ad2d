"""How many requests and operations the methods of the store take: what makes them fast is counted, not timed."""

import threading
from collections import Counter
from collections.abc import Iterator, Sequence
from typing import Any

import pytest
from kazoo.client import KazooClient

from tests.servers.process import wait_until
from tests.stores.zookeeper.harness import MerrittHarness
from tests.stores.zookeeper.records import claim, make_batch, make_job, make_jobs, make_move
from waybill.record import CommitGroup, CommitResult, Conflict, Record, StoreUnavailable, WorkQueue
from waybill.stores.zookeeper import ZookeeperStore, connection
from waybill.stores.zookeeper.connection import ZookeeperConnection
from waybill.stores.zookeeper.operations import MultiRead, NodeRead, WriteTransaction


class Traffic:
    """Every request that any connection has sent, writes and reads apart."""

    def __init__(self) -> None:
        self.writes: list[WriteTransaction] = []
        self.reads: list[MultiRead] = []

    def clear(self) -> None:
        self.writes.clear()
        self.reads.clear()


@pytest.fixture
def traffic(monkeypatch: pytest.MonkeyPatch) -> Iterator[Traffic]:
    traffic = Traffic()
    send = ZookeeperConnection._send

    def counted(self: ZookeeperConnection, request: Any) -> Any:
        (traffic.writes if isinstance(request, WriteTransaction) else traffic.reads).append(request)
        return send(self, request)

    monkeypatch.setattr(ZookeeperConnection, "_send", counted)
    yield traffic
    monkeypatch.undo()


def claim_jobs(store: ZookeeperStore, count: int) -> list[Record]:
    make_jobs(store, make_batch(store), count)
    return claim(store, store.open_session(host="h", ttl=50, about={}), limit=count)


def test_going_on_is_four_operations_and_no_reading_25_in_a_transaction_b1(
    store: ZookeeperStore, traffic: Traffic
) -> None:
    mine = claim_jobs(store, 100)
    traffic.clear()
    answers = store.commit([CommitGroup((make_move(job, "Estimating", last_done="Pending"),)) for job in mine])
    assert all(isinstance(answer, CommitResult) for answer in answers)
    assert [len(request.ops) for request in traffic.writes] == [1 + 25 * 4] * 4
    assert traffic.reads == []
    assert Counter(op.purpose for request in traffic.writes for op in request.ops) == {
        "session": 4,
        "status": 100,
        "entry": 200,
        "engine": 100,
    }


def test_claims_are_25_in_a_transaction_and_one_reading_of_the_candidates_b1(
    store: ZookeeperStore, traffic: Traffic
) -> None:
    make_jobs(store, make_batch(store), 100)
    session = store.open_session(host="h", ttl=50, about={})
    traffic.clear()
    assert len(claim(store, session, limit=100)) == 100
    assert [len(request.ops) for request in traffic.writes] == [1 + 25 * 3] * 4
    assert len(traffic.reads) <= 4


def test_one_bad_group_costs_its_neighbours_one_more_transaction_b1(
    store: ZookeeperStore, zk: KazooClient, traffic: Traffic
) -> None:
    mine = claim_jobs(store, 25)
    zk.set(f"/jobs/{mine[7].id}/status", zk.get(f"/jobs/{mine[7].id}/status")[0])
    traffic.clear()
    answers = store.commit([CommitGroup((make_move(job, "Estimating"),)) for job in mine])
    assert [isinstance(answer, CommitResult) for answer in answers] == [n != 7 for n in range(25)]
    assert isinstance(answers[7], Conflict)
    assert len(traffic.writes) == 2


def test_what_was_sent_is_answered_whatever_happens_to_the_rest_a11(
    store: ZookeeperStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The connection goes while the second transaction is being planned: the first is under way, and its answer is
    waited for.
    """
    mine = claim_jobs(store, 60)
    planner = store._committer._planner
    plan, calls = planner.plan_group, []

    def plan_some(each: Any, numbers: Any) -> bool:
        calls.append(each)
        if len(calls) == 30:
            raise StoreUnavailable
        return plan(each, numbers)

    monkeypatch.setattr(planner, "plan_group", plan_some)
    answers = store.commit([CommitGroup((make_move(job, "Estimating"),)) for job in mine])
    assert [isinstance(answer, CommitResult) for answer in answers] == [n < 25 for n in range(60)]
    assert all(isinstance(answer, StoreUnavailable) for answer in answers[25:])
    assert store.count_by_state("job") == {"Estimating": 25, "Pending": 35}


def test_a_listing_serves_claims_until_it_is_used_up_b7(merritt: MerrittHarness) -> None:
    merritt.options["listing_ttl"] = 1000
    store = merritt.open()
    batch = make_batch(store)
    first = make_jobs(store, batch, 4)
    session = store.open_session(host="h", ttl=50, about={})
    assert [job.id for job in claim(store, session, limit=2)] == [job.id for job in first[:2]]
    urgent = make_job(store, batch, priority=0)
    assert [job.id for job in claim(store, session, limit=2)] == [job.id for job in first[2:]]
    assert [job.id for job in claim(store, session, limit=2)] == [urgent.id]


def test_an_old_listing_is_made_again_b7(merritt: MerrittHarness) -> None:
    merritt.options["listing_ttl"] = 0
    store = merritt.open()
    batch = make_batch(store)
    make_jobs(store, batch, 4)
    session = store.open_session(host="h", ttl=50, about={})
    claim(store, session, limit=2)
    urgent = make_job(store, batch, priority=0)
    assert [job.id for job in claim(store, session, limit=1)] == [urgent.id]


def test_a_blocked_record_costs_no_read_beyond_its_name_a10(store: ZookeeperStore, traffic: Traffic) -> None:
    batch = make_batch(store)
    make_jobs(store, batch, 80, priority=1, blocked_by="wait")
    free = make_job(store, batch, priority=9)
    session = store.open_session(host="h", ttl=50, about={})
    traffic.clear()
    assert [job.id for job in claim(store, session, limit=5)] == [free.id]
    assert sum(len(request.reads) for request in traffic.reads) < 60


def test_release_due_waits_lists_no_folder_again_that_did_not_change(store: ZookeeperStore, traffic: Traffic) -> None:
    make_jobs(store, make_batch(store), 50, blocked_by="wait")
    store.commit([CommitGroup((make_move(store.find("job").records[0], "Pending", blocked_by="wait", delay=1000),))])
    store.release_due_waits()
    traffic.clear()
    assert store.release_due_waits().released_count == 0
    assert sum(len(request.reads) for request in traffic.reads) < 10
    assert traffic.writes == []


def test_open_children_are_read_after_a_sync_a5(store: ZookeeperStore, monkeypatch: pytest.MonkeyPatch) -> None:
    """A follower may not know yet of the sibling that settled on another server; two such reads must not both miss
    it.
    """
    first, second = make_jobs(store, make_batch(store), 2)
    calls: list[str] = []
    sync, read = ZookeeperConnection.sync, ZookeeperConnection.read

    def log_sync(self: ZookeeperConnection) -> None:
        calls.append("sync")
        sync(self)

    def log_read(self: ZookeeperConnection, reads: Sequence[NodeRead]) -> list[Any]:
        calls.append("read")
        return read(self, reads)

    monkeypatch.setattr(ZookeeperConnection, "sync", log_sync)
    monkeypatch.setattr(ZookeeperConnection, "read", log_read)
    for job in (first, second):
        calls.clear()
        (answer,) = store.commit([CommitGroup((make_move(job, "Completed"),))])
        assert isinstance(answer, CommitResult)
        assert calls[calls.index("sync") :] == ["sync", "read"]


def test_the_change_signal_is_written_at_most_once_in_an_interval_b7(
    store: ZookeeperStore, zk: KazooClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    def count_signals() -> int:
        return int(zk.exists("/waybill/change_signal").version)

    timers: list[threading.Timer] = []
    batch = make_batch(store)
    if (delayed := store._change_signal._delayed_touch) is not None:
        delayed.join()
    store.get(*batch.ref)  # after what this connection sent before
    monkeypatch.setattr(connection, "SIGNAL_INTERVAL", 1e9)
    monkeypatch.setattr(threading.Timer, "start", lambda timer: timers.append(timer))
    before = count_signals()
    for expected in (1, 2):
        for _ in range(20):
            make_job(store, batch)
        assert (len(timers), count_signals()) == (expected, before + expected - 1), "all wait for one signal"
        timers[-1].function()  # the interval is over
        wait_until(lambda: count_signals() == before + expected, "the signal")  # noqa: B023


def test_a_waiting_worker_is_woken_by_what_another_service_created_b7(
    merritt: MerrittHarness, store: ZookeeperStore, zk: KazooClient
) -> None:
    """Another service does not write the change signal: the folders' stats change."""
    worker = merritt.open()
    while worker.watch(0):
        pass
    zk.create("/jobs/states/pending/05-jid0000000001")
    assert worker.watch(60) is True
    while worker.watch(0.3):
        pass
    zk.create("/batches/bid", sequence=True)
    assert worker.watch(60) is True


def test_an_empty_queue_is_listed_and_nothing_else_is_read(store: ZookeeperStore, traffic: Traffic) -> None:
    session = store.open_session(host="h", ttl=50, about={})
    store.claim([WorkQueue("job", "Pending")], session, 10)
    traffic.clear()
    assert store.claim([WorkQueue("job", "Pending")], session, 10) == []
    assert (len(traffic.reads), traffic.writes) == (1, [])
