"""The bell: a hint to all workers that something may be claimable.

Whoever commits such a thing touches /waybill/bell, at most every 20 ms, and every waiting worker has a watch on that
node. Services that are not Waybill ring no bell: what they do is seen in the stats of the folders they write to
(ZooKeeper tells of new names only to those who list all of them), read at most every 200 ms while a worker waits.
"""

from __future__ import annotations

import threading
import time
from typing import Any

from waybill.stores.stir import Stir
from waybill.stores.zookeeper import places, wire
from waybill.stores.zookeeper.layout import ACCESS, BATCH, JOB
from waybill.stores.zookeeper.link import Link

RINGS = 0.02  # seconds between two touches
LOOKS = 0.2  # seconds between two looks at the folders
FOLDERS = (
    *(JOB.folder(state) for state in JOB.states),
    BATCH.homes,
    *(layout.homes for layout in ACCESS),
    places.SESSIONS,
)


class Bell:
    def __init__(self, link: Link) -> None:
        self._link = link
        self._stir = Stir()  # wakes the waiting thread, whatever for
        self._rang = False
        self._interrupted = False
        self._armed = False
        self._stats: list[int] | None = None
        self._looked = 0.0
        self._rung = 0.0
        self._later: threading.Timer | None = None
        self._lock = threading.Lock()

    def ring(self) -> None:
        """Touch the bell now, or as soon as 20 ms have passed since the last time."""
        with self._lock:
            if self._later is not None:
                return
            left = self._rung + RINGS - time.monotonic()
            if left > 0:
                later = threading.Timer(left, self._touch)
                later.daemon = True
                later.start()
                self._later = later  # `_touch` takes it away, under this lock
                return
        self._touch()

    def _touch(self) -> None:
        with self._lock:
            self._rung = time.monotonic()
            self._later = None
        self._link.tell([wire.put(places.BELL, b"")])

    def watch(self, timeout: float) -> bool:
        deadline = time.monotonic() + timeout
        changed = False
        while True:
            self._stir.clear()
            if not self._armed:
                self._arm()
            changed = self._look()
            left = deadline - time.monotonic()
            if self._rang or self._interrupted or changed or left <= 0:
                break
            self._stir.wait(min(left, LOOKS))
        # Whoever sets one of them after this look at it stirs after it too, and is heard by the next call.
        heard, interrupted = self._rang, self._interrupted
        if heard:
            self._rang = False
        if interrupted:
            self._interrupted = False
        return heard or changed

    def _arm(self) -> None:
        self._armed = True  # before it is: it may be heard at once
        try:
            self._link.watch(places.BELL, self._hear)
        except BaseException:
            self._armed = False  # the servers are away, and know of no watch
            raise

    def _hear(self, event: Any) -> None:
        """From kazoo's thread: the bell was touched, or the connection was lost and with it the watch."""
        self._armed = False
        self._rang = True
        self._stir.set()

    def _look(self) -> bool:
        """Whether the names in a folder changed since the last look, which is not made too often."""
        now = time.monotonic()
        if self._stats is not None and now - self._looked < LOOKS:
            return False
        self._looked = now
        before, self._stats = self._stats, [node.pzxid if node is not None else 0 for node in self._link.nodes(FOLDERS)]
        return before is not None and before != self._stats

    def interrupt(self) -> None:
        self._interrupted = True
        self._stir.set()

    def stop(self) -> None:
        with self._lock:
            if self._later is not None:
                self._later.cancel()
                self._later = None
