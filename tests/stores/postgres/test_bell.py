"""watch on PostgreSQL: told outside of commits, at most every 20 ms for each process, and heard through a lost
connection.
"""

import selectors
import threading
import time
from typing import Any

import psycopg
import pytest

from tests.servers.process import wait_until
from tests.stores.postgres.harness import PostgresHarness
from waybill.record import Group, Unavailable
from waybill.stores.conformance import Yard
from waybill.stores.conformance.yard import change
from waybill.stores.postgres import bell
from waybill.stores.postgres.bell import Ringer


def listening(harness: PostgresHarness) -> "psycopg.Connection[Any]":
    db = psycopg.connect(harness.url, autocommit=True)
    db.execute(f'listen "{bell.channel(harness.schema)}"')
    return db


def quiet(db: "psycopg.Connection[Any]") -> None:
    """Until nothing has been told for as long as a ringer pauses, three times over.

    One that was held up for longer may still tell.
    """
    while list(db.notifies(timeout=3 * bell.PAUSE, stop_after=1)):
        pass


@pytest.fixture
def rings(yard: Yard, monkeypatch: pytest.MonkeyPatch) -> list[None]:
    """One for each time that the yard's store rings: what is told follows later, from another thread, and nobody
    knows when.
    """
    store: Any = yard.store
    ring, heard = store._ringer.ring, list[None]()
    monkeypatch.setattr(store._ringer, "ring", lambda: (heard.append(None), ring())[1])
    return heard


def told_by(store: Any, ear: "psycopg.Connection[Any]") -> list[Any]:
    """What was told on the connection on which that store commits."""
    own = store._connection._db.info.backend_pid
    return [each for each in ear.notifies(timeout=5 * bell.PAUSE) if each.pid == own]


def test_a_commit_itself_notifies_nobody_b7(yard: Yard, harness: PostgresHarness) -> None:
    """A NOTIFY inside a commit takes a lock that all such commits wait for.

    It comes from another connection, afterwards.
    """
    ear = listening(harness)
    yard.one()
    told = list(ear.notifies(timeout=60, stop_after=1))
    assert len(told) == 1
    store: Any = yard.store
    assert told[0].pid != store._connection._db.info.backend_pid
    ear.close()


def test_a_process_tells_at_most_every_20_ms_and_forgets_nothing_b7(yard: Yard, harness: PostgresHarness) -> None:
    ear = listening(harness)
    quiet(ear)
    began = time.monotonic()
    for _ in range(200):
        yard.one()
    last = time.monotonic()
    told = list(ear.notifies(timeout=60, stop_after=1))
    while more := list(ear.notifies(timeout=10 * bell.PAUSE, stop_after=1)):
        told += more
    assert 1 <= len(told) <= (last - began) / bell.PAUSE + 3
    assert len({each.pid for each in told}) == 1
    ear.close()


def test_what_makes_nothing_claimable_rings_no_bell_b7(yard: Yard, harness: PostgresHarness, rings: list[None]) -> None:
    yard.one()
    (mine,) = yard.claimed(yard.store, yard.session())
    ear = listening(harness)
    rings.clear()
    mine = yard.save(mine, message="half way")
    mine = yard.update(mine, event="done", state="Weighing")
    mine = yard.release(mine, parked="wait", delay=100)
    yard.store.wake()
    yard.store.sweep()
    assert (rings, told_by(yard.store, ear)) == ([], [])
    yard.update(mine, parked=None)
    assert rings == [None]
    assert len(list(ear.notifies(timeout=60, stop_after=1))) == 1
    ear.close()


def test_all_that_frees_a_record_rings_the_bell_b7(yard: Yard, harness: PostgresHarness, rings: list[None]) -> None:
    h = yard.harness
    gate, key = yard.gate("g"), yard.key("k")
    stopped = yard.one(gates=(gate,))
    yard.store.mark(gate, True)
    waits = yard.one(parked="children")
    holder = yard.one(keys=(key,))
    session = yard.session()
    (held,) = yard.claimed(yard.store, session)
    assert held.id == holder.id
    late = yard.update(yard.one(), parked="wait", delay=10)
    ear = listening(harness)
    h.tick(20)
    calls = {
        "a mark that is cleared": lambda: yard.store.mark(gate, False),
        "a nudge": lambda: yard.write(nudges=(waits.ref,)),
        "a wait that is due": lambda: yard.store.wake(),
        "a session that is closed": lambda: yard.store.close_session(session),
        "a record that is removed, and its keys with it": lambda: yard.remove(yard.get(holder)),
    }
    for what, call in calls.items():
        quiet(ear)
        rings.clear()
        call()
        assert rings, what
        assert len(list(ear.notifies(timeout=60, stop_after=1))) == 1, what
    assert {yard.get(record).parked for record in (stopped, waits, late)} == {None}
    ear.close()


def test_a_watch_goes_on_when_its_connection_was_lost_b7(yard: Yard, harness: PostgresHarness) -> None:
    watcher = harness.open()
    yard.one()
    while watcher.watch(0):
        pass
    harness.outage(0)  # of the watcher's connection and of the one that tells
    assert watcher.watch(60) is True, "it may have missed something while it was away"
    while watcher.watch(0):
        pass
    yard.store.now()
    yard.one()
    assert watcher.watch(60) is True


def test_the_ringer_ends_with_the_last_store_of_the_process(harness: PostgresHarness) -> None:
    first, second = harness.open(), harness.open()
    key = first._ringer._key
    assert first._ringer is second._ringer
    yard = Yard(harness)
    yard.one()
    thread = first._ringer._thread
    assert isinstance(thread, threading.Thread)
    harness.close_stores()
    wait_until(lambda: not thread.is_alive(), "the ringer to end")
    assert key not in Ringer._all


def test_many_interrupts_end_one_watch_b7(harness: PostgresHarness) -> None:
    """More than the socket between the threads can hold: nobody blocks, and they end one watch."""
    watcher = harness.open()
    while watcher.watch(0):
        pass
    for _ in range(20_000):
        watcher.interrupt()
    began = time.monotonic()
    watcher.watch(120)
    assert time.monotonic() - began < 120, "the first is ended"
    began = time.monotonic()
    watcher.watch(0.3)
    assert time.monotonic() - began >= 0.3, "and the second is not"


def test_what_nobody_watches_for_is_taken_in_with_the_heartbeat_b7(yard: Yard, harness: PostgresHarness) -> None:
    worker = harness.open()
    session = worker.open_session(host="", ttl=1e6, about={})
    while worker.watch(0):
        pass
    ear = listening(harness)
    yard.one()
    assert list(ear.notifies(timeout=60, stop_after=1))
    wait_until(
        lambda: bool(worker._listener._db and _readable(worker._listener._db)), "the server to tell the worker too"
    )
    assert worker.renew(session).alive
    assert worker._listener._db is not None
    assert not _readable(worker._listener._db)
    assert worker.watch(0) is True, "and it is not forgotten"
    ear.close()


def _readable(db: "psycopg.Connection[Any]") -> bool:
    with selectors.DefaultSelector() as selector:
        selector.register(db.pgconn.socket, selectors.EVENT_READ)
        return bool(selector.select(0))


def test_a_closed_store_says_so(harness: PostgresHarness) -> None:
    store = harness.open()
    store.close()
    store.interrupt()
    with pytest.raises(Unavailable, match="closed"):
        store.now()
    store.close()


def test_a_commit_that_fails_rings_no_bell(yard: Yard, harness: PostgresHarness, rings: list[None]) -> None:
    made = yard.one()
    yard.update(made)
    ear = listening(harness)
    assert rings
    rings.clear()
    yard.store.commit([Group((change(made, message="stale"),))])
    assert (rings, told_by(yard.store, ear)) == ([], [])
    ear.close()
