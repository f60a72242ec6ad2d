"""watch: a lossy hint that something may be claimable, by LISTEN and NOTIFY.

A NOTIFY inside commits makes them wait for each other, so a commit only requests a notification, and one thread for each
process and store sends it, at most every 20 ms, over a connection of its own:

    commit -> PostgresChangeSignal.notify_watchers() ... NOTIFY    elsewhere: PostgresChangeWatcher.wait() -> True

The first request is sent at once; requests during the next 20 ms are combined and sent when that time is over.
"""

from __future__ import annotations

import logging
import os
import select
import socket
import threading
import time
from collections.abc import Callable
from typing import ClassVar

import psycopg
from psycopg import sql

from waybill.record import StoreUnavailable
from waybill.stores.postgres import errors
from waybill.stores.postgres.connection import PostgresConnection, Row

NOTIFY_INTERVAL = 0.02  # seconds between two notifications of one process

log = logging.getLogger(__name__)

Connect = Callable[[], psycopg.Connection[Row]]


def channel_of(schema: str) -> str:
    return f"waybill {schema}"[:63]  # the maximum length of a channel's name


class PostgresChangeSignal:
    """Notifies watchers that something may be claimable. Shared by the stores of a process that have the same URL."""

    _shared_signals: ClassVar[dict[tuple[int, str, str], PostgresChangeSignal]] = {}
    _lock = threading.Lock()

    @classmethod
    def acquire(cls, connection: PostgresConnection) -> PostgresChangeSignal:
        key = (
            os.getpid(),
            connection.safe_url,
            connection.schema,
        )  # with the pid: a fork must not write on its parent's connection
        with cls._lock:
            signal = cls._shared_signals.get(key)
            if signal is None:
                signal = cls._shared_signals[key] = cls(key, connection)
            signal._user_count += 1
            return signal

    def __init__(self, key: tuple[int, str, str], connection: PostgresConnection) -> None:
        self._key = key
        self._channel = channel_of(connection.schema)
        self._connect: Connect = connection.open_another
        self._user_count = 0
        self._request = threading.Event()
        self._stop = threading.Event()
        self._thread: threading.Thread | None = None

    def notify_watchers(self) -> None:
        """Request a notification; the thread sends it."""
        self._request.set()
        if self._thread is None:
            with self._lock:
                if self._thread is None:
                    thread = threading.Thread(target=self._run, name="waybill-change-signal", daemon=True)
                    thread.start()
                    self._thread = thread

    def release(self) -> None:
        """One store fewer. With the last one the thread ends, after it has sent what was requested."""
        with self._lock:
            self._user_count -= 1
            if self._user_count:
                return
            self._shared_signals.pop(self._key, None)
            thread = self._thread
        self._stop.set()
        self._request.set()
        if thread is not None:
            thread.join(5)

    def _run(self) -> None:
        db: psycopg.Connection[Row] | None = None
        last = False
        while not last:
            self._request.wait()
            last = self._stop.is_set()
            self._request.clear()
            for attempt in ("on the open connection", "on a new one"):
                try:
                    if db is None or db.closed:
                        db = self._connect()
                    db.execute("select pg_notify(%s, '')", [self._channel], prepare=True)
                    break
                except (psycopg.Error, StoreUnavailable) as error:
                    log.warning("Watchers could not be notified of a change, %s: %s", attempt, error)
            self._stop.wait(NOTIFY_INTERVAL)
        if db is not None:
            db.close()


class PostgresChangeWatcher:
    """Receives the notifications. `interrupt` may be called from any thread."""

    def __init__(self, connection: PostgresConnection) -> None:
        self._channel = channel_of(connection.schema)
        self._connect: Connect = connection.open_another
        self._db: psycopg.Connection[Row] | None = None
        self._has_notification = False
        self._interrupt_receiver, self._interrupt_sender = socket.socketpair()
        self._interrupt_receiver.setblocking(False)
        self._interrupt_sender.setblocking(False)

    def interrupt(self) -> None:
        try:
            self._interrupt_sender.send(b"!")
        except OSError:
            return  # enough interrupts are pending, or it is closed

    def wait(self, timeout: float) -> bool:
        """Whether a notification came since the last call, or may have been missed while there was no connection."""
        deadline = time.monotonic() + timeout
        while True:
            self.read_notifications()
            db = self._db
            if db is None:
                db = self._listen()
                self._has_notification = True
            interrupted, notified, self._has_notification = self._take_interrupts(), self._has_notification, False
            if notified or interrupted:
                return notified
            left = deadline - time.monotonic()
            sockets = select.poll()
            sockets.register(db.pgconn.socket, select.POLLIN)
            sockets.register(self._interrupt_receiver, select.POLLIN)
            if not sockets.poll(max(0.0, left) * 1000) and left <= 0:
                return False

    def _listen(self) -> psycopg.Connection[Row]:
        db = self._connect()
        try:
            db.execute(sql.SQL("listen {}").format(sql.Identifier(self._channel)))
        except psycopg.Error as error:
            db.close()
            raise errors.connection_error_of(error, writes=False) from error
        self._db = db
        return db

    def read_notifications(self) -> None:
        """Read the pending notifications. Also called with every renewal, even if nobody watches: notifications that are
        not read pile up, finally in the server.
        """
        if self._db is None:
            return
        try:
            for _ in self._db.notifies(timeout=0):
                self._has_notification = True
        except psycopg.OperationalError:
            self._db.close()
            self._db = None
            self._has_notification = True  # one may have been missed without a connection

    def _take_interrupts(self) -> bool:
        interrupted = False
        while True:
            try:
                if not self._interrupt_receiver.recv(65536):
                    return interrupted
                interrupted = True
            except BlockingIOError:
                return interrupted

    def close(self) -> None:
        if self._db is not None:
            self._db.close()
            self._db = None
        self._interrupt_receiver.close()
        self._interrupt_sender.close()
