"""How many requests and operations the verbs cost: what makes them fast is counted, not timed."""

import time
from collections import Counter
from collections.abc import Iterator
from typing import Any

import pytest
from kazoo.client import KazooClient

from tests.stores.zookeeper.harness import MerrittHarness
from tests.stores.zookeeper.records import claim, make_batch, make_job, make_jobs, moving
from waybill.record import Committed, Conflict, Group, Record, Role, Unavailable
from waybill.stores.zookeeper import ZookeeperStore
from waybill.stores.zookeeper.link import Link
from waybill.stores.zookeeper.wire import Read, Write


class Traffic:
    """Every request that was sent by any link, by what it is."""

    def __init__(self) -> None:
        self.writes: list[Write] = []
        self.reads: list[Read] = []

    def clear(self) -> None:
        self.writes.clear()
        self.reads.clear()


@pytest.fixture
def traffic(monkeypatch: pytest.MonkeyPatch) -> Iterator[Traffic]:
    traffic = Traffic()
    send = Link._send

    def counted(self: Link, request: Any) -> Any:
        (traffic.writes if isinstance(request, Write) else traffic.reads).append(request)
        return send(self, request)

    monkeypatch.setattr(Link, "_send", counted)
    yield traffic
    monkeypatch.undo()


def held(store: ZookeeperStore, count: int) -> list[Record]:
    make_jobs(store, make_batch(store), count)
    return claim(store, store.open_session(host="h", ttl=50, about={}), limit=count)


def test_going_on_is_four_operations_and_no_reading_25_in_a_transaction_b1(
    store: ZookeeperStore, traffic: Traffic
) -> None:
    mine = held(store, 100)
    traffic.clear()
    answers = store.commit([Group((moving(job, "Estimating", last_done="Pending"),)) for job in mine])
    assert all(isinstance(answer, Committed) for answer in answers)
    assert [len(request.ops) for request in traffic.writes] == [1 + 25 * 4] * 4
    assert traffic.reads == []
    assert Counter(op.means for request in traffic.writes for op in request.ops) == {
        "session": 4,
        "status": 100,
        "entry": 200,
        "side": 100,
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
    mine = held(store, 25)
    zk.set(f"/jobs/{mine[7].id}/status", zk.get(f"/jobs/{mine[7].id}/status")[0])
    traffic.clear()
    answers = store.commit([Group((moving(job, "Estimating"),)) for job in mine])
    assert [isinstance(answer, Committed) for answer in answers] == [n != 7 for n in range(25)]
    assert isinstance(answers[7], Conflict)
    assert len(traffic.writes) == 2


def test_what_was_sent_is_answered_whatever_happens_to_the_rest_a11(
    store: ZookeeperStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The connection goes while the second transaction is being planned: the first is under way, and its answer is
    waited for.
    """
    mine = held(store, 60)
    planner = store._committer._planner
    plan, calls = planner.plan, []

    def plan_some(each: Any, numbers: Any) -> bool:
        calls.append(each)
        if len(calls) == 30:
            raise Unavailable
        return plan(each, numbers)

    monkeypatch.setattr(planner, "plan", plan_some)
    answers = store.commit([Group((moving(job, "Estimating"),)) for job in mine])
    assert [isinstance(answer, Committed) for answer in answers] == [n < 25 for n in range(60)]
    assert all(isinstance(answer, Unavailable) for answer in answers[25:])
    assert store.tally("job") == {"Estimating": 25, "Pending": 35}


def test_a_listing_serves_claims_until_it_is_used_up_b7(merritt: MerrittHarness) -> None:
    merritt.options["listing"] = 1000
    store = merritt.open()
    batch = make_batch(store)
    first = make_jobs(store, batch, 4)
    session = store.open_session(host="h", ttl=50, about={})
    assert [job.id for job in claim(store, session, limit=2)] == [job.id for job in first[:2]]
    urgent = make_job(store, batch, priority=0)
    assert [job.id for job in claim(store, session, limit=2)] == [job.id for job in first[2:]]
    assert [job.id for job in claim(store, session, limit=2)] == [urgent.id]


def test_an_old_listing_is_made_again_b7(merritt: MerrittHarness) -> None:
    merritt.options["listing"] = 0
    store = merritt.open()
    batch = make_batch(store)
    make_jobs(store, batch, 4)
    session = store.open_session(host="h", ttl=50, about={})
    claim(store, session, limit=2)
    urgent = make_job(store, batch, priority=0)
    assert [job.id for job in claim(store, session, limit=1)] == [urgent.id]


def test_what_is_parked_costs_its_name_and_no_reading_a10(store: ZookeeperStore, traffic: Traffic) -> None:
    batch = make_batch(store)
    make_jobs(store, batch, 80, priority=1, parked="wait")
    free = make_job(store, batch, priority=9)
    session = store.open_session(host="h", ttl=50, about={})
    traffic.clear()
    assert [job.id for job in claim(store, session, limit=5)] == [free.id]
    assert sum(len(request.asks) for request in traffic.reads) < 60


def test_waking_reads_nothing_again_that_did_not_change(store: ZookeeperStore, traffic: Traffic) -> None:
    make_jobs(store, make_batch(store), 50, parked="wait")
    store.commit([Group((moving(store.find("job").records[0], "Pending", parked="wait", delay=1000),))])
    store.wake()
    traffic.clear()
    assert store.wake().woken == 0
    assert sum(len(request.asks) for request in traffic.reads) < 10
    assert traffic.writes == []


def test_the_look_for_open_children_is_behind_a_sync_a5(store: ZookeeperStore, monkeypatch: pytest.MonkeyPatch) -> None:
    """A follower may not know yet of the sibling that settled on another server; two such looks must not both miss
    it.
    """
    first, second = make_jobs(store, make_batch(store), 2)
    synced: list[str] = []
    sync, read = Link.sync, Link.read
    monkeypatch.setattr(Link, "sync", lambda link: (synced.append("sync"), sync(link)))
    monkeypatch.setattr(Link, "read", lambda link, asks: (synced.append("read"), read(link, asks))[1])
    for job in (first, second):
        synced.clear()
        (answer,) = store.commit([Group((moving(job, "Completed"),))])
        assert isinstance(answer, Committed)
        assert synced[synced.index("sync") :] == ["sync", "read"]


def test_the_bell_is_touched_at_most_every_20_ms_b7(store: ZookeeperStore, zk: KazooClient) -> None:
    batch = make_batch(store)
    before, start = zk.exists("/waybill/bell").version, time.monotonic()
    for _ in range(60):
        make_job(store, batch)
    most = (time.monotonic() - start) / 0.02 + 2
    assert 1 <= zk.exists("/waybill/bell").version - before <= most


def test_a_waiting_worker_hears_of_what_another_service_made_b7(
    merritt: MerrittHarness, store: ZookeeperStore, zk: KazooClient
) -> None:
    """It rings no bell: the folders' stats tell."""
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
    store.claim([Role("job", "Pending")], session, 10)
    traffic.clear()
    assert store.claim([Role("job", "Pending")], session, 10) == []
    assert (len(traffic.reads), traffic.writes) == (1, [])
