"""Whether the clock that retention goes by was set to another time while this process ran.

A wall clock that jumps ten years ahead, because a battery is empty or somebody mistyped, makes every record old enough to be
removed. So each round compares how far the store's clock and the monotonic one have come since the process started:

    the same        retention goes on
    a day apart     `clock_jump` in the routine's memory: nothing is removed any more; doctor and the log say so
    `trust-clock`   an operator has looked: `clock_trusted` in its place, which other processes heed that see the same jump
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass

from waybill.maintenance.routine import MaintenanceContext, memory_of
from waybill.record import Finding, RecordNotFound
from waybill.rules import triggered_maintenance

log = logging.getLogger("waybill.maintenance")

MAX_DRIFT = 86_400.0  # seconds
SAME_JUMP = 3600.0  # seconds within which two processes mean the same jump
REMEDY = "set the clock right; then, or if it is right now: `waybill act maintenance retention trust-clock`"


class ClockWatch:
    """Compares two clocks within a process."""

    def __init__(self, monotonic: Callable[[], float] = time.monotonic) -> None:
        self._monotonic = monotonic
        self._base: tuple[float, float] | None = None

    def find_jump(self, now: float) -> float:
        """Return by how many seconds the clock was set forward (or back: negative); 0 for less than a day."""
        if self._base is None:
            self.accept(now)
        assert self._base is not None
        drift = (now - self._base[0]) - (self._monotonic() - self._base[1])
        return drift if abs(drift) > MAX_DRIFT else 0.0

    def accept(self, now: float) -> None:
        """From now on this is the right time."""
        self._base = now, self._monotonic()


def has_trusted_clock(context: MaintenanceContext, watch: ClockWatch | None) -> bool:
    """Whether records may be removed by their age now. Notes a jump in the routine's memory. Without a watch: yes."""
    if watch is None:
        return True
    now, memory = context.store.now(), context.memory
    if jump := watch.find_jump(now):
        watch.accept(now)
        if abs(float(memory.get("clock_trusted", 0.0)) - jump) > SAME_JUMP:
            memory["clock_jump"] = jump
            log.error("%s To go on: %s.", explain_jump(jump), REMEDY)
    return "clock_jump" not in memory


def explain_jump(jump: float) -> str:
    return f"The clock was set {'forward' if jump > 0 else 'back'} by {abs(jump) / 86_400:.1f} days: no record is removed by its age."


@dataclass(frozen=True)
class ClockJumpRoutine:
    """Lets doctor say what the routine for retention has noticed."""

    name: str = "clock"
    description: str = "Says when a jump of the clock has stopped the removal of old records."
    poll_interval: float = 3600.0
    per_host: bool = False
    has_routine_findings: bool = False

    def check(self, context: MaintenanceContext) -> Iterator[Finding]:
        try:
            memory = memory_of(context.store.get("maintenance", triggered_maintenance.RETENTION))
        except RecordNotFound:
            return
        if "clock_jump" in memory:
            yield Finding(
                "clock jump", "retention", explain_jump(float(memory["clock_jump"])), REMEDY, repairable=False
            )

    def repair(self, context: MaintenanceContext, finding: Finding) -> bool:
        return False  # only a person knows what time it is
