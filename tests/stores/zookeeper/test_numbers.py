"""Ids foretold from the folder's stat, and made by name in the transaction that makes all the rest."""

import threading
from itertools import pairwise
from typing import Any

import pytest
from kazoo.client import KazooClient

from tests.budget import Budget
from tests.servers.zookeeper import ZooKeeperEnsemble
from tests.stores.zookeeper.harness import MerrittHarness
from tests.stores.zookeeper.records import commit, make_batch, make_job, make_jobs
from waybill.record import Change, Committed, Conflict, Group, Record, TooLarge
from waybill.stores.zookeeper import ZookeeperStore


def sequential(zk: KazooClient) -> str:
    """A job as another service begins one: ZooKeeper chooses the number."""
    path: str = zk.create("/jobs/jid", sequence=True)
    return path.rpartition("/")[2]


def test_foretold_and_chosen_numbers_are_one_row_a8(store: ZookeeperStore, zk: KazooClient) -> None:
    batch = make_batch(store)
    names = [make_job(store, batch).id, sequential(zk), *(job.id for job in make_jobs(store, batch, 3)), sequential(zk)]
    zk.delete(f"/jobs/{names[1]}")
    zk.delete(f"/jobs/{names[5]}")
    names += [make_job(store, batch).id, sequential(zk)]
    assert names == [f"jid{number:010d}" for number in range(1, 9)]


def test_somebody_who_is_faster_costs_a_second_try_and_no_hole_a8(
    store: ZookeeperStore, zk: KazooClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Between our reading and our writing another service takes the number; a name beyond the count must never come
    to be.
    """
    batch = make_batch(store)
    post = store._link.post
    stolen: list[str] = []

    def steal_first(ops: Any) -> Any:
        monkeypatch.undo()
        stolen.append(sequential(zk))
        return post(ops)

    monkeypatch.setattr(store._link, "post", steal_first)
    jobs = make_jobs(store, batch, 2)
    assert (stolen, [job.id for job in jobs]) == (["jid0000000001"], ["jid0000000002", "jid0000000003"])
    assert sequential(zk) == "jid0000000004"


def test_a_refused_group_leaves_no_hole_in_the_numbers_a8(store: ZookeeperStore, zk: KazooClient) -> None:
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
        docs={"a": b"1" * 500_000, "b": b"1" * 420_000},
    )
    assert stale is not None
    groups = [
        Group((draft, draft)),
        Group((draft, bad)),
        Group((draft,)),
        Group((draft, late)),
        Group((large, large)),
        Group((draft,)),
    ]
    answers = store.commit(groups)
    assert [type(answer) for answer in answers][1:] != [Committed] * 5
    made = [
        record.id
        for answer in answers
        if isinstance(answer, Committed)
        for record in answer.records
        if record is not None
    ]
    assert sorted(made) == [f"jid{number:010d}" for number in range(1, 5)]
    assert isinstance(answers[3], Conflict)
    assert isinstance(answers[4], TooLarge)
    assert sequential(zk) == "jid0000000005"


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
    stores = [ZookeeperStore(url, timeout=50, patience=30) for url in followers[:2]]
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

    def ours(place: int) -> None:
        for n in range(rounds):
            made[place] += [job.id for job in make_jobs(stores[place], batch, 1 + n % 3)]

    def theirs() -> None:
        for _ in range(rounds):
            made[-1].append(sequential(zk))

    threads = [threading.Thread(target=ours, args=(place,)) for place in range(len(stores))] + [
        threading.Thread(target=theirs)
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
