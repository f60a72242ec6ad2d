"""Staged: bytes that another service sent for a deposit, and never finished, are removed.

They lie under ingest/staged/ until their deposit is stored (storage/served.py). What nobody has touched for a day belongs to a client that
broke off; should it come back, it sends them again.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from waybill.apps.ingest.duties.sweeping import Sweep
from waybill.apps.ingest.storage.wire import STAGED
from waybill.duties import Hand
from waybill.objects import ObjectInfo


@dataclass(frozen=True)
class Staged(Sweep):
    name: str = "ingest-staged"
    doc: str = "Removes what other services sent for a deposit and never finished."
    rule: ClassVar[str] = "bytes without a deposit"
    places: ClassVar[tuple[str, ...]] = (STAGED,)

    def needless(self, hand: Hand, info: ObjectInfo) -> str | None:
        return "was sent and never stored" if self.old(hand, info) else None
