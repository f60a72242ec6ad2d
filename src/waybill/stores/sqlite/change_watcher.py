"""watch: a hint that something may be claimable, from this process at once and from other processes within 50 ms.

A store that wrote signals all other stores of its process on the same file. Writes of other processes are seen on a
connection that never writes: there SQLite's data_version changes with every commit of any other connection.
"""

from __future__ import annotations

import os
import threading
import time
import weakref

import apsw

from waybill.stores.thread_signal import ThreadSignal

POLL_INTERVAL = 0.05  # seconds

_lock = threading.Lock()
_watchers: dict[str, weakref.WeakSet[SqliteChangeWatcher]] = {}  # by file


class SqliteChangeWatcher:
    """The watcher of one store."""

    def __init__(self, path: str) -> None:
        self.path = os.path.realpath(path) if path else ""
        self._signal = ThreadSignal()
        self._has_local_change = False
        self._db: apsw.Connection | None = None
        self._data_version = 0
        with _lock:
            _watchers.setdefault(self.path, weakref.WeakSet()).add(self)

    def notify_watchers(self) -> None:
        """Signal the other watchers of this process on the same file, after a write."""
        if not self.path:  # a database in memory is not shared
            return
        with _lock:
            others = [watcher for watcher in _watchers[self.path] if watcher is not self]
        for other in others:
            other._has_local_change = True
            other._signal.set()

    def interrupt(self) -> None:
        self._signal.set()

    def wait(self, timeout: float) -> bool:
        deadline = time.monotonic() + timeout
        while True:
            left = deadline - time.monotonic()
            signalled = self._signal.wait(max(0.0, min(POLL_INTERVAL, left)))
            # data_version first and always: otherwise a change that was signalled would be reported a second time
            changed = self._has_data_version_moved() or self._has_local_change
            self._has_local_change = False
            if signalled or changed or left <= 0:
                return changed

    def _has_data_version_moved(self) -> bool:
        """Whether another connection has written since the last call."""
        if not self.path:
            return False
        first = self._db is None
        if self._db is None:
            self._db = apsw.Connection(self.path, flags=apsw.SQLITE_OPEN_READONLY)
            self._db.set_busy_timeout(1000)
        before, self._data_version = self._data_version, int(self._db.pragma("data_version"))
        return not first and before != self._data_version

    def close(self) -> None:
        with _lock:
            watchers = _watchers.get(self.path)  # None: closed before, and it was the last one
            if watchers is not None:
                watchers.discard(self)
                if not watchers:
                    del _watchers[self.path]
        if self._db is not None:
            self._db.close()
