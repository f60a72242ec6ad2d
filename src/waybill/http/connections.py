"""A small pool of store connections: a store is for one thread at a time, and requests come on many.

    free -> lent to one request -> free again, or closed when the store failed under it

A connection that rested is asked whether it still lives before it is lent, so that a store that was away is served
again with the first request after it is back. A new connection is made in a thread of its own: to a store that is away
it may take long, and whoever asks is told within HURRY to come again. While a store is known to be away one such thread
looks for it, and all requests wait for that one.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import Future, wait
from contextlib import contextmanager

from waybill.depot import Depot
from waybill.engine import Engine
from waybill.record import BadStore, SessionLost, Store, StoreError, Unavailable, Unknown

SIZE = 8
PATIENCE = 5.0  # seconds that a request waits for a connection
HURRY = 2.5  # seconds that it waits for a store that is away, or for a new connection
RESTED = 1.0  # seconds after which a connection is looked at before it is lent

SLOW = "The store is slow to answer. Try again in a moment."
BROKEN = (Unavailable, Unknown, BadStore, SessionLost)


class Connections:
    """Connections to the depot's store. Thread-safe."""

    def __init__(
        self,
        depot: Depot,
        size: int = SIZE,
        patience: float = PATIENCE,
        hurry: float = HURRY,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._depot = depot
        self._patience = patience
        self._hurry = hurry
        self._clock = clock
        self._size = size
        self._places = threading.BoundedSemaphore(size)
        self._lock = threading.Lock()  # guards all below
        # each with the time since when it rests; the last one in is the first one out
        self._free: list[tuple[Store, float]] = []
        self._away: Unavailable | None = None  # what the store said when it was last asked, if it is away
        self._search: Future[None] | None = None  # for a store that is away: the one new connection that is being made
        self._closed = False

    @contextmanager
    def engine(self) -> Iterator[Engine]:
        """An engine on a connection of its own, for one request."""
        with self.store() as store:
            yield self._depot.engine(store)

    @contextmanager
    def store(self) -> Iterator[Store]:
        until = self._clock() + self._hurry
        if not self._places.acquire(timeout=self._patience if self._away is None else min(self._patience, self._hurry)):
            raise Unavailable(
                "Too many requests are at work; all connections to the store are in use. Try again in a moment."
            )
        try:
            store = self._take(until)
            try:
                yield store
            except StoreError as error:
                self._return(store, sound=not isinstance(error, BROKEN))
                if isinstance(error, Unavailable):
                    self._miss(error)
                raise
            except BaseException:
                # Whatever happened in between, nobody knows in what state it left the connection.
                self._return(store, sound=False)
                raise
            else:
                self._return(store, sound=True)
        finally:
            self._places.release()

    def close(self) -> None:
        with self._lock:
            self._closed = True
            resting, self._free = self._free, []
        for store, _ in resting:
            store.close()

    def _take(self, until: float) -> Store:
        while True:
            with self._lock:
                if self._closed:
                    raise Unavailable("The server is stopping.")
                away = self._away is not None
                resting = self._free.pop() if self._free and not away else None
            if away:
                self._wait_for_the_store(until)
            elif resting is None:
                return self._open()
            elif self._clock() - resting[1] < RESTED or self._lives(resting[0]):
                return resting[0]

    def _open(self) -> Store:
        """A new connection. Nothing is known against the store; if it was never reached, that is how it shows."""
        opening: Future[Store] = Future()
        threading.Thread(target=self._connect, args=(opening,), name="waybill-connect", daemon=True).start()
        wait([opening], self._hurry)
        if opening.cancel():  # what comes of it is for others
            slow = Unavailable(SLOW)
            self._miss(slow)
            raise slow
        try:
            return opening.result()
        except Unavailable as error:
            self._miss(error)
            raise

    def _connect(self, opening: Future[Store]) -> None:
        try:
            store = self._depot.open_store()
        except BaseException as error:  # noqa: BLE001 - carried over to the request that waits
            if opening.set_running_or_notify_cancel():
                opening.set_exception(error)
            elif isinstance(error, Unavailable):
                self._miss(error)  # in its own words
            return
        if opening.set_running_or_notify_cancel():
            opening.set_result(store)
        else:
            self._return(store, sound=True)

    def _lives(self, store: Store) -> bool:
        try:
            store.marks()
        except StoreError as error:
            _discard(store)
            if isinstance(error, Unavailable):
                self._miss(error)
            return False
        return True

    def _miss(self, error: Unavailable) -> None:
        with self._lock:
            self._away = error

    def _wait_for_the_store(self, until: float) -> None:
        """Until it is back; Unavailable when it is not, or not in time."""
        with self._lock:
            search = self._search
            if search is None:
                search = Future()
                threading.Thread(
                    target=self._look_for_the_store, args=(search,), name="waybill-search", daemon=True
                ).start()
                self._search = search  # it runs: none that could not be started is waited for
        try:
            search.result(max(0.0, until - self._clock()))
        except TimeoutError:
            with self._lock:
                said = str(self._away or SLOW)
            raise Unavailable(said) from None

    def _look_for_the_store(self, search: Future[None]) -> None:
        try:
            store = self._depot.open_store()
        except BaseException as error:  # noqa: BLE001 - carried over to the requests that wait
            with self._lock:
                self._search = None
                # Another trouble than that it is away: each request tries for itself, and says so.
                self._away = error if isinstance(error, Unavailable) else None
            search.set_exception(error)
            return
        self._return(store, sound=True)
        with self._lock:
            self._search = None
        search.set_result(None)

    def _return(self, store: Store, sound: bool) -> None:
        with self._lock:
            if sound:
                self._away = None
                if not self._closed and len(self._free) < self._size:  # a search makes one more than were lent
                    self._free.append((store, self._clock()))
                    return
        if sound:
            store.close()
        else:
            _discard(store)


def _discard(store: Store) -> None:
    """Close it beside the request: to take leave of a store that is away may take as long as to reach it."""
    threading.Thread(target=store.close, name="waybill-discard", daemon=True).start()
