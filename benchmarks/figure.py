"""A figure: what was measured, beside what it is compared with, and the goal. One line each, in one form.

    engine.sqlite.dbos: 4,180 lifecycles/s, 41.3 lifecycles/s, 101.2x, at least 100x
    latency.sqlite.p95: 58.1 ms, -, -, at most 100 ms
    limit.fsync: 3,380 /s, -, -, -

The fields are ours, the peer's, the ratio and the goal; "-" where there is none. A figure that misses its goal ends in
"MISSED", and one that has something to add says it behind a "#".
"""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Any, Literal

Sense = Literal["ratio at least", "ratio at most", "at most"]


@dataclass(frozen=True, slots=True)
class Figure:
    name: str
    ours: float
    unit: str
    peer: float | None = None
    goal: float | None = None
    sense: Sense = "ratio at least"
    note: str = ""

    @property
    def ratio(self) -> float | None:
        return None if self.peer is None else self.ours / self.peer if self.peer else float("inf")

    @property
    def missed(self) -> bool:
        if self.goal is None:
            return False
        if self.sense == "at most":
            return self.ours > self.goal
        if self.ratio is None:
            raise ValueError(f"{self.name} has a goal for a ratio, and no peer.")
        return self.ratio < self.goal if self.sense == "ratio at least" else self.ratio > self.goal

    def line(self) -> str:
        peer = "-" if self.peer is None else f"{short(self.peer)} {self.unit}"
        ratio = "-" if self.ratio is None else f"{short(self.ratio)}x"
        ending = " MISSED" if self.missed else ""
        note = f"  # {self.note}" if self.note else ""
        return f"{self.name}: {short(self.ours)} {self.unit}, {peer}, {ratio}, {self._goal()}{ending}{note}"

    def _goal(self) -> str:
        if self.goal is None:
            return "-"
        return (
            f"at most {self.goal:g} {self.unit}"
            if self.sense == "at most"
            else f"{self.sense.removeprefix('ratio ')} {self.goal:g}x"
        )

    def json(self) -> dict[str, Any]:
        return {**asdict(self), "ratio": self.ratio, "missed": self.missed}


def short(number: float) -> str:
    """Three figures are all that such measurements are worth."""
    if number >= 1000:
        return f"{number:,.0f}"
    return f"{number:.3g}" if number >= 0.001 or number == 0 else f"{number:.1e}"
