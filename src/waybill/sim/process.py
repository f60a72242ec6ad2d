"""A simulated process: fibers that start and end together, with a clock of their own; and the worker that runs in one.

    start -> ... -> crashed (it does nothing more; its session stays until it expires) | exited

`SimulatedWorker` is the real worker with the real core; only what starts threads, sleeps or blocks is replaced.
"""

from __future__ import annotations

import queue
from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING, Any

from waybill.record import Record, Store
from waybill.sim.fibers import Fiber, FiberScheduler, ProcessCrashed
from waybill.sim.invariant_checker import InvariantViolation
from waybill.step import StepStopped
from waybill.worker import messages as m
from waybill.worker.single_step_worker import SingleStepWorker
from waybill.worker.step_context import WorkerStepContext
from waybill.worker.step_threads import StepThreads
from waybill.worker.worker import Worker
from waybill.worker.working_folders import clear_folder

if TYPE_CHECKING:
    from waybill.maintenance import MaintenanceScheduler
    from waybill.sim.simulation import Simulation

MAX_IDLE_TURNS = 50  # turns in a row in which a worker may do nothing but read its clock


class SimulatedProcess:
    def __init__(self, simulation: Simulation, name: str, host: str) -> None:
        self.simulation, self.name, self.host = simulation, name, host
        self.is_dead = False
        self.frozen_until = 0.0
        self.cut_until = 0.0  # the store cannot be reached from this process until then
        self.was_frozen = False  # at least once
        self.fibers: list[Fiber] = []
        self.wire_fault: str | None = None  # the fault of its next call
        self.clock_origin = (
            simulation.scheduler.now - simulation.rng.random() * 1e6
        )  # a monotonic clock starts anywhere
        self.worker: SimulatedWorker | None = None
        self.has_exited = False  # in order, not by a crash
        self.is_service = False  # an outside service, which does nothing by itself
        self.start_replacement: Callable[[], None] = lambda: None  # starts another process in its place
        self.maintenance_scheduler: MaintenanceScheduler

    def read_clock(self) -> float:
        return self.simulation.scheduler.now - self.clock_origin

    def spawn_fiber(self, name: str, run: Callable[[], None]) -> Fiber:
        fiber = self.simulation.scheduler.spawn(self, name, run)
        self.fibers.append(fiber)
        return fiber

    def end_process(self) -> None:
        """End all its fibers: a crash, or what an exit leaves running."""
        self.is_dead = True
        self.simulation.scheduler.kill_fibers(self.fibers)


class FiberSemaphore:
    """A semaphore for fibers: what the step threads wait on."""

    def __init__(self, scheduler: FiberScheduler) -> None:
        self.scheduler, self.count = scheduler, 0
        self.waiting_fibers: list[Fiber] = []

    def release(self, n: int = 1) -> None:
        self.count += n
        for fiber in self.waiting_fibers:
            self.scheduler.make_ready(fiber)
        self.waiting_fibers.clear()

    def acquire(self, blocking: bool = True) -> bool:
        while not self.count:
            if not blocking:
                return False
            if self.scheduler.current is not None:
                self.waiting_fibers.append(self.scheduler.current)
            self.scheduler.wait_until_ready()
        self.count -= 1
        return True


class FiberStepThreads(StepThreads):
    """Steps run as fibers, the simulation tracks which run, and the fiber of a step waits for replies."""

    pass_through_errors: tuple[type[BaseException], ...] = (ProcessCrashed, InvariantViolation)
    keeps_notes = False  # nothing depends on them

    def __init__(self, worker: SimulatedWorkerBase) -> None:
        super().__init__(worker)
        self.process, self.simulation, self.scheduler = worker.process, worker.simulation, worker.scheduler
        self.semaphore = FiberSemaphore(self.scheduler)  # type: ignore[assignment]

    def start_threads(self, count: int) -> None:
        self.thread_count += count
        for n in range(count):
            self.process.spawn_fiber(f"step-{n}", self._run_thread)

    def _run_thread(self) -> None:
        try:
            self.run_steps()
        except SystemExit:
            return  # as in a real thread: it ends silently

    def run_step(self, step_run: m.StepRun) -> Any:
        with self.simulation.running_steps.track_run(self.process, step_run):
            return super().run_step(step_run)

    def context_of(self, step_run: m.StepRun) -> WorkerStepContext:
        context = FaultInjectingStepContext(step_run, self._backend)
        context.reach_point = self.simulation.reach_point
        return context

    def ensure_folder(self, context: WorkerStepContext) -> None:
        if self.simulation.scenario.uses_real_files:
            super().ensure_folder(context)

    def send_save(self, save: m.SaveRequested) -> list[Record]:
        replies: FiberReply = FiberReply(self.scheduler)
        self.replies[save.step_run.number] = replies  # type: ignore[assignment]
        self.owner.post(lambda: self.owner.core.receive(save, self.owner.clock()))
        records: list[Record] = replies.get()
        return records

    def run_on_store(self, query: Callable[[Store], Any]) -> Any:
        answers = FiberReply(self.scheduler)
        self.owner.post(lambda: answers.put(_try_query(query, self.owner.store)))
        return answers.get()


class FaultInjectingStepContext(WorkerStepContext):
    """A step that reports progress is at a point for faults. Not where it checks whether to stop: it may hold a lock on
    a file there.
    """

    reach_point: Callable[[str], None]

    def report_progress(self, done: float, total: float | None = None, unit: str = "") -> None:
        super().report_progress(done, total, unit)
        self.reach_point("progress")


class SimulatedWorkerBase(Worker):
    """A worker in a simulated process: the simulation knows whose files are cleared."""

    def __init__(self, process: SimulatedProcess, *, queues: Iterable[str] | None, threads: int) -> None:
        simulation = process.simulation
        self.process, self.simulation, self.scheduler = process, simulation, simulation.scheduler
        super().__init__(
            lambda: simulation.cluster.connect_process(process),
            simulation.machines,
            host=process.host,
            work_root=simulation.root_of(process.host),
            objects=simulation.scenario.open_objects(),
            queues=queues,
            threads=threads,
            ttl=simulation.profile.ttl,
            max_claims=simulation.profile.max_claims,
            clock=process.read_clock,
            now=lambda: simulation.scheduler.now,
            resources_of=simulation.scenario.resources_of,
        )
        self.who = process.name

    def _clear(self, store: Store, command: m.ClearFolderCommand) -> None:
        self.simulation.reach_point("before clear")
        self.simulation.world.clear_files(self.host, command.record.ref)
        if self.simulation.scenario.uses_real_files:
            clear_folder(self.folder_of(command.record), command.record.version)


class FiberWorkerBase(SimulatedWorkerBase):
    """A message to the owner wakes its fiber; sleep is virtual."""

    def __init__(self, process: SimulatedProcess, *, queues: Iterable[str] | None, threads: int) -> None:
        super().__init__(process, queues=queues, threads=threads)
        self.owner_fiber: Fiber | None = None
        self.is_listening = False  # asleep, and a hint wakes it
        self.was_hinted = False
        self.idle_turns = 0

    def _make_step_threads(self) -> StepThreads:
        return FiberStepThreads(self)

    def start_threads(self, count: int) -> None:
        """The fiber that calls this is the owner."""
        self.owner_fiber = self.scheduler.current
        self.step_threads.start_threads(count)

    def post(self, message: m.StepEnded | Callable[[], None]) -> None:
        self._inbox.put(message)
        if self._is_asleep and self.owner_fiber is not None:
            self.scheduler.make_ready(self.owner_fiber)

    def _sleep(self, store: Store, command: m.SleepCommand) -> None:
        timeout = command.until - self.clock()
        if self._stop_requested_at is not None:
            timeout = min(timeout, self._stop_requested_at + self.grace - self.clock() + 0.001)
        if timeout <= 0:
            self.idle_turns += 1
            if self.idle_turns > MAX_IDLE_TURNS:
                raise InvariantViolation(
                    f"{self.process.name} reads its clock {MAX_IDLE_TURNS} times without doing anything"
                )
            self.scheduler.yield_turn()
            return
        if not self._inbox.empty():
            return
        self.idle_turns = 0
        self._is_asleep, self.is_listening, self.was_hinted = True, command.watches_store, False
        self.scheduler.sleep(self.scheduler.now + timeout)
        self._is_asleep = self.is_listening = False
        if self.was_hinted:
            self.core.receive(m.WorkHinted(), self.clock())

    # Step threads run beside their owner, also between two of its commands.

    def _start_steps(self, store: Store, command: m.StartStepsCommand) -> None:
        super()._start_steps(store, command)
        self._maybe_yield_turn()

    def _signal_stop(self, store: Store, command: m.SignalStopCommand) -> None:
        self._maybe_yield_turn()
        super()._signal_stop(store, command)

    def _recall(self, store: Store, command: m.RecallCommand) -> None:
        self._maybe_yield_turn()
        super()._recall(store, command)

    def _maybe_yield_turn(self) -> None:
        if self.simulation.draw_chance(self.simulation.profile.switch_rate):
            self.scheduler.yield_turn()


class SimulatedSingleStepWorker(FiberWorkerBase, SingleStepWorker):
    """`waybill step` and `waybill work --once`: one step, in a process of its own."""

    def _start_thread(self) -> None:
        self.start_threads(1)


class SimulatedWorker(FiberWorkerBase):
    def run_owner(self) -> None:
        """The owner's fiber: as `run`, without threads."""
        self.store = self.open_store()
        self.core = self._make_core()
        self.start_threads(self.threads)
        self._run_loop(self.store)
        self.store.close()
        self.simulation.note_exit(self.process)

    def stop(self) -> None:
        if self.owner_fiber is not None and not self.process.is_dead:
            super().stop()

    def hint_work(self) -> None:
        """Something may be claimable."""
        if self.is_listening and self.owner_fiber is not None:
            self.was_hinted = True
            self.scheduler.make_ready(self.owner_fiber)

    def is_told_to_stop(self, number: int) -> bool:
        """Whether that step run has ended or is told to stop."""
        context = self.step_threads.contexts.get(number)
        return context is None or context.is_stopped


class FiberReply:
    """An answer that a fiber waits for."""

    def __init__(self, scheduler: FiberScheduler) -> None:
        self.scheduler, self.answers, self.waiter = scheduler, queue.SimpleQueue[Any](), scheduler.current

    def put(self, answer: Any) -> None:
        self.answers.put(answer)
        if self.waiter is not None:
            self.scheduler.make_ready(self.waiter)

    def get(self) -> Any:
        while self.answers.empty():
            self.scheduler.wait_until_ready()
        answer = self.answers.get_nowait()
        if isinstance(answer, BaseException):
            raise answer
        return answer


def _try_query(query: Callable[[Store], Any], store: Store | None) -> Any:
    if store is None:
        return StepStopped("the worker has ended")
    try:
        return query(store)
    except Exception as error:  # noqa: BLE001 - raised again in the fiber that asked
        return error
