"""The world outside the store: the side effects of steps, and the files of hosts.

A step's side effect goes through `perform_effect`, which is a point before and after it: the process may crash there, be
frozen, or let others run. Effects are counted by name and key, so that a scenario can say how often each may happen.
`disks` are the working folders of the hosts.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from random import Random
from typing import TYPE_CHECKING, Any

from waybill.record import Record, Ref
from waybill.sim.invariant_checker import InvariantViolation

if TYPE_CHECKING:
    from waybill.sim.simulation import Simulation


EFFECT_WEIGHT = 10.0  # of a fault where something is done that cannot be undone

_current_worlds: list[SimulatedWorld] = []


def get_current_world() -> SimulatedWorld:
    """The world of the running simulation: for steps and fakes that are made before it."""
    return _current_worlds[-1]


class SimulatedWorld:
    def __init__(self, simulation: Simulation, rng: Random) -> None:
        self.simulation, self.rng = simulation, rng
        self.effects: dict[tuple[str, str], int] = {}
        self.disks: dict[str, dict[Ref, None]] = {}
        self.occupants: dict[str, Ref] = {}  # the record in each place where only one may be
        self.transient_error_rate = 0.0  # how likely a step meets a transient error
        self.is_instant = rng.random() < 0.3  # everything takes no time

    @contextmanager
    def __call__(self) -> Iterator[None]:
        """Make this the current world while the simulation runs."""
        _current_worlds.append(self)
        try:
            yield
        finally:
            _current_worlds.pop()

    def reach_point(self, name: str) -> None:
        """A point where the process may crash, be frozen, or let others run. Outside of a fiber, when all processes have
        stopped, nothing happens.
        """
        if self.simulation.scheduler.current is not None:
            self.simulation.reach_point(name)

    def perform_effect(self, name: str, key: str) -> int:
        """Do a side effect once more; returns how often it has been done."""
        self.simulation.reach_point(f"before {name}", EFFECT_WEIGHT)
        count = self.effects[name, key] = self.effects.get((name, key), 0) + 1
        self.simulation.note(f"{name} {key} ({count})")
        self.simulation.reach_point(f"after {name}", EFFECT_WEIGHT)
        return count

    def count_effects(self, name: str, key: str) -> int:
        return self.effects.get((name, key), 0)

    def spend_time(self, seconds: float) -> None:
        """The step takes time, at most so many seconds and often none."""
        if not self.is_instant and self.rng.random() < 0.5:
            self.simulation.pass_time(seconds * self.rng.random())

    def inject_transient_error(self, what: str) -> None:
        """Raise a transient error, at random."""
        if self.transient_error_rate and self.rng.random() < self.transient_error_rate:
            raise OSError(f"{what} does not answer")

    def draw_chance(self, probability: float) -> bool:
        return self.rng.random() < probability

    # --- places where only one record may be

    def enter_place(self, place: str, record: Record) -> None:
        """The record's step enters, or is inside already. A late worker whose claim is lost is no violation: it cannot
        commit.
        """
        if self.simulation.is_live(record):
            other = self.occupants.setdefault(place, record.ref)
            if other != record.ref:
                raise InvariantViolation(f"{record.ref} enters {place}, where {other} is")

    def leave_place(self, place: str, ref: Ref) -> None:
        if self.occupants.get(place) == ref:
            del self.occupants[place]

    # --- files of hosts

    def write_files(self, record: Record) -> None:
        self.simulation.reach_point("before write", EFFECT_WEIGHT)
        self.disks.setdefault(self.simulation.cluster.get_current_process().host, {})[record.ref] = None
        self.simulation.reach_point("after write", EFFECT_WEIGHT)

    def has_files(self, record: Record) -> bool:
        return record.ref in self.disks.get(self.simulation.cluster.get_current_process().host, {})

    def clear_files(self, host: str, ref: Ref) -> None:
        self.disks.get(host, {}).pop(ref, None)

    def wipe_disk(self, host: str) -> None:
        """The host is lost with its disk."""
        self.disks.pop(host, None)


class FaultInjectingProxy:
    """Any object, with a point before and after each call of its methods: object storage, the fake of an outside
    service.
    """

    def __init__(self, world: SimulatedWorld, inner: Any, name: str) -> None:
        self._world, self._inner, self._name = world, inner, name

    def __getattr__(self, name: str) -> Any:
        attribute = getattr(self._inner, name)
        if not callable(attribute):
            return attribute
        return _wrap_call(self._world, attribute, f"{self._name}.{name}")


def _wrap_call(world: SimulatedWorld, call: Callable[..., Any], name: str) -> Callable[..., Any]:
    def call_with_points(*args: Any, **options: Any) -> Any:
        world.reach_point(f"before {name}")
        answer = call(*args, **options)
        world.reach_point(f"after {name}")
        return answer

    return call_with_points
