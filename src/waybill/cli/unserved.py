"""Work that waits in silence: records that are due, in a state that no living worker serves.

A worker announces its roles with its session. Who was started for other roles, or without the application that declares
the kind, is well and idle, and nothing else would say why the records do not move. What only looks like it is left out:
records that became due a moment ago, queues that are paused, records that a mark holds. Where no worker lives at all
there is one remark, and nothing is called wrong.

At most LOOKED records of a state are looked at, and none of a state that is served, unless its records are bound to
hosts.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator
from datetime import UTC, datetime
from itertools import islice
from typing import NamedTuple

from waybill import rules
from waybill.cli import shapes
from waybill.machine import Machine
from waybill.record import MAX_PAGE, Finding, Record, SessionInfo, Store
from waybill.rules import Machines, calls

RULE = "work that nobody serves"
GRACE = 60.0  # seconds that a record may be due before it counts as waiting: workers are restarted now and then
LOOKED = 10_000  # records of a state
NAMED = 3  # queues named in the remark that no worker lives


class Queue(NamedTuple):
    machine: Machine
    state: str

    @property
    def role(self) -> str:
        return f"{self.machine.name}.{self.state}"


class Waiting(NamedTuple):
    """Due records of one queue."""

    many: int
    whole: bool  # all records of the state were looked at; otherwise there may be more
    since: float  # when the first of them moved last, or was due

    def sentence(self, queue: Queue, now: float) -> str:
        since = datetime.fromtimestamp(self.since, UTC).isoformat()
        things, have = (queue.machine.name, "has") if self.many == 1 else (queue.machine.plural, "have")
        least = "" if self.whole else "at least "
        return f"{least}{self.many} {things} {have} waited in {queue.state} since {shapes.local(since)} ({shapes.age(since, now)})"


def findings(store: Store, machines: Machines) -> Iterator[Finding]:
    """One for each queue that nobody serves, and for each host whose workers leave out what only they may do."""
    now = store.now()
    living = [session for session in store.sessions() if session.expires > now]
    if not living or any("roles" not in session.about for session in living):
        return  # nobody is there; or somebody does not say what for
    for queue in _queues(store, machines):
        hosts = {session.host for session in living if queue.role in session.about["roles"]}
        if not hosts:
            if waiting := _waiting(store, queue, now):
                yield _nobody(queue, waiting, living, now)
        elif queue.machine.binds_files():
            yield from _elsewhere(store, queue, {session.host for session in living} - hosts, now)


def remark(store: Store, machines: Machines) -> str | None:
    """That work waits and no worker lives. Upkeep does not count: it is due whenever nobody has worked for a while."""
    now = store.now()
    if any(session.expires > now for session in store.sessions()):
        return None
    queues = (queue for queue in _queues(store, machines) if queue.machine.name != calls.DUTY)
    found = ((queue, waiting) for queue in queues if (waiting := _waiting(store, queue, now)))
    named = list(islice((waiting.sentence(queue, now) for queue, waiting in found), NAMED + 1))
    if not named:
        return None
    more = ", and so do others" if len(named) > NAMED else ""
    return f"No worker is alive: {'; '.join(named[:NAMED])}{more}. `waybill work` starts one."


def _queues(store: Store, machines: Machines) -> Iterator[Queue]:
    """Those that hold records, are not paused, and are Waybill's to serve: a state without a step is left to another
    service.
    """
    marks = store.marks()
    for kind, machine in sorted(machines.items()):
        lacking = machine.without_steps() if kind != calls.DUTY else ()  # whose step is registered by workers alone
        served = [state for state in machine.working() if state.name not in lacking]
        tally = store.tally(kind) if served else {}
        for state in served:
            if tally.get(state.name) and not rules.pausing(machine, state.name) & marks.keys():
                yield Queue(machine, state.name)


def _waiting(
    store: Store, queue: Queue, now: float, of: Callable[[Record], bool] = lambda record: True
) -> Waiting | None:
    """What is due there for longer than GRACE, of the oldest records."""
    marks = store.marks()
    many, first, looked = 0, now, 0
    after: int | None = None
    while looked < LOOKED:
        page = store.find(queue.machine.name, state=queue.state, after=after, limit=MAX_PAGE)
        looked += max(1, len(page.records))
        for record in page.records:
            since = _due_since(record, marks)
            if since is not None and now - since >= GRACE and of(record):
                many, first = many + 1, min(first, since)
        after = page.after
        if after is None:
            break
    return Waiting(many, after is None, first) if many else None


def _due_since(record: Record, marks: Collection[str]) -> float | None:
    """None: it is held, or waits for something else than a worker."""
    if record.session is not None or any(gate in marks for gate in record.gates):
        return None
    if record.parked is None:
        return record.updated
    return record.wake_at if record.parked == "wait" else None


def _nobody(queue: Queue, waiting: Waiting, living: list[SessionInfo], now: float) -> Finding:
    workers = f"{len(living)} workers are" if len(living) != 1 else "1 worker is"
    if any(queue.machine.name in session.about.get("tables", ()) for session in living):
        why, remedy = f"{workers} alive, for other roles", "start one that does"
    else:
        why = f"{workers} alive, without the application that declares {queue.machine.plural}"
        remedy = "install that application beside a worker and start it again, or start one where it is"
    problem = f"{waiting.sentence(queue, now)}, and no living worker serves {queue.role}: {why}."
    return Finding(RULE, queue.role, problem, f"{remedy}: waybill work --role {queue.role}", mendable=False)


def _elsewhere(store: Store, queue: Queue, hosts: set[str], now: float) -> Iterator[Finding]:
    """Bound to one of these hosts, which have workers, but none for this queue.

    (What is bound to a host without any is the duty's.)
    """
    for host in sorted(hosts):
        if waiting := _waiting(store, queue, now, lambda record, host=host: record.host == host):  # type: ignore[misc]
            problem = f"{waiting.sentence(queue, now)} with their working files on {host}, whose workers do not serve {queue.role}."
            yield Finding(
                RULE,
                f"{queue.role} on {host}",
                problem,
                f"start one there: waybill work --role {queue.role}",
                mendable=False,
            )
