"""Steps in a test, and crashes at every call that they make."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from waybill.machine import LockFamily, Machine, end, join, work
from waybill.record import Conflict, Record
from waybill.rules import Machines
from waybill.step import Done, Fail, New, Outcome, StepContext, Wait
from waybill.testing import StepTester, walk_machines

Step = Any


def build_loaf(bake: Step, *, check: Step = lambda loaf, ctx: Done()) -> Machine:
    return Machine(
        name="loaf",
        plural="loaves",
        prefix="lf",
        description="A loaf.",
        states=(
            work("Baking", to="Checking", description="In the oven.", max_tries=2, locks=("oven",)),
            work("Checking", to="Baked", description="On the table."),
            end("Baked", description="Bread."),
        ),
        steps={"Baking": bake, "Checking": check},
        locks=(LockFamily("oven", "One loaf each."),),
    )


class Oven:
    """A service outside: it bakes what it is given, as often as it is asked."""

    def __init__(self) -> None:
        self.baked: list[str] = []

    def bake(self, name: str) -> None:
        self.baked.append(name)


def test_one_step(tmp_path: Path) -> None:
    tester = StepTester([build_loaf(lambda loaf, ctx: Done({"loaf": {"weight": 750}}))], tmp_path)
    loaf = tester.submit("loaf")
    assert tester.step(loaf).after == "Checking"
    assert tester.get(loaf).documents["loaf"]["weight"] == 750


def test_a_step_saves_writes_files_and_objects_and_sees_the_clock(tmp_path: Path) -> None:
    def bake(loaf: Record, ctx: StepContext) -> Outcome:
        if "begun" not in loaf.documents:
            ctx.save({"begun": {"at": ctx.now()}}, locks=["oven/1"])
            (ctx.workdir / "dough").write_text("flour")
            ctx.objects.put("loaves/one", b"bread")
            return Wait(60)
        assert ctx.now() - loaf.documents["begun"]["at"] == 60
        return Done()

    with StepTester([build_loaf(bake)], tmp_path) as tester:
        loaf = tester.submit("loaf")
        assert tester.step(loaf).cause == "wait"
        assert [lock.name for lock in tester.store.list_locks()] == ["oven/1"]
        with pytest.raises(Conflict, match="waits for another 60 s"):
            tester.step(loaf)
        assert tester.run_until_idle() == 0
        tester.advance(60)
        assert tester.run_until_idle() == 2
        assert tester.get(loaf).state == "Baked"
        assert tester.environment.objects.head("loaves/one").size == 5


def test_a_wait_is_passed_by_the_clock(tmp_path: Path) -> None:
    def bake(loaf: Record, ctx: StepContext) -> Outcome:
        return Wait(3600, documents={"seen": {}}) if "seen" not in loaf.documents else Done()

    tester = StepTester([build_loaf(bake)], tmp_path)
    began = tester.now()
    assert tester.run_until(tester.submit("loaf"), "Baked").state == "Baked"
    assert tester.now() == began + 3600


def test_errors_and_actions(tmp_path: Path) -> None:
    def bake(loaf: Record, ctx: StepContext) -> Outcome:
        if not loaf.resume_count:
            raise OSError("the oven is cold") if not loaf.error_count else Fail("it is burnt")
        return Done()

    tester = StepTester([build_loaf(bake)], tmp_path)
    loaf = tester.submit("loaf")
    assert tester.step(loaf).cause == "retry"
    assert tester.run_until(loaf, "Failed").message == "it is burnt"
    assert tester.act(loaf, "resume").record.state == "Baking"
    tester.run_until(loaf, "Baked")


def test_a_record_that_does_not_get_there_shows_its_history(tmp_path: Path) -> None:
    def bake(loaf: Record, ctx: StepContext) -> Outcome:
        raise Fail("it is burnt")

    tester = StepTester([build_loaf(bake)], tmp_path)
    with pytest.raises(AssertionError, match=r"is Failed, not .*it is burnt(.|\n)*Baking -> Failed fail"):
        tester.run_until(tester.submit("loaf"), "Baked")


def bake_carefully(loaf: Record, ctx: StepContext) -> Outcome:
    """Asks the oven only when no earlier run has asked: the request is saved before it is made."""
    ctx.report_progress(0, 1)
    (ctx.workdir / "dough").write_text("flour")
    ctx.objects.put(f"loaves/{loaf.id}", b"bread")
    if loaf.id not in ctx.resources.baked:
        ctx.resources.bake(loaf.id)
    ctx.save({"oven": {"asked": True}})
    return Done()


def bake_twice(loaf: Record, ctx: StepContext) -> Outcome:
    if "oven" not in loaf.documents:
        ctx.save({"oven": {"asked": True}})  # too early: a crash before the next line loses the loaf
        ctx.resources.bake(loaf.id)
    return Done()


def test_a_crash_at_every_call(tmp_path: Path) -> None:
    ovens: list[Oven] = [Oven()]
    with StepTester([build_loaf(bake_carefully)], tmp_path, resources=lambda: ovens[-1]) as tester:
        loaf = tester.submit("loaf")
        points = []
        for point in tester.crash_at_every_call(loaf, "Baked"):
            assert tester.get(loaf).state == "Baked"
            assert ovens[-1].baked == [loaf.id], point
            with tester.environment.objects.get(f"loaves/{loaf.id}") as body:
                assert body.read() == b"bread"
            ovens.append(Oven())  # the next run begins with an oven that nobody has asked
            points.append(point)
    for call in ("store.commit", "store.claim", "objects.put", "resources.bake", "ctx.workdir", "ctx.report_progress"):
        assert {f"before {call}", f"after {call}"} <= set(points)
    assert points.count("after store.commit") == 3, "one for what is saved, one for each step"


def test_one_step_crashes_and_runs_again(tmp_path: Path) -> None:
    tester = StepTester([build_loaf(bake_carefully)], tmp_path, resources=Oven)
    loaf = tester.submit("loaf")
    points = []
    for point in tester.crash_at_every_call(loaf):
        assert tester.get(loaf).state == "Checking", point
        points.append(point)
    assert points.count("after store.commit") == 2


def test_a_step_that_loses_work_is_found(tmp_path: Path) -> None:
    ovens: list[Oven] = [Oven()]
    tester = StepTester([build_loaf(bake_twice)], tmp_path, resources=lambda: ovens[-1])
    loaf = tester.submit("loaf")
    wrong = []
    for point in tester.crash_at_every_call(loaf, "Baked"):
        if ovens[-1].baked != [loaf.id]:
            wrong.append(point)
        ovens.append(Oven())
    assert {"after store.commit", "before resources.bake"} <= set(wrong)


def test_crashes_on_sqlite(tmp_path: Path) -> None:
    url = f"sqlite:///{tmp_path}/data/waybill.db"
    with StepTester([build_loaf(lambda loaf, ctx: Done())], tmp_path, store=url) as tester:
        loaf = tester.submit("loaf")
        points = list(tester.crash_at_every_call(loaf, "Baked"))
        assert points.count("after store.commit") == 2


def test_children_and_maintenance(tmp_path: Path) -> None:
    order = Machine(
        name="order",
        plural="orders",
        prefix="or",
        description="Some loaves.",
        steps={"Taking": lambda order, ctx: Done(spawn=(New("loaf"), New("loaf")))},
        states=(
            work("Taking", to="Waiting", description="Makes its loaves.", on_fail=None),
            join("Waiting", to="Ready", description="They are baked."),
            end("Ready", description="All are baked.", keep=60),
        ),
    )
    loaf = build_loaf(lambda loaf, ctx: Done())
    child = Machine(**{**_fields_of(loaf), "parent": "order"})
    tester = StepTester([order, child], tmp_path)
    ordered = tester.submit("order")
    for _ in tester.crash_at_every_call(ordered, "Ready"):
        assert [loaf.state for loaf in tester.find_all("loaf")] == ["Baked", "Baked"]
    assert tester.run_maintenance("retention") == 0
    tester.advance(61)
    assert tester.run_maintenance("retention") == 1
    assert tester.find_all("order") == tester.find_all("loaf") == []


def _fields_of(machine: Machine) -> dict[str, Any]:
    return {
        name: getattr(machine, name)
        for name in ("name", "plural", "prefix", "description", "states", "actions", "locks", "steps")
    }


def test_a_walk_finds_a_machine_that_differs_from_its_records(monkeypatch: pytest.MonkeyPatch) -> None:
    machine = build_loaf(lambda loaf, ctx: Done())
    walk_machines([machine])
    monkeypatch.setattr("waybill.rules.find_illegal_transition", lambda machine, lines: "Baking -> Baked")
    with pytest.raises(AssertionError, match="Baking -> Baked"):
        walk_machines([machine])
    assert Machines.from_machines([machine])
