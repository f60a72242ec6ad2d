"""Fibers: one at a time, in the seed's order, on a clock that only they move; and a crash lets nobody do anything
more.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from random import Random

import pytest

from waybill.sim.fibers import START, TURN, Crashed, Fiber, Hub


@dataclass
class Owner:
    name: str = "p"
    dead: bool = False
    frozen_until: float = 0.0
    fibers: list[Fiber] = field(default_factory=list)


def run(hub: Hub) -> None:
    hub.run(lambda: False, 10_000)


def interleaving(seed: int) -> str:
    hub, owner, said = Hub(Random(seed)), Owner(), []

    def talk(letter: str) -> None:
        for _ in range(5):
            said.append(letter)
            hub.give_way()

    for letter in "abc":
        hub.spawn(owner, letter, lambda letter=letter: talk(letter))  # type: ignore[misc]
    run(hub)
    return "".join(said)


def test_the_seed_decides_who_is_next() -> None:
    assert sorted(interleaving(1)) == sorted("abc" * 5)
    assert interleaving(1) == interleaving(1)
    assert len({interleaving(seed) for seed in range(20)}) == 20


def test_time_moves_to_the_next_alarm_when_nobody_is_ready() -> None:
    hub, owner, at = Hub(Random(0)), Owner(), []

    def sleeper(until: float) -> None:
        hub.sleep(START + until)
        at.append(round(hub.now - START))

    for until in (50.0, 10.0, 3000.0):
        hub.spawn(owner, "", lambda until=until: sleeper(until))  # type: ignore[misc]
    run(hub)
    assert at == [10, 50, 3000]
    assert hub.turns == 6
    assert hub.now == pytest.approx(START + 3000 + TURN)


def test_a_roused_sleeper_is_not_woken_again_by_its_old_alarm() -> None:
    hub, owner, woken = Hub(Random(0)), Owner(), []

    def sleeper() -> None:
        hub.sleep(START + 10)
        woken.append(round(hub.now - START))
        hub.sleep(START + 100)
        woken.append(round(hub.now - START))

    fiber = hub.spawn(owner, "sleeper", sleeper)
    hub.alarm(START + 1, lambda: hub.rouse(fiber))
    run(hub)
    assert woken == [1, 100]


def test_a_frozen_process_goes_on_late() -> None:
    hub, frozen, other, said = Hub(Random(0)), Owner(), Owner(), []

    def talk(name: str) -> None:
        hub.give_way()
        said.append((name, round(hub.now - START)))

    hub.spawn(frozen, "", lambda: talk("frozen"))
    hub.spawn(other, "", lambda: talk("other"))
    frozen.frozen_until = START + 30
    run(hub)
    assert said == [("other", 0), ("frozen", 30)]


def test_the_buried_do_nothing_more() -> None:
    hub, owner, living, said = Hub(Random(0)), Owner(), Owner("q"), []

    def doomed() -> None:
        try:
            hub.wait()
            said.append("roused")
        except Exception:  # noqa: BLE001 - as a careless step does
            said.append("swallowed")

    def unborn() -> None:
        said.append("unborn")

    def killer() -> None:
        while not owner.fibers[0].glet:
            hub.give_way()
        owner.dead = True
        hub.bury(owner.fibers)
        hub.give_way()
        said.append("went on")

    owner.fibers.append(hub.spawn(owner, "doomed", doomed))
    hub.spawn(living, "killer", killer)
    hub.alarm(START + 1, lambda: owner.fibers.append(hub.spawn(owner, "unborn", unborn)))
    run(hub)
    assert said == ["went on"]
    assert owner.fibers[0].ended


def test_whoever_crashes_itself_ends_in_silence_and_other_errors_come_out() -> None:
    hub, owner = Hub(Random(0)), Owner()

    def crash() -> None:
        raise Crashed

    def fail() -> None:
        raise ZeroDivisionError

    hub.spawn(owner, "", crash)
    run(hub)
    hub.spawn(owner, "", fail)
    with pytest.raises(ZeroDivisionError):
        run(hub)


def test_a_run_that_does_not_end_is_ended() -> None:
    hub, owner = Hub(Random(0)), Owner()

    def forever() -> None:
        while True:
            hub.give_way()

    hub.spawn(owner, "", forever)
    hub.run(lambda: False, 100)
    assert hub.turns == 100
