"""What the log says of a store that is away: not with each try, of which there are several a second.

    away -> away (said again each minute) -> back, when every lane of the process has written its heartbeat again

Not when it could read: a store on a full disk answers many a question.
"""

from __future__ import annotations

import logging
import threading

from waybill.record import StoreError

log = logging.getLogger("waybill.worker")

AGAIN = 60.0  # seconds between two lines of one outage


class Outage:
    """One for all lanes of a process. Thread-safe."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._lanes: set[object] = set()  # those that cannot reach it
        self._since = self._said = 0.0

    def away(self, lane: object, error: StoreError, now: float) -> None:
        with self._lock:
            begins = not self._lanes
            self._lanes.add(lane)
            if begins:
                self._since = self._said = now
                log.warning("the store is away: %s", error)
            elif now - self._said >= AGAIN:
                self._said = now
                log.warning("the store has been away for %.0f s: %s", now - self._since, error)

    def back(self, lane: object, now: float) -> None:
        if lane not in self._lanes:
            return
        with self._lock:
            self._lanes.discard(lane)
            if not self._lanes:
                log.warning("the store is back after %.0f s", now - self._since)
