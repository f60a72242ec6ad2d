"""Temporary files of uploads that never ended."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from waybill.duties.duty import Hand
from waybill.record import Finding


@dataclass(frozen=True)
class Leftovers:
    age: float = 86400.0
    name: str = "leftovers"
    doc: str = "Removes temporary files of uploads that never ended."
    every: float = 3600.0
    per_host: bool = False
    routine: bool = True

    def check(self, hand: Hand) -> Iterator[Finding]:
        if hand.objects is not None:
            hand.memory["removed"] = hand.objects.sweep(self.age)
        return iter(())

    def mend(self, hand: Hand, finding: Finding) -> bool:
        return False
