"""The session under which a worker holds all its claims, as far as the worker can know of it.

    opening -> opened -> renewed every third of its ttl -> closed when every step has ended -> the next one, or none
    when stopping

Its life is counted from before the last successful renewal was sent: at two thirds of its ttl the steps are told to
stop, at the whole ttl its claims are dropped. An answer that is not known (`Unknown`) ends the session too, by
draining: the truth is in the store, and the next claim will show it.
"""

from __future__ import annotations

HEARTBEAT = 1.0  # while a step runs
PAUSE = 0.2  # before trying a store that is away again


class Lease:
    def __init__(self, ttl: float) -> None:
        self.ttl = ttl
        self.session: str | None = None
        self.renewed = 0.0  # when the last renewal that succeeded was sent
        self.renewing = 0.0  # when to renew next
        self.opening = False
        self.draining = ""  # why no more is committed under this session
        self.stopping = False  # no other session follows this one
        self.away_until = 0.0  # the store cannot be reached before

    # --- what happens to it

    def opened(self, session: str, sent: float) -> None:
        self.session, self.renewed, self.renewing = session, sent, sent + self.ttl / 3
        self.opening, self.draining = False, ""

    def renew(self, now: float, *, busy: bool) -> None:
        """A renewal is sent. A long step has progress to show, and somebody may want it stopped: then the heartbeat
        is quicker.
        """
        self.renewing = now + (min(HEARTBEAT, self.ttl / 3) if busy else self.ttl / 3)

    def steps_begin(self, now: float) -> None:
        self.renewing = min(self.renewing, now + HEARTBEAT)

    def drain(self, why: str) -> None:
        self.draining = self.draining or why

    def ended(self) -> None:
        self.session, self.draining = None, ""

    def away(self, now: float) -> None:
        self.away_until = now + PAUSE

    # --- what it allows

    @property
    def takes_work(self) -> bool:
        return self.session is not None and not self.draining and not self.stopping

    def is_due(self, now: float) -> bool:
        return self.session is not None and not self.draining and now >= self.renewing

    def is_old(self, now: float) -> bool:
        """Others may soon take what it holds."""
        return now - self.renewed >= self.ttl * 2 / 3

    def is_over(self, now: float) -> bool:
        return now - self.renewed >= self.ttl

    def next_change(self, now: float) -> float:
        """When something is to be done about it."""
        warning = self.renewed + self.ttl * 2 / 3
        until = warning if now < warning else self.renewed + self.ttl
        return until if self.draining else min(until, self.renewing)
