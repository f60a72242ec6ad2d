"""A random walk over a set of machines on a real store: claims, every outcome a step may have, every action, marks,
dead sessions.

One connection stands for the workers and one for the people. The table alone says what may happen; the walk checks that
nothing else does.
"""

from __future__ import annotations

import random
from collections.abc import Callable

from waybill import rules
from waybill.engine import Engine
from waybill.machine import Machine
from waybill.record import Change, Claimed, Committed, Conflict, Group, Record, Ref, Role, Store
from waybill.rules import Machines, Refused
from waybill.step import Done, Fail, New, Outcome, Wait


class Walker:
    def __init__(
        self, open_store: Callable[[], Store], machines: Machines, seed: int, make: Callable[[Machine], New]
    ) -> None:
        self.rng, self.machines, self.make = random.Random(seed), machines, make
        self.worker, self.people = open_store(), open_store()
        self.engine = Engine(self.people, machines)
        self.session = self.worker.open_session(host="h", ttl=60, about={})
        self.held: list[Record] = []
        self.roles = [Role(m.name, s.name, s.holds is not None) for m in machines.values() for s in m.working()]
        self.marks = {"collections/a"}

    def walk(self, moves: int) -> None:
        for _ in range(moves):
            self.rng.choices(
                (self.submit, self.claim, self.finish, self.act, self.mark, self.prioritise, self.die, self.wake),
                (3, 8, 14, 8, 1, 1, 1, 3),
            )[0]()
        self.check()

    def submit(self) -> None:
        top = [m for m in self.machines.values() if m.parent is None]
        machine = self.rng.choice(top)
        self.engine.submit(self.make(machine), who="walker")

    def claim(self) -> None:
        for claimed in self.worker.claim(self.roles, self.session, self.rng.randint(1, 5)):
            self._begin(claimed)

    def _begin(self, claimed: Claimed) -> None:
        machine, record = self.machines[claimed.record.kind], claimed.record
        if claimed.ask is not None:
            self._commit(rules.answer(machine, record, claimed.ask, store=self.worker))
        elif claimed.mark is not None:
            self._commit(rules.hold(machine, record, claimed.mark, "walker"))
        else:
            self.held.append(record)

    def finish(self) -> None:
        if not self.held:
            return
        record = self.held.pop(self.rng.randrange(len(self.held)))
        machine = self.machines[record.kind]
        state = machine.state(record.state)
        assert state is not None
        if state.sort == "join" and self.worker.open_parents([record.ref]):
            self._commit(rules.look(record, "walker"))
            return
        kinds = self.machines.children_of(record.kind) if state.sort == "work" else []
        spawn = [self.make(m) for m in kinds for _ in range(self.rng.randint(0, 3))]
        outcomes: list[Outcome | Exception] = [
            *(Done(to=to) for to in (state.then, *state.also)),
            Done(),
            Done(),
            Wait(0.0),
            Fail("a mistake"),
            OSError("trouble"),
        ]
        outcome = self.rng.choice(outcomes)
        go_on = isinstance(outcome, Done) and self.rng.random() < 0.5 and self._works(machine, outcome.to or state.then)
        change = rules.settle(machine, record, outcome, who="walker", go_on=go_on)
        children = (
            tuple(rules.create(self.machines, n, maker=record) for n in spawn) if isinstance(outcome, Done) else ()
        )
        self._commit(change, *children)

    def _works(self, machine: Machine, name: str | None) -> bool:
        state = machine.state(name) if name else None
        return state is not None and state.works

    def _commit(self, *changes: Change) -> None:
        (answer,) = self.worker.commit([Group(changes)])
        if isinstance(answer, Conflict):
            assert changes[0].closes, answer  # a child was born while we looked; nobody else touches what we hold
            before = changes[0].before
            assert before is not None
            self._commit(rules.look(before, "walker"))
            return
        assert isinstance(answer, Committed), answer
        if answer.idle:
            self.worker.commit([Group((), answer.idle)])
        record = answer.records[0]
        if record is not None and record.session == self.session:
            self.held.append(record)

    def act(self) -> None:
        machine = self.rng.choice(list(self.machines.values()))
        if not machine.actions:
            return
        page = self.people.find(machine.name, newest=True, limit=20)
        if not page.records:
            return
        record = self.rng.choice(page.records)
        actions = machine.leaves(record.state) or machine.actions
        try:
            self.engine.act(record.ref, self.rng.choice(actions).name, who="person", confirmed=True)
        except (Refused, Conflict):
            return

    def mark(self) -> None:
        name = self.rng.choice(sorted(self.marks))
        self.people.mark(name, name not in self.people.marks())

    def prioritise(self) -> None:
        machine = self.rng.choice(list(self.machines.values()))
        for record in self.people.find(machine.name, limit=3).records:
            try:
                self.engine.priority(record.ref, self.rng.randint(0, 99), who="person")
            except Conflict:
                return

    def die(self) -> None:
        """The worker's session ends with everything in its hands; what it held goes on with the next."""
        self.worker.close_session(self.session)
        self.session = self.worker.open_session(host="h", ttl=60, about={})
        self.held.clear()

    def wake(self) -> None:
        self.people.wake()
        self.engine.pending()

    def check(self) -> None:
        for machine in self.machines.values():
            count: dict[str, int] = {}
            for record in self._all(machine.name):
                count[record.state] = count.get(record.state, 0) + 1
                state = machine.state(record.state)
                assert state is not None
                assert record.open == state.open
                assert state.works or record.session is None
                lines = self.people.history(record.kind, record.id)
                wrong = rules.path_is_legal(machine, [(x.before, x.after, x.event) for x in lines])
                assert wrong is None, f"{record.ref} {wrong}: {lines}"
                assert not lines or lines[-1].after == record.state
                if state.sort == "end":
                    self._parent_is_told(record.parent)
            assert self.people.tally(machine.name) == count
        held = {r.ref for r in self.held}
        claimed = {r.ref for m in self.machines for r in self._all(m) if r.session is not None}
        assert claimed == held

    def _parent_is_told(self, parent: Ref | None) -> None:
        """No parent sleeps on children of which none is open."""
        if parent is not None:
            assert parent not in self.people.idle_parents().refs

    def _all(self, kind: str) -> list[Record]:
        found: list[Record] = []
        after = None
        while True:
            page = self.people.find(kind, after=after, limit=500)
            found += page.records
            if page.after is None:
                return found
            after = page.after

    def close(self) -> None:
        self.worker.close()
        self.people.close()
