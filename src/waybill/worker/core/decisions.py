"""One worker's decisions, put together: events come in, commands go out, and the session is watched over in between."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

from waybill import rules
from waybill.machine import Machine
from waybill.record import Ask, Change, Record, Role
from waybill.rules import PRIORITY, Machines
from waybill.worker import messages as m
from waybill.worker.core.answers import Answers
from waybill.worker.core.bench import Bench
from waybill.worker.core.claims import Claims
from waybill.worker.core.lease import Lease
from waybill.worker.core.lookout import LOOK_SLOWLY, Lookout
from waybill.worker.core.outcomes import Outcomes
from waybill.worker.core.pace import Pace
from waybill.worker.core.stuck import Stuck
from waybill.worker.core.terms import Terms


class Core:
    """`answer` turns a request into a change; it may read the store for a guard."""

    def __init__(
        self,
        machines: Machines,
        roles: Iterable[Role],
        *,
        who: str,
        answer: Callable[[Machine, Record, Ask], Change],
        here: str = "",
        threads: int = 4,
        portion: int = 512,
        ttl: float = 15.0,
    ) -> None:
        roles = tuple(roles)
        self.terms = Terms(machines, who, here, answer, {(r.kind, r.state) for r in roles})
        self.bench, self.lease, self.pace, self.lookout = (
            Bench(),
            Lease(ttl),
            Pace(threads, portion),
            Lookout(machines, roles),
        )
        outcomes = Outcomes(self.terms, self.bench, self.lease, self.pace, self.lookout)
        claims = Claims(self.terms, self.bench, self.lease, self.pace, self.lookout, outcomes)
        self.stuck = Stuck(self.terms, self.bench)
        answers = Answers(self.terms, self.bench, self.lease, self.lookout, claims, self.stuck, drain=self._drain)
        self.exited = False
        self._handlers: dict[type, Callable[[Any, float], None]] = {
            m.Opened: self._opened,
            m.Heard: self._heard,
            m.Lost: self._lost,
            m.Away: self._away,
            m.Stop: self._stop,
            m.Marked: self.lookout.marked,
            m.Woken: self.lookout.woken,
            m.Woke: self.lookout.woke,
            m.Took: claims.took,
            m.Looked: claims.looked,
            m.Saving: outcomes.saving,
            m.Ended: outcomes.ended,
            m.Answered: answers.answered,
        }

    def on(self, event: m.Event, now: float) -> None:
        """Take an event in; what to do about it is answered by the next `tick`."""
        self._handlers[type(event)](event, now)

    def tick(self, now: float) -> list[m.Command]:
        """What to do next, in order. The last command is Sleep or Exit when there is nothing else to do."""
        if self.exited:
            return [m.Exit()]
        self._watch_session(now)
        if now >= self.lease.away_until:
            self.stuck.try_due(now)
            self.bench.flush()
            if (session := self.lease.session) is not None and self.lease.is_due(now):
                self.lease.renew(now, busy=self.bench.busy)
                self.bench.commands += (m.Renew(session), m.Reap())
            if self.lease.takes_work:
                self.bench.commands += self.lookout.commands(self._room(), now)
        if self.bench.begin_steps():
            self.lease.steps_begin(now)
        # After Start: what is not begun yet can only be recalled once it is there.
        if not (self.lease.draining or self.lease.stopping) and self.pace.recalls(len(self.bench.tasks), now):
            self.bench.commands.append(m.Recall())
        return self.bench.said() or [self._sleep(now)]

    def _room(self) -> int:
        return self.pace.room(len(self.bench.tasks))

    # --- the session

    def _watch_session(self, now: float) -> None:
        lease, bench = self.lease, self.bench
        if lease.session is None:
            if not lease.opening and now >= lease.away_until:
                self._next_session()
            return
        if lease.is_over(now):
            self._lose("the store was not reached for a whole ttl")
        elif lease.is_old(now):
            bench.signal_all()
        if (lease.draining or lease.stopping) and lease.session is not None and not bench.tasks and not bench.out:
            bench.commands.append(m.Close(lease.session, lease.draining))
            lease.session = None

    def _next_session(self) -> None:
        if not self.lease.stopping:
            self.lease.opening = True
            self.bench.commands.append(m.OpenSession())
        elif not self.bench.busy:
            self.exited = True
            self.bench.commands.append(m.Exit())

    def _opened(self, event: m.Opened, now: float) -> None:
        self.lease.opened(event.session, event.sent)
        self.lookout.begin(now)

    def _heard(self, event: m.Heard, now: float) -> None:
        if not event.renewed.alive:
            self._lose("the session has expired")
            return
        self.lease.renewed = event.sent
        for ask in event.renewed.asked:
            task = self.bench.by_ref.get(ask.ref)
            if task is not None and task.ask is None:
                task.ask = ask
                if ask.action != PRIORITY:
                    self.bench.signal(task)

    def _lost(self, event: m.Lost, now: float) -> None:
        self.lease.opening = False
        self._lose(event.why)

    def _lose(self, why: str) -> None:
        """Everything we hold is lost."""
        self.bench.give_up(why)
        self.stuck.drop()
        self.lease.ended()

    def _drain(self, why: str) -> None:
        """Commit nothing more under this session: it is not known what it holds.

        It is closed when its steps have ended, or expires.
        """
        self.lease.drain(why)
        self.bench.give_up(why)
        self.stuck.drop()

    def _away(self, event: m.Away, now: float) -> None:
        self.lease.opening = False
        self.lease.away(now)

    def _stop(self, event: m.Stop, now: float) -> None:
        if not self.lease.stopping:
            self.lease.stopping = True
            self.bench.signal_all()
            self.stuck.drop()
            for task in self.bench.recall_starts():
                self.bench.settled(task, rules.release(task.record, self.terms.who))
            self.bench.commands.append(m.Recall())

    # --- rest

    def _sleep(self, now: float) -> m.Sleep:
        lease, lookout = self.lease, self.lookout
        until = now + LOOK_SLOWLY
        if lease.away_until > now:
            return m.Sleep(lease.away_until, watch=False)
        if lease.session is None:
            return m.Sleep(until, watch=False)
        until = min(until, lease.next_change(now), self.stuck.next)
        if not lease.takes_work:
            return m.Sleep(max(until, now), watch=False)
        room = self._room()
        until = min(until, lookout.wake_at)
        if room > 0:
            until = min(until, lookout.look_at)
        elif self.pace.lies_behind(len(self.bench.tasks)):
            until = min(until, self.pace.recall_at)
        return m.Sleep(max(until, now), watch=room > 0)
