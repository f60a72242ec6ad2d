"""How much a test may do: little in `make test`, all of it in `make test-long` (WAYBILL_BUDGET=long).

A test whose value grows with the number of cases takes its count from here:

    for seed in range(budget.pick(small=50, long=20_000)): ...

What is tested is the same in both; only how often.
"""

import os
from dataclasses import dataclass
from typing import TypeVar

VARIABLE = "WAYBILL_BUDGET"
Count = TypeVar("Count")


@dataclass(frozen=True)
class Budget:
    name: str

    def pick(self, *, small: Count, long: Count) -> Count:
        return long if self.name == "long" else small


def from_environment() -> Budget:
    name = os.environ.get(VARIABLE, "small")
    if name not in ("small", "long"):
        raise ValueError(f"{VARIABLE} is {name!r}: it may be 'small' (the default) or 'long'.")
    return Budget(name)
