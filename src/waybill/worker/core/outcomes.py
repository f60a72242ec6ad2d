"""What becomes of a task whose step has ended, or saves in between: the change that is committed for it.

In this order: a key was taken by another, a person asked for something, the step was told to stop; and only then what
it answered.
"""

from __future__ import annotations

from msgspec.structs import replace

from waybill import rules
from waybill.machine import STAY, Machine
from waybill.record import Ask, Change, Docs, Group, Record
from waybill.rules import PRIORITY
from waybill.step import Done, Fail, Outcome, Stopped, Wait
from waybill.worker import messages as m
from waybill.worker.core.bench import Bench
from waybill.worker.core.lease import Lease
from waybill.worker.core.lookout import Lookout
from waybill.worker.core.pace import Pace
from waybill.worker.core.terms import Terms

KEEP_STATES = 16  # states that a record may go through under one claim
KEEP_SECONDS = 10.0


class Outcomes:
    def __init__(self, terms: Terms, bench: Bench, lease: Lease, pace: Pace, lookout: Lookout) -> None:
        self.terms, self.bench, self.lease, self.pace, self.lookout = terms, bench, lease, pace, lookout

    def saving(self, event: m.Saving, now: float) -> None:
        task, record = event.task, event.task.record
        if task.dead or task.number not in self.bench.tasks:
            self.bench.reply(task, Stopped("the claim is lost"))
            return
        machine, who = self.terms.machine(record), self.terms.who
        try:
            docs = rules.documents(machine, event.docs, "step") if event.docs else {}
            keys = rules.check_more_keys(machine, record, event.keys) if event.keys else record.keys
            spawn = tuple(rules.create(self.terms.machines, n, maker=record, who=who) for n in event.spawn)
        except Exception as error:  # noqa: BLE001 - what a step saves may be anything: the step is told
            self.bench.reply(task, error)
            return
        change = Change(record, replace(record, keys=keys), "", who, docs=docs)
        self.bench.out.append(m.Entry(Group((change, *spawn)), task, saves=True))

    def ended(self, event: m.Ended, now: float) -> None:
        task = event.task
        task.running = False
        self.pace.ended(event.seconds, now)
        if task.dead:
            self.bench.forget(task)
            return
        self.finish(task, event.outcome, now)

    def finish(self, task: m.Task, outcome: Outcome | Exception | Stopped, now: float) -> None:
        machine, record = self.terms.machine(task.record), task.record
        if task.taken is not None:
            key, keys = task.taken
            self.bench.settled(task, rules.wait_for_key(machine, record, keys, key, self.terms.who))
        elif task.ask is not None and task.ask.action != PRIORITY:
            self._asked_for(task, machine, task.ask, outcome, now)
        elif isinstance(outcome, Stopped) or (
            task.stopping and isinstance(outcome, Exception) and not isinstance(outcome, Fail)
        ):
            self.bench.settled(task, rules.release(record, self.terms.who))
        else:
            self._settle(task, machine, outcome, now)

    def _asked_for(
        self, task: m.Task, machine: Machine, ask: Ask, outcome: Outcome | Exception | Stopped, now: float
    ) -> None:
        """What a person asked for, with what the step found out."""
        record, docs = task.record, _written_by(machine, outcome)
        answered = self.terms.answer(
            machine, replace(record, docs=record.docs.with_changes(docs)) if docs else record, ask
        )
        if isinstance(outcome, (Done, Fail)) and _leaves_it(machine, answered, ask):
            self._settle(task, machine, outcome, now, answered)  # the step has ended its work, which is not done again
        else:
            self.bench.settled(
                task, replace(answered, before=record, docs={**docs, **answered.docs}) if docs else answered
            )

    def _settle(
        self, task: m.Task, machine: Machine, outcome: Outcome | Exception, now: float, answered: Change | None = None
    ) -> None:
        """`answered`: what was asked for meanwhile, which leaves the record where it is and rides along."""
        record, who = task.record, self.terms.who
        known = (
            replace(record, docs=record.docs.with_changes(answered.docs))
            if answered is not None and answered.docs
            else record
        )
        go_on = isinstance(outcome, Done) and self._may_go_on(task, machine, outcome, now)
        change = rules.settle(machine, known, outcome, who=who, here=self.terms.here, go_on=go_on)
        if answered is not None:
            change = _with_answer(change, record, answered)
        elif task.ask is not None and change.after is not None:  # a new priority stops nothing and rides along
            change = _with_priority(change, change.after, task.ask)
            task.ask = None
        spawn: tuple[Change, ...] = ()
        if isinstance(outcome, Done) and outcome.spawn:
            try:
                spawn = tuple(rules.create(self.terms.machines, n, maker=record, who=who) for n in outcome.spawn)
            except Exception as error:  # noqa: BLE001 - what a step wants to make may be anything
                change = rules.settle(machine, record, Fail(rules.said(error)), who=who)
        self.bench.settled(task, change, spawn)

    def _may_go_on(self, task: m.Task, machine: Machine, outcome: Done, now: float) -> bool:
        if (
            self.lease.stopping
            or self.lease.draining
            or task.stopping
            or task.kept >= KEEP_STATES
            or now - task.since >= KEEP_SECONDS
        ):
            return False
        state = machine.state(task.record.state)
        target = outcome.to or (state.then if state is not None else None)
        if target is None or (task.record.kind, target) not in self.terms.served:
            return False
        return not self.lookout.is_paused(machine.name, target)


def _written_by(machine: Machine, outcome: Outcome | Exception | Stopped) -> dict[str, bytes | None]:
    """What a step found out is kept also when a person decides what becomes of its record; what cannot be stored is
    not.
    """
    try:
        return (
            rules.documents(machine, outcome.docs, "step") if isinstance(outcome, (Done, Wait)) and outcome.docs else {}
        )
    except Exception:  # noqa: BLE001 - what a step answers may be anything
        return {}


def _leaves_it(machine: Machine, answered: Change, ask: Ask) -> bool:
    """Whether the record stays where it is: the request was refused, could not be judged now, or asks for nothing
    else.
    """
    action = machine.action(ask.action)
    return answered.event in ("", rules.refused(ask)) or (action is not None and action.target == STAY)


def _with_answer(change: Change, record: Record, answered: Change) -> Change:
    if not answered.answers:
        return change  # the request stays, and is answered when it can be judged
    by = f"{answered.event}, asked by {answered.who or 'somebody'}" + (f": {answered.why}" if answered.why else "")
    why = rules.clip(f"{change.why} ({by})" if change.why else by)
    return replace(change, before=record, docs={**change.docs, **answered.docs}, why=why, answers=True)


def _with_priority(change: Change, after: Record, ask: Ask) -> Change:
    """The change with the priority that was asked for; a request that makes no sense stays, and is refused when the
    record is free.
    """
    try:
        wanted = int(Docs({"a": ask.args})["a"][PRIORITY])
        rules.check_priority(wanted)
    except Exception:  # noqa: BLE001 - it was left with us by another process
        return change
    by = f"priority {wanted} asked by {ask.who or 'somebody'}" + (f": {ask.why}" if ask.why else "")
    who, event = (change.who, change.event) if change.event else (ask.who, PRIORITY)
    why = rules.clip(f"{change.why} ({by})" if change.why else by)
    return replace(change, after=replace(after, priority=wanted), event=event, who=who, why=why, answers=True)
