"""The worker's thin shell: one thread owns the store connection and the core, pool threads only run steps.

    run():  tick the core -> carry out its commands -> drain what the steps sent -> tick again; sleep when the core says so

A step's message wakes the owner through `Store.interrupt`. SIGTERM calls `stop()`: no new claims, running steps end or give up at a safe
point, what ended is committed, the session is closed when the last step has ended. Steps that do not end in time are left to the session's
expiry: closing it early would let a second run start beside them.
"""

from __future__ import annotations

import logging
import os
import queue
import threading
import time
from collections import deque
from collections.abc import Callable, Iterable
from concurrent.futures import ThreadPoolExecutor
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

from waybill import rules
from waybill.engine import Engine
from waybill.machine import Machine, MachineError
from waybill.record import Answer, Ask, Change, Record, Ref, Role, SessionLost, Store, StoreError, Unavailable, Unknown
from waybill.rules import Machines
from waybill.step import Done, Fail, Stopped
from waybill.worker import messages as m
from waybill.worker.context import Desk, StepContext
from waybill.worker.core import Core
from waybill.worker.folders import clear_folder, folder_of
from waybill.worker.lanes import Beside, shares
from waybill.worker.roles import roles_of
from waybill.worker.roots import check_root

if TYPE_CHECKING:
    from waybill.objects import Objects

log = logging.getLogger("waybill.worker")

GRACE = 30.0  # seconds that steps have to end after stop()
CLOCK: int = getattr(time, "CLOCK_BOOTTIME", time.CLOCK_MONOTONIC)


def awake_clock() -> float:
    """Seconds that also pass while the machine sleeps: a laptop that wakes up finds its sessions old."""
    return time.clock_gettime(CLOCK)


class Hands:
    """A semaphore. The one of `threading` is written in Python, and would cost as much as a short step."""

    def __init__(self) -> None:
        self._tokens: queue.SimpleQueue[None] = queue.SimpleQueue()

    def release(self, n: int = 1) -> None:
        for _ in range(n):
            self._tokens.put(None)

    def acquire(self, blocking: bool = True) -> bool:
        try:
            self._tokens.get(blocking)
        except queue.Empty:
            return False
        return True


class Worker:
    """Claims, runs and commits until it is stopped. Use from one thread; `stop` may be called from any."""

    passes: tuple[type[BaseException], ...] = ()  # what is no business of a step, and passes through it

    def __init__(
        self, open_store: Callable[[], Store], machines: Machines, *, host: str, work_root: Path, objects: Objects,
        roles: Iterable[str] | None = None, shared: bool = False, threads: int = 4, ttl: float = 15.0, portion: int = 512,
        grace: float = GRACE, clock: Callable[[], float] = awake_clock, now: Callable[[], float] = time.time, lane: bool = False,
        outfit: Callable[[str], Any] = lambda kind: None,
    ) -> None:  # fmt: skip
        """`outfit`: what the steps of a kind work with. `lane`: it runs beside another worker of this process, which has looked after all
        else (see lanes.py)."""
        self.open_store, self.machines, self.host, self.objects = open_store, machines, host, objects
        self.root, self.threads, self.ttl, self.grace, self.clock, self.now = work_root, threads, ttl, grace, clock, now
        self.roles: tuple[Role, ...] = roles_of(machines, roles)
        self.who = f"worker {host} {os.getpid()}"
        self.shared = shared
        self.portion = portion
        self.lane = lane
        self.outfit = outfit
        self.store: Store | None = None
        self._inbox: queue.SimpleQueue[m.Ended | Callable[[], None]] = queue.SimpleQueue()
        self._pool: deque[m.Task | None] = deque()
        self._hands = Hands()
        self._contexts: dict[int, StepContext] = {}
        self._replies: dict[int, queue.SimpleQueue[list[Record] | BaseException]] = {}
        self._asleep = False  # in `watch`, and nobody has called it back yet
        self._stopping_at: float | None = None
        self._beside = Beside(self, ())
        self._over = threading.Event()
        self.core: Core

    # --- from other threads

    def stop(self) -> None:
        """End gracefully. Safe in a signal handler."""
        self._post(self._stop)

    def _stop(self) -> None:
        if self._stopping_at is None:
            self._stopping_at = self.clock()
            self._beside.stop()
        self.core.on(m.Stop(), self.clock())

    def _post(self, message: m.Ended | Callable[[], None]) -> None:
        self._inbox.put(message)
        if self._asleep and (store := self.store) is not None:
            self._asleep = False  # one call is enough: the owner takes in all that is there
            store.interrupt()

    # --- the owner thread

    def run(self) -> None:
        """Work until `stop`."""
        for role in self.roles:
            machine = self.machines[role.kind]
            if role.state in machine.without_steps():
                raise MachineError(f"{role.kind}.{role.state} has no step: leave the role out, or register one.")
        self.store = self.open_store()
        try:
            if not self.lane:
                check_root(self.store, self.root, self.shared)
                self._warn_of_undeclared(self.store)
                self.threads, *others = shares(self.store.url, self.threads)
                self._beside = Beside(self, [self._lane(threads) for threads in others])
                self._beside.start()
            self.core = Core(
                self.machines, self.roles, who=self.who, answer=self._answer, here="" if self.shared else self.host,
                threads=self.threads, portion=self.portion, ttl=self.ttl,
            )  # fmt: skip
            hands = [threading.Thread(target=self._work, name=f"step-{n}", daemon=True) for n in range(self.threads)]
            for hand in hands:
                hand.start()
            self._watch_over_steps()
            self._loop(self.store)
            for _ in hands:
                self._pool.append(None)
                self._hands.release()
        finally:
            store, self.store = self.store, None
            store.close()
            self._over.set()
            self._tidy_up()
            self._beside.join()

    @cached_property
    def _janitor(self) -> ThreadPoolExecutor:
        return ThreadPoolExecutor(1, "janitor")

    def _tidy_up(self) -> None:
        if "_janitor" in self.__dict__:
            self._janitor.shutdown()

    def _lane(self, threads: int) -> Worker:
        return Worker(
            self.open_store, self.machines, host=self.host, work_root=self.root, objects=self.objects,
            roles=[f"{role.kind}.{role.state}" for role in self.roles], shared=self.shared, threads=threads, ttl=self.ttl,
            portion=self.portion, grace=self.grace, clock=self.clock, now=self.now, lane=True, outfit=self.outfit,
        )  # fmt: skip

    def _watch_over_steps(self) -> None:
        """Beside the owner, which may be stuck in a call that nobody answers: steps that may have lost their claim are told to stop."""

        def watch() -> None:
            while not self._over.wait(self.ttl / 6):
                core = self.core
                if core.lease.session is not None and self.clock() - core.lease.renewed >= self.ttl * 2 / 3:
                    for context in list(self._contexts.values()):
                        context.stopped = True

        threading.Thread(target=watch, name="watch", daemon=True).start()

    def _loop(self, store: Store) -> None:
        while True:
            for command in self.core.tick(self.clock()):
                if isinstance(command, m.Exit):
                    return
                getattr(self, CARRY_OUT[type(command)])(store, command)
            self._drain_inbox()
            if self._stopping_at is not None and self.clock() - self._stopping_at > self.grace:
                # Not closing the session: a step still runs, and its record must stay ours until the session expires.
                log.warning("%d steps did not end within %.0f s; their claims are left to expire", len(self.core.bench.tasks), self.grace)
                return

    def _drain_inbox(self, wait: float = 0.0) -> None:
        """Take in all that is there; wait so many seconds for the first.

        Not what comes meanwhile: steps that ask the store without a pause would keep the owner from its heartbeat.
        """
        get = self._inbox.get_nowait
        try:
            message = self._inbox.get(timeout=wait) if wait > 0 else get()
            now = self.clock()
            for _ in range(self._inbox.qsize()):
                self._take_in(message, now)
                message = get()
            self._take_in(message, now)
        except queue.Empty:
            return

    def _take_in(self, message: m.Ended | Callable[[], None], now: float) -> None:
        if isinstance(message, m.Ended):
            self.core.on(message, now)
        else:
            message()

    def _sleep(self, store: Store, command: m.Sleep) -> None:
        timeout = command.until - self.clock()
        if self._stopping_at is not None:
            timeout = min(timeout, self._stopping_at + self.grace - self.clock() + 0.001)
        if timeout <= 0:
            return
        try:
            if not command.watch:
                self._drain_inbox(timeout)
                return
            self._asleep = True
            if self._inbox.empty() and store.watch(timeout):
                self.core.on(m.Woke(), self.clock())
        except StoreError as error:
            self._away(error)
        finally:
            self._asleep = False

    def _away(self, error: StoreError) -> None:
        log.warning("the store is away: %s", error)
        self.core.on(m.Away(), self.clock())

    def _guarded(self, call: Callable[[], m.Event | None]) -> None:
        """Carry out a store call; what its refusal means for the session is the same for all."""
        try:
            event = call()
        except (SessionLost, Unknown) as error:
            log.warning("the session is lost: %s", error)
            event = m.Lost(str(error))
        except Unavailable as error:
            self._away(error)
            return
        if event is not None:
            self.core.on(event, self.clock())

    def _open_session(self, store: Store, command: m.OpenSession) -> None:
        def call() -> m.Event:
            sent = self.clock()
            about = {
                "pid": os.getpid(),
                "roles": [f"{r.kind}.{r.state}" for r in self.roles],
                "tables": {k: [v.v, v.digest()] for k, v in self.machines.items()},
            }
            return m.Opened(store.open_session(host=self.host, ttl=self.ttl, about=about), sent)

        self._guarded(call)

    def _claim(self, store: Store, command: m.Claim) -> None:
        session = self.core.lease.session
        if session is not None:
            self._guarded(lambda: m.Took(store.claim(command.roles, session, command.limit), command.limit))

    def _look(self, store: Store, command: m.Look) -> None:
        def call() -> m.Event:
            return m.Looked(command.tasks, store.open_parents([t.record.ref for t in command.tasks]))

        try:
            self.core.on(call(), self.clock())
        except StoreError as error:
            # Not seen is not settled: the joins are looked at again.
            self.core.bench.looks.extend(command.tasks)
            self._away(error)

    def _commit(self, store: Store, command: m.Commit) -> None:
        self.core.on(m.Answered(command.batch, self._commit_now(store, command)), self.clock())

    def _commit_now(self, store: Store, command: m.Commit) -> list[Answer]:
        try:
            return store.commit([entry.group for entry in command.batch])
        except StoreError as error:
            return [error] * len(command.batch)

    def _read_marks(self, store: Store, command: m.ReadMarks) -> None:
        self._guarded(lambda: m.Marked(frozenset(store.marks())))

    def _wake(self, store: Store, command: m.Wake) -> None:
        def call() -> m.Event:
            due = store.wake()
            return m.Woken(due.woken, due.next)

        self._guarded(call)

    def _renew(self, store: Store, command: m.Renew) -> None:
        def call() -> m.Event:
            sent = self.clock()
            progress = {
                f"{c.record.kind} {c.record.id}": list(c.progressed) for c in list(self._contexts.values()) if c.progressed is not None
            }
            return m.Heard(store.renew(command.session, progress), sent)

        self._guarded(call)

    def _reap(self, store: Store, command: m.Reap) -> None:
        def call() -> None:
            for name in store.reap():
                log.warning("the session %s died; what it held is free again", name)

        self._guarded(call)

    def _close(self, store: Store, command: m.Close) -> None:
        try:
            store.close_session(command.session)
        except StoreError as error:
            log.warning("the session could not be closed and will expire: %s", error)

    def _apply(self, store: Store, command: m.Apply) -> None:
        engine = Engine(store, self.machines)
        try:
            engine.pending()
        except (StoreError, rules.Refused) as error:
            log.warning("requests left with this worker are applied by the next duty: %s", error)

    def _clear(self, store: Store, command: m.Clear) -> None:
        if os.path.lexists(folder := self.folder_of(command.record)):  # in a thread of its own: a million files are many heartbeats
            self._janitor.submit(clear_folder, folder, command.record.version)

    def folder_of(self, record: Record) -> Path:
        return folder_of(self.root, self.machines[record.kind], record)

    def _answer(self, machine: Machine, record: Record, ask: Ask) -> Change:
        assert self.store is not None
        try:
            return rules.answer(machine, record, ask, store=self.store)
        except StoreError as error:
            # A guard could not read. The request stays where it is, and is applied when the store answers again.
            log.warning("%s could not be asked to %s now: %s", record.ref, ask.action, error)
            return rules.release(record, self.who)

    def _warn_of_undeclared(self, store: Store) -> None:
        for kind, machine in self.machines.items():
            for state, count in rules.undeclared(machine, store.tally(kind)).items():
                log.warning(
                    "%d %s are in %s, which this release does not declare: never claimed; move them with `waybill act --to`",
                    count, machine.plural, state,
                )  # fmt: skip

    # --- steps

    def _start(self, store: Store, command: m.Start) -> None:
        self._pool.extend(command.tasks)
        self._hands.release(len(command.tasks))

    def _recall(self, store: Store, command: m.Recall) -> None:
        while self._hands.acquire(blocking=False):
            task = self._pool.pop()
            if task is not None:
                self.core.on(m.Ended(task, Stopped("given back before it began")), self.clock())

    def _signal(self, store: Store, command: m.Signal) -> None:
        if (context := self._contexts.get(command.task.number)) is not None:
            context.stopped = True

    def _reply(self, store: Store, command: m.Reply) -> None:
        if (replies := self._replies.get(command.task.number)) is not None:
            replies.put(command.result)

    def _work(self) -> None:
        """A pool thread: takes tasks one after the other."""
        post, hands, pool, clock = self._post, self._hands, self._pool, self.clock
        while True:
            hands.acquire()
            task = pool.popleft()
            if task is None:
                return
            began = clock()
            outcome = self._run_step(task)
            post(m.Ended(task, outcome, clock() - began))

    @cached_property
    def _desk(self) -> Desk:
        return Desk(
            self._send, self._read, self._remove_children, self.now, self.root, self.objects, self.who, self.machines, self.outfit,
        )  # fmt: skip

    def _run_step(self, task: m.Task) -> Any:
        context = self._contexts[task.number] = StepContext(task, self._desk)
        machine = self.machines[task.record.kind]
        step = machine.steps[task.record.state]
        try:
            if task.stopping:
                return Stopped("told to stop before it began")
            outcome = step(task.record, context)
            if self.core.terms.here and isinstance(outcome, Done) and _leaves_files(machine, task.record.state):
                self._bind_files(context)
            return outcome
        except Stopped as stopped:
            # Of itself it would be given back and taken up again at once, for ever.
            told = context.stopped or task.stopping or task.dead or task.taken is not None
            return stopped if told else RuntimeError("The step raised Stopped and nobody had told it to stop.")
        except Exception as error:
            context.log.info("%s: %s", type(error).__name__, rules.said(error), exc_info=not isinstance(error, Fail))
            return error
        except self.passes:
            raise
        except BaseException as left:  # noqa: BLE001 - it would end this thread in silence, and the record would be held for ever
            code = repr(left.code) if isinstance(left, SystemExit) else type(left).__name__
            return RuntimeError(f"The step left the program with {code}; a step answers, or raises an error.")
        finally:
            self._contexts.pop(task.number, None)
            self._replies.pop(task.number, None)

    def _bind_files(self, context: StepContext) -> None:
        """Also where the step left nothing: a record that is bound to a host has a folder there, or it would be led back for ever."""
        context.workdir  # noqa: B018 - made when asked for

    def _send(self, saving: m.Saving) -> list[Record]:
        replies = self._replies.setdefault(saving.task.number, queue.SimpleQueue())
        self._post(lambda: self.core.on(saving, self.clock()))
        records: list[Record] = _unwrap(replies.get())
        return records

    def _read(self, question: Callable[[Store], Any]) -> Any:
        answers: queue.SimpleQueue[Any] = queue.SimpleQueue()
        self._post(lambda: answers.put(_try(question, self.store)))
        return _unwrap(answers.get())

    def _remove_children(self, store: Store, parent: Ref, kind: str) -> int:
        """In the step's own thread, verb by verb: a million children are many heartbeats."""
        return Engine(store, self.machines).remove_children(parent, self.machines[kind], who=self.who)[1]


def _leaves_files(machine: Machine, state: str) -> bool:
    declared = machine.state(state)
    return declared is not None and declared.leaves_files


def _try(question: Callable[[Store], Any], store: Store | None) -> Any:
    if store is None:
        return Stopped("the worker has ended")
    try:
        return question(store)
    except BaseException as error:  # noqa: BLE001 - carried over to the thread that asked, and raised there
        return error


def _unwrap(answer: Any) -> Any:
    if isinstance(answer, BaseException):
        raise answer
    return answer


CARRY_OUT: dict[type, str] = {
    m.OpenSession: "_open_session", m.Claim: "_claim", m.Look: "_look", m.Start: "_start", m.Commit: "_commit", m.Reply: "_reply",
    m.Signal: "_signal", m.Recall: "_recall", m.ReadMarks: "_read_marks", m.Wake: "_wake", m.Renew: "_renew", m.Reap: "_reap",
    m.Apply: "_apply", m.Clear: "_clear", m.Close: "_close", m.Sleep: "_sleep",
}  # fmt: skip
