"""watch on PostgreSQL: notified outside of commits, at most every 20 ms for each process, and kept up through a lost
connection.
"""

import selectors
import threading
from queue import Queue
from typing import Any

import psycopg
import pytest

from tests.servers.process import wait_until
from tests.stores.postgres.harness import PostgresHarness
from waybill.record import CommitGroup, StoreUnavailable
from waybill.stores.conformance import StoreTester
from waybill.stores.conformance.tester import make_change
from waybill.stores.postgres import change_signal
from waybill.stores.postgres.change_signal import PostgresChangeSignal


def open_listener(harness: PostgresHarness) -> "psycopg.Connection[Any]":
    db = psycopg.connect(harness.url, autocommit=True)
    db.execute(f'listen "{change_signal.channel_of(harness.schema)}"')
    return db


def wait_until_quiet(db: "psycopg.Connection[Any]") -> None:
    """Wait until no notification has come for three intervals. A process that is paused for longer may still send one."""
    while list(db.notifies(timeout=3 * change_signal.NOTIFY_INTERVAL, stop_after=1)):
        pass


@pytest.fixture
def signals(tester: StoreTester, monkeypatch: pytest.MonkeyPatch) -> list[None]:
    """One entry for each call of notify_watchers. The notifications follow later, from another thread."""
    store: Any = tester.store
    notify_watchers, signals = store._change_signal.notify_watchers, list[None]()

    def record_signal() -> None:
        signals.append(None)
        notify_watchers()

    monkeypatch.setattr(store._change_signal, "notify_watchers", record_signal)
    return signals


def notifications_of(store: Any, listener: "psycopg.Connection[Any]") -> list[Any]:
    """The notifications that came from the connection on which that store commits."""
    own = store._connection._db.info.backend_pid
    return [each for each in listener.notifies(timeout=5 * change_signal.NOTIFY_INTERVAL) if each.pid == own]


def test_a_commit_itself_notifies_nobody_b7(tester: StoreTester, harness: PostgresHarness) -> None:
    """A NOTIFY inside a commit takes a lock that all such commits wait for.

    It comes from another connection, afterwards.
    """
    listener = open_listener(harness)
    tester.make_parcel()
    notifications = list(listener.notifies(timeout=60, stop_after=1))
    assert len(notifications) == 1
    store: Any = tester.store
    assert notifications[0].pid != store._connection._db.info.backend_pid
    listener.close()


def test_a_process_notifies_at_most_once_in_an_interval_and_loses_nothing_b7(
    tester: StoreTester, harness: PostgresHarness, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The test decides when an interval is over."""
    store: Any = tester.store
    begun, over = Queue[float](), Queue[None]()

    def wait_interval(seconds: float) -> None:
        begun.put(seconds)
        over.get()

    listener = open_listener(harness)
    tester.make_parcel()
    wait_until_quiet(listener)
    monkeypatch.setattr(store._change_signal._stop, "wait", wait_interval)
    notifications: list[psycopg.Notify] = []
    for _ in range(3):
        tester.make_parcel()
        assert begun.get(timeout=60) == change_signal.NOTIFY_INTERVAL
        notifications += listener.notifies(timeout=60, stop_after=1)
        for _ in range(20):
            tester.make_parcel()
        assert begun.empty()
        over.put(None)
        assert begun.get(timeout=60), "those of the interval are combined into one"
        notifications += listener.notifies(timeout=60, stop_after=1)
        over.put(None)
    notifications += listener.notifies(timeout=5 * change_signal.NOTIFY_INTERVAL)
    assert len(notifications) == 6
    assert len({each.pid for each in notifications}) == 1
    over.put(None)  # of the last interval, when the store is closed
    listener.close()


def test_what_makes_nothing_claimable_notifies_nobody_b7(
    tester: StoreTester, harness: PostgresHarness, signals: list[None]
) -> None:
    tester.make_parcel()
    (mine,) = tester.claim_records(tester.store, tester.open_session())
    listener = open_listener(harness)
    signals.clear()
    mine = tester.save(mine, message="half way")
    mine = tester.update(mine, cause="done", state="Weighing")
    mine = tester.release(mine, blocked_by="wait", delay=100)
    tester.store.release_due_waits()
    tester.store.maintain_indexes()
    assert (signals, notifications_of(tester.store, listener)) == ([], [])
    tester.update(mine, blocked_by=None)
    assert signals == [None]
    assert len(list(listener.notifies(timeout=60, stop_after=1))) == 1
    listener.close()


def test_all_that_makes_a_record_claimable_notifies_watchers_b7(
    tester: StoreTester, harness: PostgresHarness, signals: list[None]
) -> None:
    h = tester.harness
    hold, lock = tester.hold_name_of("g"), tester.lock_name_of("k")
    stopped = tester.make_parcel(hold_names=(hold,))
    tester.store.set_hold(hold)
    waits = tester.make_parcel(blocked_by="children")
    owner = tester.make_parcel(locks=(lock,))
    session = tester.open_session()
    (claimed,) = tester.claim_records(tester.store, session)
    assert claimed.id == owner.id
    late = tester.update(tester.make_parcel(), blocked_by="wait", delay=10)
    listener = open_listener(harness)
    h.tick(20)
    calls = {
        "a hold that is cleared": lambda: tester.store.clear_hold(hold),
        "a wake": lambda: tester.write(wake=(waits.ref,)),
        "a wait that is due": lambda: tester.store.release_due_waits(),
        "a session that is closed": lambda: tester.store.close_session(session),
        "a record that is removed, and its locks with it": lambda: tester.remove(tester.get(owner)),
    }
    for what, call in calls.items():
        wait_until_quiet(listener)
        signals.clear()
        call()
        assert signals, what
        assert len(list(listener.notifies(timeout=60, stop_after=1))) == 1, what
    assert {tester.get(record).blocked_by for record in (stopped, waits, late)} == {None}
    listener.close()


def test_a_watch_goes_on_when_its_connection_was_lost_b7(tester: StoreTester, harness: PostgresHarness) -> None:
    watcher = harness.open()
    tester.make_parcel()
    while watcher.watch(0):
        pass
    harness.simulate_outage(0)  # of the watcher's connection and of the one that notifies
    assert watcher.watch(60) is True, "it may have missed something while it was cut off"
    while watcher.watch(0):
        pass
    tester.store.now()
    tester.make_parcel()
    assert watcher.watch(60) is True


def test_the_thread_ends_with_the_last_store_of_the_process(harness: PostgresHarness) -> None:
    first, second = harness.open(), harness.open()
    lock = first._change_signal._key
    assert first._change_signal is second._change_signal
    tester = StoreTester(harness)
    tester.make_parcel()
    thread = first._change_signal._thread
    assert isinstance(thread, threading.Thread)
    harness.close_stores()
    wait_until(lambda: not thread.is_alive(), "the thread to end")
    assert lock not in PostgresChangeSignal._shared_signals


def test_many_interrupts_end_one_watch_b7(harness: PostgresHarness) -> None:
    """More than the socket between the threads can hold: nobody blocks, and they end one watch."""
    watcher = harness.open()
    while watcher.watch(0):
        pass
    for _ in range(20_000):
        watcher.interrupt_watch()
    watcher.watch(1e6)  # it is ended at once
    with pytest.raises(BlockingIOError):
        watcher._change_watcher._interrupt_receiver.recv(1)  # and none is left for the next


def test_notifications_that_nobody_watches_for_are_read_with_the_renewal_b7(
    tester: StoreTester, harness: PostgresHarness
) -> None:
    worker = harness.open()
    session = worker.open_session(host="", ttl=1e6, about={})
    while worker.watch(0):
        pass
    listener = open_listener(harness)
    tester.make_parcel()
    assert list(listener.notifies(timeout=60, stop_after=1))
    wait_until(
        lambda: bool(worker._change_watcher._db and _is_readable(worker._change_watcher._db)),
        "the server to notify the worker too",
    )
    assert worker.renew_session(session).alive
    assert worker._change_watcher._db is not None
    assert not _is_readable(worker._change_watcher._db)
    assert worker.watch(0) is True, "and it is not lost"
    listener.close()


def _is_readable(db: "psycopg.Connection[Any]") -> bool:
    with selectors.DefaultSelector() as selector:
        selector.register(db.pgconn.socket, selectors.EVENT_READ)
        return bool(selector.select(0))


def test_a_closed_store_says_so(harness: PostgresHarness) -> None:
    store = harness.open()
    store.close()
    store.interrupt_watch()
    with pytest.raises(StoreUnavailable, match="closed"):
        store.now()
    store.close()


def test_a_commit_that_fails_notifies_nobody(
    tester: StoreTester, harness: PostgresHarness, signals: list[None]
) -> None:
    made = tester.make_parcel()
    tester.update(made)
    listener = open_listener(harness)
    assert signals
    signals.clear()
    tester.store.commit([CommitGroup((make_change(made, message="stale"),))])
    assert (signals, notifications_of(tester.store, listener)) == ([], [])
    listener.close()
