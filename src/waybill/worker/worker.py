"""The worker: one thread, the owner, has the store connection and the core; the step threads only run steps.

    run():  tick the core -> carry out its commands -> receive what the steps sent -> tick again; sleep when the core
            says so

A step's message wakes the owner through `Store.interrupt_watch`. SIGTERM calls `stop()`: nothing more is claimed,
running steps end or stop at a safe point, their outcomes are committed, and the session is closed when the last step has
ended. Steps that do not end in time keep their claims until the session expires: closing it early would let a second run
start beside them.
"""

from __future__ import annotations

import logging
import os
import queue
import threading
import time
from collections.abc import Callable, Iterable, Mapping
from concurrent.futures import ThreadPoolExecutor
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

from waybill import rules
from waybill.machine import MachineError
from waybill.record import Record, Store, StoreError, WorkQueue, prepare_decoders
from waybill.rules import Machines
from waybill.step import StepStopped
from waybill.worker import messages as m
from waybill.worker.core import WorkerCore
from waybill.worker.core.worker_settings import queues_of
from waybill.worker.step_threads import StepThreads
from waybill.worker.store_commands import StoreCommands
from waybill.worker.worker_group import OutageLog, WorkerGroup, split_pools, split_threads
from waybill.worker.working_folders import check_work_root, clear_folder, folder_of

if TYPE_CHECKING:
    from waybill.objects import Objects

log = logging.getLogger("waybill.worker")

GRACE_SECONDS = 30.0  # that steps have to end after stop()
BOOT_CLOCK: int = getattr(time, "CLOCK_BOOTTIME", time.CLOCK_MONOTONIC)


def read_boot_clock() -> float:
    """The clock that the age of a session is counted by. It also runs while the machine is suspended: a laptop that
    wakes up finds its sessions expired.
    """
    return time.clock_gettime(BOOT_CLOCK)


class Worker(StoreCommands):
    """Claims, runs and commits until it is stopped. Use it from one thread; `stop` may be called from any."""

    def __init__(
        self,
        open_store: Callable[[], Store],
        machines: Machines,
        *,
        host: str,
        work_root: Path,
        objects: Objects,
        queues: Iterable[str] | None = None,
        shared: bool = False,
        threads: int = 4,
        pools: Mapping[str, int] | None = None,
        ttl: float = 15.0,
        max_claims: int = 512,
        grace: float = GRACE_SECONDS,
        clock: Callable[[], float] = read_boot_clock,
        now: Callable[[], float] = time.time,
        is_group_member: bool = False,
        resources_of: Callable[[str], Any] = lambda kind: None,
        outage_log: OutageLog | None = None,
    ) -> None:
        """`pools`: the threads of the pools that states name, `threads` for those that are not named; None: no pools, all
        queues share `threads`. `resources_of`: the resources that steps of a kind receive. `is_group_member`: it runs beside
        another worker of this process, which has checked the working root and the states (see worker_group.py).
        `outage_log`: shared by both.
        """
        self.open_store, self.machines, self.host, self.objects = open_store, machines, host, objects
        self.work_root, self.threads, self.ttl, self.grace, self.clock, self.now = (
            work_root,
            threads,
            ttl,
            grace,
            clock,
            now,
        )
        self.queues: tuple[WorkQueue, ...] = queues_of(machines, queues)
        prepare_decoders()  # after the modules of the steps are imported: they define types too
        self.who = f"worker {host} {os.getpid()}"
        self.shared = shared
        self.max_claims = max_claims
        self.pools = pools
        self.is_group_member = is_group_member
        self.resources_of = resources_of
        self.outage_log = outage_log or OutageLog()
        self.store: Store | None = None
        self._inbox: queue.SimpleQueue[m.StepEnded | Callable[[], None]] = queue.SimpleQueue()
        self._is_asleep = False  # in `watch`, and not yet interrupted
        self._stop_requested_at: float | None = None
        self._group = WorkerGroup(self, ())
        self._end_signal = threading.Event()
        self.step_threads = self._make_step_threads()
        self.core: WorkerCore

    def _make_step_threads(self) -> StepThreads:
        return StepThreads(self)

    def _make_core(self) -> WorkerCore:
        return WorkerCore(
            self.machines,
            self.queues,
            who=self.who,
            answer_request=self._answer_request,
            bound_host="" if self.shared else self.host,
            threads=self.threads,
            max_claims=self.max_claims,
            ttl=self.ttl,
        )

    # --- from other threads

    def stop(self) -> None:
        """End gracefully. Safe to call in a signal handler."""
        self.post(self._request_stop)

    def _request_stop(self) -> None:
        if self._stop_requested_at is None:
            self._stop_requested_at = self.clock()
            self._group.stop()
        self.core.receive(m.StopRequested(), self.clock())

    def post(self, message: m.StepEnded | Callable[[], None]) -> None:
        self._inbox.put(message)
        if self._is_asleep and (store := self.store) is not None:
            self._is_asleep = False  # one call is enough: the owner receives everything in the inbox
            store.interrupt_watch()

    # --- the owner thread

    def run(self) -> None:
        """Work until `stop`."""
        for work_queue in self.queues:
            machine = self.machines[work_queue.kind]
            if work_queue.state in machine.list_states_without_step():
                raise MachineError(
                    f"{work_queue.kind}.{work_queue.state} has no step: leave the queue out, or write one."
                )
        self.store = self.open_store()
        try:
            if not self.is_group_member:
                check_work_root(self.store, self.work_root, self.shared)
                self._warn_of_undeclared(self.store)
                self._group = WorkerGroup(self, self._make_group(self.store.url))
                self._group.start()
            self.core = self._make_core()
            self.step_threads.start_threads(self.threads)
            self._start_session_watch()
            self._run_loop(self.store)
            self.step_threads.stop_threads()
        finally:
            store, self.store = self.store, None
            store.close()
            self._end_signal.set()
            self._shut_down_cleanup()
            self._group.join()

    @cached_property
    def _cleanup_pool(self) -> ThreadPoolExecutor:
        return ThreadPoolExecutor(1, "cleanup")

    def _shut_down_cleanup(self) -> None:
        if "_cleanup_pool" in self.__dict__:
            self._cleanup_pool.shutdown()

    def _make_group(self, url: str) -> list[Worker]:
        """The other workers of this process; this one gets the first pool, and its share of the threads."""
        others: list[Worker] = []
        if self.pools is not None:
            first, *more = split_pools(self.machines, self.queues, self.pools, self.threads)
            others = [self._make_group_worker(share.threads, share.queues) for share in more]
            self.queues, self.threads = first
        self.threads, *rest = split_threads(url, self.threads)
        return [*(self._make_group_worker(threads, self.queues) for threads in rest), *others]

    def _make_group_worker(self, threads: int, queues: Iterable[WorkQueue]) -> Worker:
        return Worker(
            self.open_store,
            self.machines,
            host=self.host,
            work_root=self.work_root,
            objects=self.objects,
            queues=[f"{q.kind}.{q.state}" for q in queues],
            shared=self.shared,
            threads=threads,
            ttl=self.ttl,
            max_claims=self.max_claims,
            grace=self.grace,
            clock=self.clock,
            now=self.now,
            is_group_member=True,
            resources_of=self.resources_of,
            outage_log=self.outage_log,
        )

    def _start_session_watch(self) -> None:
        """Tell steps that may have lost their claim to stop, also while the owner is stuck in a call that is not
        answered.
        """

        def watch_session() -> None:
            while not self._end_signal.wait(self.ttl / 6):
                lease = self.core.lease
                if lease.session is not None and lease.is_old(self.clock()):
                    self.step_threads.signal_stop_to_all()

        threading.Thread(target=watch_session, name="session-watch", daemon=True).start()

    def _run_loop(self, store: Store) -> None:
        while True:
            for command in self.core.tick(self.clock()):
                if isinstance(command, m.ExitCommand):
                    return
                self._carry_out(store, command)
            self._drain_inbox()
            if self._stop_requested_at is not None and self.clock() - self._stop_requested_at > self.grace:
                # The session is not closed: a step still runs, and its record must stay claimed until the session expires.
                log.warning(
                    "%d steps did not end within %.0f s; their claims are left to expire",
                    len(self.core.step_runs.by_number),
                    self.grace,
                )
                return

    def _carry_out(self, store: Store, command: m.CoreCommand) -> None:
        getattr(self, COMMAND_METHODS[type(command)])(store, command)

    def _drain_inbox(self, wait: float = 0.0) -> None:
        """Receive the messages that are in the inbox; wait so many seconds for the first.

        Not those that arrive meanwhile: steps that call the store without a pause would keep the owner from its
        heartbeat.
        """
        get = self._inbox.get_nowait
        try:
            message = self._inbox.get(timeout=wait) if wait > 0 else get()
            now = self.clock()
            for _ in range(self._inbox.qsize()):
                self._receive_message(message, now)
                message = get()
            self._receive_message(message, now)
        except queue.Empty:
            return

    def _receive_message(self, message: m.StepEnded | Callable[[], None], now: float) -> None:
        if isinstance(message, m.StepEnded):
            self.core.receive(message, now)
        else:
            message()

    def _sleep(self, store: Store, command: m.SleepCommand) -> None:
        timeout = command.until - self.clock()
        if self._stop_requested_at is not None:
            timeout = min(timeout, self._stop_requested_at + self.grace - self.clock() + 0.001)
        if timeout <= 0:
            return
        try:
            if not command.watches_store:
                self._drain_inbox(timeout)
                return
            self._is_asleep = True
            if self._inbox.empty() and store.watch(timeout):
                self.core.receive(m.WorkHinted(), self.clock())
        except StoreError as error:
            self._handle_unavailable(error)
        finally:
            self._is_asleep = False

    def _clear(self, store: Store, command: m.ClearFolderCommand) -> None:
        # in a thread of its own: a million files take many heartbeats
        if os.path.lexists(folder := self.folder_of(command.record)):
            self._cleanup_pool.submit(clear_folder, folder, command.record.version)

    def folder_of(self, record: Record) -> Path:
        return folder_of(self.work_root, self.machines[record.kind], record)

    def _warn_of_undeclared(self, store: Store) -> None:
        for kind, machine in self.machines.items():
            for state, count in rules.find_undeclared_states(machine, store.count_by_state(kind)).items():
                log.warning(
                    "%d %s are in %s, which this release does not declare: never claimed; move them with `waybill act --to`",
                    count,
                    machine.plural,
                    state,
                )

    # --- steps

    def _start_steps(self, store: Store, command: m.StartStepsCommand) -> None:
        self.step_threads.start_runs(command.step_runs)

    def _recall(self, store: Store, command: m.RecallCommand) -> None:
        for step_run in self.step_threads.recall_runs():
            self.core.receive(m.StepEnded(step_run, StepStopped("recalled before it began")), self.clock())

    def _signal_stop(self, store: Store, command: m.SignalStopCommand) -> None:
        self.step_threads.signal_stop(command.step_run)

    def _reply(self, store: Store, command: m.ReplyCommand) -> None:
        self.step_threads.reply(command.step_run, command.result)


COMMAND_METHODS: dict[type, str] = {
    m.OpenSessionCommand: "_open_session",
    m.ClaimCommand: "_claim",
    m.CheckChildrenCommand: "_check_children",
    m.StartStepsCommand: "_start_steps",
    m.CommitCommand: "_commit",
    m.ReplyCommand: "_reply",
    m.SignalStopCommand: "_signal_stop",
    m.RecallCommand: "_recall",
    m.ReadHoldsCommand: "_read_holds",
    m.ReleaseWaitsCommand: "_release_due_waits",
    m.RenewSessionCommand: "_renew_session",
    m.ReapSessionsCommand: "_reap_sessions",
    m.ApplyRequestsCommand: "_apply_requests",
    m.ClearFolderCommand: "_clear",
    m.CloseSessionCommand: "_close_session",
    m.WarnCommand: "_warn",
    m.SleepCommand: "_sleep",
}
