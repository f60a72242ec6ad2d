"""How long a connection has been in contact with its store without a gap: what it must know before it reaps the sessions
of others.

After an outage, or on a machine that slept, every session looks expired to the connection that returns first. So a
connection records each contact with the store; a session of ttl T may be reaped by a connection that has been in contact
for T without a gap of T:

    touch ... touch ......gap...... touch ... touch
                                    ^ find_gap_end(ttl), for every ttl up to the length of that gap

A worker with little to do calls the store less often than a short ttl: all its gaps are longer. So a session may also be
reaped if it was seen expired and is seen expired again a ttl later: it had a full ttl in which to renew, whichever
connections were unavailable in between.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

MIN_GAP = 0.5  # seconds; shorter gaps are not recorded: no session has such a ttl


class ConnectionPresence:
    """The contacts of one connection with its store, by the store's clock."""

    def __init__(self, now: float) -> None:
        # (length, end) of gaps, each longer than all later ones; the first is the time before the connection was opened
        self._gaps = [(math.inf, now)]
        self._last = now
        # sessions that were expired at the last call, and since when they have been seen expired
        self._expired_since: dict[str, float] = {}

    def touch(self, now: float) -> None:
        gap = now - self._last
        self._last = now
        if gap < 0:  # the clock was set back: earlier contacts no longer say how long this connection has been there
            self._gaps = [(math.inf, now)]
            self._expired_since.clear()
        elif gap > MIN_GAP:
            while self._gaps[-1][0] <= gap:
                self._gaps.pop()
            self._gaps.append((gap, now))

    def select_dead_sessions(self, expired: Sequence[tuple[str, float]], now: float) -> list[str]:
        """Of the sessions that look expired, as (name, ttl), those that may be reaped."""
        self._expired_since = {name: self._expired_since.get(name, now) for name, _ in expired}
        return [
            name
            for name, ttl in expired
            if self.find_gap_end(ttl) + ttl <= now or self._expired_since[name] + ttl <= now
        ]

    def find_gap_end(self, ttl: float) -> float:
        """When the last gap of at least `ttl` ended."""
        return next(end for length, end in reversed(self._gaps) if length >= ttl)
