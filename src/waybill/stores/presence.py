"""How long a connection has been in touch with its store without a gap: what it must know before it calls others dead.

After an outage, or on a machine that slept, every session looks expired to whoever comes back first. So a connection
notes each time it talked to the store; a session of ttl T may be reaped by a connection that has been in touch for T
without a gap of T:

    touch ... touch ......gap...... touch ... touch
                                    ^ since(ttl), for every ttl up to the length of that gap

A worker with little to do comes by less often than a short ttl: all its gaps are longer. So a session may be reaped too
that was seen expired, and is seen so again a ttl later: it had its chance to come back, whoever was away meanwhile.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

NOTICED = 0.5  # seconds; shorter gaps are nobody's ttl


class Presence:
    def __init__(self, now: float) -> None:
        # (length, end), each longer than all that came after it; the first is the time before we connected
        self._gaps = [(math.inf, now)]
        self._last = now
        # sessions that were expired when last looked at, and since when they have been seen so
        self._expired: dict[str, float] = {}

    def touch(self, now: float) -> None:
        gap = now - self._last
        self._last = now
        if gap < 0:  # the clock was set back: nothing that was noted by it tells how long we have been here
            self._gaps = [(math.inf, now)]
            self._expired.clear()
        elif gap > NOTICED:
            while self._gaps[-1][0] <= gap:
                self._gaps.pop()
            self._gaps.append((gap, now))

    def dead(self, expired: Sequence[tuple[str, float]], now: float) -> list[str]:
        """Of the sessions that look expired, as (name, ttl), those that may be reaped."""
        self._expired = {name: self._expired.get(name, now) for name, _ in expired}
        return [name for name, ttl in expired if self.since(ttl) + ttl <= now or self._expired[name] + ttl <= now]

    def since(self, ttl: float) -> float:
        """When the last gap of at least `ttl` ended."""
        return next(end for length, end in reversed(self._gaps) if length >= ttl)
