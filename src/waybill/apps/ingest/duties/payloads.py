"""Payloads: uploads that no batch needs any more are removed.

An upload lies under ingest/payloads/<batchID>.<random>/: its name leads to its batch, and the batch says which upload is its payload.
It goes

    at once, if its batch is Completed or Deleted, since nothing of it is left to be done
    after a day, if there is no such batch, or the batch has another payload: whoever sent it broke off, or sent it twice

What is Failed or on its way keeps its payload. A look that fails removes nothing.
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from dataclasses import dataclass

from waybill.apps.ingest.service.receiving import PAYLOADS, SCHEME
from waybill.apps.ingest.submission import of_batch
from waybill.duties import Hand
from waybill.objects import NotFound as NoObject
from waybill.objects import ObjectInfo, Objects
from waybill.record import Finding, NotFound

PORTION = 5000  # uploads looked at in one round
ENDED = ("Completed", "Deleted")


@dataclass(frozen=True)
class Payloads:
    age: float = 86400.0  # seconds before an upload that nobody refers to counts as left behind
    name: str = "ingest-payloads"
    doc: str = "Removes uploads that no batch needs any more."
    every: float = 3600.0
    per_host: bool = False

    def check(self, hand: Hand) -> Iterator[Finding]:
        """A portion with each round; the next one goes on where this one ended."""
        if hand.objects is None:
            return
        seen, last = 0, str(hand.memory.get("after", ""))
        for info in hand.objects.list(PAYLOADS, after=last, limit=PORTION):
            if hand.stop():
                break
            seen, last = seen + 1, info.name
            if reason := self._needless(hand, info):
                yield Finding("upload without a batch", info.name, f"the upload {info.name} {reason}.", "remove it")
        hand.memory["after"] = last if seen == PORTION else ""

    def mend(self, hand: Hand, finding: Finding) -> bool:
        if hand.objects is None:
            return False
        info = _head(hand.objects, finding.where)
        # Looked at again: a batch may have been made with it meanwhile. Safe to repeat: there is nothing left then.
        return info is not None and self._needless(hand, info) is not None and hand.objects.delete(finding.where)

    def _needless(self, hand: Hand, info: ObjectInfo) -> str | None:
        """Why nobody needs it, or None if somebody does or may."""
        batch_id, dot, _ = info.name.removeprefix(f"{PAYLOADS}/").partition("/")[0].rpartition(".")
        if not dot:
            return None  # not named by us
        try:
            batch = hand.store.requested("batch", batch_id)
        except NotFound:
            return "belongs to no batch" if self._old(info) else None
        if of_batch(batch).url != f"{SCHEME}{info.name}":
            return f"is not the one that {batch.ref} was made with" if self._old(info) else None
        return f"belongs to {batch.ref}, which is {batch.state}" if batch.state in ENDED else None

    def _old(self, info: ObjectInfo) -> bool:
        return time.time() - info.modified.timestamp() > self.age


def _head(objects: Objects, name: str) -> ObjectInfo | None:
    try:
        return objects.head(name)
    except NoObject:
        return None
