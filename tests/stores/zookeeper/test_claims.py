"""Claims, where what is between the reading and the writing matters: each interleaving is made to happen."""

from collections.abc import Callable
from typing import Any

import pytest
from kazoo.client import KazooClient

from tests.stores.zookeeper.harness import MerrittHarness
from tests.stores.zookeeper.records import claim, make_batch, make_job, make_jobs, move
from waybill.record import Conflict, SessionLost, Unavailable
from waybill.stores.zookeeper import ZookeeperStore
from waybill.stores.zookeeper.link import Link


@pytest.fixture
def before_writing(monkeypatch: pytest.MonkeyPatch) -> Callable[[Link, Callable[[], Any]], None]:
    """Do something just before that link sends its next transaction."""

    def arrange(link: Link, act: Callable[[], Any]) -> None:
        post = link.post

        def first(ops: Any) -> Any:
            monkeypatch.undo()
            act()
            return post(ops)

        monkeypatch.setattr(link, "post", first)

    return arrange


Arrange = Callable[[Link, Callable[[], Any]], None]


def session_of(store: ZookeeperStore) -> str:
    return store.open_session(host="h", ttl=50, about={})


def test_what_was_parked_since_it_was_looked_at_is_not_claimed_a10(
    merritt: MerrittHarness, store: ZookeeperStore, before_writing: Arrange
) -> None:
    """A mark is set, and another worker parks the record on it, between our look and our claim."""
    job = make_job(store, make_batch(store), gates=("collections/c",))
    other = merritt.open()
    session, others = session_of(store), session_of(other)

    def park() -> None:
        other.mark("collections/c", True)
        assert claim(other, others) == []

    before_writing(store._sessions._open[session].link, park)
    assert claim(store, session) == []
    read = store.get("job", job.id)
    assert (read.parked, read.session) == ("mark collections/c", None)
    assert list(store.check()) == []


def test_nobody_is_parked_on_a_key_that_was_let_go_meanwhile_a10(
    merritt: MerrittHarness, store: ZookeeperStore, before_writing: Arrange
) -> None:
    batch = make_batch(store)
    make_job(store, batch, keys=("own/k",))
    other = merritt.open()
    (holder,) = claim(other, session_of(other))
    waiter = make_job(store, batch, keys=("own/k",))
    session = session_of(store)
    before_writing(store._link, lambda: move(other, holder, "Held", session=None, keys=()))
    offer, store._parking.offer = store._parking.offer, lambda keys: 0  # type: ignore[method-assign]  # it dies before it looks after others
    claim(store, session)
    store._parking.offer = offer  # type: ignore[method-assign]
    assert store.get("job", waiter.id).parked is None
    assert waiter.id in [job.id for job in claim(store, session)] or store.get("job", waiter.id).session == session


def test_a_job_that_another_service_locked_meanwhile_is_left_to_it_a1(
    merritt: MerrittHarness, store: ZookeeperStore, zk: KazooClient, before_writing: Arrange
) -> None:
    first, second = make_jobs(store, make_batch(store), 2)
    session = session_of(store)
    before_writing(store._sessions._open[session].link, lambda: zk.create(f"/jobs/{first.id}/lock", ephemeral=True))
    assert [job.id for job in claim(store, session)] == [second.id]
    assert zk.exists(f"/jobs/{first.id}/lock").ephemeralOwner == zk.client_id[0]
    with pytest.raises(Conflict, match="is held by"):
        store.take("job", first.id, session)


def test_a_session_that_dies_between_look_and_claim_claims_nothing_a1(
    merritt: MerrittHarness, store: ZookeeperStore, before_writing: Arrange
) -> None:
    """The client has a new session of ZooKeeper by then, and its transactions go through: the check of the old one's
    node refuses them.
    """
    job = make_job(store, make_batch(store))
    late = merritt.open()
    session = session_of(late)
    link = late._sessions._open[session].link

    def die() -> None:
        merritt.expire(late, session)
        assert link._client._live.wait(60)

    before_writing(link, die)
    with pytest.raises(SessionLost):
        claim(late, session)
    assert store.get("job", job.id).session is None
    assert store.get("job", job.id).version == job.version


def test_a_session_name_is_never_that_of_the_clients_new_session_a1(merritt: MerrittHarness) -> None:
    store = merritt.open()
    session = session_of(store)
    merritt.expire(store, session)
    again = session_of(store)
    assert again != session
    assert not store.renew(session).alive
    assert store.renew(again).alive
    assert [info.name for info in store.sessions()] == [again]


def test_two_workers_that_look_at_the_same_queue_take_all_of_it(
    merritt: MerrittHarness, before_writing: Arrange
) -> None:
    """Both listed the same names: whoever comes second takes what is left, in the same call."""
    store, other = merritt.open(), merritt.open()
    make_jobs(store, make_batch(store), 60)
    session, others = session_of(store), session_of(other)
    theirs: list[str] = []
    before_writing(
        store._sessions._open[session].link, lambda: theirs.extend(job.id for job in claim(other, others, limit=30))
    )
    mine = [job.id for job in claim(store, session, limit=30)]
    assert (len(mine), len(theirs), len({*mine, *theirs})) == (30, 30, 60)


@pytest.mark.parametrize("fails", ["the next look", "what was asked"])
def test_what_was_claimed_is_handed_out_when_the_connection_goes_afterwards(
    store: ZookeeperStore, zk: KazooClient, monkeypatch: pytest.MonkeyPatch, fails: str
) -> None:
    """Nobody else could work on it while the session lives."""
    first, second, _ = make_jobs(store, make_batch(store), 3)
    zk.create(f"/jobs/{first.id}/lock", ephemeral=True)
    session = session_of(store)
    if fails == "what was asked":
        monkeypatch.setattr(store._asks, "of", lambda refs: unavailable())
        assert second.id in [job.id for job in claim(store, session, limit=2)]
        return
    look, looks = store._claims._look, []

    def look_once(*args: Any) -> Any:
        looks.append(args)
        return look(*args) if len(looks) == 1 else unavailable()

    monkeypatch.setattr(store._claims, "_look", look_once)
    assert [job.id for job in claim(store, session, limit=2)] == [second.id]


def unavailable() -> None:
    raise Unavailable
