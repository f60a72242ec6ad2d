"""Ids predicted from the folder's stat, and created by name in the same transaction as everything else."""

import threading
from itertools import pairwise
from typing import Any

import pytest
from kazoo.client import KazooClient

from tests.budget import Budget
from tests.servers.zookeeper import ZooKeeperEnsemble
from tests.stores.zookeeper.harness import MerrittHarness
from tests.stores.zookeeper.records import commit, make_batch, make_job, make_jobs
from waybill.record import Change, CommitGroup, CommitResult, CommitTooLarge, Conflict, Record
from waybill.stores.zookeeper import ZookeeperStore


def create_sequential_job(zk: KazooClient) -> str:
    """A job as another service begins one: ZooKeeper chooses the number."""
    path: str = zk.create("/jobs/jid", sequence=True)
    return path.rpartition("/")[2]


def test_predicted_and_sequential_numbers_are_one_series_a8(store: ZookeeperStore, zk: KazooClient) -> None:
    batch = make_batch(store)
    names = [
        make_job(store, batch).id,
        create_sequential_job(zk),
        *(job.id for job in make_jobs(store, batch, 3)),
        create_sequential_job(zk),
    ]
    zk.delete(f"/jobs/{names[1]}")
    zk.delete(f"/jobs/{names[5]}")
    names += [make_job(store, batch).id, create_sequential_job(zk)]
    assert names == [f"jid{number:010d}" for number in range(1, 9)]


def test_a_number_that_another_service_takes_first_costs_a_second_try_and_leaves_no_gap_a8(
    store: ZookeeperStore, zk: KazooClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Between our reading and our writing another service takes the number; a name beyond the count must never come
    to be.
    """
    batch = make_batch(store)
    submit = store._connection.submit
    stolen: list[str] = []

    def steal_first(ops: Any) -> Any:
        monkeypatch.undo()
        stolen.append(create_sequential_job(zk))
        return submit(ops)

    monkeypatch.setattr(store._connection, "submit", steal_first)
    jobs = make_jobs(store, batch, 2)
    assert (stolen, [job.id for job in jobs]) == (["jid0000000001"], ["jid0000000002", "jid0000000003"])
    assert create_sequential_job(zk) == "jid0000000004"


def test_a_refused_group_leaves_no_gap_in_the_numbers_a8(store: ZookeeperStore, zk: KazooClient) -> None:
    """Refused while it is planned, refused by the transaction, too large: those behind it take its numbers."""
    batch, other = make_batch(store), make_batch(store)
    stale = commit(store, Change(other, other, "note")).records[0]
    draft = Change(None, Record("job", "jid*", "Pending", parent=batch.ref), "submit")
    bad = Change(None, Record("job", "jid*", "Nonsense", parent=batch.ref), "submit")
    late = Change(other, other, "note")
    large = Change(
        None,
        Record("job", "jid*", "Pending", parent=batch.ref),
        "submit",
        documents={"a": b"1" * 500_000, "b": b"1" * 420_000},
    )
    assert stale is not None
    groups = [
        CommitGroup((draft, draft)),
        CommitGroup((draft, bad)),
        CommitGroup((draft,)),
        CommitGroup((draft, late)),
        CommitGroup((large, large)),
        CommitGroup((draft,)),
    ]
    answers = store.commit(groups)
    assert [type(answer) for answer in answers][1:] != [CommitResult] * 5
    made = [
        record.id
        for answer in answers
        if isinstance(answer, CommitResult)
        for record in answer.records
        if record is not None
    ]
    assert sorted(made) == [f"jid{number:010d}" for number in range(1, 5)]
    assert isinstance(answers[3], Conflict)
    assert isinstance(answers[4], CommitTooLarge)
    assert create_sequential_job(zk) == "jid0000000005"


def test_many_creators_and_another_service_share_the_numbers_a8(
    merritt: MerrittHarness, zk: KazooClient, budget: Budget
) -> None:
    stores = [merritt.open() for _ in range(2)]
    batch = make_batch(stores[0])
    names = race(stores, batch, zk, budget.pick(small=15, long=200))
    assert sorted(names) == [f"jid{number:010d}" for number in range(1, len(names) + 1)]


@pytest.fixture
def followers(zookeeper_ensemble: ZooKeeperEnsemble) -> list[str]:
    """The URL of one tree by each of three servers."""
    root = zookeeper_ensemble.create_chroot().rpartition("/")[2]
    return [f"zookeeper://{zookeeper_ensemble.host(number)}/{root}" for number in zookeeper_ensemble.numbers]


def test_numbers_hold_on_an_ensemble_whose_followers_lag_a8(followers: list[str], budget: Budget) -> None:
    """Each creator talks to another server, and each server may be behind the others."""
    stores = [ZookeeperStore(url, timeout=50, reconnect_wait=30) for url in followers[:2]]
    zk = KazooClient(followers[2].removeprefix("zookeeper://"), timeout=50)
    zk.start(timeout=60)
    try:
        names = race(stores, make_batch(stores[0]), zk, budget.pick(small=10, long=150))
        assert sorted(names) == [f"jid{number:010d}" for number in range(1, len(names) + 1)]
    finally:
        zk.stop()
        zk.close()
        for store in stores:
            store.close()


def race(stores: list[ZookeeperStore], batch: Record, zk: KazooClient, rounds: int) -> list[str]:
    """All create at the same time, some in groups of several; the names of everything that was made."""
    made: list[list[str]] = [[] for _ in range(len(stores) + 1)]

    def create_jobs(index: int) -> None:
        for n in range(rounds):
            made[index] += [job.id for job in make_jobs(stores[index], batch, 1 + n % 3)]

    def create_others() -> None:
        for _ in range(rounds):
            made[-1].append(create_sequential_job(zk))

    threads = [threading.Thread(target=create_jobs, args=(index,)) for index in range(len(stores))] + [
        threading.Thread(target=create_others)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(120)
    assert [len(names) for names in made[:-1]] == [sum(1 + n % 3 for n in range(rounds))] * len(stores)
    assert all(earlier < later for names in made for earlier, later in pairwise(names)), (
        "and each creator's own are in order"
    )
    return [name for names in made for name in names]
