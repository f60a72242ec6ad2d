"""Sweeping: objects below some places that nobody needs any more are removed, a portion with each round.

What is needless is said by each of those that sweep (payloads.py, papers.py, staged.py). It is asked twice, before an
object is named and again before it is removed: somebody may need it by then. A look that fails removes nothing.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import ClassVar

from waybill.duties import Hand
from waybill.objects import NotFound as NoObject
from waybill.objects import ObjectInfo
from waybill.record import Finding

PORTION = 5000  # objects of one place looked at in one round


@dataclass(frozen=True)
class Sweep:
    age: float = 86400.0  # seconds before an object that nobody refers to counts as left behind
    name: str = ""
    doc: str = ""
    every: float = 3600.0
    per_host: bool = False
    routine: bool = True
    rule: ClassVar[str] = ""
    places: ClassVar[tuple[str, ...]] = ()

    def needless(self, hand: Hand, info: ObjectInfo) -> str | None:
        """Why nobody needs it, as the end of a sentence; None if somebody does or may."""
        raise NotImplementedError

    def old(self, hand: Hand, info: ObjectInfo) -> bool:
        return hand.store.now() - info.modified.timestamp() > self.age

    def check(self, hand: Hand) -> Iterator[Finding]:
        """The next round goes on where this one ended."""
        for place in self.places if hand.objects is not None else ():
            assert hand.objects is not None
            seen, last = 0, str(hand.memory.get(place, ""))
            for info in hand.objects.list(place, after=last, limit=PORTION):
                if hand.stop():
                    break
                seen, last = seen + 1, info.name
                if reason := self.needless(hand, info):
                    yield Finding(self.rule, info.name, f"{info.name} {reason}.", "remove it")
            hand.memory[place] = last if seen == PORTION else ""

    def mend(self, hand: Hand, finding: Finding) -> bool:
        if hand.objects is None or not any(finding.where.startswith(f"{place}/") for place in self.places):
            return False
        try:
            info = hand.objects.head(finding.where)
        except NoObject:
            return False
        # Looked at again. Safe to repeat: there is nothing left then.
        return self.needless(hand, info) is not None and hand.objects.delete(finding.where)
