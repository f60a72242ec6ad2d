"""Amending in the simulator: somebody looks at an object in the inventory, sends one more file for it and has
another deleted.
"""

from __future__ import annotations

from collections.abc import Callable
from random import Random
from typing import TYPE_CHECKING

import msgspec

from waybill.apps.ingest.submission import Submission

if TYPE_CHECKING:
    from waybill.apps.ingest.simulation.around import Surroundings

PRODUCER = "producer/"
ROUNDS = 40  # looks at the inventory, before the person goes without having found an object
PAUSE = 5.0  # seconds from one to the next


class Amendment:
    """One, chosen once: whoever crashed says the same again."""

    def __init__(self, around: Surroundings, said: Submission, rng: Random) -> None:
        self.around, self.rng = around, rng
        self._said, self._chosen = said, False

    def ask(self, send: Callable[[Submission], None]) -> None:
        for _ in range(ROUNDS):
            if self._chosen or self._choose():
                send(self._said)
                return
            self.around.world.simulation.pass_time(PAUSE)

    def _choose(self) -> bool:
        inventory = self.around.catalogue
        for row in inventory.search(most=1).rows:
            files = [file["path"] for file in inventory.files(row["ark"], row["head"], most=1000).rows]
            if theirs := [path.removeprefix(PRODUCER) for path in files if path.startswith(PRODUCER)]:
                gone = (self.rng.choice(theirs),)
                self._said = msgspec.structs.replace(
                    self._said, update=True, primary_id=row["ark"], local_ids=(), deletions=gone
                )
                self._chosen = True
        return self._chosen
