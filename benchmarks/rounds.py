"""Rounds: everything that is compared runs once in each, one after the other, so that a slow minute of the machine
slows down all alike.

Each contestant is a process of its own that prints one line of JSON with its `rate`. What counts is the median over the
rounds; of the variants of one peer, the one with the best median.
"""

from __future__ import annotations

import json
import statistics
import subprocess
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from benchmarks import ROOT

PATIENCE = 900.0  # seconds for one process


class Broken(Exception):
    """A contestant did not get to its end."""


@dataclass(frozen=True, slots=True)
class Contestant:
    """`place` makes a new, empty store for a run and answers the arguments that say where it is."""

    name: str
    module: str
    place: Callable[[], str]
    arguments: tuple[object, ...] = ()

    def run(self) -> dict[str, Any]:
        return child(self.module, self.place(), *self.arguments)


@dataclass(slots=True)
class Results:
    """The reports of one contestant, by round."""

    reports: list[dict[str, Any]] = field(default_factory=list)

    def median(self, name: str = "rate") -> float:
        return float(statistics.median(report[name] for report in self.reports))

    def best(self, name: str = "rate") -> float:
        return float(max(report[name] for report in self.reports))


def child(module: str, *arguments: object) -> dict[str, Any]:
    """Run a module as a process; the last line that it prints is its report."""
    command = [sys.executable, "-m", module, *(str(argument) for argument in arguments)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=PATIENCE, cwd=ROOT)
    lines = done.stdout.strip().splitlines()
    if done.returncode != 0 or not lines:
        raise Broken(
            f"{' '.join(command[1:])} ended with code {done.returncode}:\n{(done.stdout + done.stderr)[-2000:]}"
        )
    report: dict[str, Any] = json.loads(lines[-1])
    return report


def rounds(
    contestants: Sequence[Contestant], count: int, aside: Callable[[], None] = lambda: None
) -> Mapping[str, Results]:
    """Run them all, `count` times over. `aside` runs at the start of each round: the limit of that moment is noted
    there.
    """
    results = {contestant.name: Results() for contestant in contestants}
    for _ in range(count):
        aside()
        for contestant in contestants:
            results[contestant.name].reports.append(contestant.run())
    return results


def strongest(results: Mapping[str, Results], prefix: str) -> tuple[str, Results]:
    """The best variant of a peer: those whose name begins with `prefix`."""
    return max(
        ((name, each) for name, each in results.items() if name.startswith(prefix)), key=lambda pair: pair[1].median()
    )
