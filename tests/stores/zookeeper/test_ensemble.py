"""Lost connections and lost leaders: the store reconnects by itself, and never reports a write that did not happen."""

import threading
from collections.abc import Iterator

import pytest

from tests.budget import Budget
from tests.servers.process import wait_until
from tests.servers.zookeeper import ZooKeeperEnsemble, ZooKeeperServer
from tests.stores.zookeeper.harness import MerrittHarness
from tests.stores.zookeeper.records import claim, make_batch, make_job, make_jobs, make_move, move
from waybill.record import (
    CommitAnswer,
    CommitGroup,
    CommitOutcomeUnknown,
    CommitResult,
    Conflict,
    Record,
    StoreError,
    StoreUnavailable,
)
from waybill.stores.conformance import race_in_threads
from waybill.stores.zookeeper import ZookeeperStore


@pytest.fixture
def server() -> Iterator[ZooKeeperServer]:
    with ZooKeeperServer(fast=True) as server:
        yield server


def test_every_answer_is_true_while_leaders_are_killed(zookeeper_ensemble: ZooKeeperEnsemble, budget: Budget) -> None:
    """One writer, a record each time: a CommitResult is written, StoreUnavailable and Conflict are not, and a
    CommitOutcomeUnknown may be either.
    """
    store = ZookeeperStore(zookeeper_ensemble.create_chroot(), reconnect_wait=30)
    jobs = make_jobs(store, make_batch(store), 60)
    store._connection.reconnect_wait = 0.3  # so that it is refused now and then
    answers: list[tuple[Record, CommitAnswer]] = []
    stop = threading.Event()

    def write() -> None:
        for n in range(10**9):
            job = jobs[n % len(jobs)]
            if stop.is_set():
                return
            try:
                read = store.get("job", job.id)
                (answer,) = store.commit([CommitGroup((make_move(read, "Pending", cause="note", message=f"{n}"),))])
            except (StoreUnavailable, CommitOutcomeUnknown):
                continue
            answers.append((read, answer))

    writer = threading.Thread(target=write)
    writer.start()
    for _ in range(budget.pick(small=2, long=20)):
        before = len(answers)
        wait_until(lambda: len(answers) > before + 20, "some writes", seconds=60)  # noqa: B023
        leader = zookeeper_ensemble.leader()
        zookeeper_ensemble.kill(leader)
        zookeeper_ensemble.leader()
        zookeeper_ensemble.start(leader)
    before = len(answers)
    wait_until(lambda: len(answers) > before + 20, "writes after the last leader", seconds=60)
    stop.set()
    writer.join(60)
    assert not writer.is_alive()
    store._connection.reconnect_wait = 30
    # id -> the version of the last write that is certain, and whether one that is not came after
    last: dict[str, tuple[int, bool]] = {}
    for read, answer in answers:
        version, unsure = last.get(read.id, (0, False))
        assert read.version == version or unsure or version == 0, "what was answered as written was read afterwards"
        if isinstance(answer, CommitResult) and answer.records[0] is not None:
            last[read.id] = (answer.records[0].version, False)
        else:
            assert isinstance(answer, (StoreUnavailable, CommitOutcomeUnknown, Conflict))
            last[read.id] = (read.version, not isinstance(answer, StoreUnavailable))
    for job in jobs:
        version, unsure = last.get(job.id, (job.version, False))
        assert store.get("job", job.id).version in ((version, version + 1) if unsure else (version,))
    assert list(store.check()) == []
    store.close()


def test_a_session_outlives_its_leader(zookeeper_ensemble: ZooKeeperEnsemble) -> None:
    store = ZookeeperStore(zookeeper_ensemble.create_chroot(), reconnect_wait=30)
    job = make_job(store, make_batch(store))
    session = store.open_session(host="h", ttl=60, about={})
    (mine,) = claim(store, session)
    leader = zookeeper_ensemble.leader()
    zookeeper_ensemble.kill(leader)
    zookeeper_ensemble.leader()
    alive: list[bool] = []

    def renewed() -> bool:
        try:
            alive.append(store.renew_session(session).alive)
        except StoreError:
            return False
        return True

    wait_until(renewed, "the session to be renewed", seconds=60)
    assert alive == [True]
    assert move(store, store.get("job", job.id), "Estimating", session=None).version == mine.version + 1
    store.close()


def test_nothing_is_written_while_no_server_can_be_reached(server: ZooKeeperServer) -> None:
    harness = MerrittHarness(server.create_chroot())
    store = harness.open()
    job = make_job(store, make_batch(store))
    server.kill()
    wait_until(lambda: not store._connection._client.connected, "the connection to be noticed as lost", seconds=60)
    store._connection.reconnect_wait = 0.2
    with pytest.raises(StoreUnavailable, match="nothing was written"):
        store.commit([CommitGroup((make_move(job, "Held"),))])
    with pytest.raises(StoreUnavailable):
        store.get("job", job.id)
    with pytest.raises(StoreUnavailable, match="can be reached now"):
        store.watch(0.1)  # refused before kazoo is asked, which would wait much longer
    server.start()

    def back() -> bool:
        try:
            return store.get("job", job.id) == job
        except StoreUnavailable:
            return False

    wait_until(back, "the store to go on by itself", seconds=60)
    store._connection.reconnect_wait = 30
    assert move(store, job, "Held").state == "Held"
    harness.close()


def test_a_connection_that_goes_leaves_its_session_to_its_ttl_b14(merritt: MerrittHarness) -> None:
    """A step may still run under it; only close_session frees claims at once."""
    store, other = merritt.open(), merritt.open()
    job = make_job(store, make_batch(store))
    session = store.open_session(host="h", ttl=15, about={})
    (mine,) = claim(store, session)
    store.close()
    assert other.get("job", job.id) == mine
    assert [info.name for info in other.list_sessions()] == [session]
    wait_until(lambda: other.reap_sessions() == [session], "the session to die by itself", seconds=120)
    freed = other.get("job", job.id)
    assert (freed.session, freed.version) == (None, mine.version + 1)


def test_a_transaction_that_was_cut_off_is_unknown_and_its_neighbours_are_answered_a11(merritt: MerrittHarness) -> None:
    """Sixty groups are three transactions: the first goes through and its answer is lost; the others go on if the
    line is back in time.
    """
    store, reader = merritt.open(), merritt.open()
    jobs = make_jobs(reader, make_batch(reader), 60)
    with merritt.lose_answer(store):
        answers = store.commit([CommitGroup((make_move(job, "Held"),)) for job in jobs])
    assert all(isinstance(answer, CommitOutcomeUnknown) for answer in answers[:25])
    assert all(reader.get("job", job.id).state == "Held" for job in jobs[:25]), "it was written"
    for job, answer in zip(jobs[25:], answers[25:], strict=True):
        assert isinstance(answer, (CommitOutcomeUnknown, StoreUnavailable, CommitResult))
        if not isinstance(answer, CommitOutcomeUnknown):
            assert reader.get("job", job.id).state == ("Held" if isinstance(answer, CommitResult) else "Pending"), (
                "no answer is wrong"
            )


def test_a_lost_answer_to_a_claim_ends_with_the_session_a11(merritt: MerrittHarness) -> None:
    store = merritt.open()
    make_jobs(store, make_batch(store), 3)
    session = store.open_session(host="h", ttl=50, about={})
    port = store._sessions._open_sessions[session].connection._client._connection._socket.getsockname()[1]
    with merritt.proxy.lose_answer(port), pytest.raises(CommitOutcomeUnknown):
        claim(store, session)
    store.close_session(session)
    assert len(claim(store, store.open_session(host="h", ttl=50, about={}))) == 3


def test_the_last_two_children_on_two_servers_a5(zookeeper_ensemble: ZooKeeperEnsemble, budget: Budget) -> None:
    """Each follower knows its own client's commit and may not know the other's yet; one of the two must find the parent
    idle all the same.
    """
    leader = zookeeper_ensemble.leader()
    root = zookeeper_ensemble.create_chroot().rpartition("/")[2]
    followers = (n for n in zookeeper_ensemble.numbers if n != leader)
    first, second = (
        ZookeeperStore(f"zookeeper://{zookeeper_ensemble.host(n)}/{root}", timeout=50, reconnect_wait=30)
        for n in followers
    )
    for _ in range(budget.pick(small=25, long=300)):
        batch = make_batch(first, state="Processing")
        jobs = make_jobs(first, batch, 2)
        answers = race_in_threads(
            lambda: first.commit([CommitGroup((make_move(jobs[0], "Completed"),))])[0],  # noqa: B023
            lambda: _when_seen(second, jobs[1]),  # noqa: B023
        )
        assert all(isinstance(answer, CommitResult) for answer in answers)
        assert batch.ref in {ref for answer in answers for ref in answer.idle_parents}
    first.close()
    second.close()


def _when_seen(store: ZookeeperStore, job: Record) -> CommitAnswer:
    """A follower that lags says that it moved on, or is not there yet."""
    while True:
        (answer,) = store.commit([CommitGroup((make_move(job, "Completed"),))])
        if not isinstance(answer, Conflict):
            return answer
