"""watch: a lossy hint that something may be claimable, by LISTEN and NOTIFY.

A NOTIFY inside commits makes them wait for each other, so commits only `ring`, and one thread for each process and
store passes that on, at most every 20 ms, over a connection of its own:

    commit -> Ringer.ring() ... notify      on other machines: Listener.wait() -> True

The first ring is passed on at once, and what rings meanwhile is not forgotten: it is passed on when the 20 ms are over.
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

from waybill.record import Unavailable
from waybill.stores.postgres import troubles
from waybill.stores.postgres.connection import Connection, Row

PAUSE = 0.02  # seconds between two notifications of a process

log = logging.getLogger(__name__)

Connect = Callable[[], psycopg.Connection[Row]]


def channel(schema: str) -> str:
    return f"waybill {schema}"[:63]  # the longest name that a channel may have


class Ringer:
    """Tells others that something may be claimable. Shared by the stores of a process that have the same URL."""

    _all: ClassVar[dict[tuple[int, str, str], Ringer]] = {}
    _lock = threading.Lock()

    @classmethod
    def of(cls, connection: Connection) -> Ringer:
        key = (os.getpid(), connection.place, connection.schema)  # a fork must not write on its parent's connection
        with cls._lock:
            ringer = cls._all.get(key)
            if ringer is None:
                ringer = cls._all[key] = cls(key, connection)
            ringer._users += 1
            return ringer

    def __init__(self, key: tuple[int, str, str], connection: Connection) -> None:
        self._key = key
        self._channel = channel(connection.schema)
        self._connect: Connect = connection.another
        self._users = 0
        self._rung = threading.Event()
        self._stopped = threading.Event()
        self._thread: threading.Thread | None = None

    def ring(self) -> None:
        self._rung.set()
        if self._thread is None:
            with self._lock:
                if self._thread is None:
                    thread = threading.Thread(target=self._run, name="waybill-ringer", daemon=True)
                    thread.start()
                    self._thread = thread

    def leave(self) -> None:
        """One store fewer; with the last one the thread ends, having passed on what was rung."""
        with self._lock:
            self._users -= 1
            if self._users:
                return
            self._all.pop(self._key, None)
            thread = self._thread
        self._stopped.set()
        self._rung.set()
        if thread is not None:
            thread.join(5)

    def _run(self) -> None:
        db: psycopg.Connection[Row] | None = None
        last = False
        while not last:
            self._rung.wait()
            last = self._stopped.is_set()
            self._rung.clear()
            for attempt in ("on the connection that was there", "on a new one"):
                try:
                    if db is None or db.closed:
                        db = self._connect()
                    db.execute("select pg_notify(%s, '')", [self._channel], prepare=True)
                    break
                except (psycopg.Error, Unavailable) as error:
                    log.warning("Others could not be told, %s, that there is something to do: %s", attempt, error)
            self._stopped.wait(PAUSE)
        if db is not None:
            db.close()


class Listener:
    """Hears what ringers tell. `interrupt` may be called from any thread."""

    def __init__(self, connection: Connection) -> None:
        self._channel = channel(connection.schema)
        self._connect: Connect = connection.another
        self._db: psycopg.Connection[Row] | None = None
        self._told = False
        self._ear, self._mouth = socket.socketpair()
        self._ear.setblocking(False)
        self._mouth.setblocking(False)

    def interrupt(self) -> None:
        try:
            self._mouth.send(b"!")
        except OSError:
            return  # it has been interrupted often enough, or is closed

    def wait(self, timeout: float) -> bool:
        """True: something was told since the last call, or may have been while nobody listened."""
        until = time.monotonic() + timeout
        while True:
            self.hear()
            db = self._db
            if db is None:
                db = self._listen()
                self._told = True
            interrupted, told, self._told = self._interrupted(), self._told, False
            if told or interrupted:
                return told
            left = until - time.monotonic()
            ears = select.poll()
            ears.register(db.pgconn.socket, select.POLLIN)
            ears.register(self._ear, select.POLLIN)
            if not ears.poll(max(0.0, left) * 1000) and left <= 0:
                return False

    def _listen(self) -> psycopg.Connection[Row]:
        db = self._connect()
        try:
            db.execute(sql.SQL("listen {}").format(sql.Identifier(self._channel)))
        except psycopg.Error as error:
            db.close()
            raise troubles.losing(error, writing=False) from error
        self._db = db
        return db

    def hear(self) -> None:
        """Take in what was told. Called now and then even if nobody watches: what is not taken in piles up, at last
        in the server.
        """
        if self._db is None:
            return
        try:
            for _ in self._db.notifies(timeout=0):
                self._told = True
        except psycopg.OperationalError:
            self._db.close()
            self._db = None
            self._told = True  # perhaps, while nobody listened

    def _interrupted(self) -> bool:
        told = False
        while True:
            try:
                if not self._ear.recv(65536):
                    return told
                told = True
            except BlockingIOError:
                return told

    def close(self) -> None:
        if self._db is not None:
            self._db.close()
            self._db = None
        self._ear.close()
        self._mouth.close()
