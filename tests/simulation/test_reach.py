"""What the seeds reach: a simulator that never crashes a worker in the middle of a commit proves nothing about it."""

from __future__ import annotations

from collections import Counter

import pytest

from waybill.record import Answer, Change, Group, Record, StoreError
from waybill.sim.faults import WEATHER
from waybill.sim.ledger import Ledger
from waybill.sim.run import Case, profile_of, run
from waybill.sim.scenarios import BUILT_IN
from waybill.sim.simulation import Simulation
from waybill.sim.world import World

SEEDS = range(800)


class Reached:
    def __init__(self, patch: pytest.MonkeyPatch) -> None:
        self.arrows: Counter[tuple[str, str, str, str]] = Counter()
        self.refusals: Counter[str] = Counter()
        self.struck: Counter[tuple[str, str]] = Counter()
        changed, committed, strike = Ledger._changed, Ledger.committed, Simulation._strike

        def note_change(ledger: Ledger, change: Change, record: Record | None) -> None:
            if change.before is not None and record is not None:
                self.arrows[record.kind, change.before.state, record.state, change.event] += 1
            changed(ledger, change, record)

        def note_commit(ledger: Ledger, groups: list[Group], answers: list[Answer]) -> None:
            self.refusals.update(type(answer).__name__ for answer in answers if isinstance(answer, StoreError))
            committed(ledger, groups, answers)

        def note_strike(simulation: Simulation, fault: str, process: object, where: str) -> None:
            self.struck[fault, where] += 1
            strike(simulation, fault, process, where)  # type: ignore[arg-type]

        patch.setattr(Ledger, "_changed", note_change)
        patch.setattr(Ledger, "committed", note_commit)
        patch.setattr(Simulation, "_strike", note_strike)


@pytest.fixture(scope="module")
def reached() -> Reached:
    with pytest.MonkeyPatch.context() as patch:
        found = Reached(patch)
        for scenario in BUILT_IN:
            report = run(SEEDS, scenario=scenario.name)
            assert not report.failures, f"{report.failures[0].problem}\n{report.failures[0].case}"
    return found


@pytest.mark.parametrize("scenario", BUILT_IN, ids=lambda each: each.name)
def test_every_arrow_that_no_person_takes_is_taken(scenario: type[World], reached: Reached) -> None:
    for machine in scenario.machines(None):  # type: ignore[attr-defined]
        for arrow in machine.arrows():
            if arrow.by != "person":
                assert reached.arrows[machine.name, arrow.source, arrow.target, arrow.label], f"{machine.name}: {arrow}"


@pytest.mark.parametrize("scenario", BUILT_IN, ids=lambda each: each.name)
def test_every_action_is_taken(scenario: type[World], reached: Reached) -> None:
    taken = {(kind, event) for kind, _, _, event in reached.arrows}
    for machine in scenario.machines(None):  # type: ignore[attr-defined]
        assert {(machine.name, action.name) for action in machine.actions} <= taken


def test_every_fault_strikes_and_crashes_come_before_and_after_each_sort_of_call(reached: Reached) -> None:
    faults = {fault for table in WEATHER.values() for fault in table}
    assert {fault for fault, _ in reached.struck} == faults
    for call in ("commit", "claim", "renew", "open_session", "get", "find", "marks", "wake", "reap"):
        assert reached.struck["crash", call], f"no crash before {call}"
        assert reached.struck["crash", f"{call} done"], f"no crash after {call}"
    assert reached.struck["crash", "look after commit"]
    for side in ("before", "after"):
        assert (
            sum(reached.struck["crash", f"{side} {effect}"] for effect in ("label", "hand over", "tell", "write")) > 2
        )


def test_every_refusal_is_met(reached: Reached) -> None:
    assert {"Conflict", "ClaimLost", "Taken", "Exists", "TooLarge"} <= set(reached.refusals)


def test_every_weather_comes() -> None:
    seen = Counter(profile_of(Case(seed, "model", "orders")).weather for seed in SEEDS)
    assert set(seen) == set(WEATHER)
    assert min(seen.values()) >= 10
