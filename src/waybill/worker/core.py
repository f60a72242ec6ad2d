"""The worker's pure core: `on(event) -> commands`. No I/O, no clock, no threads, no locks; the shell and the simulator drive it.

The life of a task, which is one run of a step under a claim:

    Claimed -> (Looked, if a join) -> Start -> [Saving -> Commit -> Reply]* -> Ended -> Commit -> Answered -> gone, or the next Start

and of the session under which all claims are held:

    OpenSession -> Opened -> Renew every third of its ttl -> Close when every step has ended -> the next one, or Exit

A session's life is counted from before the last successful renewal was sent: at two thirds of its ttl the steps are told to stop, at the
whole ttl its claims are dropped. An answer that is not known (`Unknown`) ends the session too: the truth is in the store, and the next
claim will show it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

from msgspec.structs import replace

from waybill import rules
from waybill.machine import Machine
from waybill.record import (
    Ask,
    Change,
    Claimed,
    ClaimLost,
    Committed,
    Conflict,
    Docs,
    Group,
    NotFound,
    Record,
    Ref,
    Role,
    SessionLost,
    StoreError,
    Taken,
    Unavailable,
    Unknown,
)
from waybill.rules import PRIORITY, Machines
from waybill.step import Done, Fail, Outcome, Stopped
from waybill.worker import messages as m

KEEP_STATES = 16  # states that a record may go through under one claim
KEEP_SECONDS = 10.0
BUSY_SECONDS = 0.05  # how much work to have claimed ahead, at the pace measured
RECALL_SECONDS = 1.0  # a claimed record whose step could not begin for so long is given back
LOOK_AGAIN = 0.05  # an empty claim is no proof of an empty queue
LOOK_SLOWLY = 5.0  # and hints are lossy
HEARTBEAT = 1.0  # while a step runs
PAUSE = 0.2  # before trying a store that is away again


class Core:
    """One worker's decisions. `answer` turns a request into a change; it may read the store for a guard."""

    def __init__(
        self, machines: Machines, roles: Iterable[Role], *, who: str, answer: Callable[[Machine, Record, Ask], Change], here: str = "",
        threads: int = 4, portion: int = 512, ttl: float = 15.0,
    ) -> None:  # fmt: skip
        self.machines, self.roles, self.who, self.answer, self.here = machines, tuple(roles), who, answer, here
        self.threads, self.portion, self.ttl = threads, portion, ttl
        self.served = {(r.kind, r.state) for r in self.roles}
        self.session: str | None = None
        self.renewed = 0.0  # when the last renewal that succeeded was sent
        self.renewing = 0.0  # when to renew next
        self.opening = False
        self.draining = ""  # why no more is committed under this session
        self.stopping = False
        self.tasks: dict[int, m.Task] = {}  # all whose claim we hold or whose step still runs
        self.by_ref: dict[Ref, m.Task] = {}
        self.out: list[m.Entry] = []  # to be committed together
        self.looks: list[m.Task] = []
        self.starts: list[m.Task] = []
        self.commands: list[m.Command] = []
        self.pace = 0.01  # seconds a step takes, a moving average
        self.look_at = 0.0  # when to claim next
        self.looked_again = True
        self.wake_at = 0.0
        self.marks: frozenset[str] = frozenset()
        self.fresh = False  # the marks were read since the last claim
        self.ended_at = 0.0
        self.away_until = 0.0
        self.numbers = 0
        self.exited = False

    # --- events

    def on(self, event: m.Event, now: float) -> None:
        """Take an event in; what to do about it is answered by the next `tick`."""
        HANDLERS[type(event)](self, event, now)

    def tick(self, now: float) -> list[m.Command]:
        """What to do next, in order. The last command is Sleep or Exit when there is nothing else to do."""
        if self.exited:
            return [m.Exit()]
        self._watch_session(now)
        if now >= self.away_until:
            self._flush()
            self._renew(now)
            self._look_for_work(now)
        if self.starts:
            self.commands.append(m.Start(self.starts))
            self.starts = []
            self.renewing = min(self.renewing, now + HEARTBEAT)
        self._give_back(now)  # after Start: what is not begun yet can only be recalled once it is there
        commands, self.commands = self.commands, []
        if not commands:
            commands.append(self._sleep(now))
        return commands

    # --- the session

    def _watch_session(self, now: float) -> None:
        if self.session is None:
            if not self.opening and now >= self.away_until:
                if self.stopping:
                    if not any(t.running for t in self.tasks.values()):
                        self.exited = True
                        self.commands.append(m.Exit())
                else:
                    self.opening = True
                    self.commands.append(m.OpenSession())
            return
        age = now - self.renewed
        if age >= self.ttl:
            self._lose("the store was not reached for a whole ttl", now)
        elif age >= self.ttl * 2 / 3:
            self._signal_all()
        if (self.draining or self.stopping) and self.session is not None and not self.tasks and not self.out:
            self.commands.append(m.Close(self.session))
            self.session = None

    def _opened(self, event: m.Opened, now: float) -> None:
        self.session, self.renewed, self.renewing = event.session, event.sent, event.sent + self.ttl / 3
        self.opening, self.draining = False, ""
        self.look_at = self.wake_at = now

    def _renew(self, now: float) -> None:
        if self.session is not None and not self.draining and now >= self.renewing:
            # A long step has progress to show, and somebody may want it stopped: then the heartbeat is quicker.
            self.renewing = now + (min(HEARTBEAT, self.ttl / 3) if any(t.running for t in self.tasks.values()) else self.ttl / 3)
            self.commands.append(m.Renew(self.session))
            self.commands.append(m.Reap())

    def _heard(self, event: m.Heard, now: float) -> None:
        if not event.renewed.alive:
            self._lose("the session has expired", now)
            return
        self.renewed = event.sent
        for ask in event.renewed.asked:
            task = self.by_ref.get(ask.ref)
            if task is not None and task.ask is None:
                task.ask = ask
                if ask.action != PRIORITY:
                    self._signal(task)

    def _lose(self, why: str, now: float) -> None:
        """Everything we hold is lost. Steps that still run are told to stop; what they answer is ignored."""
        self._give_up(why)
        self.session, self.draining = None, ""

    def _lost(self, event: m.Lost, now: float) -> None:
        self.opening = False
        self._lose(event.why, now)

    def _drain(self, why: str) -> None:
        """Commit nothing more under this session: it is not known what it holds. It is closed when its steps have ended, or expires."""
        self.draining = self.draining or why
        self._give_up(why)

    def _give_up(self, why: str) -> None:
        for task in self.starts:
            task.running = False
        for task in list(self.tasks.values()):
            task.dead = True
            self._signal(task)
            self._forget(task)
        self.commands.extend(m.Reply(e.task, Stopped(why)) for e in self.out if e.saves and e.task is not None)
        self.out = [e for e in self.out if e.task is None]
        self.looks.clear()
        self.starts.clear()
        self.commands.append(m.Recall())

    def _away(self, event: m.Away, now: float) -> None:
        self.opening = False
        self.away_until = now + PAUSE

    def _stop(self, event: m.Stop, now: float) -> None:
        if not self.stopping:
            self.stopping = True
            self._signal_all()
            for task in self.starts:
                task.running = False
                self._settled(task, rules.release(task.record, self.who))
            self.starts.clear()
            self.commands.append(m.Recall())

    def _signal_all(self) -> None:
        for task in self.tasks.values():
            self._signal(task)

    def _signal(self, task: m.Task) -> None:
        if not task.stopping:
            task.stopping = True
            if task.running:
                self.commands.append(m.Signal(task))

    # --- claims

    def _look_for_work(self, now: float) -> None:
        if self.session is None or self.draining or self.stopping:
            return
        if now >= self.wake_at:
            self.wake_at = now + LOOK_SLOWLY
            self.commands.append(m.Wake())
        room = self._room()
        if room > 0 and now >= self.look_at:
            if not self.fresh:  # a queue that was paused a moment ago must not be claimed from
                self.commands.append(m.ReadMarks())
            else:
                self.fresh, self.look_at = False, now + LOOK_SLOWLY
                if roles := self.unpaused():
                    self.commands.append(m.Claim(roles, room))

    def _give_back(self, now: float) -> None:
        """What was claimed ahead and lies behind steps that are slower than thought goes back to the others."""
        if self._claimed_too_much() and now - self.ended_at >= RECALL_SECONDS:
            self.ended_at, self.pace = now, RECALL_SECONDS
            self.commands.append(m.Recall())

    def _claimed_too_much(self) -> bool:
        return self.pace < RECALL_SECONDS and len(self.tasks) > self.threads and not (self.draining or self.stopping)

    def _room(self) -> int:
        ahead = int(self.threads * BUSY_SECONDS / max(self.pace, 1e-6))
        target = max(self.threads, min(self.portion, ahead))
        room = target - len(self.tasks)
        # Claim in portions: wait until half of the target is free, unless a thread would idle.
        return room if room >= target / 2 or len(self.tasks) < self.threads else 0

    def unpaused(self) -> tuple[Role, ...]:
        if not self.marks:
            return self.roles
        return tuple(r for r in self.roles if not ({self.machines[r.kind].queue, f"queue/{r.kind}.{r.state}"} & self.marks))

    def _marked(self, event: m.Marked, now: float) -> None:
        self.marks, self.fresh = event.marks, True

    def _woken(self, event: m.Woken, now: float) -> None:
        if event.next is not None:
            self.wake_at = min(self.wake_at, now + event.next)
        if event.woken:
            self.look_at = now

    def _woke(self, event: m.Woke, now: float) -> None:
        self.look_at, self.looked_again = now, False

    def _took(self, event: m.Took, now: float) -> None:
        if event.claimed:
            if len(self.tasks) < self.threads:
                self.ended_at = now  # a thread was idle: what comes now has all its time
            self.looked_again = False
            self.look_at = now
        elif not self.looked_again:
            self.looked_again = True
            self.look_at = now + LOOK_AGAIN
        for claimed in event.claimed:
            self._begin(claimed, now)

    def _begin(self, claimed: Claimed, now: float) -> None:
        record = claimed.record
        if self.session is None or record.session != self.session:
            return  # claimed by a session that we have dropped meanwhile; it dies with it
        self.numbers += 1
        task = m.Task(self.numbers, record, record.version, now)
        self.tasks[task.number] = self.by_ref[record.ref] = task
        machine = self.machines[record.kind]
        if self.stopping or self.draining:
            self._settled(task, rules.release(record, self.who))
            return
        if claimed.ask is not None:
            task.ask = claimed.ask
            if claimed.ask.action != PRIORITY:
                self._settled(task, self.answer(machine, record, claimed.ask))
                return
        if claimed.mark is not None:
            try:
                self._settled(task, rules.hold(machine, record, claimed.mark, self.who))
            except Exception as error:  # noqa: BLE001 - the table cannot say what it needs to rest
                self._settled(task, rules.settle(machine, record, Fail(rules.said(error)), who=self.who))
            return
        self._run(task)

    def _run(self, task: m.Task) -> None:
        state = self.machines[task.record.kind].state(task.record.state)
        if state is None or not state.works:
            self._settled(task, rules.release(task.record, self.who))
        elif state.sort == "join" and rules.children_are_made(state, task.record):
            self.looks.append(task)
        elif state.sort == "retired":
            self._settled(task, rules.settle(self.machines[task.record.kind], task.record, Done(), who=self.who))
        else:
            task.running = True
            self.starts.append(task)

    def _looked(self, event: m.Looked, now: float) -> None:
        for task in event.tasks:
            if task.dead:
                continue
            machine = self.machines[task.record.kind]
            if task.record.ref in event.open:
                self._settled(task, rules.look(task.record, self.who))
            elif task.record.state in machine.steps:
                task.running = True
                self.starts.append(task)
            else:
                self._finish(task, Done(), now)

    # --- steps

    def _ended(self, event: m.Ended, now: float) -> None:
        task = event.task
        task.running = False
        self.ended_at = now
        if event.seconds is not None:
            self.pace += (event.seconds - self.pace) / 8
        if task.dead:
            self._forget(task)
            return
        self._finish(task, event.outcome, now)

    def _finish(self, task: m.Task, outcome: Outcome | Exception | Stopped, now: float) -> None:
        machine, record = self.machines[task.record.kind], task.record
        if task.taken is not None:
            key, keys = task.taken
            self._settled(task, rules.wait_for_key(machine, record, keys, key, self.who))
            return
        if task.ask is not None and task.ask.action != PRIORITY:
            docs = self._written_by(machine, outcome)
            answered = self.answer(machine, replace(record, docs=record.docs.with_changes(docs)) if docs else record, task.ask)
            self._settled(task, replace(answered, before=record, docs={**docs, **answered.docs}) if docs else answered)
            return
        stopped = isinstance(outcome, Stopped) or (task.stopping and isinstance(outcome, Exception) and not isinstance(outcome, Fail))
        if stopped:
            self._settled(task, rules.release(record, self.who))
            return
        assert not isinstance(outcome, Stopped)
        go_on = isinstance(outcome, Done) and self._may_go_on(task, machine, outcome, now)
        change = rules.settle(machine, record, outcome, who=self.who, here=self.here, go_on=go_on)
        if task.ask is not None and change.after is not None:  # a new priority stops nothing and rides along
            change = _with_priority(change, change.after, task.ask)
            task.ask = None
        spawn: tuple[Change, ...] = ()
        if isinstance(outcome, Done) and outcome.spawn:
            try:
                spawn = tuple(rules.create(self.machines, n, maker=record, who=self.who) for n in outcome.spawn)
            except Exception as error:  # noqa: BLE001 - what a step wants to make may be anything
                change = rules.settle(machine, record, Fail(rules.said(error)), who=self.who)
        self._settled(task, change, spawn)

    def _written_by(self, machine: Machine, outcome: Outcome | Exception | Stopped) -> dict[str, bytes | None]:
        """What a step found out is kept also when a person decides what becomes of its record; what cannot be stored is not."""
        try:
            return rules.documents(machine, outcome.docs, "step") if isinstance(outcome, Done) and outcome.docs else {}
        except Exception:  # noqa: BLE001 - what a step answers may be anything
            return {}

    def _may_go_on(self, task: m.Task, machine: Machine, outcome: Done, now: float) -> bool:
        if self.stopping or self.draining or task.stopping or task.kept >= KEEP_STATES or now - task.since >= KEEP_SECONDS:
            return False
        state = machine.state(task.record.state)
        target = outcome.to or (state.then if state is not None else None)
        if target is None or (task.record.kind, target) not in self.served:
            return False
        return not (self.marks and {machine.queue, f"queue/{machine.name}.{target}"} & self.marks)

    def _saving(self, event: m.Saving, now: float) -> None:
        task = event.task
        if task.dead or task.number not in self.tasks:
            self.commands.append(m.Reply(task, Stopped("the claim is lost")))
            return
        machine, record = self.machines[task.record.kind], task.record
        try:
            docs = rules.documents(machine, event.docs, "step") if event.docs else {}
            keys = rules.check_more_keys(machine, record, event.keys) if event.keys else record.keys
            spawn = tuple(rules.create(self.machines, n, maker=record, who=self.who) for n in event.spawn)
        except Exception as error:  # noqa: BLE001 - what a step saves may be anything: the step is told
            self.commands.append(m.Reply(task, error))
            return
        change = Change(record, replace(record, keys=keys), "", self.who, docs=docs)
        self.out.append(m.Entry(Group((change, *spawn)), task, saves=True))

    def _settled(self, task: m.Task, change: Change, spawn: tuple[Change, ...] = ()) -> None:
        self.out.append(m.Entry(Group((change, *spawn)), task))

    # --- commits

    def _flush(self) -> None:
        if self.looks:
            self.commands.append(m.Look(self.looks))
            self.looks = []
        if self.out:
            self.commands.append(m.Commit(self.out))
            self.out = []

    def _answered(self, event: m.Answered, now: float) -> None:
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
                # Nothing was written, or a nudge perhaps was and may be repeated: the same again, while the session lasts.
                if entry.task is None or not entry.task.dead:
                    self.out.append(entry)
                elif entry.saves:
                    self.commands.append(m.Reply(entry.task, Stopped(str(answer))))
                self.away_until = now + PAUSE
            elif isinstance(answer, (Unknown, SessionLost)):
                if entry.saves and entry.task is not None:
                    self.commands.append(m.Reply(entry.task, Stopped(str(answer))))
                elif entry.task is not None:
                    self._forget(entry.task)
                self._drain(str(answer))
            elif entry.task is not None:
                self._refused(entry, entry.task, answer)
        if idle:
            self.out.append(m.Entry(Group((), tuple(idle))))

    def _without_known(self, entry: m.Entry, task: m.Task, answer: Committed) -> None:
        """A child whose request made a record before is that record. Nothing of the group was written: the rest is sent again."""
        places = (place for place in range(len(answer.records) + len(entry.known)) if place not in entry.known)
        # The first of the group is the maker, and place 0 is the first child.
        found = {place: child for place, child in zip(places, answer.records[1:], strict=False) if child is not None}
        rest = tuple(change for change, record in zip(entry.group.changes, answer.records, strict=True) if record is None)
        self.out.append(m.Entry(Group(rest, entry.group.nudges), task, entry.saves, {**entry.known, **found}))

    def _written(self, entry: m.Entry, task: m.Task, answer: Committed, now: float) -> None:
        if answer.asked:
            self.commands.append(m.Apply(answer.asked))
        record = answer.records[0]
        if entry.saves:
            if record is not None:
                task.record = record
            made = [r for r in answer.records if r is not None]
            for place in sorted(entry.known):
                made.insert(place + 1, entry.known[place])
            self.commands.append(m.Reply(task, made))
            return
        change = entry.group.changes[0]
        if record is not None and record.parked == "wait":
            self.wake_at = min(self.wake_at, now + change.delay)
        if record is not None and change.event:
            state = self.machines[record.kind].state(record.state)
            if state is not None and state.clears_files:
                self.commands.append(m.Clear(record))
        if record is None or record.session is None or record.session != self.session or task.dead:
            self._forget(task)
            self.look_at = min(self.look_at, now)
            return
        task.record, task.attempt, task.kept, task.taken = record, record.version, task.kept + 1, None
        self._run(task)

    def _refused(self, entry: m.Entry, task: m.Task, answer: StoreError) -> None:
        closes = entry.group.changes[0].closes
        if task.dead or isinstance(answer, (ClaimLost, NotFound)) or (isinstance(answer, Conflict) and not closes and not entry.saves):
            task.dead = True
            self._signal(task)
            if entry.saves:
                self.commands.append(m.Reply(task, Stopped(str(answer))))
            else:
                self._forget(task)
        elif entry.saves:
            if isinstance(answer, Taken):
                after = entry.group.changes[0].after
                task.taken = (answer.key, after.keys if after is not None else ())
                self.commands.append(m.Reply(task, Stopped(str(answer))))
            else:
                self.commands.append(m.Reply(task, answer))
        elif isinstance(answer, Conflict):
            self._settled(task, rules.look(task.record, self.who))  # a child came while we looked: wait for it too
        else:
            self._unstorable(entry, task, answer)

    def _unstorable(self, entry: m.Entry, task: m.Task, answer: StoreError) -> None:
        """What was decided cannot be stored: the request is refused or the state fails, with the reason; if even that is refused, the
        claim is given back."""
        change = entry.group.changes[0]
        waits = change.after is not None and change.after.parked == "wait" and not change.after.tries
        if change.answers and task.ask is not None and not change.event.endswith(" refused"):
            self._settled(task, rules.refuse(task.record, task.ask, str(answer)))
        elif len(entry.group.changes) > 1 or change.docs or waits or change.event not in ("", "fail", "retry"):
            machine = self.machines[task.record.kind]
            self._settled(task, rules.settle(machine, task.record, Fail(str(answer)), who=self.who))
        elif change.event:
            self._settled(task, rules.release(task.record, self.who))
        else:
            self._drain(f"{task.record.ref} can be neither stored nor given back: {answer}")

    def _forget(self, task: m.Task) -> None:
        if not task.running:
            self.tasks.pop(task.number, None)
        if self.by_ref.get(task.record.ref) is task:
            del self.by_ref[task.record.ref]

    # --- rest

    def _sleep(self, now: float) -> m.Sleep:
        until = now + LOOK_SLOWLY
        if self.away_until > now:
            until = self.away_until
        elif self.session is not None:
            warning = self.renewed + self.ttl * 2 / 3
            until = min(until, warning if now < warning else self.renewed + self.ttl)
            if not self.draining:
                until = min(until, self.renewing)
            if not self.stopping and not self.draining:
                until = min(until, self.wake_at)
                if self._room() > 0:
                    until = min(until, self.look_at)
                elif self._claimed_too_much():
                    until = min(until, self.ended_at + RECALL_SECONDS)
        watch = self.session is not None and not (self.stopping or self.draining) and self._room() > 0 and self.away_until <= now
        return m.Sleep(max(until, now), watch)


def _with_priority(change: Change, after: Record, ask: Ask) -> Change:
    """The change with the priority that was asked for; a request that makes no sense stays, and is refused when the record is free."""
    try:
        wanted = int(Docs({"a": ask.args})["a"][PRIORITY])
        rules.check_priority(wanted)
    except Exception:  # noqa: BLE001 - it was left with us by another process
        return change
    by = f"priority {wanted} asked by {ask.who or 'somebody'}" + (f": {ask.why}" if ask.why else "")
    who, event = (change.who, change.event) if change.event else (ask.who, PRIORITY)
    why = rules.clip(f"{change.why} ({by})" if change.why else by)
    return replace(change, after=replace(after, priority=wanted), event=event, who=who, why=why, answers=True)


HANDLERS: dict[type, Callable[[Core, Any, float], None]] = {
    m.Opened: Core._opened, m.Woke: Core._woke, m.Took: Core._took, m.Looked: Core._looked, m.Ended: Core._ended, m.Saving: Core._saving,
    m.Answered: Core._answered, m.Heard: Core._heard, m.Marked: Core._marked, m.Woken: Core._woken, m.Away: Core._away, m.Lost: Core._lost,
    m.Stop: Core._stop,
}  # fmt: skip
