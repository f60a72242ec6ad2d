"""The store's own indexes: waiters of keys that are free, records parked on marks that are off, counters to fold."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from waybill.duties.duty import Hand
from waybill.record import Finding


@dataclass(frozen=True)
class Upkeep:
    name: str = "upkeep"
    doc: str = "Folds the store's counters and frees waiters that nobody called."
    every: float = 10.0
    per_host: bool = False
    routine: bool = True

    def check(self, hand: Hand) -> Iterator[Finding]:
        # The store finds and mends in one transaction each, so nothing is reported here; `doctor` asks the store's own
        # check.
        hand.memory["swept"] = hand.store.sweep()
        return iter(())

    def mend(self, hand: Hand, finding: Finding) -> bool:
        return False
