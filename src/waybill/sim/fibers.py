"""Threads of the simulator: fibers that run one at a time, give way where they say so, and share one virtual clock.

    spawn -> ready -> running -> give_way | sleep | wait -> ready -> ... -> ended, or buried with the process that
    crashed

Which ready fiber runs next is drawn from the seed's random numbers; time moves only here: a little with every turn, and
to the next alarm when nobody is ready. So one seed is one history, whatever the machine, the day and the order of
hashes.
"""

from __future__ import annotations

import heapq
from collections.abc import Callable
from random import Random
from typing import Protocol

from greenlet import getcurrent, greenlet

START = 1_700_000_000.0  # the first moment of every simulation
TURN = 0.001  # seconds that pass with every turn


class Crashed(BaseException):
    """The process of this fiber is no more. Nothing it does on the way out reaches the outside."""


class Owner(Protocol):
    """The process that a fiber belongs to."""

    name: str
    dead: bool
    frozen_until: float


class Fiber:
    """One thread of one process."""

    __slots__ = ("glet", "name", "owner", "ready", "turn")

    def __init__(self, owner: Owner, name: str, glet: greenlet) -> None:
        self.owner, self.name, self.glet = owner, name, glet
        self.ready = False
        self.turn = 0  # moves with every run, so that an alarm for an earlier sleep rings for nobody

    @property
    def ended(self) -> bool:
        return bool(self.glet.dead)


class Hub:
    """Runs fibers. All its verbs but `run` and `bury` are called from inside a fiber or an alarm."""

    def __init__(self, rng: Random) -> None:
        self.random = rng.random
        self.now = START
        self.current: Fiber | None = None
        self.turns = 0
        self._glet = getcurrent()
        self._ready: list[Fiber] = []
        self._alarms: list[tuple[float, int, Callable[[], None]]] = []
        self._alarm_count = 0
        self._graves: list[Fiber] = []

    def spawn(self, owner: Owner, name: str, run: Callable[[], None]) -> Fiber:
        def body() -> None:
            try:
                run()
            except Crashed:
                return

        fiber = Fiber(owner, name, greenlet(body, self._glet))
        self.rouse(fiber)
        return fiber

    def rouse(self, fiber: Fiber) -> None:
        """Make it ready, if it is not."""
        if not fiber.ready:
            fiber.ready = True
            self._ready.append(fiber)

    def alarm(self, at: float, ring: Callable[[], None]) -> None:
        """Call `ring` at that time, between two turns."""
        self._alarm_count += 1
        heapq.heappush(self._alarms, (at, self._alarm_count, ring))

    # --- from inside a fiber

    def give_way(self) -> None:
        """Let the others run, perhaps."""
        fiber = self._me()
        fiber.ready = True
        self._ready.append(fiber)
        self._glet.switch()

    def wait(self) -> None:
        """Until somebody rouses this fiber."""
        self._me()
        self._glet.switch()

    def sleep(self, until: float) -> None:
        """Until then, or until somebody rouses this fiber."""
        fiber = self._me()
        turn = fiber.turn
        self.alarm(until, lambda: self.rouse(fiber) if fiber.turn == turn else None)
        self._glet.switch()

    def _me(self) -> Fiber:
        fiber = self.current
        if fiber is None:
            raise RuntimeError("only a fiber can give way")
        return fiber

    def bury(self, fibers: list[Fiber]) -> None:
        """End these without letting them do anything; done when the running fiber gives way or ends."""
        self._graves.extend(fibers)
        if self.current is None:
            self._clear_graves()

    # --- from outside

    def run(self, enough: Callable[[], bool], turns: int) -> None:
        """Until `enough`, asked before time moves on to the next alarm, until so many turns, or until nothing will
        ever happen again.
        """
        ready, alarms, random = self._ready, self._alarms, self.random
        while self.turns < turns:
            while alarms and alarms[0][0] <= self.now:
                heapq.heappop(alarms)[2]()
            if not ready:
                if not alarms or enough():
                    return
                self.now = max(self.now, alarms[0][0])
                continue
            place = int(random() * len(ready))
            fiber = ready[place]
            ready[place] = ready[-1]
            ready.pop()
            fiber.ready = False
            if fiber.owner.frozen_until > self.now:
                self.alarm(fiber.owner.frozen_until, lambda fiber=fiber: self.rouse(fiber))  # type: ignore[misc]
                continue
            if fiber.owner.dead:
                continue
            self._turn(fiber)

    def _turn(self, fiber: Fiber) -> None:
        self.now += TURN
        self.turns += 1
        fiber.turn += 1
        self.current = fiber
        try:
            fiber.glet.switch()
        finally:
            self.current = None
            if self._graves:
                self._clear_graves()

    def _clear_graves(self) -> None:
        graves, self._graves = self._graves, []
        for fiber in graves:
            if fiber.glet:  # begun and not ended
                self.current = fiber
                fiber.glet.throw(Crashed())
        self.current = None
