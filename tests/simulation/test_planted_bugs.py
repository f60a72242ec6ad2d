"""A test must be able to fail: the simulator finds every planted bug, within a limited number of seeds."""

from __future__ import annotations

import builtins

import pytest

from tests.simulation.planted_bugs import BUGS, Bug
from waybill.sim.seed_runs import run_seeds

PYTHON_ERRORS = tuple(
    f"{name}: " for name, value in vars(builtins).items() if isinstance(value, type) and issubclass(value, Exception)
)


@pytest.mark.parametrize("bug", BUGS, ids=lambda bug: bug.name)
def test_a_planted_bug_is_found(bug: Bug, monkeypatch: pytest.MonkeyPatch) -> None:
    bug.plant(monkeypatch)
    report = run_seeds(bug.seeds(), scenario=bug.scenario)
    assert report.failures, f"{report.case_count} seeds did not find that {bug.name.replace('_', ' ')}"
    problem = report.failures[0].problem
    assert not problem.startswith(PYTHON_ERRORS), f"the patch no longer fits the code: {problem}"
    assert bug.problem, "every bug says how it is found"
    assert bug.problem in problem
    print(f"found after {report.case_count} seeds: {problem}")
