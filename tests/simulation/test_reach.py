"""What the seeds reach: a simulator that never crashes a worker in the middle of a commit proves nothing about commits."""

from __future__ import annotations

from collections import Counter

import pytest

from tests.simulation.engine_scenarios import NAMES, SCENARIOS
from tests.simulation.planted_bugs import ORDERS
from waybill.machine import Machine
from waybill.record import Change, CommitAnswer, CommitGroup, Record, StoreError
from waybill.sim.faults import FAULT_MIXES
from waybill.sim.invariant_checker import InvariantChecker
from waybill.sim.scenario import Scenario
from waybill.sim.seed_runs import SimulationCase, profile_of, run_seeds
from waybill.sim.simulation import Simulation

SEEDS = range(640)
REFUSED = {("stack", "clear")}  # it is always refused: a way to an end, which a table must have


class ReachedPoints:
    def __init__(self, patch: pytest.MonkeyPatch) -> None:
        self.arrows: Counter[tuple[str, str, str, str]] = Counter()
        self.refusals: Counter[str] = Counter()
        self.injected: Counter[tuple[str, str]] = Counter()
        check_change, check_commits, inject_fault = (
            InvariantChecker._check_change,
            InvariantChecker.check_commits,
            Simulation._inject_fault,
        )

        def note_change(checker: InvariantChecker, change: Change, record: Record | None) -> None:
            if change.before is not None and record is not None:
                self.arrows[record.kind, change.before.state, record.state, change.cause] += 1
            check_change(checker, change, record)

        def note_commit(checker: InvariantChecker, groups: list[CommitGroup], answers: list[CommitAnswer]) -> None:
            self.refusals.update(type(answer).__name__ for answer in answers if isinstance(answer, StoreError))
            check_commits(checker, groups, answers)

        def note_fault(simulation: Simulation, fault: str, process: object, where: str) -> None:
            self.injected[fault, where] += 1
            inject_fault(simulation, fault, process, where)  # type: ignore[arg-type]

        patch.setattr(InvariantChecker, "_check_change", note_change)
        patch.setattr(InvariantChecker, "check_commits", note_commit)
        patch.setattr(Simulation, "_inject_fault", note_fault)


@pytest.fixture(scope="module")
def reached() -> ReachedPoints:
    with pytest.MonkeyPatch.context() as patch:
        found = ReachedPoints(patch)
        for scenario in NAMES.values():
            report = run_seeds(SEEDS, scenario=scenario)
            assert not report.failures, f"{report.failures[0].problem}\n{report.failures[0].case}"
    return found


def machines_of(scenario: type[Scenario]) -> tuple[Machine, ...]:
    """The machines of a scenario; none of these needs a world to build them."""
    return scenario.build_machines(None)  # type: ignore[arg-type]


@pytest.mark.parametrize("scenario", SCENARIOS, ids=lambda each: each.name)
def test_every_arrow_that_is_no_action_is_taken(scenario: type[Scenario], reached: ReachedPoints) -> None:
    for machine in machines_of(scenario):
        for arrow in machine.iter_arrows():
            if arrow.by != "person":
                assert reached.arrows[machine.name, arrow.source, arrow.target, arrow.label], f"{machine.name}: {arrow}"


@pytest.mark.parametrize("scenario", SCENARIOS, ids=lambda each: each.name)
def test_every_action_is_taken(scenario: type[Scenario], reached: ReachedPoints) -> None:
    taken = {(kind, cause) for kind, _, _, cause in reached.arrows}
    for machine in machines_of(scenario):
        assert {(machine.name, action.name) for action in machine.actions} - REFUSED <= taken


def test_every_fault_is_injected_and_crashes_hit_before_and_after_each_sort_of_call(reached: ReachedPoints) -> None:
    faults = {fault for mix in FAULT_MIXES.values() for fault in mix}
    assert {fault for fault, _ in reached.injected} == faults
    for call in (
        "commit",
        "claim",
        "renew_session",
        "open_session",
        "get",
        "find",
        "list_holds",
        "release_due_waits",
        "reap_sessions",
    ):
        assert reached.injected["crash", call], f"no crash before {call}"
        assert reached.injected["crash", f"{call} done"], f"no crash after {call}"
    assert reached.injected["crash", "reread idle parents"]
    for side in ("before", "after"):
        assert (
            sum(reached.injected["crash", f"{side} {effect}"] for effect in ("label", "hand over", "tell", "write")) > 2
        )


def test_every_refusal_is_met(reached: ReachedPoints) -> None:
    assert {"Conflict", "ClaimLost", "LockUnavailable", "RecordExists", "CommitTooLarge"} <= set(reached.refusals)


def test_every_fault_mix_is_drawn() -> None:
    seen = Counter(profile_of(SimulationCase(seed, "model", ORDERS)).fault_mix for seed in SEEDS)
    assert set(seen) == set(FAULT_MIXES)
    assert min(seen.values()) >= 10
