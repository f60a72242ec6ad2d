"""`waybill sim`: simulate seeds, report progress, and print the command that replays a failure."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable
from importlib.util import find_spec
from typing import TYPE_CHECKING

from waybill.errors import NotFound

if TYPE_CHECKING:
    from waybill.sim.seed_runs import SimulationReport


def print_line(line: str) -> None:
    sys.stdout.write(line + "\n")
    sys.stdout.flush()


def run_sim_command(
    *,
    seeds: int = 1000,
    seed: int | None = None,
    store: str = "model",
    scenario: str = "all",
    verbose: bool = False,
    processes: int = 1,
    start: int = 0,
    write_line: Callable[[str], None] = print_line,
    on_report: Callable[[SimulationReport], None] = lambda report: None,
) -> int:
    """Returns the exit code: 0 if all passed; 1 if one failed, and the last line replays it; 2 if this cannot be
    simulated, and the line says why.

    `seed`: only this one. `verbose`: with `seed` the whole trace, otherwise more frequent progress. `on_report` is called
    with the report at the end.
    """
    if find_spec("greenlet") is None:
        write_line("The simulator needs the package greenlet; install waybill-engine[sim].")
        return 2
    from waybill.sim.backends import BACKENDS
    from waybill.sim.scenario import get_scenario, list_scenario_names
    from waybill.sim.seed_runs import ALL_SCENARIOS, BOTH_STORES, SimulationReport, generate_cases, run_seeds, simulate

    if store not in (*BACKENDS, BOTH_STORES):
        write_line(f"{store} cannot be simulated; --store is one of {', '.join((*sorted(BACKENDS), BOTH_STORES))}.")
        return 2
    try:
        if scenario != ALL_SCENARIOS:
            get_scenario(scenario)
    except NotFound as unknown:
        names = ", ".join((*list_scenario_names(), ALL_SCENARIOS))
        write_line(
            str(unknown) if ":" in scenario else f"There is no scenario {scenario}; --scenario is one of {names}."
        )
        return 2
    if seed is not None:
        report, began = SimulationReport(), time.monotonic()
        for case in generate_cases([seed], store, scenario):
            verdict = simulate(case, trace=verbose)
            report.add_verdict(case, verdict)
            for line in verdict.trace_lines:
                write_line(line)
            write_line(f"seed {seed}, {case.scenario} on {case.store}: {verdict.problem or 'passed'}")
            if verdict.problem is not None:
                write_line(str(case))
        report.seconds = time.monotonic() - began
        on_report(report)
        return 1 if report.failures else 0
    every = 100 if verbose else 1000
    reported = 0

    def report_progress(report: SimulationReport) -> None:
        nonlocal reported
        if report.case_count // every > reported:
            reported = report.case_count // every
            write_line(f"{report.case_count} simulated, {report.per_minute:,.0f} a minute")

    report = run_seeds(
        range(start, start + seeds), store=store, scenario=scenario, processes=processes, progress=report_progress
    )
    on_report(report)
    if report.failures:
        failure = report.failures[0]
        write_line(f"seed {failure.case.seed}: {failure.problem}")
        write_line(str(failure.case))
        return 1
    faults = ", ".join(f"{count} {name}" for name, count in sorted(report.fault_counts.items())) or "none"
    write_line(
        f"{report.case_count} passed, {report.per_minute:,.0f} a minute, {report.commit_count} commits, "
        f"{report.turn_count} turns; faults: {faults}"
    )
    return 0
