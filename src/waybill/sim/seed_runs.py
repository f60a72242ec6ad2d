"""Many seeds, one after the other or in several processes, and their report."""

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
from waybill.sim.faults import SimulationProfile
from waybill.sim.scenario import get_scenario, list_scenario_names
from waybill.sim.simulation import Simulation, SimulationVerdict, random_of

ALL_SCENARIOS = "all"
BOTH_STORES = "both"
SEEDS_PER_CHUNK = 25  # that a process gets at once


@dataclass(frozen=True)
class SimulationCase:
    """One seed, on one store, in one scenario. Its text is the command that replays it."""

    seed: int
    store: str
    scenario: str

    def __str__(self) -> str:
        return f"waybill sim --seed {self.seed} --store {self.store} --scenario {self.scenario}"


@dataclass(frozen=True)
class SimulationFailure:
    case: SimulationCase
    problem: str


@dataclass
class SimulationReport:
    """The sums over all cases, and the failures."""

    case_count: int = 0
    seconds: float = 0.0
    commit_count: int = 0
    turn_count: int = 0
    fault_counts: dict[str, int] = field(default_factory=dict)
    failures: list[SimulationFailure] = field(default_factory=list)

    @property
    def per_minute(self) -> float:
        return self.case_count / self.seconds * 60 if self.seconds else 0.0

    def add_verdict(self, case: SimulationCase, verdict: SimulationVerdict) -> None:
        self.case_count += 1
        self.commit_count += verdict.commit_count
        self.turn_count += verdict.turn_count
        for name, count in verdict.fault_counts.items():
            self.fault_counts[name] = self.fault_counts.get(name, 0) + count
        if verdict.problem is not None:
            self.failures.append(SimulationFailure(case, verdict.problem))

    def merge_report(self, other: SimulationReport) -> None:
        """Add the report of further cases, simulated afterwards."""
        self.case_count, self.seconds = self.case_count + other.case_count, self.seconds + other.seconds
        self.commit_count, self.turn_count = self.commit_count + other.commit_count, self.turn_count + other.turn_count
        for name, count in other.fault_counts.items():
            self.fault_counts[name] = self.fault_counts.get(name, 0) + count
        self.failures.extend(other.failures)

    def to_numbers(self) -> dict[str, Any]:
        """For programs; `failure` is the first, with the command that replays it."""
        first = self.failures[0] if self.failures else None
        return {
            "passed": self.case_count - len(self.failures),
            "failed": len(self.failures),
            "per_minute": round(self.per_minute, 1),
            "commits": self.commit_count,
            "turns": self.turn_count,
            "faults": dict(sorted(self.fault_counts.items())),
            "failure": {"seed": first.case.seed, "problem": first.problem, "replay": str(first.case)}
            if first is not None
            else None,
        }


def generate_cases(
    seeds: Iterable[int], store: str = "model", scenario: str = ALL_SCENARIOS
) -> Iterator[SimulationCase]:
    """With all scenarios the seeds take turns; with both stores each seed runs on each."""
    names = list_scenario_names() if scenario == ALL_SCENARIOS else [scenario]
    stores = sorted(BACKENDS) if store == BOTH_STORES else [store]
    for seed in seeds:
        for store_name in stores:
            yield SimulationCase(seed, store_name, names[seed % len(names)])


def profile_of(case: SimulationCase) -> SimulationProfile:
    """The profile of a case, without running it."""
    scenario = get_scenario(case.scenario)
    return SimulationProfile.draw(random_of(case.seed, scenario.name), scenario.target_points)


def simulate(case: SimulationCase, *, trace: bool = False) -> SimulationVerdict:
    with _silence_logging():
        return Simulation(case.seed, get_scenario(case.scenario), case.store, trace=trace).run()


def run_seeds(
    seeds: Iterable[int],
    *,
    store: str = "model",
    scenario: str = ALL_SCENARIOS,
    stop_on_failure: bool = True,
    processes: int = 1,
    progress: Callable[[SimulationReport], None] = lambda report: None,
) -> SimulationReport:
    """Simulate these seeds. `progress` is called with the report so far."""
    report, began = SimulationReport(), time.monotonic()
    cases = generate_cases(seeds, store, scenario)
    for chunk in _run_in_processes(cases, processes) if processes > 1 else _run_serially(cases):
        for case, verdict in chunk:
            report.add_verdict(case, verdict)
        report.seconds = time.monotonic() - began
        progress(report)
        if report.failures and stop_on_failure:
            break
    return report


def _run_serially(cases: Iterator[SimulationCase]) -> Iterator[list[tuple[SimulationCase, SimulationVerdict]]]:
    for case in cases:
        yield [(case, simulate(case))]


def _run_in_processes(
    cases: Iterator[SimulationCase], processes: int
) -> Iterator[list[tuple[SimulationCase, SimulationVerdict]]]:
    with multiprocessing.get_context("spawn").Pool(processes) as pool:
        yield from pool.imap_unordered(_simulate_chunk, iter(lambda: list(islice(cases, SEEDS_PER_CHUNK)), []))


def _simulate_chunk(cases: list[SimulationCase]) -> list[tuple[SimulationCase, SimulationVerdict]]:
    return [(case, simulate(case)) for case in cases]


@contextmanager
def _silence_logging() -> Iterator[None]:
    """Simulated workers lose their sessions all the time: their warnings say nothing."""
    before = logging.root.manager.disable
    logging.disable(logging.CRITICAL)
    try:
        yield
    finally:
        logging.disable(before)
