"""A test must be able to fail: the simulator finds every bug that is planted, within so many seeds."""

from __future__ import annotations

import pytest

from tests.simulation.planted import BUGS, Bug
from waybill.sim.run import run


@pytest.mark.parametrize("bug", BUGS, ids=lambda bug: bug.name)
def test_a_planted_bug_is_found(bug: Bug, monkeypatch: pytest.MonkeyPatch) -> None:
    bug.plant(monkeypatch)
    report = run(bug.seeds(), scenario=bug.scenario)
    assert report.failures, f"{report.cases} seeds did not find that {bug.name.replace('_', ' ')}"
    assert bug.says in report.failures[0].problem
    print(f"found after {report.cases} seeds: {report.failures[0].problem}")
