"""When to look for work, and in which queues.

Marks are read before every claim, so that nothing is claimed from a queue that was paused a moment ago. An empty claim
is looked at again once, and then slowly: hints that something is claimable are lossy.
"""

from __future__ import annotations

from collections.abc import Iterator

from waybill.record import Role
from waybill.rules import Machines, pausing
from waybill.worker import messages as m

LOOK_AGAIN = 0.05  # an empty claim is no proof of an empty queue
LOOK_SLOWLY = 5.0  # and hints are lossy


class Lookout:
    def __init__(self, machines: Machines, roles: tuple[Role, ...]) -> None:
        self.machines, self.roles = machines, roles
        self.look_at = 0.0  # when to claim next
        self.looked_again = True
        self.wake_at = 0.0  # when to wake what waits
        self.marks: frozenset[str] = frozenset()
        self.fresh = False  # the marks were read since the last claim

    def commands(self, room: int, now: float) -> Iterator[m.Command]:
        """What to ask the store for, with room for so many."""
        if now >= self.wake_at:
            self.wake_at = now + LOOK_SLOWLY
            yield m.Wake()
        if room <= 0 or now < self.look_at:
            return
        if not self.fresh:
            yield m.ReadMarks()
            return
        self.fresh, self.look_at = False, now + LOOK_SLOWLY
        if roles := self.unpaused():
            yield m.Claim(roles, room)

    def unpaused(self) -> tuple[Role, ...]:
        return tuple(r for r in self.roles if not self.is_paused(r.kind, r.state)) if self.marks else self.roles

    def is_paused(self, kind: str, state: str) -> bool:
        return bool(self.marks) and bool(pausing(self.machines[kind], state) & self.marks)

    # --- what it hears

    def begin(self, now: float) -> None:
        self.look_at = self.wake_at = now

    def marked(self, event: m.Marked, now: float) -> None:
        self.marks, self.fresh = event.marks, True

    def woken(self, event: m.Woken, now: float) -> None:
        if event.next is not None:
            self.waits(now + event.next)
        if event.woken:
            self.look_at = now

    def waits(self, until: float) -> None:
        """Something is due then."""
        self.wake_at = min(self.wake_at, until)

    def woke(self, event: m.Woke, now: float) -> None:
        self.look_at, self.looked_again = now, False

    def took(self, anything: bool, now: float) -> None:
        if anything:
            self.look_at, self.looked_again = now, False
        elif not self.looked_again:
            self.look_at, self.looked_again = now + LOOK_AGAIN, True

    def let_go(self, now: float) -> None:
        """A task is gone: there is room for another."""
        self.look_at = min(self.look_at, now)
