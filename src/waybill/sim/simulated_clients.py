"""Clients in a simulation: some submit and retry until they have an answer, some run scripts of the scenario, an operator
acts on records at any moment, allowed or not.

Each has a process with an engine of its own, which may crash as well; the replacement of a submitter submits again with
the same idempotency keys. Every request is signed with a name that is used once, so that the invariant checker sees when
one is done twice. What clients were answered is an expectation (`ClientExpectations`), which the audit compares with the
store.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

from waybill.engine import Engine
from waybill.record import CommitOutcomeUnknown, Ref, StoreError, StoreUnavailable
from waybill.rules import ActionRefused
from waybill.sim.invariant_checker import InvariantViolation
from waybill.step import New

if TYPE_CHECKING:
    from waybill.sim.process import SimulatedProcess
    from waybill.sim.scenario import ClientScript
    from waybill.sim.simulation import Simulation


class ClientExpectations:
    """What clients submit, and what they were answered."""

    def __init__(self, simulation: Simulation, submissions: list[New], scripts: Iterable[ClientScript]) -> None:
        self.simulation, self.submissions = simulation, submissions
        self.pending_scripts = list(scripts)  # not finished yet
        self.answered_refs: dict[tuple[str, str], Ref] = {}  # by kind and idempotency key
        self.pending_actions: list[tuple[Ref, str, str]] = []  # left with a worker: record, action, signature
        self.refusals: dict[str, str] = {}  # the text of each refusal, by signature
        self._move_count = self._signature_count = 0

    def list_unanswered(self) -> list[New]:
        """Submissions without an answer."""
        return [new for new in self.submissions if (new.kind, new.idempotency_key) not in self.answered_refs]

    def note_answer(self, new: New, ref: Ref) -> None:
        assert new.idempotency_key is not None
        first = self.answered_refs.setdefault((new.kind, new.idempotency_key), ref)
        if first != ref and first in self.simulation.checker.records and ref in self.simulation.checker.records:
            raise InvariantViolation(f"the submission {new.idempotency_key} is answered with {first} and with {ref}")
        self.answered_refs[new.kind, new.idempotency_key] = ref

    def note_pending_action(self, ref: Ref, action: str, who: str) -> None:
        self.pending_actions.append((ref, action, who))

    def can_move(self) -> bool:
        self._move_count += 1
        return self._move_count <= self.simulation.profile.max_moves and not self.simulation.has_healed

    def make_signature(self) -> str:
        self._signature_count += 1
        return f"request {self._signature_count}"

    @contextmanager
    def sign_request(self) -> Iterator[str]:
        """Make a request under a signature of its own. A refusal promises that nothing was written."""
        who = self.make_signature()
        try:
            yield who
        except CommitOutcomeUnknown:
            raise
        except (StoreError, ActionRefused) as refusal:
            self.refusals[who] = f"{type(refusal).__name__}: {refusal}"
            raise


class SimulatedSubmitter:
    """Submits each submission until it is answered."""

    def __init__(self, simulation: Simulation, process: SimulatedProcess, engine: Engine) -> None:
        self.simulation, self.process, self.engine = simulation, process, engine

    def run_client(self) -> None:
        for new in self.simulation.expectations.list_unanswered():
            self._submit(new)
            self.simulation.pass_time(
                self.simulation.rng.random() * (0.05 if self.simulation.world.is_instant else 2.0)
            )
        self.simulation.cluster.note_client_finished(self.process)

    def _submit(self, new: New) -> None:
        while True:
            try:
                record = self.engine.submit(new, who="submitter")
            except (CommitOutcomeUnknown, StoreUnavailable):
                self.simulation.pass_time(1.0)
                continue
            self.simulation.expectations.note_answer(new, record.ref)
            return


class ScriptedClient:
    """Runs the scripts of the scenario, one after the other."""

    def __init__(self, simulation: Simulation, process: SimulatedProcess, engine: Engine) -> None:
        self.simulation, self.process, self.engine = simulation, process, engine

    def run_client(self) -> None:
        expectations, rng = self.simulation.expectations, self.simulation.rng
        while expectations.pending_scripts:
            self.simulation.pass_time(rng.random() * rng.choice((0.05, 2.0, 10.0)))
            self._run_script()
            expectations.pending_scripts.pop(0)
        self.simulation.cluster.note_client_finished(self.process)

    def _run_script(self) -> None:
        while True:
            try:
                return self.simulation.expectations.pending_scripts[0](self.engine)
            except (CommitOutcomeUnknown, StoreUnavailable):
                self.simulation.pass_time(1.0)
            except (ActionRefused, StoreError) as refusal:
                return self.simulation.note(f"refused: {type(refusal).__name__} {refusal}")


class SimulatedOperator:
    """Makes a limited number of moves, drawn at random."""

    def __init__(self, simulation: Simulation, process: SimulatedProcess, engine: Engine) -> None:
        self.simulation, self.process, self.engine = simulation, process, engine
        self.rng, self.expectations = simulation.rng, simulation.expectations

    def run_client(self) -> None:
        while self.expectations.can_move():
            self.simulation.pass_time(self.rng.random() * self.rng.choice((0.05, 0.5, 5.0)))
            try:
                self.make_move()
            except (ActionRefused, StoreError) as refusal:
                self.simulation.note(f"refused: {type(refusal).__name__} {refusal}")
        self.simulation.cluster.note_client_finished(self.process)

    def make_move(self) -> None:
        moves: tuple[tuple[Callable[[], None], int], ...] = (
            (self.act_on_record, 12),
            (self.set_priority, 2),
            (self.toggle_hold, 3),
            (self.act_on_all, 1),
            (self.remove_record, 2),
            (self.resubmit, 1),
            (self.run_one_step, 1),
        )
        self.rng.choices([m for m, _ in moves], [w for _, w in moves])[0]()

    def _choose_record(self) -> Ref | None:
        """Of four records at random, the one with the most possible actions. Maintenance records are mostly skipped."""
        checker, rng = self.simulation.checker, self.rng
        best, most = None, -1
        for ref in rng.choices(checker.refs, k=4) if checker.refs else ():
            checked = checker.records.get(ref)
            if ref.kind == "maintenance" and rng.random() < 0.95:
                continue
            number = len(checked.machine.list_actions_from(checked.state)) if checked is not None else 0
            if checked is not None and checked.session is not None:
                number += 2  # a worker has claimed it: more can go wrong
            elif checked is not None and not checked.declared_state.works:
                number *= 2  # it waits for an operator
            if number > most:
                best, most = ref, number
        return best

    def act_on_record(self) -> None:
        ref = self._choose_record()
        if ref is None or not (machine := self.engine.machines[ref.kind]).actions:
            return
        state = self.engine.store.get(*ref).state
        possible = machine.list_actions_from(state) or machine.actions
        action = self.rng.choice(possible if self.rng.random() < 0.9 else machine.actions)
        with self.expectations.sign_request() as who:
            acted = self.engine.act(ref, action.name, who=who, confirmed=True)
        if acted.pending:
            self.expectations.note_pending_action(ref, action.name, who)

    def set_priority(self) -> None:
        if (ref := self._choose_record()) is not None:
            with self.expectations.sign_request() as who:
                self.engine.set_priority(ref, self.rng.randrange(100), who=who)

    def toggle_hold(self) -> None:
        if names := self.simulation.hold_names:
            name = self.rng.choice(names)
            if name in self.simulation.checker.holds:
                self.engine.store.clear_hold(name)
            else:
                self.engine.store.set_hold(name, "operator", "why not")

    def act_on_all(self) -> None:
        machines = [m for m in self.engine.machines.values() if m.actions]
        if not machines:
            return
        machine = self.rng.choice(machines)
        action = self.rng.choice(machine.actions)
        who = self.expectations.make_signature()
        for ref, acted in self.engine.act_all(
            machine.name, action.name, state=self.rng.choice(action.sources), who=who, confirmed=True
        ):
            if not isinstance(acted, ActionRefused) and acted.pending:
                self.expectations.note_pending_action(ref, action.name, who)

    def remove_record(self) -> None:
        ref = self._choose_record()
        if ref is not None and self.engine.machines[ref.kind].parent is None:
            self.engine.remove(ref, who=self.expectations.make_signature())

    def run_one_step(self) -> None:
        self.simulation.cluster.run_one_step(self._choose_record() if self.rng.random() < 0.7 else None)

    def resubmit(self) -> None:
        """Submit again with the same idempotency key, before or after the first time."""
        if self.expectations.submissions:
            new = self.rng.choice(self.expectations.submissions)
            self.expectations.note_answer(new, self.engine.submit(new, who="again").ref)
