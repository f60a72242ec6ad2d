"""What begins with a claim: a step, a look at the children, or the answer to what stops it.

Took -> begin -> (the worker must go | a person asked | a mark holds it | it lacks keys) or run
     run -> Start, or Look -> Looked -> Start or a commit
"""

from __future__ import annotations

from waybill import rules
from waybill.record import Claimed
from waybill.rules import PRIORITY
from waybill.step import Done, Fail
from waybill.worker import messages as m
from waybill.worker.core.bench import Bench
from waybill.worker.core.lease import Lease
from waybill.worker.core.lookout import Lookout
from waybill.worker.core.outcomes import Outcomes
from waybill.worker.core.pace import Pace
from waybill.worker.core.terms import Terms


class Claims:
    def __init__(
        self, terms: Terms, bench: Bench, lease: Lease, pace: Pace, lookout: Lookout, outcomes: Outcomes
    ) -> None:
        self.terms, self.bench, self.lease, self.pace, self.lookout, self.outcomes = (
            terms,
            bench,
            lease,
            pace,
            lookout,
            outcomes,
        )

    def took(self, event: m.Took, now: float) -> None:
        if event.claimed:
            self.pace.took(len(self.bench.tasks), now)
        self.lookout.took(bool(event.claimed), now)
        for claimed in event.claimed:
            self._begin(claimed, now)

    def _begin(self, claimed: Claimed, now: float) -> None:
        record, who = claimed.record, self.terms.who
        if self.lease.session is None or record.session != self.lease.session:
            return  # claimed by a session that we have dropped meanwhile; it dies with it
        task = self.bench.task(record, now)
        machine = self.terms.machine(record)
        if self.lease.stopping or self.lease.draining:
            self.bench.settled(task, rules.release(record, who))
            return
        if claimed.ask is not None:
            task.ask = claimed.ask
            if claimed.ask.action != PRIORITY:
                self.bench.settled(task, self.terms.answer(machine, record, claimed.ask))
                return
        if claimed.mark is not None:
            try:
                self.bench.settled(task, rules.hold(machine, record, claimed.mark, who))
            except Exception as error:  # noqa: BLE001 - the table cannot say what it needs to rest
                self.bench.settled(task, rules.settle(machine, record, Fail(rules.said(error)), who=who))
            return
        try:
            unfit = (
                rules.refit(machine, record, who)
                if claimed.unfitted and machine.state(record.state) is not None
                else None
            )
        except Exception as error:  # noqa: BLE001 - the table cannot make sense of what others wrote
            unfit = rules.settle(machine, record, Fail(rules.said(error)), who=who)
        if unfit is not None:
            self.bench.settled(task, unfit)
            return
        self.run(task)

    def run(self, task: m.Task) -> None:
        """Its state says what is to be done now."""
        machine, record = self.terms.machine(task.record), task.record
        state = machine.state(record.state)
        if state is None or not state.works:
            self.bench.settled(task, rules.release(record, self.terms.who))
        elif state.sort == "join" and rules.children_are_made(state, record):
            self.bench.looks.append(task)
        elif state.sort == "retired":
            self.bench.settled(task, rules.settle(machine, record, Done(), who=self.terms.who))
        else:
            self.bench.start(task)

    def looked(self, event: m.Looked, now: float) -> None:
        for task in event.tasks:
            if task.dead:
                continue
            if task.record.ref in event.open:
                self.bench.settled(task, rules.look(task.record, self.terms.who))
            elif task.record.state in self.terms.machine(task.record).steps:
                self.bench.start(task)
            else:
                self.outcomes.finish(task, Done(), now)
