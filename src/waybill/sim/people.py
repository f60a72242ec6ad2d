"""People in a simulation: some submit and try again until they know, some have errands of the scenario, some act on
records at any moment, allowed or not.

Each has a process with an engine of its own, which may crash as well; a submitter that comes back submits again with
the same request keys. Every request is signed with a name that is used once, so that the ledger sees when one is done
twice. What people were told is a promise (`Promises`), which the audit holds against the store.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

from waybill.engine import Engine
from waybill.record import Ref, StoreError, Unavailable, Unknown
from waybill.rules import Refused
from waybill.sim.ledger import Violation
from waybill.step import New

if TYPE_CHECKING:
    from waybill.sim.process import Process
    from waybill.sim.scenario import Errand
    from waybill.sim.simulation import Simulation


class Promises:
    """What people want, and what they were told."""

    def __init__(self, simulation: Simulation, wanted: list[New], errands: Iterable[Errand]) -> None:
        self.simulation, self.wanted = simulation, wanted
        self.errands = list(errands)  # that are not finished
        self.known: dict[tuple[str, str], Ref] = {}  # requests that were answered, and with which record
        self.asked: list[tuple[Ref, str, str]] = []  # actions that were left with a worker
        self.denied: dict[str, str] = {}  # requests that were refused, by signature, and with which words
        self._moves = self._signatures = 0

    def unknown(self) -> list[New]:
        """What was not answered yet."""
        return [new for new in self.wanted if (new.kind, new.request) not in self.known]

    def answered(self, new: New, ref: Ref) -> None:
        assert new.request is not None
        known = self.known.setdefault((new.kind, new.request), ref)
        if known != ref and known in self.simulation.ledger.entries and ref in self.simulation.ledger.entries:
            raise Violation(f"the request {new.request} is answered with {known} and with {ref}")
        self.known[new.kind, new.request] = ref

    def left(self, ref: Ref, action: str, who: str) -> None:
        self.asked.append((ref, action, who))

    def may_move(self) -> bool:
        self._moves += 1
        return self._moves <= self.simulation.profile.moves and not self.simulation.healed

    def signature(self) -> str:
        self._signatures += 1
        return f"ask {self._signatures}"

    @contextmanager
    def signed(self) -> Iterator[str]:
        """A request, under its signature. Whoever is told that it was refused is told that nothing was written."""
        who = self.signature()
        try:
            yield who
        except Unknown:
            raise
        except (StoreError, Refused) as refusal:
            self.denied[who] = f"{type(refusal).__name__}: {refusal}"
            raise


class Submitter:
    """Wants each of these to be there, once."""

    def __init__(self, simulation: Simulation, process: Process, engine: Engine) -> None:
        self.simulation, self.process, self.engine = simulation, process, engine

    def live(self) -> None:
        for new in self.simulation.promises.unknown():
            self._submit(new)
            self.simulation.pass_time(self.simulation.rng.random() * (0.05 if self.simulation.world.hurry else 2.0))
        self.simulation.stage.finished(self.process)

    def _submit(self, new: New) -> None:
        while True:
            try:
                record = self.engine.submit(new, who="submitter")
            except (Unknown, Unavailable):
                self.simulation.pass_time(1.0)
                continue
            self.simulation.promises.answered(new, record.ref)
            return


class Visitor:
    """Goes about the errands of the scenario, one after the other."""

    def __init__(self, simulation: Simulation, process: Process, engine: Engine) -> None:
        self.simulation, self.process, self.engine = simulation, process, engine

    def live(self) -> None:
        promises, rng = self.simulation.promises, self.simulation.rng
        while promises.errands:
            self.simulation.pass_time(rng.random() * rng.choice((0.05, 2.0, 10.0)))
            self._go()
            promises.errands.pop(0)
        self.simulation.stage.finished(self.process)

    def _go(self) -> None:
        while True:
            try:
                return self.simulation.promises.errands[0](self.engine)
            except (Unknown, Unavailable):
                self.simulation.pass_time(1.0)
            except (Refused, StoreError) as refusal:
                return self.simulation.note(f"refused: {type(refusal).__name__} {refusal}")


class Operator:
    """Does so many things, one after the other."""

    def __init__(self, simulation: Simulation, process: Process, engine: Engine) -> None:
        self.simulation, self.process, self.engine = simulation, process, engine
        self.rng, self.promises = simulation.rng, simulation.promises

    def live(self) -> None:
        while self.promises.may_move():
            self.simulation.pass_time(self.rng.random() * self.rng.choice((0.05, 0.5, 5.0)))
            try:
                self.move()
            except (Refused, StoreError) as refusal:
                self.simulation.note(f"refused: {type(refusal).__name__} {refusal}")
        self.simulation.stage.finished(self.process)

    def move(self) -> None:
        moves: tuple[tuple[Callable[[], None], int], ...] = (
            (self.act, 12),
            (self.priority, 2),
            (self.mark, 3),
            (self.act_all, 1),
            (self.remove, 2),
            (self.submit_again, 1),
            (self.step_once, 1),
        )
        self.rng.choices([m for m, _ in moves], [w for _, w in moves])[0]()

    def _any(self) -> Ref | None:
        """A record: of a few that come to mind, the one on which most can be done. Duties are mostly left alone."""
        ledger, rng = self.simulation.ledger, self.rng
        best, most = None, -1
        for ref in rng.choices(ledger.refs, k=4) if ledger.refs else ():
            entry = ledger.entries.get(ref)
            if ref.kind == "duty" and rng.random() < 0.95:
                continue
            number = len(entry.machine.leaves(entry.state)) if entry is not None else 0
            if entry is not None and entry.session is not None:
                number += 2  # a worker holds it: more can go wrong
            elif entry is not None and not entry.declared.works:
                number *= 2  # it waits for somebody
            if number > most:
                best, most = ref, number
        return best

    def act(self) -> None:
        ref = self._any()
        if ref is None or not (machine := self.engine.machines[ref.kind]).actions:
            return
        state = self.engine.store.get(*ref).state
        possible = machine.leaves(state) or machine.actions
        action = self.rng.choice(possible if self.rng.random() < 0.9 else machine.actions)
        with self.promises.signed() as who:
            acted = self.engine.act(ref, action.name, who=who, confirmed=True)
        if acted.pending:
            self.promises.left(ref, action.name, who)

    def priority(self) -> None:
        if (ref := self._any()) is not None:
            with self.promises.signed() as who:
                self.engine.priority(ref, self.rng.randrange(100), who=who)

    def mark(self) -> None:
        if names := self.simulation.marks:
            name = self.rng.choice(names)
            self.engine.store.mark(name, name not in self.simulation.ledger.marks, "operator", "why not")

    def act_all(self) -> None:
        machines = [m for m in self.engine.machines.values() if m.actions]
        if not machines:
            return
        machine = self.rng.choice(machines)
        action = self.rng.choice(machine.actions)
        who = self.promises.signature()
        for ref, acted in self.engine.act_all(
            machine.name, action.name, state=self.rng.choice(action.sources), who=who, confirmed=True
        ):
            if not isinstance(acted, Refused) and acted.pending:
                self.promises.left(ref, action.name, who)

    def remove(self) -> None:
        ref = self._any()
        if ref is not None and self.engine.machines[ref.kind].parent is None:
            self.engine.remove(ref, who=self.promises.signature())

    def step_once(self) -> None:
        self.simulation.stage.step_once(self._any() if self.rng.random() < 0.7 else None)

    def submit_again(self) -> None:
        """What is there already, or will be: with the same request key."""
        if self.promises.wanted:
            new = self.rng.choice(self.promises.wanted)
            self.promises.answered(new, self.engine.submit(new, who="again").ref)
