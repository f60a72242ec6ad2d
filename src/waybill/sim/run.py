"""Many seeds, one after the other or in several processes, and the report of them."""

from __future__ import annotations

import logging
import multiprocessing
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from itertools import islice
from typing import Any

from waybill.sim.backends import BACKENDS
from waybill.sim.faults import Profile
from waybill.sim.scenario import scenario_named, scenarios
from waybill.sim.simulation import Simulation, Verdict, random_of

ALL = "all"
BOTH = "both"
CHUNK = 25  # seeds that a process is handed at once


@dataclass(frozen=True)
class Case:
    """One seed, on one store, in one scenario: what a simulation is made of."""

    seed: int
    store: str
    scenario: str

    def __str__(self) -> str:
        return f"waybill sim --seed {self.seed} --store {self.store} --scenario {self.scenario}"


@dataclass(frozen=True)
class Failure:
    case: Case
    problem: str


@dataclass
class Report:
    """What came of it."""

    cases: int = 0
    seconds: float = 0.0
    commits: int = 0
    turns: int = 0
    faults: dict[str, int] = field(default_factory=dict)
    failures: list[Failure] = field(default_factory=list)

    @property
    def per_minute(self) -> float:
        return self.cases / self.seconds * 60 if self.seconds else 0.0

    def add(self, case: Case, verdict: Verdict) -> None:
        self.cases += 1
        self.commits += verdict.commits
        self.turns += verdict.turns
        for name, count in verdict.faults.items():
            self.faults[name] = self.faults.get(name, 0) + count
        if verdict.problem is not None:
            self.failures.append(Failure(case, verdict.problem))

    def join(self, other: Report) -> None:
        """What came of some more, simulated afterwards."""
        self.cases, self.seconds = self.cases + other.cases, self.seconds + other.seconds
        self.commits, self.turns = self.commits + other.commits, self.turns + other.turns
        for name, count in other.faults.items():
            self.faults[name] = self.faults.get(name, 0) + count
        self.failures.extend(other.failures)

    def as_numbers(self) -> dict[str, Any]:
        """For a program that reads it; `failure` is the first, with the line that replays it."""
        first = self.failures[0] if self.failures else None
        return {
            "passed": self.cases - len(self.failures),
            "failed": len(self.failures),
            "per_minute": round(self.per_minute, 1),
            "commits": self.commits,
            "turns": self.turns,
            "faults": dict(sorted(self.faults.items())),
            "failure": {"seed": first.case.seed, "problem": first.problem, "replay": str(first.case)}
            if first is not None
            else None,
        }


def cases(seeds: Iterable[int], store: str = "model", scenario: str = ALL) -> Iterator[Case]:
    """With all scenarios the seeds take them in turn; with both stores each seed is run on each."""
    names = sorted(scenarios()) if scenario == ALL else [scenario]
    stores = sorted(BACKENDS) if store == BOTH else [store]
    for seed in seeds:
        for each in stores:
            yield Case(seed, each, names[seed % len(names)])


def profile_of(case: Case) -> Profile:
    """What a case will be like, without running it."""
    return Profile.draw(random_of(case.seed, case.scenario), scenario_named(case.scenario).aims)


def simulate(case: Case, *, trace: bool = False) -> Verdict:
    with _silence():
        return Simulation(case.seed, scenario_named(case.scenario), case.store, trace=trace).run()


def run(
    seeds: Iterable[int],
    *,
    store: str = "model",
    scenario: str = ALL,
    stop_on_failure: bool = True,
    processes: int = 1,
    progress: Callable[[Report], None] = lambda report: None,
) -> Report:
    """Simulate these seeds. `progress` is called now and then with the report so far."""
    report, began = Report(), time.monotonic()
    todo = cases(seeds, store, scenario)
    for chunk in _in_processes(todo, processes) if processes > 1 else _here(todo):
        for case, verdict in chunk:
            report.add(case, verdict)
        report.seconds = time.monotonic() - began
        progress(report)
        if report.failures and stop_on_failure:
            break
    return report


def _here(todo: Iterator[Case]) -> Iterator[list[tuple[Case, Verdict]]]:
    for case in todo:
        yield [(case, simulate(case))]


def _in_processes(todo: Iterator[Case], processes: int) -> Iterator[list[tuple[Case, Verdict]]]:
    with multiprocessing.get_context("spawn").Pool(processes) as pool:
        yield from pool.imap_unordered(_chunk, iter(lambda: list(islice(todo, CHUNK)), []))


def _chunk(todo: list[Case]) -> list[tuple[Case, Verdict]]:
    return [(case, simulate(case)) for case in todo]


@contextmanager
def _silence() -> Iterator[None]:
    """Simulated workers lose their sessions all the time; nobody needs to be warned."""
    before = logging.root.manager.disable
    logging.disable(logging.CRITICAL)
    try:
        yield
    finally:
        logging.disable(before)
