"""`waybill sim`: simulate seeds, say how it goes, and print the one line that replays a failure."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable
from importlib.util import find_spec
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from waybill.sim.run import Report


def say_to_stdout(line: str) -> None:
    sys.stdout.write(line + "\n")
    sys.stdout.flush()


def main_sim(
    *,
    seeds: int = 1000,
    seed: int | None = None,
    store: str = "model",
    scenario: str = "all",
    verbose: bool = False,
    processes: int = 1,
    start: int = 0,
    say: Callable[[str], None] = say_to_stdout,
    tell: Callable[[Report], None] = lambda report: None,
) -> int:
    """Exit code 0: all passed; 1: one did not, and the last line replays it; 2: this cannot be simulated, and the
    line says why.

    `seed`: only this one. `verbose`: with `seed` the whole trace, otherwise the progress more often. `tell` is told the
    numbers at the end.
    """
    if find_spec("greenlet") is None:
        say("The simulator needs the package greenlet; install waybill[sim].")
        return 2
    from waybill.sim.backends import BACKENDS
    from waybill.sim.run import ALL, BOTH, Report, cases, run, simulate
    from waybill.sim.scenario import scenarios

    if store not in (*BACKENDS, BOTH):
        say(f"{store} cannot be simulated; --store is one of {', '.join((*sorted(BACKENDS), BOTH))}.")
        return 2
    if scenario not in (*scenarios(), ALL):
        say(f"There is no scenario {scenario}; --scenario is one of {', '.join((*sorted(scenarios()), ALL))}.")
        return 2
    if seed is not None:
        report, began = Report(), time.monotonic()
        for case in cases([seed], store, scenario):
            verdict = simulate(case, trace=verbose)
            report.add(case, verdict)
            for line in verdict.trace:
                say(line)
            say(f"seed {seed}, {case.scenario} on {case.store}: {verdict.problem or 'passed'}")
            if verdict.problem is not None:
                say(str(case))
        report.seconds = time.monotonic() - began
        tell(report)
        return 1 if report.failures else 0
    every = 100 if verbose else 1000
    said = 0

    def progress(report: Report) -> None:
        nonlocal said
        if report.cases // every > said:
            said = report.cases // every
            say(f"{report.cases} simulated, {report.per_minute:,.0f} a minute")

    report = run(range(start, start + seeds), store=store, scenario=scenario, processes=processes, progress=progress)
    tell(report)
    if report.failures:
        failure = report.failures[0]
        say(f"seed {failure.case.seed}: {failure.problem}")
        say(str(failure.case))
        return 1
    faults = ", ".join(f"{count} {name}" for name, count in sorted(report.faults.items())) or "none"
    say(
        f"{report.cases} passed, {report.per_minute:,.0f} a minute, {report.commits} commits, {report.turns} turns; faults: {faults}"
    )
    return 0
