"""Staged: bytes that another service sent for a deposit, and never finished, are removed.

They lie under ingest/staged/, each deposit's in a place of its own, until the deposit is stored (storage/counter.py). A
place in which nothing was written for a day belongs to a client that broke off; should it come back, it sends them
again. A place is judged by the newest of what lies in it: a deposit may take days to come, and its first bytes are
needed to the end.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import groupby
from typing import ClassVar

from waybill.apps.ingest.duties.sweeping import PORTION, Sweep
from waybill.apps.ingest.storage.wire import STAGED
from waybill.duties import Hand
from waybill.objects import ObjectInfo
from waybill.record import Finding


@dataclass(frozen=True)
class Staged(Sweep):
    name: str = "ingest-staged"
    doc: str = "Removes what other services sent for a deposit and never finished."
    rule: ClassVar[str] = "bytes without a deposit"
    places: ClassVar[tuple[str, ...]] = (STAGED,)

    def left(self, hand: Hand, newest: ObjectInfo) -> bool:
        """Whether a place is left whose newest object this is."""
        return self.old(hand, newest)

    def check(self, hand: Hand) -> Iterator[Finding]:
        """A finding for each place, which is looked at whole; the next round goes on after the last place of this
        one.
        """
        if hand.objects is None:
            return
        seen = 0
        there = hand.objects.list(STAGED, after=str(hand.memory.get(STAGED, "")))
        for place, infos in groupby(there, _place_of):
            newest = last = None
            for last in infos:
                seen, newest = seen + 1, max(newest or last, last, key=_written)
            assert newest is not None
            assert last is not None
            if self.left(hand, newest):
                yield Finding(self.rule, place, f"{place} was sent and never stored.", "remove it")
            if seen >= PORTION or hand.stop():
                hand.memory[STAGED] = last.name
                return
        hand.memory[STAGED] = ""

    def mend(self, hand: Hand, finding: Finding) -> bool:
        """Looked at again before anything goes. Safe to repeat, and to end anywhere: what is left of the place is as
        old as it was.
        """
        if hand.objects is None or _place_of_name(finding.where) != finding.where:
            return False
        newest = max(hand.objects.list(finding.where), key=_written, default=None)
        if newest is None or not self.left(hand, newest):
            return False
        for info in hand.objects.list(finding.where):
            if hand.stop():
                return False
            hand.objects.delete(info.name)
        return True


def _written(info: ObjectInfo) -> float:
    return info.modified.timestamp()


def _place_of(info: ObjectInfo) -> str:
    return _place_of_name(info.name)


def _place_of_name(name: str) -> str:
    place, _, _ = name.removeprefix(f"{STAGED}/").partition("/")
    return f"{STAGED}/{place}"
