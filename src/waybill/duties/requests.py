"""Actions that were asked of a worker which then died or let go before it could apply them."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from waybill.duties.duty import Hand
from waybill.record import MAX_PAGE, Finding


@dataclass(frozen=True)
class Requests:
    name: str = "requests"
    doc: str = "Applies actions that were left with a worker that is gone."
    every: float = 10.0
    per_host: bool = False
    routine: bool = False

    def check(self, hand: Hand) -> Iterator[Finding]:
        for ask in hand.store.asks(MAX_PAGE):
            if ask.ref.kind not in hand.machines:
                continue  # of an application that is not loaded here: another worker knows what to do
            problem = f"{ask.who or 'somebody'} asked {ask.ref} to {ask.action}, and no worker holds it any more."
            yield Finding("request left behind", str(ask.ref), problem, "apply it", ref=ask.ref)

    def mend(self, hand: Hand, finding: Finding) -> bool:
        return hand.engine.pending(MAX_PAGE) > 0  # safe to repeat: the commit that applies a request removes it
