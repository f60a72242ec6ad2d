"""How much a worker claims ahead: enough to keep its threads busy, little enough that no record waits long behind a
slow step.
"""

from __future__ import annotations

CLAIM_AHEAD_SECONDS = 0.05  # how much work to claim ahead, by the measured duration of steps
RECALL_SECONDS = 1.0  # claimed records whose step has not begun are given back when no step ended for this long


class ClaimSizing:
    """`run_count`: how many step runs there are now."""

    def __init__(self, threads: int, max_claims: int) -> None:
        self.threads, self.max_claims = threads, max_claims
        self.step_seconds = 0.01  # duration of a step, a moving average
        self.last_end_at = 0.0  # when the last step ended

    def note_claim(self, run_count: int, now: float) -> None:
        if run_count < self.threads:
            self.last_end_at = now  # a thread was idle: the time without an ended step counts from here

    def note_step_end(self, seconds: float | None, now: float) -> None:
        self.last_end_at = now
        if seconds is not None:
            self.step_seconds += (seconds - self.step_seconds) / 8

    def compute_claim_limit(self, run_count: int) -> int:
        """How many records to claim now."""
        ahead = int(self.threads * CLAIM_AHEAD_SECONDS / max(self.step_seconds, 1e-6))
        target = max(self.threads, min(self.max_claims, ahead))
        free = target - run_count
        # Few large claims: wait until half of the target is free, unless a thread would be idle.
        return free if free >= target / 2 or run_count < self.threads else 0

    def has_backlog(self, run_count: int) -> bool:
        """Whether records were claimed ahead that may be waiting behind steps slower than measured."""
        return self.step_seconds < RECALL_SECONDS and run_count > self.threads

    @property
    def recall_at(self) -> float:
        return self.last_end_at + RECALL_SECONDS

    def begin_recall_if_due(self, run_count: int, now: float) -> bool:
        """Whether it is time to give back what was claimed ahead, for other workers to claim. True once per backlog."""
        if not self.has_backlog(run_count) or now - self.last_end_at < RECALL_SECONDS:
            return False
        self.last_end_at, self.step_seconds = now, RECALL_SECONDS
        return True
