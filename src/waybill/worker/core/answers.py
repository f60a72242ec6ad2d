"""What the store's answer to a commit means for the task that it was for.

Committed     the task goes on under its claim, or is gone; a save is answered to its step
Unavailable   the same again, while the session lasts
Unknown, SessionLost    nothing more is committed under this session
any other refusal       the claim is lost, or what was decided cannot be stored and something else is
"""

from __future__ import annotations

from collections.abc import Callable

from waybill import rules
from waybill.record import (
    ClaimLost,
    Committed,
    Conflict,
    Group,
    NotFound,
    Ref,
    SessionLost,
    StoreError,
    Taken,
    Unavailable,
    Unknown,
)
from waybill.step import Fail, Stopped
from waybill.worker import messages as m
from waybill.worker.core.bench import Bench
from waybill.worker.core.claims import Claims
from waybill.worker.core.lease import Lease
from waybill.worker.core.lookout import Lookout
from waybill.worker.core.stuck import Stuck
from waybill.worker.core.terms import Terms


class Answers:
    """`drain`: commit nothing more under this session."""

    def __init__(
        self,
        terms: Terms,
        bench: Bench,
        lease: Lease,
        lookout: Lookout,
        claims: Claims,
        stuck: Stuck,
        *,
        drain: Callable[[str], None],
    ) -> None:
        self.terms, self.bench, self.lease, self.lookout, self.claims, self.drain = (
            terms,
            bench,
            lease,
            lookout,
            claims,
            drain,
        )
        self.stuck = stuck

    def answered(self, event: m.Answered, now: float) -> None:
        idle: dict[Ref, None] = {}
        for entry, answer in zip(event.batch, event.answers, strict=True):
            if isinstance(answer, Committed):
                if answer.idle:
                    idle.update(dict.fromkeys(answer.idle))
                if entry.task is not None and entry.group.changes[0].after is not None and answer.records[0] is None:
                    self._without_known(entry, entry.task, answer)
                elif entry.task is not None:
                    self._written(entry, entry.task, answer, now)
            elif isinstance(answer, Unavailable) or (entry.task is None and isinstance(answer, Unknown)):
                self._again(entry, answer, now)
            elif isinstance(answer, (Unknown, SessionLost)):
                if entry.saves and entry.task is not None:
                    self.bench.reply(entry.task, Stopped(str(answer)))
                elif entry.task is not None:
                    self.bench.forget(entry.task)
                self.drain(str(answer))
            elif entry.task is not None:
                self._refused(entry, entry.task, answer, now)
        if idle:
            self.bench.out.append(m.Entry(Group((), tuple(idle))))

    # --- written

    def _without_known(self, entry: m.Entry, task: m.Task, answer: Committed) -> None:
        """A child whose request made a record before is that record. Nothing of the group was written: the rest is
        sent again.
        """
        places = (place for place in range(len(answer.records) + len(entry.known)) if place not in entry.known)
        # The first of the group is the maker, and place 0 is the first child.
        found = {place: child for place, child in zip(places, answer.records[1:], strict=False) if child is not None}
        rest = tuple(
            change for change, record in zip(entry.group.changes, answer.records, strict=True) if record is None
        )
        self.bench.out.append(m.Entry(Group(rest, entry.group.nudges), task, entry.saves, {**entry.known, **found}))

    def _written(self, entry: m.Entry, task: m.Task, answer: Committed, now: float) -> None:
        if answer.asked:
            self.bench.commands.append(m.Apply(answer.asked))
        record = answer.records[0]
        if entry.saves:
            if record is not None:
                task.record = record
            made = [r for r in answer.records if r is not None]
            for place in sorted(entry.known):
                made.insert(place + 1, entry.known[place])
            self.bench.reply(task, made)
            return
        change = entry.group.changes[0]
        if record is not None and record.parked == "wait":
            self.lookout.waits(now + change.delay)
        if record is not None and change.event:
            state = self.terms.machine(record).state(record.state)
            if state is not None and state.clears_files:
                self.bench.commands.append(m.Clear(record))
        if record is None or record.session is None or record.session != self.lease.session or task.dead:
            self.bench.forget(task)
            self.lookout.let_go(now)
            return
        task.record, task.attempt, task.kept, task.taken = record, record.version, task.kept + 1, None
        self.claims.run(task)

    # --- not written

    def _again(self, entry: m.Entry, answer: StoreError, now: float) -> None:
        """Nothing was written, or a nudge perhaps was and may be repeated."""
        if entry.task is None or not entry.task.dead:
            self.bench.out.append(entry)
        elif entry.saves:
            self.bench.reply(entry.task, Stopped(str(answer)))
        self.lease.away(now)

    def _refused(self, entry: m.Entry, task: m.Task, answer: StoreError, now: float) -> None:
        closes = entry.group.changes[0].closes
        if (
            task.dead
            or isinstance(answer, (ClaimLost, NotFound))
            or (isinstance(answer, Conflict) and not closes and not entry.saves)
        ):
            task.dead = True
            self.bench.signal(task)
            if entry.saves:
                self.bench.reply(task, Stopped(str(answer)))
            else:
                self.bench.forget(task)
        elif entry.saves:
            if isinstance(answer, Taken):
                after = entry.group.changes[0].after
                task.taken = (answer.key, after.keys if after is not None else ())
                self.bench.reply(task, Stopped(str(answer)))
            else:
                self.bench.reply(task, answer)
        elif isinstance(answer, Conflict):
            # a child came while we looked: wait for it too
            self.bench.settled(task, rules.look(task.record, self.terms.who))
        else:
            self._unstorable(entry, task, answer, now)

    def _unstorable(self, entry: m.Entry, task: m.Task, answer: StoreError, now: float) -> None:
        """What was decided cannot be stored: the request is refused or the state fails, with the reason; if even that
        is refused, the claim is given back, now or later.
        """
        change, who = entry.group.changes[0], self.terms.who
        waits = change.after is not None and change.after.parked == "wait" and not change.after.tries
        if change.answers and task.ask is not None and not change.event.endswith(" refused"):
            self.bench.settled(task, rules.refuse(task.record, task.ask, str(answer)))
        elif len(entry.group.changes) > 1 or change.docs or waits or change.event not in ("", "fail", "retry"):
            self.bench.settled(
                task, rules.settle(self.terms.machine(task.record), task.record, Fail(str(answer)), who=who)
            )
        elif change.event:
            self.bench.settled(task, rules.release(task.record, who))
        elif self.lease.stopping:
            self.bench.forget(task)  # the claim ends with the session
        elif not self.stuck.keep(task, str(answer), now):
            self.drain(f"{task.record.ref} can be neither stored nor given back: {answer}")
