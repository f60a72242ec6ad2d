"""The pool of connections: bounded, one request at a time on each, and back by itself when the store is."""

import threading
import time
from typing import Any

import pytest

from tests.servers.process import wait_until
from waybill.depot import Depot
from waybill.http.connections import RESTED, Connections
from waybill.record import Conflict, NotFound, Store, Unavailable


class Watched:
    """A depot whose stores are counted, and which can be told that its store is away."""

    def __init__(self, depot: Depot) -> None:
        self.depot, self.opened, self.closed, self.away = depot, 0, 0, False
        self.engine = depot.engine
        self.tried = 0
        self.answers = threading.Event()  # while it is not set, nobody says whether a new connection can be made
        self.answers.set()

    def open_store(self) -> Any:
        self.tried += 1
        assert self.answers.wait(60)
        if self.away:
            raise Unavailable
        self.opened += 1
        return Wire(self, self.depot.open_store())


class Wire:
    def __init__(self, watched: Watched, store: Store) -> None:
        self._watched, self._store = watched, store

    def __getattr__(self, name: str) -> Any:
        if self._watched.away:
            raise Unavailable
        return getattr(self._store, name)

    def close(self) -> None:
        self._watched.closed += 1
        self._store.close()


@pytest.fixture
def watched(depot: Depot) -> Watched:
    return Watched(depot)


def test_a_connection_is_lent_again(watched: Watched) -> None:
    pool = Connections(watched)  # type: ignore[arg-type]
    for _ in range(5):
        with pool.engine() as engine:
            engine.store.marks()
    assert watched.opened == 1
    pool.close()
    assert watched.closed == 1
    with pytest.raises(Unavailable, match="stopping"), pool.store():
        pass


def test_there_are_never_more_than_its_size_and_who_waits_too_long_is_refused(watched: Watched) -> None:
    pool = Connections(watched, size=2, patience=0.05)  # type: ignore[arg-type]
    with pool.store() as one, pool.store() as two:
        assert one is not two
        with pytest.raises(Unavailable, match="Too many requests"), pool.store():
            pass
    with pool.store():
        pass
    assert watched.opened == 2


def test_who_waits_gets_the_connection_that_is_given_back(watched: Watched) -> None:
    pool = Connections(watched, size=1, patience=60)  # type: ignore[arg-type]
    lent, done = threading.Event(), threading.Event()

    def wait() -> None:
        lent.set()
        with pool.store():
            done.set()

    with pool.store():
        thread = threading.Thread(target=wait)
        thread.start()
        assert lent.wait(60)
        assert not done.is_set()
    assert done.wait(60)
    thread.join(60)
    assert watched.opened == 1


@pytest.mark.parametrize(
    ("error", "kept"), [(NotFound(), True), (Conflict(), True), (Unavailable(), False), (KeyError("x"), False)]
)
def test_a_connection_that_failed_is_not_lent_again(watched: Watched, error: Exception, kept: bool) -> None:
    pool = Connections(watched)  # type: ignore[arg-type]
    with pytest.raises(type(error)), pool.store():
        raise error
    wait_until(lambda: watched.closed == (0 if kept else 1), "it to be closed")
    with pool.store():
        pass
    assert watched.opened == (1 if kept else 2)


def test_after_a_store_was_away_the_first_request_is_served(watched: Watched) -> None:
    now = [0.0]
    pool = Connections(watched, clock=lambda: now[0])  # type: ignore[arg-type]
    with pool.store() as a, pool.store() as b, pool.store() as c:
        assert len({id(a), id(b), id(c)}) == 3
    watched.away = True
    now[0] += RESTED
    with pytest.raises(Unavailable), pool.store():
        pass
    wait_until(lambda: watched.closed == 1, "the one that was found dead to be closed")
    watched.away = False
    with pool.store() as store:
        assert store.marks() == {}


def test_while_the_store_is_known_to_be_away_nobody_waits_for_a_new_connection(watched: Watched) -> None:
    pool = Connections(watched, hurry=0.05)  # type: ignore[arg-type]
    watched.away = True
    with pytest.raises(Unavailable), pool.store():  # from now on it is known
        pass
    watched.answers.clear()
    for _ in range(5):
        with pytest.raises(Unavailable), pool.store():
            pass
    assert watched.tried == 2, "those who come meanwhile wait for the search that is under way"
    watched.away = False
    watched.answers.set()
    wait_until(lambda: bool(pool._free), "the search to end")
    with pool.store() as store:
        assert store.marks() == {}
    assert watched.opened == 1, "what the search found is lent"
    pool.close()
    assert watched.closed == 1


def test_a_store_that_dies_at_rest_is_known_to_be_away(watched: Watched) -> None:
    now = [0.0]
    pool = Connections(watched, hurry=0.05, clock=lambda: now[0] + time.monotonic())  # type: ignore[arg-type]
    with pool.store(), pool.store():
        pass
    watched.away = True
    watched.answers.clear()
    now[0] += RESTED
    with pytest.raises(Unavailable), pool.store():
        pass
    watched.answers.set()


def test_a_store_that_takes_its_time_at_the_start_is_waited_for(watched: Watched) -> None:
    pool = Connections(watched, hurry=60)  # type: ignore[arg-type]
    watched.answers.clear()
    threading.Timer(0.2, watched.answers.set).start()
    with pool.store() as store:
        assert store.marks() == {}


def test_a_store_that_was_never_reached_keeps_the_first_request_no_longer_than_the_others(watched: Watched) -> None:
    pool = Connections(watched, hurry=0.05)  # type: ignore[arg-type]
    watched.answers.clear()
    for _ in range(3):
        with pytest.raises(Unavailable, match="slow to answer"), pool.store():
            pass
    assert watched.tried == 2, "one for the first, and one for all who come later"
    watched.answers.set()
    wait_until(lambda: watched.opened == 2, "both to come through")
    with pool.store() as store:
        assert store.marks() == {}
    assert watched.opened == 2, "what came too late for one is lent to another"
    pool.close()
    wait_until(lambda: watched.closed == 2, "both to be closed")


def test_a_store_that_is_found_away_too_late_says_so_to_the_next(watched: Watched) -> None:
    pool = Connections(watched, hurry=0.05)  # type: ignore[arg-type]
    watched.answers.clear()
    watched.away = True
    with pytest.raises(Unavailable, match="slow to answer"), pool.store():
        pass
    watched.answers.set()
    wait_until(lambda: str(pool._away) == str(Unavailable()), "the connection to be refused")


def test_a_search_leaves_no_more_connections_than_there_are_places(watched: Watched) -> None:
    pool = Connections(watched, size=1)  # type: ignore[arg-type]
    for _ in range(3):
        with pytest.raises(Unavailable), pool.store():
            raise Unavailable
        with pool.store():
            pass
    pool.close()
    wait_until(lambda: watched.closed == watched.opened, "all of them to be closed")


def test_a_search_that_ends_late_leaves_no_more_connections_than_there_are_places(watched: Watched) -> None:
    """While it goes on, one that was lent before shows that the store is back, and another is opened."""
    pool = Connections(watched, size=2, hurry=0.05)  # type: ignore[arg-type]
    plain, slow = watched.open_store, threading.Event()

    def searched() -> Any:
        assert slow.wait(60)
        return plain()

    with pool.store():
        with pytest.raises(Unavailable), pool.store():
            raise Unavailable
        watched.open_store = searched  # type: ignore[method-assign]
        with pytest.raises(Unavailable), pool.store():
            pass
    watched.open_store = plain  # type: ignore[method-assign]
    with pool.store(), pool.store():
        slow.set()
        wait_until(lambda: watched.opened == 4, "the search to end")
        wait_until(lambda: len(pool._free) == 1, "its connection to be kept")
    assert len(pool._free) == 2
    pool.close()
    wait_until(lambda: watched.closed == watched.opened, "all of them to be closed")
