"""How much a worker claims ahead: so much that its threads stay busy, so little that nothing lies long behind a slow
step.
"""

from __future__ import annotations

BUSY_SECONDS = 0.05  # how much work to have claimed ahead, at the pace measured
RECALL_SECONDS = 1.0  # a claimed record whose step could not begin for so long is given back


class Pace:
    """`held`: how many tasks there are now."""

    def __init__(self, threads: int, portion: int) -> None:
        self.threads, self.portion = threads, portion
        self.seconds = 0.01  # that a step takes, a moving average
        self.ended_at = 0.0  # when the last step ended

    def took(self, held: int, now: float) -> None:
        if held < self.threads:
            self.ended_at = now  # a thread was idle: what comes now has all its time

    def ended(self, seconds: float | None, now: float) -> None:
        self.ended_at = now
        if seconds is not None:
            self.seconds += (seconds - self.seconds) / 8

    def room(self, held: int) -> int:
        """How many to claim now."""
        ahead = int(self.threads * BUSY_SECONDS / max(self.seconds, 1e-6))
        target = max(self.threads, min(self.portion, ahead))
        room = target - held
        # Claim in portions: wait until half of the target is free, unless a thread would idle.
        return room if room >= target / 2 or held < self.threads else 0

    def lies_behind(self, held: int) -> bool:
        """Whether something was claimed ahead that may lie behind steps which are slower than thought."""
        return self.seconds < RECALL_SECONDS and held > self.threads

    @property
    def recall_at(self) -> float:
        return self.ended_at + RECALL_SECONDS

    def recalls(self, held: int, now: float) -> bool:
        """Whether it is time to give back to the others what lies behind; said once."""
        if not self.lies_behind(held) or now - self.ended_at < RECALL_SECONDS:
            return False
        self.ended_at, self.seconds = now, RECALL_SECONDS
        return True
