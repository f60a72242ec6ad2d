"""Seeds: few in `make test`, twenty thousand in `make test-long`. A failure names the one line that replays it."""

from __future__ import annotations

import pytest

from tests.budget import Budget
from waybill.sim.run import run
from waybill.sim.scenarios import BUILT_IN

NAMES = [each.name for each in BUILT_IN]


@pytest.mark.parametrize("slice_", range(4))
@pytest.mark.parametrize("scenario", NAMES)
def test_seeds_on_the_model(scenario: str, slice_: int, budget: Budget) -> None:
    count = budget.pick(small=400, long=20_000) // (4 * len(NAMES))
    _pass("model", scenario, range(slice_ * count, (slice_ + 1) * count))


@pytest.mark.parametrize("scenario", NAMES)
def test_seeds_on_sqlite(scenario: str, budget: Budget) -> None:
    _pass("sqlite", scenario, range(budget.pick(small=60, long=2_000) // len(NAMES)))


def _pass(store: str, scenario: str, seeds: range) -> None:
    report = run(seeds, store=store, scenario=scenario)
    assert report.cases == len(seeds) or report.failures
    assert not report.failures, f"{report.failures[0].problem}\n{report.failures[0].case}"
    assert report.commits > len(seeds)
