"""Payloads: uploads that no batch needs any more are removed.

An upload lies under ingest/payloads/<batchID>.<random>/: its name leads to its batch, and the batch says which upload
is its payload. It goes

    at once, if its batch is Completed or Deleted, since nothing of it is left to be done after a day, if there is no
    such batch, or the batch has another payload: whoever sent it broke off, or sent it twice

What is Failed or on its way keeps its payload. A look that fails removes nothing.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from waybill.apps.ingest.duties.sweeping import Sweep
from waybill.apps.ingest.service.receiving import PAYLOADS, SCHEME
from waybill.apps.ingest.submission import of_batch
from waybill.duties import Hand
from waybill.objects import ObjectInfo
from waybill.record import NotFound

ENDED = ("Completed", "Deleted")


@dataclass(frozen=True)
class Payloads(Sweep):
    name: str = "ingest-payloads"
    doc: str = "Removes uploads that no batch needs any more."
    rule: ClassVar[str] = "upload without a batch"
    places: ClassVar[tuple[str, ...]] = (PAYLOADS,)

    def needless(self, hand: Hand, info: ObjectInfo) -> str | None:
        batch_id, dot, _ = info.name.removeprefix(f"{PAYLOADS}/").partition("/")[0].rpartition(".")
        if not dot:
            return None  # not named by us
        try:
            batch = hand.store.requested("batch", batch_id)
        except NotFound:
            return "belongs to no batch" if self.old(hand, info) else None
        if of_batch(batch).url != f"{SCHEME}{info.name}":
            return f"is not the one that {batch.ref} was made with" if self.old(hand, info) else None
        return f"belongs to {batch.ref}, which is {batch.state}" if batch.state in ENDED else None
