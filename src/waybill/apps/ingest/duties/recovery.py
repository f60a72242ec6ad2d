"""Recovery: what interrupted writes left in storage is finished or removed, some objects in each round, all of them
again and again.

Nobody's write is disturbed: only what is older than any write can take is removed, and what is written again is what
the object's own root inventory says.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from waybill.apps.ingest.outfit import Outfit
from waybill.apps.ingest.storage import OcflStorage
from waybill.duties import Hand
from waybill.record import Finding

DAY = 86400.0


@dataclass(frozen=True)
class Recovery:
    older_than: float = 7 * DAY  # seconds; a write that takes longer is given up by whoever waits for it
    portion: int = 200  # objects in one round
    name: str = "ingest-recovery"
    doc: str = "Finishes or removes what interrupted writes left in storage."
    every: float = 600.0
    per_host: bool = False
    routine: bool = False

    def check(self, hand: Hand) -> Iterator[Finding]:
        outfit: Outfit = hand.outfit("job")
        storage = outfit.storage
        if not isinstance(storage, OcflStorage):
            return  # another service looks after its own
        # Found and done in one, as with the store's upkeep. Safe to repeat: a second time there is nothing left to do.
        cursor, done = storage.recover_some(self.older_than, str(hand.memory.get("cursor", "")), most=self.portion)
        hand.memory["cursor"] = cursor  # empty: begin again
        for field, count in (
            ("mended", sum(len(d.mended) for _, d in done)),
            ("removed", sum(len(d.removed) for _, d in done)),
        ):
            if count:
                hand.memory[field] = int(hand.memory.get(field, 0)) + count
        for at, recovered in done:
            if recovered.trouble:
                yield Finding(
                    "damaged object", at, recovered.trouble, "look at it: `waybill ingest audit`", mendable=False
                )

    def mend(self, hand: Hand, finding: Finding) -> bool:
        return False
