"""Staged: bytes that another service sent for a deposit, and never finished, are removed.

They lie under ingest/staged/ until their deposit is stored (storage/served.py). What nobody has touched for a day belongs to a client that
broke off; should it come back, it sends them again.
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from dataclasses import dataclass

from waybill.apps.ingest.storage.wire import STAGED
from waybill.duties import Hand
from waybill.objects import NotFound as NoObject
from waybill.objects import ObjectInfo
from waybill.record import Finding

PORTION = 5000  # looked at in one round


@dataclass(frozen=True)
class Staged:
    age: float = 86400.0  # seconds
    name: str = "ingest-staged"
    doc: str = "Removes what other services sent for a deposit and never finished."
    every: float = 3600.0
    per_host: bool = False

    def check(self, hand: Hand) -> Iterator[Finding]:
        """A portion with each round; the next one goes on where this one ended."""
        if hand.objects is None:
            return
        seen, last = 0, str(hand.memory.get("after", ""))
        for info in hand.objects.list(STAGED, after=last, limit=PORTION):
            if hand.stop():
                break
            seen, last = seen + 1, info.name
            if self._old(info):
                yield Finding("bytes without a deposit", info.name, f"{info.name} was sent and never stored.", "remove it")
        hand.memory["after"] = last if seen == PORTION else ""

    def mend(self, hand: Hand, finding: Finding) -> bool:
        if hand.objects is None:
            return False
        try:
            info = hand.objects.head(finding.where)
        except NoObject:
            return False
        # Looked at again: it may have been sent anew. Safe to repeat: there is nothing left then.
        return self._old(info) and hand.objects.delete(finding.where)

    def _old(self, info: ObjectInfo) -> bool:
        return time.time() - info.modified.timestamp() > self.age
