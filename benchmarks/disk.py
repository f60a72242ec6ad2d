"""The disk's own limit: how often a second a small write can be made durable.

Every durable commit costs at least one of these.
"""

from __future__ import annotations

import os
import statistics
import tempfile
import time
from pathlib import Path

from benchmarks.effort import Effort
from benchmarks.figure import Figure

BLOCK = b"\0" * 4096


class Disk:
    """Syncs noted in the course of a run, on the disk that holds the stores (TMPDIR chooses it)."""

    def __init__(self, writes: int) -> None:
        self.writes = writes
        self.rates: list[float] = []

    @classmethod
    def of(cls, effort: Effort) -> Disk:
        return cls(effort.pick(200, 5))

    def note(self) -> None:
        with tempfile.NamedTemporaryFile() as file:
            began = time.perf_counter()
            for _ in range(self.writes):
                os.write(file.fileno(), BLOCK)
                os.fsync(file.fileno())
            self.rates.append(self.writes / (time.perf_counter() - began))

    def figure(self, name: str) -> Figure:
        low, high = min(self.rates), max(self.rates)
        place = filesystem(Path(tempfile.gettempdir()))
        note = f"4 KiB written and synced on {place}; {low:,.0f} to {high:,.0f} in the course of this part"
        return Figure(f"{name}.fsync", statistics.median(self.rates), "/s", note=note)


def filesystem(path: Path) -> str:
    """Its type: a sync that costs nothing (tmpfs) makes every figure here meaningless."""
    found = ("", "an unknown filesystem")
    for line in Path("/proc/mounts").read_text().splitlines():
        _, mount, kind, *_ = line.split()
        if path.is_relative_to(mount) and len(mount) >= len(found[0]):
            found = (mount, kind)
    return found[1]
