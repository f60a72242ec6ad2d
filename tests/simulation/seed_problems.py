"""Seeds of one scenario, as the tests of an application run them."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from waybill.sim.scenario import Scenario
from waybill.sim.simulation import Simulation


def find_seed_problems(scenario: type[Scenario], store: str, seeds: Iterable[int]) -> Iterator[str]:
    """The problems of these seeds, each with the command that replays it."""
    for seed in seeds:
        verdict = Simulation(seed, scenario, store).run()
        if verdict.problem:
            yield f"waybill sim --scenario {scenario.name} --store {store} --seed {seed}: {verdict.problem}"


def start_at(first: int, count: int) -> list[int]:
    """All seeds below `count`, beginning with one in which a bug showed when it was planted. After a change of the
    scenario another seed may be the one.
    """
    return [*range(first, count), *range(first)]
