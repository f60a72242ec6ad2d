"""The threads that run steps. They never touch the store: what a step says goes to the worker's owner thread as a
message.

    start -> a hand takes the task -> the step runs -> Ended is posted to the owner

A step that saves or reads posts what it wants and waits for the reply. `recall` takes back what no hand has taken yet.
"""

from __future__ import annotations

import queue
import threading
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol

from waybill import rules
from waybill.engine import Engine
from waybill.machine import Machine
from waybill.record import Record, Ref, Store
from waybill.rules import Machines
from waybill.step import Done, Fail, Stopped
from waybill.worker import messages as m
from waybill.worker.context import Desk, StepContext
from waybill.worker.core import Core

if TYPE_CHECKING:
    from waybill.objects import Objects


class Owner(Protocol):
    """The worker, as its crew knows it."""

    machines: Machines
    root: Path
    objects: Objects
    who: str
    store: Store | None
    core: Core
    clock: Callable[[], float]
    now: Callable[[], float]
    outfit: Callable[[str], Any]

    def post(self, message: m.Ended | Callable[[], None]) -> None:
        """Hand over to the owner thread: a step that has ended, or something to call there."""


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


class Crew:
    passes: tuple[type[BaseException], ...] = ()  # what is no business of a step, and passes through it

    def __init__(self, owner: Owner) -> None:
        self.owner = owner
        self.hands = Hands()
        self.hired = 0
        self.contexts: dict[int, StepContext] = {}
        self.replies: dict[int, queue.SimpleQueue[list[Record] | BaseException]] = {}
        self._pool: deque[m.Task | None] = deque()

    # --- what the owner thread does

    def hire(self, hands: int) -> None:
        self.hired += hands
        for n in range(hands):
            threading.Thread(target=self.work, name=f"step-{n}", daemon=True).start()

    def start(self, tasks: Sequence[m.Task]) -> None:
        self._pool.extend(tasks)
        self.hands.release(len(tasks))

    def recall(self) -> Iterator[m.Task]:
        """Those whose step has not begun, the latest first."""
        while self.hands.acquire(blocking=False):
            if (task := self._pool.pop()) is not None:
                yield task

    def signal(self, task: m.Task) -> None:
        if (context := self.contexts.get(task.number)) is not None:
            context.stopped = True

    def signal_all(self) -> None:
        for context in list(self.contexts.values()):
            context.stopped = True

    def reply(self, task: m.Task, result: list[Record] | BaseException) -> None:
        if (replies := self.replies.get(task.number)) is not None:
            replies.put(result)

    def progress(self) -> dict[str, list[Any]]:
        """How far the steps are that say so, by their record."""
        contexts = list(self.contexts.values())
        return {
            f"{c.record.kind} {c.record.id}": [*c.progressed, c.record.state]
            for c in contexts
            if c.progressed is not None
        }

    def dismiss(self) -> None:
        """Each hand goes when its step has ended."""
        for _ in range(self.hired):
            self._pool.append(None)
            self.hands.release()

    # --- what a hand does

    def work(self) -> None:
        """Takes tasks one after the other."""
        post, hands, pool, clock = self.owner.post, self.hands, self._pool, self.owner.clock
        while True:
            hands.acquire()
            task = pool.popleft()
            if task is None:
                return
            began = clock()
            outcome = self.run_step(task)
            post(m.Ended(task, outcome, clock() - began))

    @cached_property
    def _desk(self) -> Desk:
        owner = self.owner
        return Desk(
            self.send,
            self.read,
            self._remove_children,
            owner.now,
            owner.root,
            owner.objects,
            owner.who,
            owner.machines,
            owner.outfit,
        )

    def run_step(self, task: m.Task) -> Any:
        context = self.contexts[task.number] = self.context_of(task)
        machine = self.owner.machines[task.record.kind]
        step = machine.steps[task.record.state]
        try:
            if task.stopping:
                return Stopped("told to stop before it began")
            outcome = step(task.record, context)
            if self.owner.core.terms.here and isinstance(outcome, Done) and _leaves_files(machine, task.record.state):
                self.bind_files(context)
            return outcome
        except Stopped as stopped:
            # Of itself it would be given back and taken up again at once, for ever.
            told = context.stopped or task.stopping or task.dead or task.taken is not None
            return stopped if told else RuntimeError("The step raised Stopped and nobody had told it to stop.")
        except Exception as error:
            context.log.info(
                "%s: %s", type(error).__name__, rules.clip(rules.said(error)), exc_info=not isinstance(error, Fail)
            )
            return error
        except self.passes:
            raise
        # it would end this thread in silence, and the record would be held for ever
        except BaseException as left:  # noqa: BLE001
            code = repr(left.code) if isinstance(left, SystemExit) else type(left).__name__
            return RuntimeError(f"The step left the program with {code}; a step answers, or raises an error.")
        finally:
            self.contexts.pop(task.number, None)
            self.replies.pop(task.number, None)

    def context_of(self, task: m.Task) -> StepContext:
        return StepContext(task, self._desk)

    def bind_files(self, context: StepContext) -> None:
        """Also where the step left nothing: a record that is bound to a host has a folder there, or it would be led
        back for ever.
        """
        context.make_folder()

    def send(self, saving: m.Saving) -> list[Record]:
        replies = self.replies.setdefault(saving.task.number, queue.SimpleQueue())
        self.owner.post(lambda: self.owner.core.on(saving, self.owner.clock()))
        records: list[Record] = _unwrap(replies.get())
        return records

    def read(self, question: Callable[[Store], Any]) -> Any:
        answers: queue.SimpleQueue[Any] = queue.SimpleQueue()
        self.owner.post(lambda: answers.put(_try(question, self.owner.store)))
        return _unwrap(answers.get())

    def _remove_children(self, store: Store, parent: Ref, kind: str) -> int:
        """In the step's own thread, verb by verb: a million children are many heartbeats."""
        machines = self.owner.machines
        return Engine(store, machines).remove_children(parent, machines[kind], who=self.owner.who)[1]


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
