"""When to look for work, and in which queues.

Holds are read before every claim, so that nothing is claimed from a queue that was paused a moment ago. An empty claim
is repeated once soon, and then slowly: hints that something is claimable can be lost.
"""

from __future__ import annotations

from collections.abc import Iterator

from waybill.record import WorkQueue
from waybill.rules import Machines, list_pause_holds
from waybill.worker import messages as m

RECHECK_SECONDS = 0.05  # until an empty claim is repeated: it does not prove an empty queue
POLL_SECONDS = 5.0  # between claims without a hint: hints can be lost


class Polling:
    def __init__(self, machines: Machines, queues: tuple[WorkQueue, ...]) -> None:
        self.machines, self.queues = machines, queues
        self.claim_at = 0.0  # when to claim next
        self.has_rechecked = True
        self.release_waits_at = 0.0  # when to release due waits next
        self.holds: frozenset[str] = frozenset()
        self.holds_are_fresh = False  # holds were read since the last claim

    def build_commands(self, capacity: int, now: float) -> Iterator[m.CoreCommand]:
        """The calls of the store that are due; `capacity`: how many records to claim at most."""
        if now >= self.release_waits_at:
            self.release_waits_at = now + POLL_SECONDS
            yield m.ReleaseWaitsCommand()
        if capacity <= 0 or now < self.claim_at:
            return
        if not self.holds_are_fresh:
            yield m.ReadHoldsCommand()
            return
        self.holds_are_fresh, self.claim_at = False, now + POLL_SECONDS
        if queues := self.list_unpaused_queues():
            yield m.ClaimCommand(queues, capacity)

    def list_unpaused_queues(self) -> tuple[WorkQueue, ...]:
        return tuple(q for q in self.queues if not self.is_paused(q.kind, q.state)) if self.holds else self.queues

    def is_paused(self, kind: str, state: str) -> bool:
        return bool(self.holds) and bool(list_pause_holds(self.machines[kind], state) & self.holds)

    # --- messages

    def start_polling(self, now: float) -> None:
        self.claim_at = self.release_waits_at = now

    def handle_holds_read(self, message: m.HoldsRead, now: float) -> None:
        self.holds, self.holds_are_fresh = message.holds, True

    def handle_waits_released(self, message: m.WaitsReleased, now: float) -> None:
        if message.next_due is not None:
            self.schedule_release(now + message.next_due)
        if message.released_count:
            self.claim_at = now

    def schedule_release(self, until: float) -> None:
        """A wait is due then."""
        self.release_waits_at = min(self.release_waits_at, until)

    def handle_work_hinted(self, message: m.WorkHinted, now: float) -> None:
        self.claim_at, self.has_rechecked = now, False

    def note_claim(self, has_claimed: bool, now: float) -> None:
        if has_claimed:
            self.claim_at, self.has_rechecked = now, False
        elif not self.has_rechecked:
            self.claim_at, self.has_rechecked = now + RECHECK_SECONDS, True

    def note_free_capacity(self, now: float) -> None:
        """A step run is forgotten: another record can be claimed."""
        self.claim_at = min(self.claim_at, now)
