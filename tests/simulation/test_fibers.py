"""Fibers run one at a time, in the seed's order, on a clock that only they move; after a crash they do nothing more."""

from __future__ import annotations

from dataclasses import dataclass, field
from random import Random

import pytest

from waybill.sim.fibers import START_TIME, TURN_SECONDS, Fiber, FiberScheduler, ProcessCrashed


@dataclass
class ProcessStub:
    name: str = "p"
    is_dead: bool = False
    frozen_until: float = 0.0
    fibers: list[Fiber] = field(default_factory=list)


def run(scheduler: FiberScheduler) -> None:
    scheduler.run(lambda: False, 10_000)


def interleaving(seed: int) -> str:
    scheduler, owner, log = FiberScheduler(Random(seed)), ProcessStub(), []

    def write(letter: str) -> None:
        for _ in range(5):
            log.append(letter)
            scheduler.yield_turn()

    for letter in "abc":
        scheduler.spawn(owner, letter, lambda letter=letter: write(letter))  # type: ignore[misc]
    run(scheduler)
    return "".join(log)


def test_the_seed_decides_which_fiber_is_next() -> None:
    assert sorted(interleaving(1)) == sorted("abc" * 5)
    assert interleaving(1) == interleaving(1)
    assert len({interleaving(seed) for seed in range(20)}) == 20


def test_time_moves_to_the_next_alarm_when_no_fiber_is_ready() -> None:
    scheduler, owner, at = FiberScheduler(Random(0)), ProcessStub(), []

    def sleeper(until: float) -> None:
        scheduler.sleep(START_TIME + until)
        at.append(round(scheduler.now - START_TIME))

    for until in (50.0, 10.0, 3000.0):
        scheduler.spawn(owner, "", lambda until=until: sleeper(until))  # type: ignore[misc]
    run(scheduler)
    assert at == [10, 50, 3000]
    assert scheduler.turns == 6
    assert scheduler.now == pytest.approx(START_TIME + 3000 + TURN_SECONDS)


def test_a_sleeper_made_ready_early_is_not_woken_by_its_old_alarm() -> None:
    scheduler, owner, woken = FiberScheduler(Random(0)), ProcessStub(), []

    def sleeper() -> None:
        scheduler.sleep(START_TIME + 10)
        woken.append(round(scheduler.now - START_TIME))
        scheduler.sleep(START_TIME + 100)
        woken.append(round(scheduler.now - START_TIME))

    fiber = scheduler.spawn(owner, "sleeper", sleeper)
    scheduler.schedule_call(START_TIME + 1, lambda: scheduler.make_ready(fiber))
    run(scheduler)
    assert woken == [1, 100]


def test_a_frozen_process_goes_on_late() -> None:
    scheduler, frozen, other, log = FiberScheduler(Random(0)), ProcessStub(), ProcessStub(), []

    def write(name: str) -> None:
        scheduler.yield_turn()
        log.append((name, round(scheduler.now - START_TIME)))

    scheduler.spawn(frozen, "", lambda: write("frozen"))
    scheduler.spawn(other, "", lambda: write("other"))
    frozen.frozen_until = START_TIME + 30
    run(scheduler)
    assert log == [("other", 0), ("frozen", 30)]


def test_killed_fibers_do_nothing_more() -> None:
    scheduler, owner, living, log = FiberScheduler(Random(0)), ProcessStub(), ProcessStub("q"), []

    def doomed() -> None:
        try:
            scheduler.wait_until_ready()
            log.append("woken")
        except Exception:  # noqa: BLE001 - as a careless step does
            log.append("swallowed")

    def unborn() -> None:
        log.append("unborn")

    def killer() -> None:
        while not owner.fibers[0].glet:
            scheduler.yield_turn()
        owner.is_dead = True
        scheduler.kill_fibers(owner.fibers)
        scheduler.yield_turn()
        log.append("went on")

    owner.fibers.append(scheduler.spawn(owner, "doomed", doomed))
    scheduler.spawn(living, "killer", killer)
    scheduler.schedule_call(START_TIME + 1, lambda: owner.fibers.append(scheduler.spawn(owner, "unborn", unborn)))
    run(scheduler)
    assert log == ["went on"]
    assert owner.fibers[0].has_ended


def test_a_crash_ends_a_fiber_silently_and_other_errors_are_raised() -> None:
    scheduler, owner = FiberScheduler(Random(0)), ProcessStub()

    def crash() -> None:
        raise ProcessCrashed

    def fail() -> None:
        raise ZeroDivisionError

    scheduler.spawn(owner, "", crash)
    run(scheduler)
    scheduler.spawn(owner, "", fail)
    with pytest.raises(ZeroDivisionError):
        run(scheduler)


def test_a_run_that_does_not_end_is_ended() -> None:
    scheduler, owner = FiberScheduler(Random(0)), ProcessStub()

    def forever() -> None:
        while True:
            scheduler.yield_turn()

    scheduler.spawn(owner, "", forever)
    scheduler.run(lambda: False, 100)
    assert scheduler.turns == 100
