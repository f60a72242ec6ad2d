"""A disk whose free space the test sets."""

from __future__ import annotations

from pathlib import Path

from waybill.disk_space import DiskUsage


class FakeDisk:
    """A disk that a test fills."""

    def __init__(self, total: int, free: int) -> None:
        self.total, self.free = total, free

    def __call__(self, root: Path) -> DiskUsage:
        return DiskUsage(self.total, self.free)
