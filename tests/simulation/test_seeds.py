"""Seeds: few in `make test`, twenty thousand in `make test-long`. A failure names the command that replays it."""

from __future__ import annotations

import pytest

from tests.budget import Budget
from tests.simulation.engine_scenarios import NAMES
from waybill.sim.seed_runs import run_seeds


@pytest.mark.parametrize("part", range(4))
@pytest.mark.parametrize("scenario", NAMES.values())
def test_seeds_on_the_model(scenario: str, part: int, budget: Budget) -> None:
    # few: test_reach.py runs the same scenarios on the model too, and lets none of its seeds fail
    count = budget.pick(small=60, long=20_000) // (4 * len(NAMES))
    _check_seeds("model", scenario, range(part * count, (part + 1) * count))


@pytest.mark.parametrize("scenario", NAMES.values())
def test_seeds_on_sqlite(scenario: str, budget: Budget) -> None:
    _check_seeds("sqlite", scenario, range(budget.pick(small=60, long=2_000) // len(NAMES)))


def _check_seeds(store: str, scenario: str, seeds: range) -> None:
    report = run_seeds(seeds, store=store, scenario=scenario)
    assert report.case_count == len(seeds) or report.failures
    assert not report.failures, f"{report.failures[0].problem}\n{report.failures[0].case}"
    assert report.commit_count > len(seeds)
