"""A durable catalogue for tests: entries that are nowhere else, with a count kept by triggers and a search in titles."""

from dataclasses import dataclass
from typing import Literal


@dataclass(frozen=True)
class Ledger:
    name: str = "ledger"
    package: str = "tests.index.ledger"
    durable: Literal[True] = True


LEDGER = Ledger()
