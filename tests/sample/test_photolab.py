"""The application of the guide: its steps, a crash at every call, its walks, its simulation."""

from __future__ import annotations

from pathlib import Path

from photolab.application import PHOTOLAB
from photolab.machine import Film, Picture
from waybill.machine import Machine
from waybill.sim.seed_runs import run_seeds
from waybill.step import New
from waybill.testing import StepTester, walk_machines


def test_a_roll_that_is_too_long_is_refused(tmp_path: Path) -> None:
    tester = StepTester(PHOTOLAB, tmp_path, app={"max_photos": 1})
    roll = tester.submit("roll", (Film(("one", "two")),))
    assert tester.step(roll).after == "Failed"


def test_every_photo_is_developed_wherever_the_process_crashes(tmp_path: Path) -> None:
    with StepTester(PHOTOLAB, tmp_path) as tester:
        roll = tester.submit("roll", (Film(("harbour", "pier")),))
        for point in tester.crash_at_every_call(roll, "Ready"):
            with tester.resources.open_catalogue() as tables:
                assert [row["caption"] for row in tables.query("find", text="")] == ["harbour", "pier"], point


def test_a_roll_that_nobody_collects_is_discarded(tmp_path: Path) -> None:
    tester = StepTester(PHOTOLAB, tmp_path)
    roll = tester.run_until(tester.submit("roll", (Film(("one",)),)), "Ready")
    assert tester.run_maintenance("photolab-unclaimed-rolls") == 0
    tester.advance(91 * 86400)
    assert tester.run_maintenance("photolab-unclaimed-rolls") == 1
    assert tester.get(roll).state == "Discarded"


def test_any_walk_stays_on_the_map() -> None:
    def make(machine: Machine) -> New:
        return New(machine.name, (Film(("one",)),) if machine.name == "roll" else (Picture("one"),))

    walk_machines(PHOTOLAB.machines, make=make)


def test_rolls_in_the_simulator() -> None:
    report = run_seeds(range(20), scenario="photolab.simulation:RollScenario")
    assert not report.failures, report.failures[0]
