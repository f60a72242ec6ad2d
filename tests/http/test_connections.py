"""The pool of connections: bounded, one request at a time on each, and back by itself when the store is."""

import threading
import time
from typing import Any

import pytest

from tests.servers.process import wait_until
from waybill.environment import Environment
from waybill.http.connections import IDLE_BEFORE_CHECK, StoreConnectionPool
from waybill.record import Conflict, RecordNotFound, Store, StoreUnavailable


class CountingEnvironment:
    """An environment that counts its stores, and whose store can be made unavailable."""

    def __init__(self, environment: Environment) -> None:
        self.environment, self.opened, self.closed, self.unavailable = environment, 0, 0, False
        self.make_engine = environment.make_engine
        self.tried = 0
        self.answers = threading.Event()  # while it is not set, nobody says whether a new connection can be made
        self.answers.set()

    def open_store(self) -> Any:
        self.tried += 1
        assert self.answers.wait(60)
        if self.unavailable:
            raise StoreUnavailable
        self.opened += 1
        return CountingStore(self, self.environment.open_store())


class CountingStore:
    def __init__(self, counting: CountingEnvironment, store: Store) -> None:
        self._watched, self._store = counting, store

    def __getattr__(self, name: str) -> Any:
        if self._watched.unavailable:
            raise StoreUnavailable
        return getattr(self._store, name)

    def close(self) -> None:
        self._watched.closed += 1
        self._store.close()


@pytest.fixture
def counting(environment: Environment) -> CountingEnvironment:
    return CountingEnvironment(environment)


def test_a_connection_is_lent_again(counting: CountingEnvironment) -> None:
    pool = StoreConnectionPool(counting)  # type: ignore[arg-type]
    for _ in range(5):
        with pool.open_engine() as engine:
            engine.store.list_holds()
    assert counting.opened == 1
    pool.close()
    assert counting.closed == 1
    with pytest.raises(StoreUnavailable, match="stopping"), pool.open_store():
        pass


def test_there_are_never_more_than_its_size_and_who_waits_too_long_is_refused(counting: CountingEnvironment) -> None:
    pool = StoreConnectionPool(counting, size=2, acquire_timeout=0.05)  # type: ignore[arg-type]
    with pool.open_store() as one, pool.open_store() as two:
        assert one is not two
        with pytest.raises(StoreUnavailable, match="Too many requests"), pool.open_store():
            pass
    with pool.open_store():
        pass
    assert counting.opened == 2


def test_who_waits_gets_the_connection_that_is_given_back(counting: CountingEnvironment) -> None:
    pool = StoreConnectionPool(counting, size=1, acquire_timeout=60)  # type: ignore[arg-type]
    lent, done = threading.Event(), threading.Event()

    def wait() -> None:
        lent.set()
        with pool.open_store():
            done.set()

    with pool.open_store():
        thread = threading.Thread(target=wait)
        thread.start()
        assert lent.wait(60)
        assert not done.is_set()
    assert done.wait(60)
    thread.join(60)
    assert counting.opened == 1


@pytest.mark.parametrize(
    ("error", "kept"),
    [(RecordNotFound(), True), (Conflict(), True), (StoreUnavailable(), False), (KeyError("x"), False)],
)
def test_a_connection_that_failed_is_not_lent_again(
    counting: CountingEnvironment, error: Exception, kept: bool
) -> None:
    pool = StoreConnectionPool(counting)  # type: ignore[arg-type]
    with pytest.raises(type(error)), pool.open_store():
        raise error
    wait_until(lambda: counting.closed == (0 if kept else 1), "it to be closed")
    with pool.open_store():
        pass
    assert counting.opened == (1 if kept else 2)


def test_after_a_store_was_away_the_first_request_is_served(counting: CountingEnvironment) -> None:
    now = [0.0]
    pool = StoreConnectionPool(counting, clock=lambda: now[0])  # type: ignore[arg-type]
    with pool.open_store() as a, pool.open_store() as b, pool.open_store() as c:
        assert len({id(a), id(b), id(c)}) == 3
    counting.unavailable = True
    now[0] += IDLE_BEFORE_CHECK
    with pytest.raises(StoreUnavailable), pool.open_store():
        pass
    wait_until(lambda: counting.closed == 1, "the one that was found dead to be closed")
    counting.unavailable = False
    with pool.open_store() as store:
        assert store.list_holds() == {}


def test_while_the_store_is_known_to_be_away_nobody_waits_for_a_new_connection(counting: CountingEnvironment) -> None:
    pool = StoreConnectionPool(counting, connect_timeout=0.05)  # type: ignore[arg-type]
    counting.unavailable = True
    with pytest.raises(StoreUnavailable), pool.open_store():  # from now on it is known
        pass
    counting.answers.clear()
    for _ in range(5):
        with pytest.raises(StoreUnavailable), pool.open_store():
            pass
    assert counting.tried == 2, "those who come meanwhile wait for the search that is under way"
    counting.unavailable = False
    counting.answers.set()
    wait_until(lambda: bool(pool._idle), "the search to end")
    with pool.open_store() as store:
        assert store.list_holds() == {}
    assert counting.opened == 1, "what the search found is lent"
    pool.close()
    assert counting.closed == 1


def test_a_store_that_dies_at_rest_is_known_to_be_away(counting: CountingEnvironment) -> None:
    now = [0.0]
    pool = StoreConnectionPool(counting, connect_timeout=0.05, clock=lambda: now[0] + time.monotonic())  # type: ignore[arg-type]
    with pool.open_store(), pool.open_store():
        pass
    counting.unavailable = True
    counting.answers.clear()
    now[0] += IDLE_BEFORE_CHECK
    with pytest.raises(StoreUnavailable), pool.open_store():
        pass
    counting.answers.set()


def test_a_store_that_takes_its_time_at_the_start_is_waited_for(counting: CountingEnvironment) -> None:
    pool = StoreConnectionPool(counting, connect_timeout=60)  # type: ignore[arg-type]
    counting.answers.clear()
    threading.Timer(0.2, counting.answers.set).start()
    with pool.open_store() as store:
        assert store.list_holds() == {}


def test_a_store_that_was_never_reached_keeps_the_first_request_no_longer_than_the_others(
    counting: CountingEnvironment,
) -> None:
    pool = StoreConnectionPool(counting, connect_timeout=0.05)  # type: ignore[arg-type]
    counting.answers.clear()
    for _ in range(3):
        with pytest.raises(StoreUnavailable, match="slow to answer"), pool.open_store():
            pass
    assert counting.tried == 2, "one for the first, and one for all who come later"
    counting.answers.set()
    wait_until(lambda: counting.opened == 2, "both to come through")
    with pool.open_store() as store:
        assert store.list_holds() == {}
    assert counting.opened == 2, "what came too late for one is lent to another"
    pool.close()
    wait_until(lambda: counting.closed == 2, "both to be closed")


def test_a_store_that_is_found_away_too_late_says_so_to_the_next(counting: CountingEnvironment) -> None:
    pool = StoreConnectionPool(counting, connect_timeout=0.05)  # type: ignore[arg-type]
    counting.answers.clear()
    counting.unavailable = True
    with pytest.raises(StoreUnavailable, match="slow to answer"), pool.open_store():
        pass
    counting.answers.set()
    wait_until(lambda: str(pool._unavailable) == str(StoreUnavailable()), "the connection to be refused")


def test_a_search_leaves_no_more_connections_than_there_are_places(counting: CountingEnvironment) -> None:
    pool = StoreConnectionPool(counting, size=1)  # type: ignore[arg-type]
    for _ in range(3):
        with pytest.raises(StoreUnavailable), pool.open_store():
            raise StoreUnavailable
        with pool.open_store():
            pass
    pool.close()
    wait_until(lambda: counting.closed == counting.opened, "all of them to be closed")


def test_a_search_that_ends_late_leaves_no_more_connections_than_there_are_places(
    counting: CountingEnvironment,
) -> None:
    """While it goes on, one that was lent before shows that the store is back, and another is opened."""
    pool = StoreConnectionPool(counting, size=2, connect_timeout=0.05)  # type: ignore[arg-type]
    plain, slow = counting.open_store, threading.Event()

    def searched() -> Any:
        assert slow.wait(60)
        return plain()

    with pool.open_store():
        with pytest.raises(StoreUnavailable), pool.open_store():
            raise StoreUnavailable
        counting.open_store = searched  # type: ignore[method-assign]
        with pytest.raises(StoreUnavailable), pool.open_store():
            pass
    counting.open_store = plain  # type: ignore[method-assign]
    with pool.open_store(), pool.open_store():
        slow.set()
        wait_until(lambda: counting.opened == 4, "the search to end")
        wait_until(lambda: len(pool._idle) == 1, "its connection to be kept")
    assert len(pool._idle) == 2
    pool.close()
    wait_until(lambda: counting.closed == counting.opened, "all of them to be closed")
