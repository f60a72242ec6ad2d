"""The world outside the store: what steps do to it, and what it knows of them.

A step's side effect goes through `happen`, which is a point before and after: the process may crash there, be late or
let others run. The effects are kept by name and key, so that a scenario can say how often each may happen. `disks` are
the working folders of the hosts.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from random import Random
from typing import TYPE_CHECKING, Any

from waybill.record import Record, Ref
from waybill.sim.ledger import Violation

if TYPE_CHECKING:
    from waybill.sim.simulation import Simulation


MUCH = 10.0  # is at stake where something is done that cannot be undone

_current: list[World] = []


def current() -> World:
    """The world of the simulation that runs: for steps and fakes that are made before it."""
    return _current[-1]


class World:
    def __init__(self, simulation: Simulation, rng: Random) -> None:
        self.simulation, self.rng = simulation, rng
        self.effects: dict[tuple[str, str], int] = {}
        self.disks: dict[str, dict[Ref, None]] = {}
        self.inside: dict[str, Ref] = {}  # who is where only one may be
        self.trouble = 0.0  # how likely a step meets trouble
        self.hurry = rng.random() < 0.3  # everything takes no time and comes at once

    @contextmanager
    def __call__(self) -> Iterator[None]:
        """While this one turns, it is the current one."""
        _current.append(self)
        try:
            yield
        finally:
            _current.pop()

    def point(self, name: str) -> None:
        """Here the process may crash, be late, or let others run.

        When everybody has gone home, nothing happens any more.
        """
        if self.simulation.hub.current is not None:
            self.simulation.point(name)

    def happen(self, name: str, key: str) -> int:
        """A side effect; answers how often it has happened now."""
        self.simulation.point(f"before {name}", MUCH)
        count = self.effects[name, key] = self.effects.get((name, key), 0) + 1
        self.simulation.note(f"{name} {key} ({count})")
        self.simulation.point(f"after {name}", MUCH)
        return count

    def count(self, name: str, key: str) -> int:
        return self.effects.get((name, key), 0)

    def takes(self, seconds: float) -> None:
        """The step is busy, for at most so long and often not at all."""
        if not self.hurry and self.rng.random() < 0.5:
            self.simulation.pass_time(seconds * self.rng.random())

    def meet_trouble(self, what: str) -> None:
        """Raise an error that trying again may mend, now and then."""
        if self.trouble and self.rng.random() < self.trouble:
            raise OSError(f"{what} does not answer")

    def chance(self, probability: float) -> bool:
        return self.rng.random() < probability

    # --- where only one may be

    def enter(self, place: str, record: Record) -> None:
        """The record's step goes in, or is in already. A late worker, whose claim is lost, is no violation: it
        cannot commit.
        """
        if self.simulation.is_live(record):
            other = self.inside.setdefault(place, record.ref)
            if other != record.ref:
                raise Violation(f"{record.ref} enters {place}, where {other} is")

    def leave(self, place: str, ref: Ref) -> None:
        if self.inside.get(place) == ref:
            del self.inside[place]

    # --- files of hosts

    def write_files(self, record: Record) -> None:
        self.simulation.point("before write", MUCH)
        self.disks.setdefault(self.simulation.stage.here().host, {})[record.ref] = None
        self.simulation.point("after write", MUCH)

    def has_files(self, record: Record) -> bool:
        return record.ref in self.disks.get(self.simulation.stage.here().host, {})

    def clear_files(self, host: str, ref: Ref) -> None:
        self.disks.get(host, {}).pop(ref, None)

    def wipe(self, host: str) -> None:
        """The host is gone with its disk."""
        self.disks.pop(host, None)


class Porous:
    """Anything with methods, each call of which is a point before and after: object storage, a fake of an outside
    service.
    """

    def __init__(self, world: World, inner: Any, name: str) -> None:
        self._world, self._inner, self._name = world, inner, name

    def __getattr__(self, verb: str) -> Any:
        found = getattr(self._inner, verb)
        if not callable(found):
            return found
        return _porous(self._world, found, f"{self._name}.{verb}")


def _porous(world: World, call: Callable[..., Any], name: str) -> Callable[..., Any]:
    def through(*args: Any, **options: Any) -> Any:
        world.point(f"before {name}")
        answer = call(*args, **options)
        world.point(f"after {name}")
        return answer

    return through
