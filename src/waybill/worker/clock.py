"""The clock by which a worker counts the life of its session."""

from __future__ import annotations

import time

CLOCK: int = getattr(time, "CLOCK_BOOTTIME", time.CLOCK_MONOTONIC)


def awake_clock() -> float:
    """Seconds that also pass while the machine sleeps: a laptop that wakes up finds its sessions old."""
    return time.clock_gettime(CLOCK)
