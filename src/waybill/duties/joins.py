"""Joins whose nudge was lost: a worker died between its child's commit and the call to the parent."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from waybill.duties.duty import Hand, ref_of
from waybill.record import Finding


@dataclass(frozen=True)
class Joins:
    name: str = "joins"
    doc: str = "Calls parents that wait for children of which none is open any more."
    every: float = 30.0
    per_host: bool = False
    routine: bool = False

    def check(self, hand: Hand) -> Iterator[Finding]:
        for ref in hand.store.idle_parents():
            yield Finding("lost nudge", str(ref), f"{ref} waits for children, and none is open.", "call it", ref=ref)

    def mend(self, hand: Hand, finding: Finding) -> bool:
        hand.engine.nudge([ref_of(finding)])  # safe to repeat: a nudge only makes the join look again
        return True
