"""Offers: what servers say of their files when they are fetched, added up before anything of them is written.

An estimate is what they said when they were asked (HEAD). If they offer more now than there is room for, the next file
is not taken.
"""

from __future__ import annotations

import threading

from waybill.apps.ingest.outfit import outfit_of
from waybill.step import Context


class Offers:
    """Of one job, in one attempt; asked from several threads."""

    def __init__(self, ctx: Context, job: str, granted: int) -> None:
        """`granted`: bytes for which the job has room."""
        self._ctx, self._job, self.granted = ctx, job, granted
        self._room = outfit_of(ctx).room
        self._sizes: dict[str, int] = {}
        self._lock = threading.Lock()
        self.total = 0
        self.came = 0  # bytes that are on the disk by now
        self.refused = False

    def take(self, name: str, size: int) -> bool:
        """Whether a file of so many bytes may come; also asked again, by another try for the same file."""
        with self._lock:
            self.total += size - self._sizes.get(name, 0)
            self._sizes[name] = size
            if self.total > self.granted and not self.refused:
                self.refused = not self._room.admit(self._job, self.total, self._ctx.now(), have=self.came).granted
                self.granted = self.granted if self.refused else self.total
            return not self.refused
