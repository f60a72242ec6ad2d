"""How much to measure: enough to trust, or just enough to see that it works (`--quick`)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TypeVar

Count = TypeVar("Count")


@dataclass(frozen=True, slots=True)
class Effort:
    quick: bool = False

    def pick(self, full: Count, quick: Count) -> Count:
        return quick if self.quick else full
