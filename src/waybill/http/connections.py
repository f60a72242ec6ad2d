"""A small pool of store connections: a store is for one thread at a time, and requests run on many.

    idle -> in use by one request -> idle again, or closed when the store failed under it

A connection that was idle is checked before it is used, so that the first request after a store is back succeeds. A new
connection is made in a thread of its own: to a store that is unavailable it may take long, and the request is answered
within CONNECT_TIMEOUT that it should be tried again. While a store is known to be unavailable one such thread
reconnects, and all requests wait for that one.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import Future, wait
from contextlib import contextmanager

from waybill.engine import Engine
from waybill.environment import Environment
from waybill.record import BadStore, CommitOutcomeUnknown, SessionLost, Store, StoreError, StoreUnavailable

POOL_SIZE = 8
ACQUIRE_TIMEOUT = 5.0  # seconds that a request waits for a connection
CONNECT_TIMEOUT = 2.5  # seconds that it waits for an unavailable store, or for a new connection
IDLE_BEFORE_CHECK = 1.0  # seconds after which a connection is checked before it is used

SLOW_MESSAGE = "The store is slow to answer. Try again in a moment."
BROKEN_CONNECTION_ERRORS = (StoreUnavailable, CommitOutcomeUnknown, BadStore, SessionLost)


class StoreConnectionPool:
    """Connections to the environment's store. Thread-safe."""

    def __init__(
        self,
        environment: Environment,
        size: int = POOL_SIZE,
        acquire_timeout: float = ACQUIRE_TIMEOUT,
        connect_timeout: float = CONNECT_TIMEOUT,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._environment = environment
        self._acquire_timeout = acquire_timeout
        self._connect_timeout = connect_timeout
        self._clock = clock
        self._size = size
        self._slots = threading.BoundedSemaphore(size)
        self._lock = threading.Lock()  # guards all below
        # each with the time since when it is idle; last in, first out
        self._idle: list[tuple[Store, float]] = []
        self._unavailable: StoreUnavailable | None = None  # the last error, while the store is unavailable
        self._reconnection: Future[None] | None = (
            None  # the one new connection that is being made to an unavailable store
        )
        self._closed = False

    @contextmanager
    def open_engine(self) -> Iterator[Engine]:
        """An engine on a connection of its own, for one request."""
        with self.open_store() as store:
            yield self._environment.make_engine(store)

    @contextmanager
    def open_store(self) -> Iterator[Store]:
        until = self._clock() + self._connect_timeout
        if not self._slots.acquire(
            timeout=self._acquire_timeout
            if self._unavailable is None
            else min(self._acquire_timeout, self._connect_timeout)
        ):
            raise StoreUnavailable(
                "Too many requests are at work; all connections to the store are in use. Try again in a moment."
            )
        try:
            store = self._acquire(until)
            try:
                yield store
            except StoreError as error:
                self._release(store, is_sound=not isinstance(error, BROKEN_CONNECTION_ERRORS))
                if isinstance(error, StoreUnavailable):
                    self._note_unavailable(error)
                raise
            except BaseException:
                # The error came from the request itself, and the state of the connection is unknown.
                self._release(store, is_sound=False)
                raise
            else:
                self._release(store, is_sound=True)
        finally:
            self._slots.release()

    def close(self) -> None:
        with self._lock:
            self._closed = True
            idle, self._idle = self._idle, []
        for store, _ in idle:
            store.close()

    def _acquire(self, until: float) -> Store:
        while True:
            with self._lock:
                if self._closed:
                    raise StoreUnavailable("The server is stopping.")
                is_unavailable = self._unavailable is not None
                idle = self._idle.pop() if self._idle and not is_unavailable else None
            if is_unavailable:
                self._wait_for_reconnection(until)
            elif idle is None:
                return self._open_connection()
            elif self._clock() - idle[1] < IDLE_BEFORE_CHECK or self._is_alive(idle[0]):
                return idle[0]

    def _open_connection(self) -> Store:
        """A new connection. The store is not known to be unavailable; if it is, this is where it shows."""
        opening: Future[Store] = Future()
        threading.Thread(target=self._connect, args=(opening,), name="waybill-connect", daemon=True).start()
        wait([opening], self._connect_timeout)
        if opening.cancel():  # the connection, once made, is for other requests
            slow = StoreUnavailable(SLOW_MESSAGE)
            self._note_unavailable(slow)
            raise slow
        try:
            return opening.result()
        except StoreUnavailable as error:
            self._note_unavailable(error)
            raise

    def _connect(self, opening: Future[Store]) -> None:
        try:
            store = self._environment.open_store()
        except BaseException as error:  # noqa: BLE001 - raised in the request that waits
            if opening.set_running_or_notify_cancel():
                opening.set_exception(error)
            elif isinstance(error, StoreUnavailable):
                self._note_unavailable(error)  # with the store's own message
            return
        if opening.set_running_or_notify_cancel():
            opening.set_result(store)
        else:
            self._release(store, is_sound=True)

    def _is_alive(self, store: Store) -> bool:
        try:
            store.list_holds()
        except StoreError as error:
            _close_in_background(store)
            if isinstance(error, StoreUnavailable):
                self._note_unavailable(error)
            return False
        return True

    def _note_unavailable(self, error: StoreUnavailable) -> None:
        with self._lock:
            self._unavailable = error

    def _wait_for_reconnection(self, until: float) -> None:
        """Returns when the store is back; raises StoreUnavailable when it is not back in time."""
        with self._lock:
            reconnection = self._reconnection
            if reconnection is None:
                reconnection = Future()
                thread = threading.Thread(
                    target=self._reconnect, args=(reconnection,), name="waybill-reconnect", daemon=True
                )
                thread.start()  # it may fail: then no request waits for it
                self._reconnection = reconnection
        try:
            reconnection.result(max(0.0, until - self._clock()))
        except TimeoutError:
            with self._lock:
                message = str(self._unavailable or SLOW_MESSAGE)
            raise StoreUnavailable(message) from None

    def _reconnect(self, reconnection: Future[None]) -> None:
        try:
            store = self._environment.open_store()
        except BaseException as error:  # noqa: BLE001 - raised in the requests that wait
            with self._lock:
                self._reconnection = None
                # Another error than that it is unavailable: each request connects for itself, and reports it.
                self._unavailable = error if isinstance(error, StoreUnavailable) else None
            reconnection.set_exception(error)
            return
        self._release(store, is_sound=True)
        with self._lock:
            self._reconnection = None
        reconnection.set_result(None)

    def _release(self, store: Store, is_sound: bool) -> None:
        with self._lock:
            if is_sound:
                self._unavailable = None
                if not self._closed and len(self._idle) < self._size:  # a reconnection makes one more than are in use
                    self._idle.append((store, self._clock()))
                    return
        if is_sound:
            store.close()
        else:
            _close_in_background(store)


def _close_in_background(store: Store) -> None:
    """Close it in a thread: closing a connection to an unavailable store may take as long as opening one."""
    threading.Thread(target=store.close, name="waybill-discard", daemon=True).start()
