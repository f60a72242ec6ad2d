"""The store's own rules, looked at slowly over a connection of its own; what breaks them in two rounds running is
mended.

Once is not enough: outside services write a ZooKeeper tree in many small steps, and a rule may not hold for a moment.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing
from dataclasses import dataclass

from waybill.duties.duty import ROUND, Hand
from waybill.record import Finding


@dataclass(frozen=True)
class Consistency:
    name: str = "consistency"
    doc: str = "Checks the store against its own rules and mends what stays wrong."
    every: float = 3600.0
    per_host: bool = False
    routine: bool = True

    def check(self, hand: Hand) -> Iterator[Finding]:
        if hand.open_store is None:
            return
        before = set(hand.memory.get("seen", ()))
        seen: list[str] = []
        with closing(hand.open_store()) as store:
            for finding in store.check():
                if hand.stop() or len(seen) >= ROUND:
                    break
                name = f"{finding.rule} {finding.where}"
                seen.append(name)
                if name in before:
                    yield finding
        hand.memory["seen"] = seen[:200]

    def mend(self, hand: Hand, finding: Finding) -> bool:
        return hand.store.mend(finding)
