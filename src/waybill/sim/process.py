"""A simulated process: some fibers that live and die together, with a clock of their own; and the worker that runs
in one.

    start -> ... -> crashed (nothing more of it happens; its session stays until it expires) | exited

`SimulatedWorker` is the real worker with the real core; only what makes threads, sleeps or blocks is replaced.
"""

from __future__ import annotations

import queue
from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING, Any

from waybill.record import Record, Store
from waybill.sim.fibers import Crashed, Fiber, Hub
from waybill.sim.ledger import Violation
from waybill.step import Stopped
from waybill.worker import messages as m
from waybill.worker.context import StepContext
from waybill.worker.crew import Crew
from waybill.worker.folders import clear_folder
from waybill.worker.once import Once
from waybill.worker.shell import Worker

if TYPE_CHECKING:
    from waybill.duties import Post
    from waybill.sim.simulation import Simulation

SPINS = 50  # turns in which a worker may do nothing but look at its clock


class Process:
    def __init__(self, simulation: Simulation, name: str, host: str) -> None:
        self.simulation, self.name, self.host = simulation, name, host
        self.dead = False
        self.frozen_until = 0.0
        self.cut_until = 0.0  # the store cannot be reached from here
        self.late = False  # it was frozen once
        self.fibers: list[Fiber] = []
        self.wire_fault: str | None = None  # what happens to its next call
        self.born = simulation.hub.now - simulation.rng.random() * 1e6  # monotonic clocks begin anywhere
        self.worker: SimulatedWorker | None = None
        self.exited = False  # by itself, in peace
        self.serves = False  # others, and does nothing by itself
        self.again: Callable[[], None] = lambda: None  # starts another in its place
        self.post: Post

    def clock(self) -> float:
        return self.simulation.hub.now - self.born

    def spawn(self, name: str, run: Callable[[], None]) -> Fiber:
        fiber = self.simulation.hub.spawn(self, name, run)
        self.fibers.append(fiber)
        return fiber

    def end(self) -> None:
        """All that is left of it ends: a crash, or what an exit leaves running."""
        self.dead = True
        self.simulation.hub.bury(self.fibers)


class Hands:
    """A semaphore for fibers: what the pool's threads wait on."""

    def __init__(self, hub: Hub) -> None:
        self.hub, self.count = hub, 0
        self.waiting: list[Fiber] = []

    def release(self, n: int = 1) -> None:
        self.count += n
        for fiber in self.waiting:
            self.hub.rouse(fiber)
        self.waiting.clear()

    def acquire(self, blocking: bool = True) -> bool:
        while not self.count:
            if not blocking:
                return False
            if self.hub.current is not None:
                self.waiting.append(self.hub.current)
            self.hub.wait()
        self.count -= 1
        return True


class FiberCrew(Crew):
    """Steps run as fibers; the simulation knows which run, and a step waits for a reply as its fiber."""

    passes: tuple[type[BaseException], ...] = (Crashed, Violation)

    def __init__(self, worker: OnStage) -> None:
        super().__init__(worker)
        self.process, self.simulation, self.hub = worker.process, worker.simulation, worker.hub
        self.hands = Hands(self.hub)  # type: ignore[assignment]

    def hire(self, hands: int) -> None:
        self.hired += hands
        for n in range(hands):
            self.process.spawn(f"step-{n}", self._hand)

    def _hand(self) -> None:
        try:
            self.work()
        except SystemExit:
            return  # as a thread that meets it: it is gone, and nobody is told

    def run_step(self, task: m.Task) -> Any:
        with self.simulation.steps.running(self.process, task):
            return super().run_step(task)

    def context_of(self, task: m.Task) -> StepContext:
        context = PorousContext(task, self._desk)
        context.point = self.simulation.point
        return context

    def bind_files(self, context: StepContext) -> None:
        if self.simulation.scenario.real_files:
            super().bind_files(context)

    def send(self, saving: m.Saving) -> list[Record]:
        replies: Reply = Reply(self.hub)
        self.replies[saving.task.number] = replies  # type: ignore[assignment]
        self.owner.post(lambda: self.owner.core.on(saving, self.owner.clock()))
        records: list[Record] = replies.get()
        return records

    def read(self, question: Callable[[Store], Any]) -> Any:
        answers = Reply(self.hub)
        self.owner.post(lambda: answers.put(_tried(question, self.owner.store)))
        return answers.get()


class PorousContext(StepContext):
    """A step that says how far it is may be struck there. Not where it looks whether to stop: it may hold a lock on
    a file then.
    """

    point: Callable[[str], None]

    def progress(self, done: float, total: float | None = None, unit: str = "") -> None:
        super().progress(done, total, unit)
        self.point("progress")


class OnStage(Worker):
    """A worker in a simulated process: the simulation knows whose files are cleared."""

    def __init__(self, process: Process, *, roles: Iterable[str] | None, threads: int) -> None:
        simulation = process.simulation
        self.process, self.simulation, self.hub = process, simulation, simulation.hub
        super().__init__(
            lambda: simulation.stage.wire(process),
            simulation.machines,
            host=process.host,
            work_root=simulation.root_of(process.host),
            objects=simulation.scenario.objects(),
            roles=roles,
            threads=threads,
            ttl=simulation.profile.ttl,
            portion=simulation.profile.portion,
            clock=process.clock,
            now=lambda: simulation.hub.now,
            outfit=simulation.scenario.outfit,
        )
        self.who = process.name

    def _clear(self, store: Store, command: m.Clear) -> None:
        self.simulation.point("before clear")
        self.simulation.world.clear_files(self.host, command.record.ref)
        if self.simulation.scenario.real_files:
            clear_folder(self.folder_of(command.record), command.record.version)


class OnFibers(OnStage):
    """A message to the owner is a message to its fiber; sleeping is virtual."""

    def __init__(self, process: Process, *, roles: Iterable[str] | None, threads: int) -> None:
        super().__init__(process, roles=roles, threads=threads)
        self.owner: Fiber | None = None
        self.listens = False  # asleep, and a hint would wake it
        self.rung = False
        self.spins = 0

    def _make_crew(self) -> Crew:
        return FiberCrew(self)

    def hire(self, hands: int) -> None:
        """Who calls this is the owner."""
        self.owner = self.hub.current
        self.crew.hire(hands)

    def post(self, message: m.Ended | Callable[[], None]) -> None:
        self._inbox.put(message)
        if self._asleep and self.owner is not None:
            self.hub.rouse(self.owner)

    def _sleep(self, store: Store, command: m.Sleep) -> None:
        timeout = command.until - self.clock()
        if self._stopping_at is not None:
            timeout = min(timeout, self._stopping_at + self.grace - self.clock() + 0.001)
        if timeout <= 0:
            self.spins += 1
            if self.spins > SPINS:
                raise Violation(f"{self.process.name} looks at its clock {SPINS} times without doing anything")
            self.hub.give_way()
            return
        if not self._inbox.empty():
            return
        self.spins = 0
        self._asleep, self.listens, self.rung = True, command.watch, False
        self.hub.sleep(self.hub.now + timeout)
        self._asleep = self.listens = False
        if self.rung:
            self.core.on(m.Woke(), self.clock())

    # Threads of the pool run beside their owner: also between two of its commands.

    def _start(self, store: Store, command: m.Start) -> None:
        super()._start(store, command)
        self._let_others_run()

    def _signal(self, store: Store, command: m.Signal) -> None:
        self._let_others_run()
        super()._signal(store, command)

    def _recall(self, store: Store, command: m.Recall) -> None:
        self._let_others_run()
        super()._recall(store, command)

    def _let_others_run(self) -> None:
        if self.simulation.chance(self.simulation.profile.switch):
            self.hub.give_way()


class SimulatedOnce(OnFibers, Once):
    """`waybill step` and `waybill work --once`: one step, in the process of whoever asked for it."""

    def _get_hand(self) -> None:
        self.hire(1)


class SimulatedWorker(OnFibers):
    def live(self) -> None:
        """The owner's fiber: what `run` does, without threads."""
        self.store = self.open_store()
        self.core = self._make_core()
        self.hire(self.threads)
        self._loop(self.store)
        self.store.close()
        self.simulation.exited(self.process)

    def stop(self) -> None:
        if self.owner is not None and not self.process.dead:
            super().stop()

    def ring(self) -> None:
        """Something may be claimable."""
        if self.listens and self.owner is not None:
            self.rung = True
            self.hub.rouse(self.owner)

    def told(self, task: int) -> bool:
        """Whether the step of that task is told to stop."""
        context = self.crew.contexts.get(task)
        return context is None or context.stopped


class Reply:
    """An answer that a fiber waits for."""

    def __init__(self, hub: Hub) -> None:
        self.hub, self.answers, self.waiter = hub, queue.SimpleQueue[Any](), hub.current

    def put(self, answer: Any) -> None:
        self.answers.put(answer)
        if self.waiter is not None:
            self.hub.rouse(self.waiter)

    def get(self) -> Any:
        while self.answers.empty():
            self.hub.wait()
        answer = self.answers.get_nowait()
        if isinstance(answer, BaseException):
            raise answer
        return answer


def _tried(question: Callable[[Store], Any], store: Store | None) -> Any:
    if store is None:
        return Stopped("the worker has ended")
    try:
        return question(store)
    except Exception as error:  # noqa: BLE001 - raised again in the fiber that asked
        return error
