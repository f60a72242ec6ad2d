"""The session under which a worker makes all its claims, as far as the worker can know of it.

    opening -> opened -> renewed every third of its ttl -> closed when every step has ended -> the next session, or none
    when the worker is stopping

Its age is counted from before the last successful renewal was sent: at two thirds of the ttl the steps are told to
stop, at the whole ttl the claims are dropped. A commit whose outcome is unknown ends the session too, by draining: the
store has the truth, and the next claim reads it.
"""

from __future__ import annotations

HEARTBEAT_SECONDS = 1.0  # between two renewals while a step runs
UNAVAILABLE_PAUSE = 0.2  # seconds before an unavailable store is called again


class SessionLease:
    def __init__(self, ttl: float) -> None:
        self.ttl = ttl
        self.session: str | None = None
        self.renewed_at = 0.0  # when the last renewal that succeeded was sent
        self.renew_at = 0.0  # when to renew next
        self.is_opening = False
        self.drain_reason = ""  # why nothing more is committed under this session; empty: it is not draining
        self.is_stopping = False  # no session follows this one
        self.unavailable_until = 0.0  # no call is made before

    # --- changes

    def start_session(self, session: str, sent: float) -> None:
        self.session, self.renewed_at, self.renew_at = session, sent, sent + self.ttl / 3
        self.is_opening, self.drain_reason = False, ""

    def schedule_renewal(self, now: float, *, is_busy: bool) -> None:
        """A renewal is sent now; set the time of the next. While a step runs the heartbeat is faster: the step reports
        progress, and an action request may stop it.
        """
        self.renew_at = now + (min(HEARTBEAT_SECONDS, self.ttl / 3) if is_busy else self.ttl / 3)

    def hasten_renewal(self, now: float) -> None:
        self.renew_at = min(self.renew_at, now + HEARTBEAT_SECONDS)

    def drain(self, why: str) -> None:
        self.drain_reason = self.drain_reason or why

    def end_session(self) -> None:
        self.session, self.drain_reason = None, ""

    def pause_calls(self, now: float) -> None:
        self.unavailable_until = now + UNAVAILABLE_PAUSE

    # --- questions

    @property
    def can_claim(self) -> bool:
        return self.session is not None and not self.drain_reason and not self.is_stopping

    def is_renewal_due(self, now: float) -> bool:
        return self.session is not None and not self.drain_reason and now >= self.renew_at

    def is_old(self, now: float) -> bool:
        """Whether its claims may soon be given to others."""
        return now - self.renewed_at >= self.ttl * 2 / 3

    def is_expired(self, now: float) -> bool:
        return now - self.renewed_at >= self.ttl

    def compute_next_deadline(self, now: float) -> float:
        """When the session next needs something: a renewal, the signal to stop, or its end."""
        warning = self.renewed_at + self.ttl * 2 / 3
        until = warning if now < warning else self.renewed_at + self.ttl
        return until if self.drain_reason else min(until, self.renew_at)
