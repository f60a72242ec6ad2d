"""The worker's thin shell: one thread owns the store connection and the core, the threads of its crew only run steps.

    run():  tick the core -> carry out its commands -> drain what the steps sent -> tick again; sleep when the core says so

A step's message wakes the owner through `Store.interrupt`. SIGTERM calls `stop()`: no new claims, running steps end or
give up at a safe point, what ended is committed, the session is closed when the last step has ended. Steps that do not
end in time are left to the session's expiry: closing it early would let a second run start beside them.
"""

from __future__ import annotations

import logging
import os
import queue
import threading
import time
from collections.abc import Callable, Iterable
from concurrent.futures import ThreadPoolExecutor
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

from waybill import rules
from waybill.machine import MachineError
from waybill.record import Record, Role, Store, StoreError, make_ready
from waybill.rules import Machines
from waybill.step import Stopped
from waybill.worker import messages as m
from waybill.worker.clock import awake_clock
from waybill.worker.core import Core
from waybill.worker.crew import Crew
from waybill.worker.errands import Errands
from waybill.worker.folders import clear_folder, folder_of
from waybill.worker.lanes import Beside, shares
from waybill.worker.outage import Outage
from waybill.worker.roles import roles_of
from waybill.worker.roots import check_root

if TYPE_CHECKING:
    from waybill.objects import Objects

log = logging.getLogger("waybill.worker")

GRACE = 30.0  # seconds that steps have to end after stop()


class Worker(Errands):
    """Claims, runs and commits until it is stopped. Use from one thread; `stop` may be called from any."""

    def __init__(
        self,
        open_store: Callable[[], Store],
        machines: Machines,
        *,
        host: str,
        work_root: Path,
        objects: Objects,
        roles: Iterable[str] | None = None,
        shared: bool = False,
        threads: int = 4,
        ttl: float = 15.0,
        portion: int = 512,
        grace: float = GRACE,
        clock: Callable[[], float] = awake_clock,
        now: Callable[[], float] = time.time,
        lane: bool = False,
        outfit: Callable[[str], Any] = lambda kind: None,
        outage: Outage | None = None,
    ) -> None:
        """`outfit`: what the steps of a kind work with. `lane`: it runs beside another worker of this process, which
        has looked after all else (see lanes.py). `outage`: what both say of a store that is away.
        """
        make_ready()
        self.open_store, self.machines, self.host, self.objects = open_store, machines, host, objects
        self.root, self.threads, self.ttl, self.grace, self.clock, self.now = work_root, threads, ttl, grace, clock, now
        self.roles: tuple[Role, ...] = roles_of(machines, roles)
        self.who = f"worker {host} {os.getpid()}"
        self.shared = shared
        self.portion = portion
        self.lane = lane
        self.outfit = outfit
        self.outage = outage or Outage()
        self.store: Store | None = None
        self._inbox: queue.SimpleQueue[m.Ended | Callable[[], None]] = queue.SimpleQueue()
        self._asleep = False  # in `watch`, and nobody has called it back yet
        self._stopping_at: float | None = None
        self._beside = Beside(self, ())
        self._over = threading.Event()
        self.crew = self._make_crew()
        self.core: Core

    def _make_crew(self) -> Crew:
        return Crew(self)

    def _make_core(self) -> Core:
        return Core(
            self.machines,
            self.roles,
            who=self.who,
            answer=self._answer,
            here="" if self.shared else self.host,
            threads=self.threads,
            portion=self.portion,
            ttl=self.ttl,
        )

    # --- from other threads

    def stop(self) -> None:
        """End gracefully. Safe in a signal handler."""
        self.post(self._stop)

    def _stop(self) -> None:
        if self._stopping_at is None:
            self._stopping_at = self.clock()
            self._beside.stop()
        self.core.on(m.Stop(), self.clock())

    def post(self, message: m.Ended | Callable[[], None]) -> None:
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
            self.core = self._make_core()
            self.crew.hire(self.threads)
            self._watch_over_steps()
            self._loop(self.store)
            self.crew.dismiss()
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
            self.open_store,
            self.machines,
            host=self.host,
            work_root=self.root,
            objects=self.objects,
            roles=[f"{role.kind}.{role.state}" for role in self.roles],
            shared=self.shared,
            threads=threads,
            ttl=self.ttl,
            portion=self.portion,
            grace=self.grace,
            clock=self.clock,
            now=self.now,
            lane=True,
            outfit=self.outfit,
            outage=self.outage,
        )

    def _watch_over_steps(self) -> None:
        """Beside the owner, which may be stuck in a call that nobody answers: steps that may have lost their claim
        are told to stop.
        """

        def watch() -> None:
            while not self._over.wait(self.ttl / 6):
                lease = self.core.lease
                if lease.session is not None and lease.is_old(self.clock()):
                    self.crew.signal_all()

        threading.Thread(target=watch, name="watch", daemon=True).start()

    def _loop(self, store: Store) -> None:
        while True:
            for command in self.core.tick(self.clock()):
                if isinstance(command, m.Exit):
                    return
                self._carry_out(store, command)
            self._drain_inbox()
            if self._stopping_at is not None and self.clock() - self._stopping_at > self.grace:
                # Not closing the session: a step still runs, and its record must stay ours until the session expires.
                log.warning(
                    "%d steps did not end within %.0f s; their claims are left to expire",
                    len(self.core.bench.tasks),
                    self.grace,
                )
                return

    def _carry_out(self, store: Store, command: m.Command) -> None:
        getattr(self, CARRY_OUT[type(command)])(store, command)

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

    def _clear(self, store: Store, command: m.Clear) -> None:
        # in a thread of its own: a million files are many heartbeats
        if os.path.lexists(folder := self.folder_of(command.record)):
            self._janitor.submit(clear_folder, folder, command.record.version)

    def folder_of(self, record: Record) -> Path:
        return folder_of(self.root, self.machines[record.kind], record)

    def _warn_of_undeclared(self, store: Store) -> None:
        for kind, machine in self.machines.items():
            for state, count in rules.undeclared(machine, store.tally(kind)).items():
                log.warning(
                    "%d %s are in %s, which this release does not declare: never claimed; move them with `waybill act --to`",
                    count,
                    machine.plural,
                    state,
                )

    # --- the crew

    def _start(self, store: Store, command: m.Start) -> None:
        self.crew.start(command.tasks)

    def _recall(self, store: Store, command: m.Recall) -> None:
        for task in self.crew.recall():
            self.core.on(m.Ended(task, Stopped("given back before it began")), self.clock())

    def _signal(self, store: Store, command: m.Signal) -> None:
        self.crew.signal(command.task)

    def _reply(self, store: Store, command: m.Reply) -> None:
        self.crew.reply(command.task, command.result)


CARRY_OUT: dict[type, str] = {
    m.OpenSession: "_open_session",
    m.Claim: "_claim",
    m.Look: "_look",
    m.Start: "_start",
    m.Commit: "_commit",
    m.Reply: "_reply",
    m.Signal: "_signal",
    m.Recall: "_recall",
    m.ReadMarks: "_read_marks",
    m.Wake: "_wake",
    m.Renew: "_renew",
    m.Reap: "_reap",
    m.Apply: "_apply",
    m.Clear: "_clear",
    m.Close: "_close",
    m.Warn: "_warn",
    m.Sleep: "_sleep",
}
