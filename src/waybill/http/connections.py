"""A small pool of store connections: a store is for one thread at a time, and requests come on many.

    free -> lent to one request -> free again, or closed when the store failed under it

A connection that rested is asked whether it still lives before it is lent, so that a store that was away is served again with the first
request after it is back.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from waybill.depot import Depot
from waybill.engine import Engine
from waybill.record import BadStore, SessionLost, Store, StoreError, Unavailable, Unknown

SIZE = 8
PATIENCE = 5.0  # seconds that a request waits for a connection
RESTED = 1.0  # seconds after which a connection is looked at before it is lent

BROKEN = (Unavailable, Unknown, BadStore, SessionLost)


class Connections:
    """Connections to the depot's store. Thread-safe."""

    def __init__(self, depot: Depot, size: int = SIZE, patience: float = PATIENCE, clock: Callable[[], float] = time.monotonic) -> None:
        self._depot = depot
        self._patience = patience
        self._clock = clock
        self._places = threading.BoundedSemaphore(size)
        self._lock = threading.Lock()
        self._free: list[tuple[Store, float]] = []  # each with the time since when it rests; the last one in is the first one out
        self._closed = False

    @contextmanager
    def engine(self) -> Iterator[Engine]:
        """An engine on a connection of its own, for one request."""
        with self.store() as store:
            yield self._depot.engine(store)

    @contextmanager
    def store(self) -> Iterator[Store]:
        if not self._places.acquire(timeout=self._patience):
            raise Unavailable("Too many requests are at work; all connections to the store are in use. Try again in a moment.")
        try:
            store = self._take()
            try:
                yield store
            except StoreError as error:
                self._return(store, sound=not isinstance(error, BROKEN))
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

    def _take(self) -> Store:
        while True:
            with self._lock:
                if self._closed:
                    raise Unavailable("The server is stopping.")
                if not self._free:
                    break
                store, since = self._free.pop()
            if self._clock() - since < RESTED or self._lives(store):
                return store
        return self._depot.open_store()

    def _lives(self, store: Store) -> bool:
        try:
            store.marks()
        except StoreError:
            store.close()
            return False
        return True

    def _return(self, store: Store, sound: bool) -> None:
        with self._lock:
            if sound and not self._closed:
                self._free.append((store, self._clock()))
                return
        store.close()
