"""watch: a hint that something may be claimable, from this process at once and from others within 50 ms.

A store that wrote rings all others of its process on the same file. What other processes write is seen on a connection
that never writes: there SQLite's data_version moves with every commit of anybody else.
"""

from __future__ import annotations

import os
import threading
import time
import weakref

import apsw

from waybill.stores.stir import Stir

POLL = 0.05  # seconds

_lock = threading.Lock()
_ears: dict[str, weakref.WeakSet[Ear]] = {}  # by file


class Ear:
    """One store's ear."""

    def __init__(self, path: str) -> None:
        self.path = os.path.realpath(path) if path else ""
        self._bell = Stir()
        self._heard = False
        self._db: apsw.Connection | None = None
        self._seen = 0
        with _lock:
            _ears.setdefault(self.path, weakref.WeakSet()).add(self)

    def ring(self) -> None:
        """Something was written here: tell the others of this process."""
        if not self.path:  # nobody shares a database in memory
            return
        with _lock:
            others = [ear for ear in _ears[self.path] if ear is not self]
        for other in others:
            other._heard = True
            other._bell.set()

    def interrupt(self) -> None:
        self._bell.set()

    def listen(self, timeout: float) -> bool:
        deadline = time.monotonic() + timeout
        while True:
            left = deadline - time.monotonic()
            rung = self._bell.wait(max(0.0, min(POLL, left)))
            heard = self._moved() or self._heard  # both, so that what rang is not heard a second time
            self._heard = False
            if rung or heard or left <= 0:
                return heard

    def _moved(self) -> bool:
        """Whether anybody wrote since the last look."""
        if not self.path:
            return False
        first = self._db is None
        if self._db is None:
            self._db = apsw.Connection(self.path, flags=apsw.SQLITE_OPEN_READONLY)
            self._db.set_busy_timeout(1000)
        before, self._seen = self._seen, int(self._db.pragma("data_version"))
        return not first and before != self._seen

    def close(self) -> None:
        with _lock:
            ears = _ears.get(self.path)  # None: closed before, and it was the last one
            if ears is not None:
                ears.discard(self)
                if not ears:
                    del _ears[self.path]
        if self._db is not None:
            self._db.close()
