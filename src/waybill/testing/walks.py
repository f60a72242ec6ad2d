"""A random walk over a set of machines on a store: claims, every outcome of a step, every action, holds, ended sessions.

The steps do not run: the walk draws an outcome for each. One connection stands for the workers and one for the clients.
The machine alone says what may happen; the walk checks that nothing else does, and that the store's counts, claims and
history agree with its records.
"""

from __future__ import annotations

import itertools
import random
from collections.abc import Callable, Iterable
from dataclasses import replace
from functools import partial

from waybill import rules
from waybill.engine import Engine
from waybill.machine import Machine
from waybill.record import Change, ClaimedRecord, CommitGroup, CommitResult, Conflict, Record, Ref, Store, WorkQueue
from waybill.rules import ActionRefused, Machines
from waybill.step import Done, Fail, New, Outcome, Wait
from waybill.stores.model import ModelDatabase, ModelStore

MAX_OPEN = 5  # records of a machine without a parent: fewer records go further
MAX_ROUNDS = 100  # of 250 moves, in search of every state


def make_empty(machine: Machine) -> New:
    """A record without documents."""
    return New(machine.name)


def make_walked_database() -> ModelDatabase:
    """A model whose time goes by with each call, so that no record waits long for its next try."""
    return ModelDatabase(itertools.count(1e9).__next__)


def walk_machines(
    machines: Iterable[Machine],
    *,
    make: Callable[[Machine], New] = make_empty,
    open_store: Callable[[], Store] | None = None,
    seeds: int = 3,
    moves: int = 200,
    every_state: bool = False,
) -> None:
    """Walk over these machines, once for each seed, on the model store or another. Raises AssertionError for what must
    not happen.

    `make` builds a new record of a machine, with the documents that it requires. `every_state`: walk on until a record
    has been in each state of each machine; the error names the states that were not reached.
    """
    if open_store is None:
        open_store = partial(ModelStore, make_walked_database())
    walk = MachineWalk(open_store, Machines.from_machines(machines), make)
    try:
        for seed in range(seeds):
            walk.rng.seed(seed)
            walk.walk(moves)
        if every_state:
            for _ in range(MAX_ROUNDS):
                if not walk.find_unvisited():
                    break
                walk.walk(250)
            assert not walk.find_unvisited(), f"the walk never reached {sorted(walk.find_unvisited())}"
    finally:
        walk.close()


class MachineWalk:
    def __init__(
        self, open_store: Callable[[], Store], machines: Machines, make: Callable[[Machine], New] = make_empty
    ) -> None:
        self.rng, self.machines, self.make = random.Random(0), machines, make
        self.worker, self.clients = open_store(), open_store()
        self.engine = Engine(self.clients, machines)
        self.session = self.worker.open_session(host="h", ttl=60, about={})
        self.claimed: list[Record] = []
        self.queues = [
            WorkQueue(m.name, s.name, s.on_hold is not None) for m in machines.values() for s in m.list_work_states()
        ]
        self.visited: set[tuple[str, str]] = set()

    def walk(self, moves: int) -> None:
        for _ in range(moves):
            self.rng.choices(
                (
                    self.submit,
                    self.claim,
                    self.finish,
                    self.act,
                    self.toggle_hold,
                    self.prioritise,
                    self.end_session,
                    self.release_due_waits,
                ),
                (3, 8, 14, 8, 1, 1, 1, 3),
            )[0]()
        self.check()

    def submit(self) -> None:
        machine = self.rng.choice([m for m in self.machines.values() if m.parent is None])
        counts = self.clients.count_by_state(machine.name)
        if sum(counts.get(state.name, 0) for state in machine.states if state.open) < MAX_OPEN:
            self.engine.submit(self._make(machine), who="walker")

    def _make(self, machine: Machine) -> New:
        new = self.make(machine)
        return new if machine.prefix or new.id else replace(new, id=f"walked-{self.rng.getrandbits(64):016x}")

    def claim(self) -> None:
        for claimed in self.worker.claim(self.queues, self.session, self.rng.randint(1, 5)):
            self._begin(claimed)

    def _begin(self, claimed: ClaimedRecord) -> None:
        machine, record = self.machines[claimed.record.kind], claimed.record
        if claimed.action_request is not None:
            self._commit(rules.answer_action_request(machine, record, claimed.action_request, store=self.worker))
        elif claimed.hold is not None:
            self._commit(rules.enter_hold(machine, record, claimed.hold, "walker"))
        else:
            self.claimed.append(record)

    def finish(self) -> None:
        if not self.claimed:
            return
        record = self.claimed.pop(self.rng.randrange(len(self.claimed)))
        machine = self.machines[record.kind]
        state = machine.find_state(record.state)
        assert state is not None
        if state.type == "join" and self.worker.parents_with_open_children([record.ref]):
            self._commit(rules.wait_for_children(record, "walker"))
            return
        makes_children = state.type == "work" or state.children_document is not None
        kinds = self.machines.children_of(record.kind) if makes_children else []
        spawn = [self._make(m) for m in kinds for _ in range(self.rng.randint(0, 3))]
        if state.type == "join" and spawn and self.rng.random() < 0.5:  # its step makes them, and it waits for them
            waiting = rules.apply_outcome(machine, record, Wait(0.0), who="walker")
            self._commit(waiting, *(rules.create(self.machines, new, maker=record) for new in spawn))
            return
        outcomes: list[Outcome | Exception] = [
            *(Done(to=to) for to in (state.to, *state.or_to)),
            Done(),
            Done(),
            Wait(0.0),
            Fail("a permanent error"),
            OSError("a transient error"),
        ]
        outcome = self.rng.choice(outcomes)
        keep_claim = (
            isinstance(outcome, Done) and self.rng.random() < 0.5 and self._works(machine, outcome.to or state.to)
        )
        change = rules.apply_outcome(machine, record, outcome, who="walker", keep_claim=keep_claim)
        children = (
            tuple(rules.create(self.machines, n, maker=record) for n in spawn)
            if isinstance(outcome, Done) and state.type == "work"
            else ()
        )
        self._commit(change, *children)

    def _works(self, machine: Machine, name: str | None) -> bool:
        state = machine.find_state(name) if name else None
        return state is not None and state.works

    def _commit(self, *changes: Change) -> None:
        (answer,) = self.worker.commit([CommitGroup(changes)])
        if isinstance(answer, Conflict):
            assert changes[0].requires_children_settled, (
                answer
            )  # a child was created in the meantime; nobody else changes a claimed record
            before = changes[0].before
            assert before is not None
            self._commit(rules.wait_for_children(before, "walker"))
            return
        assert isinstance(answer, CommitResult), answer
        if answer.idle_parents:
            self.worker.commit([CommitGroup((), answer.idle_parents)])
        record = answer.records[0]
        if record is not None and record.session == self.session:
            self.claimed.append(record)

    def act(self) -> None:
        machine = self.rng.choice(list(self.machines.values()))
        if not machine.actions:
            return
        page = self.clients.find(machine.name, newest=True, limit=20)
        if not page.records:
            return
        record = self.rng.choice(page.records)
        actions = machine.list_actions_from(record.state) or machine.actions
        try:
            self.engine.act(record.ref, self.rng.choice(actions).name, who="person", confirmed=True)
        except (ActionRefused, Conflict):
            return

    def toggle_hold(self) -> None:
        """Set a hold of some record, or clear one."""
        in_force = self.clients.list_holds()
        machine = self.rng.choice(list(self.machines.values()))
        found = self.clients.find(machine.name, newest=True, limit=20).records
        names = sorted({*in_force, *(name for record in found for name in record.hold_names)})
        if names and (name := self.rng.choice(names)) in in_force:
            self.clients.clear_hold(name)
        elif names:
            self.clients.set_hold(name)

    def prioritise(self) -> None:
        machine = self.rng.choice(list(self.machines.values()))
        for record in self.clients.find(machine.name, limit=3).records:
            try:
                self.engine.set_priority(record.ref, self.rng.randint(0, 99), who="person")
            except Conflict:
                return

    def end_session(self) -> None:
        """The worker's session ends with all its claims; the next session claims those records again."""
        self.worker.close_session(self.session)
        self.session = self.worker.open_session(host="h", ttl=60, about={})
        self.claimed.clear()

    def release_due_waits(self) -> None:
        self.clients.release_due_waits()
        self.engine.apply_action_requests()

    def check(self) -> None:
        for machine in self.machines.values():
            count: dict[str, int] = {}
            for record in self.clients.each(machine.name):
                count[record.state] = count.get(record.state, 0) + 1
                state = machine.find_state(record.state)
                assert state is not None
                assert record.open == state.open
                assert state.works or record.session is None
                lines = self.clients.history(record.kind, record.id)
                wrong = rules.find_illegal_transition(machine, [(x.before, x.after, x.cause) for x in lines])
                assert wrong is None, f"{record.ref} {wrong}: {lines}"
                assert not lines or lines[-1].after == record.state
                self.visited.update((machine.name, x.after) for x in lines if x.after)
                if state.type == "end":
                    self._assert_parent_woken(record.parent)
            assert self.clients.count_by_state(machine.name) == count
        expected = {r.ref for r in self.claimed}
        claimed = {r.ref for m in self.machines for r in self.clients.each(m) if r.session is not None}
        assert claimed == expected

    def find_unvisited(self) -> set[tuple[str, str]]:
        """The kinds and states in which no record was before the last check."""
        return {(m.name, state.name) for m in self.machines.values() for state in m.states} - self.visited

    def _assert_parent_woken(self, parent: Ref | None) -> None:
        """No parent waits for children of which none is open."""
        if parent is not None:
            assert parent not in self.clients.find_idle_parents().refs

    def close(self) -> None:
        self.worker.close()
        self.clients.close()
