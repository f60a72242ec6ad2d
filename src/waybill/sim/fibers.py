"""Threads of the simulator: fibers that run one at a time, yield at known places, and share one virtual clock.

    spawn -> ready -> running -> yield_turn | sleep | wait_until_ready -> ready -> ... -> ended, or killed with the
    process that crashed

Which ready fiber runs next is drawn from the seed's random numbers. Time moves only here: a little with every turn, and
to the next alarm when no fiber is ready. So one seed gives one history, whatever the machine, the date and the order of
hashes.
"""

from __future__ import annotations

import heapq
from collections.abc import Callable
from random import Random
from typing import Protocol

from greenlet import getcurrent, greenlet

START_TIME = 1_700_000_000.0  # the first moment of every simulation
TURN_SECONDS = 0.001  # that pass with every turn


class ProcessCrashed(BaseException):
    """The process of this fiber has crashed. Nothing that the fiber does while it unwinds reaches the outside."""


class FiberOwner(Protocol):
    """The process that a fiber belongs to."""

    name: str
    is_dead: bool
    frozen_until: float


class Fiber:
    """One thread of one process."""

    __slots__ = ("glet", "is_ready", "name", "owner", "run_count")

    def __init__(self, owner: FiberOwner, name: str, glet: greenlet) -> None:
        self.owner, self.name, self.glet = owner, name, glet
        self.is_ready = False
        self.run_count = 0  # grows with every turn, so that the alarm of an earlier sleep wakes nobody

    @property
    def has_ended(self) -> bool:
        return bool(self.glet.dead)


class FiberScheduler:
    """Runs fibers. All its methods but `run` and `kill_fibers` are called from inside a fiber or an alarm."""

    def __init__(self, rng: Random) -> None:
        self.random = rng.random
        self.now = START_TIME
        self.current: Fiber | None = None
        self.turns = 0
        self._glet = getcurrent()
        self._ready: list[Fiber] = []
        self._alarms: list[tuple[float, int, Callable[[], None]]] = []
        self._alarm_count = 0
        self._doomed_fibers: list[Fiber] = []

    def spawn(self, owner: FiberOwner, name: str, run: Callable[[], None]) -> Fiber:
        def run_fiber() -> None:
            try:
                run()
            except ProcessCrashed:
                return

        fiber = Fiber(owner, name, greenlet(run_fiber, self._glet))
        self.make_ready(fiber)
        return fiber

    def make_ready(self, fiber: Fiber) -> None:
        """Let the fiber run in one of the next turns."""
        if not fiber.is_ready:
            fiber.is_ready = True
            self._ready.append(fiber)

    def schedule_call(self, at: float, callback: Callable[[], None]) -> None:
        """Call `callback` at that time, between two turns."""
        self._alarm_count += 1
        heapq.heappush(self._alarms, (at, self._alarm_count, callback))

    # --- from inside a fiber

    def yield_turn(self) -> None:
        """Let other fibers run."""
        fiber = self._get_current_fiber()
        fiber.is_ready = True
        self._ready.append(fiber)
        self._glet.switch()

    def wait_until_ready(self) -> None:
        """Wait until `make_ready` is called for this fiber."""
        self._get_current_fiber()
        self._glet.switch()

    def sleep(self, until: float) -> None:
        """Wait until then, or until `make_ready` is called for this fiber."""
        fiber = self._get_current_fiber()
        run_count = fiber.run_count
        self.schedule_call(until, lambda: self.make_ready(fiber) if fiber.run_count == run_count else None)
        self._glet.switch()

    def _get_current_fiber(self) -> Fiber:
        fiber = self.current
        if fiber is None:
            raise RuntimeError("only a fiber can yield")
        return fiber

    def kill_fibers(self, fibers: list[Fiber]) -> None:
        """End these without letting them do anything more; done when the running fiber yields or ends."""
        self._doomed_fibers.extend(fibers)
        if self.current is None:
            self._kill_doomed_fibers()

    # --- from outside

    def run(self, is_enough: Callable[[], bool], turns: int) -> None:
        """Run until `is_enough`, which is asked before time moves to the next alarm, until so many turns, or until nothing
        is left to run.
        """
        ready, alarms, random = self._ready, self._alarms, self.random
        while self.turns < turns:
            while alarms and alarms[0][0] <= self.now:
                heapq.heappop(alarms)[2]()
            if not ready:
                if not alarms or is_enough():
                    return
                self.now = max(self.now, alarms[0][0])
                continue
            place = int(random() * len(ready))
            fiber = ready[place]
            ready[place] = ready[-1]
            ready.pop()
            fiber.is_ready = False
            if fiber.owner.frozen_until > self.now:
                self.schedule_call(fiber.owner.frozen_until, lambda fiber=fiber: self.make_ready(fiber))  # type: ignore[misc]
                continue
            if fiber.owner.is_dead:
                continue
            self._run_turn(fiber)

    def _run_turn(self, fiber: Fiber) -> None:
        self.now += TURN_SECONDS
        self.turns += 1
        fiber.run_count += 1
        self.current = fiber
        try:
            fiber.glet.switch()
        finally:
            self.current = None
            if self._doomed_fibers:
                self._kill_doomed_fibers()

    def _kill_doomed_fibers(self) -> None:
        doomed, self._doomed_fibers = self._doomed_fibers, []
        for fiber in doomed:
            if fiber.glet:  # begun and not ended
                self.current = fiber
                fiber.glet.throw(ProcessCrashed())
        self.current = None
