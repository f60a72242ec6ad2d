"""Claims with writes by others between the read and the write: each interleaving is forced."""

from collections.abc import Callable
from typing import Any

import pytest
from kazoo.client import KazooClient

from tests.stores.zookeeper.harness import MerrittHarness
from tests.stores.zookeeper.records import claim, make_batch, make_job, make_jobs, move
from waybill.record import Conflict, SessionLost, StoreUnavailable
from waybill.stores.zookeeper import ZookeeperStore
from waybill.stores.zookeeper.connection import ZookeeperConnection


@pytest.fixture
def before_writing(monkeypatch: pytest.MonkeyPatch) -> Callable[[ZookeeperConnection, Callable[[], Any]], None]:
    """Do something just before that connection sends its next transaction."""

    def arrange(connection: ZookeeperConnection, act: Callable[[], Any]) -> None:
        submit = connection.submit

        def first(ops: Any) -> Any:
            monkeypatch.undo()
            act()
            return submit(ops)

        monkeypatch.setattr(connection, "submit", first)

    return arrange


Arrange = Callable[[ZookeeperConnection, Callable[[], Any]], None]


def session_of(store: ZookeeperStore) -> str:
    return store.open_session(host="h", ttl=50, about={})


def test_a_record_blocked_since_it_was_read_is_not_claimed_a10(
    merritt: MerrittHarness, store: ZookeeperStore, before_writing: Arrange
) -> None:
    """Between our read and our claim, a hold is set and another worker blocks the record by it."""
    job = make_job(store, make_batch(store), hold_names=("collections/c",))
    other = merritt.open()
    session, others = session_of(store), session_of(other)

    def block() -> None:
        other.set_hold("collections/c")
        assert claim(other, others) == []

    before_writing(store._sessions._open_sessions[session].connection, block)
    assert claim(store, session) == []
    read = store.get("job", job.id)
    assert (read.blocked_by, read.session) == ("hold collections/c", None)
    assert list(store.check()) == []


def test_no_record_is_blocked_by_a_lock_that_was_dropped_meanwhile_a10(
    merritt: MerrittHarness, store: ZookeeperStore, before_writing: Arrange
) -> None:
    """The commit that drops the lock dies before it offers the lock to its waiters."""
    batch = make_batch(store)
    make_job(store, batch, locks=("own/k",))
    other = merritt.open()
    (holder,) = claim(other, session_of(other))
    waiter = make_job(store, batch, locks=("own/k",))
    session = session_of(store)
    before_writing(store._connection, lambda: move(other, holder, "Held", session=None, locks=()))
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(store._parked_notes, "offer_locks", lambda locks: 0)
        claim(store, session)
    assert store.get("job", waiter.id).blocked_by is None
    assert waiter.id in [job.id for job in claim(store, session)] or store.get("job", waiter.id).session == session


def test_a_job_that_another_service_locked_meanwhile_is_left_to_it_a1(
    merritt: MerrittHarness, store: ZookeeperStore, zk: KazooClient, before_writing: Arrange
) -> None:
    first, second = make_jobs(store, make_batch(store), 2)
    session = session_of(store)
    before_writing(
        store._sessions._open_sessions[session].connection, lambda: zk.create(f"/jobs/{first.id}/lock", ephemeral=True)
    )
    assert [job.id for job in claim(store, session)] == [second.id]
    assert zk.exists(f"/jobs/{first.id}/lock").ephemeralOwner == zk.client_id[0]
    with pytest.raises(Conflict, match="is claimed by"):
        store.claim_one("job", first.id, session)


def test_a_session_that_ends_between_read_and_claim_claims_nothing_a1(
    merritt: MerrittHarness, store: ZookeeperStore, before_writing: Arrange
) -> None:
    """The client has a new session of ZooKeeper by then, and its transactions go through: the check of the old one's
    node refuses them.
    """
    job = make_job(store, make_batch(store))
    late = merritt.open()
    session = session_of(late)
    connection = late._sessions._open_sessions[session].connection

    def die() -> None:
        merritt.expire_session(late, session)
        assert connection._client._live.wait(60)

    before_writing(connection, die)
    with pytest.raises(SessionLost):
        claim(late, session)
    assert store.get("job", job.id).session is None
    assert store.get("job", job.id).version == job.version


def test_a_session_name_is_never_that_of_the_clients_new_session_a1(merritt: MerrittHarness) -> None:
    store = merritt.open()
    session = session_of(store)
    merritt.expire_session(store, session)
    again = session_of(store)
    assert again != session
    assert not store.renew_session(session).alive
    assert store.renew_session(again).alive
    assert [info.name for info in store.list_sessions()] == [again]


def test_two_workers_that_list_the_same_queue_claim_all_of_it(merritt: MerrittHarness, before_writing: Arrange) -> None:
    """Both listed the same names: whoever comes second takes what is left, in the same call."""
    store, other = merritt.open(), merritt.open()
    make_jobs(store, make_batch(store), 60)
    session, others = session_of(store), session_of(other)
    theirs: list[str] = []
    before_writing(
        store._sessions._open_sessions[session].connection,
        lambda: theirs.extend(job.id for job in claim(other, others, limit=30)),
    )
    mine = [job.id for job in claim(store, session, limit=30)]
    assert (len(mine), len(theirs), len({*mine, *theirs})) == (30, 30, 60)


@pytest.mark.parametrize("fails", ["the next read", "action requests"])
def test_what_was_claimed_is_handed_out_when_the_connection_goes_afterwards(
    store: ZookeeperStore, zk: KazooClient, monkeypatch: pytest.MonkeyPatch, fails: str
) -> None:
    """Nobody else could work on it as long as the session lives."""
    first, second, _ = make_jobs(store, make_batch(store), 3)
    zk.create(f"/jobs/{first.id}/lock", ephemeral=True)
    session = session_of(store)
    if fails == "action requests":
        monkeypatch.setattr(store._action_requests, "read_for", lambda refs: raise_unavailable())
        assert second.id in [job.id for job in claim(store, session, limit=2)]
        return
    read_candidates, calls = store._claims._read_candidates, []

    def read_once(*args: Any) -> Any:
        calls.append(args)
        return read_candidates(*args) if len(calls) == 1 else raise_unavailable()

    monkeypatch.setattr(store._claims, "_read_candidates", read_once)
    assert [job.id for job in claim(store, session, limit=2)] == [second.id]


def raise_unavailable() -> None:
    raise StoreUnavailable
