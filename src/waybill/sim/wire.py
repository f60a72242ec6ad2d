"""The wire between a process and its store: every call is a point before it and after it, and not every answer arrives.

    point -> (refused: nothing was written) -> the store -> the ledger sees the true answer -> point -> (lost: Unknown)
    -> the caller

With `loose` the wire shows what a store with one writer cannot: groups of one commit are written one by one, with
others in between and a cut in the middle, and whether a parent has open children is read after the commit, when others
may have written already.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from msgspec.structs import replace

from waybill.record import (
    MAX_PAGE,
    Answer,
    Ask,
    Claimed,
    Committed,
    Due,
    Finding,
    Group,
    Ref,
    Renewed,
    Role,
    Store,
    StoreError,
    Unavailable,
    Unknown,
)
from waybill.sim.fibers import Crashed
from waybill.sim.ledger import Violation
from waybill.sim.readings import LITTLE, Readings, T

if TYPE_CHECKING:
    from waybill.sim.process import Process

MUCH = 3.0  # is at stake where something is written


class Wire(Readings):
    """A connection, as a process sees it."""

    def __init__(self, process: Process, store: Store, *, loose: bool) -> None:
        self.url = store.url
        self.process, self.store, self.loose = process, store, loose
        self.simulation = process.simulation
        self.ledger = self.simulation.ledger

    # --- one call

    def _send(self, verb: str, weight: float = LITTLE) -> None:
        """The way to the store."""
        process = self.process
        if process.dead:
            raise Crashed
        process.simulation.point(verb, weight)
        if process.wire_fault == "refused":
            process.wire_fault = None
            raise Unavailable("the store cannot be reached (simulated)")
        if max(process.simulation.faults.away_until, process.cut_until) > process.simulation.hub.now:
            raise Unavailable("the store is away (simulated)")

    def _back(self, verb: str, writes: bool = True, weight: float = LITTLE) -> None:
        """The way back."""
        process = self.process
        process.simulation.point(f"{verb} done", weight)
        if writes and process.wire_fault == "lost":
            process.wire_fault = None
            raise Unknown("the answer was lost (simulated)")

    def _asked(self, verb: str, call: Callable[[], T], writes: bool = False, weight: float = 1.0) -> T:
        self._send(verb, weight)
        answer = call()
        self._back(verb, writes, weight)
        return answer

    # --- commits

    def commit(self, groups: Sequence[Group]) -> list[Answer]:
        self._send("commit", MUCH)
        answers = self._loosely(groups) if self.loose else self._whole(groups)
        try:
            self._back("commit", weight=MUCH)
        except Unknown as lost:
            if self.simulation.rng.random() < 0.5:
                raise
            return [lost if isinstance(a, Committed) else a for a in answers]
        return answers

    def _whole(self, groups: Sequence[Group]) -> list[Answer]:
        answers = self.store.commit(groups)
        self.simulation.committed(groups, answers)
        return answers

    def _loosely(self, groups: Sequence[Group]) -> list[Answer]:
        answers: list[Answer] = []
        chance = self.simulation.chance
        rest = list(groups)
        while rest:
            n = 1 + sum(chance(0.7) for _ in range(len(rest) - 1))
            portion, rest = rest[:n], rest[n:]
            answers += self._look_after(portion, self._whole(portion))
            if rest:
                self.simulation.point("commit goes on", MUCH)
                if self.process.wire_fault in ("lost", "refused"):
                    # Cut in the middle: the next group may or may not have been written, the others were not sent.
                    self.process.wire_fault = None
                    if chance(0.5):
                        self._whole(rest[:1])
                    answers.append(Unknown("the answer was lost (simulated)"))
                    answers += [Unavailable("the store cannot be reached (simulated)")] * (len(rest) - 1)
                    break
        return answers

    def _look_after(self, groups: Sequence[Group], answers: list[Answer]) -> list[Answer]:
        """Which parents are idle is read after the commit."""
        looked: list[Answer] = []
        for group, answer in zip(groups, answers, strict=True):
            parents = closed_for(group) if isinstance(answer, Committed) else ()
            if not parents or not isinstance(answer, Committed):
                looked.append(answer)
                continue
            self.simulation.point("look after commit", MUCH)
            still = self.store.open_parents(parents)
            looked.append(
                replace(answer, idle=tuple(p for p in parents if p in self.ledger.entries and p not in still))
            )
        return looked

    # --- sessions and claims

    def open_session(self, *, host: str, ttl: float, about: Mapping[str, Any]) -> str:
        self._send("open_session")
        name = self.store.open_session(host=host, ttl=ttl, about=about)
        self.ledger.opened(name, self.process.name, ttl)
        self.simulation.trace.opened(name)
        self._back("open_session")
        return name

    def renew(self, session: str, progress: Mapping[str, Any] | None = None) -> Renewed:
        self._send("renew")
        answer = self.store.renew(session, progress)
        self.ledger.renewed(session, answer.alive)
        self.simulation.note(
            f"renew {session}: {'alive' if answer.alive else 'gone'}, asked {[a.action for a in answer.asked]}"
        )
        self._back("renew")
        return answer

    def close_session(self, session: str) -> None:
        self._send("close_session")
        self.simulation.steps.closing(session)
        self.store.close_session(session)
        self.ledger.closed(session)
        self.simulation.note(f"close {session}")
        self.simulation.stage.ring()
        self._back("close_session")

    def claim(self, roles: Sequence[Role], session: str, limit: int) -> list[Claimed]:
        self._send("claim", 1.0)
        simulation = self.simulation
        if simulation.chance(simulation.profile.empty):
            limit = int(limit * simulation.rng.random())  # another took them first
            if not limit:
                return []
        claimed = self.store.claim(roles, session, limit)
        if len(claimed) > limit:
            raise Violation(f"{len(claimed)} records claimed, {limit} asked for")
        self.ledger.claimed(session, claimed)
        if claimed:
            simulation.trace.claimed(session, claimed)
        self._back("claim", weight=MUCH if claimed else LITTLE)
        return claimed

    def take(self, kind: str, id: str, session: str) -> Claimed:
        self._send("take")
        claimed = self.store.take(kind, id, session)
        self.ledger.claimed(session, [claimed])
        self.simulation.trace.claimed(session, [claimed])
        self._back("take")
        return claimed

    def reap(self) -> list[str]:
        self._send("reap")
        names = self.store.reap()
        if names:
            self.ledger.reaped(names)
            self.simulation.note(f"reap {' '.join(sorted(map(self.simulation.trace.alias, names)))}")
            self.simulation.stage.ring()
        self._back("reap")
        return names

    # --- asks, marks, upkeep

    def ask(self, ask: Ask) -> bool:
        self._send("ask")
        left = self.store.ask(ask)
        self.simulation.note(f"ask {ask.ref} to {ask.action} for {ask.who}: {left}")
        self._back("ask")
        return left

    def mark(self, name: str, on: bool, who: str = "", why: str = "") -> None:
        self._send("mark")
        self.store.mark(name, on, who, why)
        if on:
            self.ledger.marks[name] = None
        else:
            self.ledger.marks.pop(name, None)
            self.simulation.stage.ring()
        self.simulation.note(f"mark {name} {'on' if on else 'off'}")
        self._back("mark")

    def wake(self, limit: int = MAX_PAGE) -> Due:
        self._send("wake")
        due = self.store.wake(limit)
        if due.woken:
            self.simulation.note(f"wake {due.woken}")
            self.simulation.stage.ring()
        self._back("wake")
        return due

    def sweep(self, limit: int = MAX_PAGE) -> int:
        self._send("sweep")
        mended = self.store.sweep(limit)
        if mended:
            self.simulation.note(f"sweep {mended}")
            self.simulation.stage.ring()
        self._back("sweep")
        return mended

    def mend(self, finding: Finding) -> bool:
        return self._asked("mend", lambda: self.store.mend(finding), writes=True)

    def free_key(self, name: str) -> bool:
        return self._asked("free_key", lambda: self.store.free_key(name), writes=True)

    def remember(self, name: str, value: str) -> str:
        return self._asked("remember", lambda: self.store.remember(name, value), writes=True)

    # --- not in a simulation

    def watch(self, timeout: float) -> bool:
        raise StoreError("nobody watches in a simulation: the worker's sleep is replaced")

    def interrupt(self) -> None:
        raise StoreError("nobody watches in a simulation: the worker's sleep is replaced")

    def close(self) -> None:
        if not self.process.dead:
            self.simulation.backend.disconnect(self.store)


class Direct(Wire):
    """A connection on which nothing happens but the call: for what is there before the simulation begins."""

    def _send(self, verb: str, weight: float = 0.0) -> None:
        return

    def _back(self, verb: str, writes: bool = True, weight: float = 0.0) -> None:
        return


def closed_for(group: Group) -> tuple[Ref, ...]:
    """The parents of records that the group closes."""
    closed = [c.before.parent for c in group.changes if c.before and c.before.open and not (c.after and c.after.open)]
    return tuple(dict.fromkeys(p for p in closed if p is not None))
