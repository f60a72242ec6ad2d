"""A server's presence on a SQLite file: while one host serves it, no other host works or serves there.

A worker has a session, by which others see it. A server has one for this alone: it claims nothing, and is not listed
among the workers.

    opened at the start, or refused with the other host's name -> renewed -> lost while the machine slept? opened again
    -> closed
"""

from __future__ import annotations

import logging
import threading
from contextlib import closing

from waybill.depot import Depot
from waybill.record import SERVES, Store, Unavailable, Unknown

log = logging.getLogger("waybill")


class Attendance:
    def __init__(self, depot: Depot) -> None:
        self._depot = depot
        self._ttl = depot.config.work.ttl
        self._over = threading.Event()
        with closing(depot.open_store()) as store:
            self._session = self._open(store)

    def _open(self, store: Store) -> str:
        return store.open_session(host=self._depot.host, ttl=self._ttl, about=SERVES)

    def run(self) -> None:
        """Until it is stopped; BadStore when the machine slept, and another host has taken the file meanwhile."""
        with closing(self._depot.open_store()) as store:
            while not self._over.wait(self._ttl / 3):
                try:
                    if not store.renew(self._session).alive:
                        self._session = self._open(store)
                # a full disk, a disk that failed, or a file that is busy: it is tried again
                except (Unavailable, Unknown) as error:
                    log.warning("the store is not told that this server lives: %s", error)
            try:
                store.close_session(self._session)
            except (Unavailable, Unknown) as error:  # it expires
                log.warning("the store is not told that this server has ended: %s", error)

    def stop(self) -> None:
        self._over.set()
