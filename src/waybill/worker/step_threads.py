"""The threads that run steps. They never touch the store: they post messages to the worker's owner thread.

    start_runs -> a thread takes the step run -> the step runs -> StepEnded is posted to the owner

A step that saves or reads posts a request and waits for the reply. `recall_runs` takes back what no thread has taken.
"""

from __future__ import annotations

import logging
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
from waybill.step import Done, Fail, StepStopped
from waybill.worker import messages as m
from waybill.worker.attempts import make_note, write_note
from waybill.worker.core import WorkerCore
from waybill.worker.step_context import StepBackend, WorkerStepContext

if TYPE_CHECKING:
    from waybill.objects import Objects

log = logging.getLogger("waybill.worker")


class StepThreadsOwner(Protocol):
    """The part of the worker that the step threads use."""

    machines: Machines
    work_root: Path
    objects: Objects
    who: str
    store: Store | None
    core: WorkerCore
    clock: Callable[[], float]
    now: Callable[[], float]
    resources_of: Callable[[str], Any]

    def post(self, message: m.StepEnded | Callable[[], None]) -> None:
        """Send to the owner thread: a step that has ended, or a function to call there."""


class StepSemaphore:
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


class StepThreads:
    pass_through_errors: tuple[type[BaseException], ...] = ()  # raised through a step, and not as its outcome
    keeps_notes = True  # about attempts that failed

    def __init__(self, owner: StepThreadsOwner) -> None:
        self.owner = owner
        self.semaphore = StepSemaphore()
        self.thread_count = 0
        self.contexts: dict[int, WorkerStepContext] = {}
        self.replies: dict[int, queue.SimpleQueue[list[Record] | BaseException]] = {}
        self._pending_runs: deque[m.StepRun | None] = deque()
        self._of_thread = threading.local()

    # --- called by the owner thread

    def start_threads(self, count: int) -> None:
        self.thread_count += count
        for n in range(count):
            threading.Thread(target=self.run_steps, name=f"step-{n}", daemon=True).start()

    def start_runs(self, step_runs: Sequence[m.StepRun]) -> None:
        self._pending_runs.extend(step_runs)
        self.semaphore.release(len(step_runs))

    def recall_runs(self) -> Iterator[m.StepRun]:
        """Take back the step runs whose step has not begun, the latest first."""
        while self.semaphore.acquire(blocking=False):
            if (step_run := self._pending_runs.pop()) is not None:
                yield step_run

    def signal_stop(self, step_run: m.StepRun) -> None:
        if (context := self.contexts.get(step_run.number)) is not None:
            context.is_stopped = True

    def signal_stop_to_all(self) -> None:
        for context in list(self.contexts.values()):
            context.is_stopped = True

    def reply(self, step_run: m.StepRun, result: list[Record] | BaseException) -> None:
        if (replies := self.replies.get(step_run.number)) is not None:
            replies.put(result)

    def collect_progress(self) -> dict[str, list[Any]]:
        """The progress of the steps that report it, by record."""
        contexts = list(self.contexts.values())
        return {
            f"{c.record.kind} {c.record.id}": [*c.last_progress, c.record.state]
            for c in contexts
            if c.last_progress is not None
        }

    def stop_threads(self) -> None:
        """Each thread ends when its step has ended."""
        for _ in range(self.thread_count):
            self._pending_runs.append(None)
            self.semaphore.release()

    # --- run by each thread

    def run_steps(self) -> None:
        """Run steps one after the other, until `stop_threads`."""
        post, semaphore, pending, clock = self.owner.post, self.semaphore, self._pending_runs, self.owner.clock
        while True:
            semaphore.acquire()
            step_run = pending.popleft()
            if step_run is None:
                return
            began = clock()
            outcome = self.run_step(step_run)
            took = clock() - began
            post(m.StepEnded(step_run, outcome, took))
            if self.keeps_notes and isinstance(outcome, Exception):
                try:
                    self.keep_note(step_run, outcome, took)
                except Exception:  # nothing depends on a note, and this thread runs the next step
                    log.exception("the note about a failed attempt of %s cannot be written", step_run.record.ref)

    def keep_note(self, step_run: m.StepRun, error: Exception, took: float) -> None:
        """After the outcome: whatever the objects do, the record goes on."""
        record, owner, ended = step_run.record, self.owner, self.owner.now()
        context = self._ended_context
        lines = iter(context.log.lines) if context is not None and context.step_run is step_run else iter(())
        note = make_note(record.state, step_run.claim_version, owner.who, ended - took, ended, error, lines)
        write_note(owner.objects, record.ref, note)

    @property
    def _ended_context(self) -> WorkerStepContext | None:
        """The context of the step that this thread ran last."""
        return getattr(self._of_thread, "context", None)

    @cached_property
    def _backend(self) -> StepBackend:
        owner = self.owner
        return StepBackend(
            self.send_save,
            self.run_on_store,
            self._remove_children,
            owner.now,
            owner.work_root,
            owner.objects,
            owner.who,
            owner.machines,
            owner.resources_of,
        )

    def run_step(self, step_run: m.StepRun) -> Any:
        context = self.contexts[step_run.number] = self.context_of(step_run)
        machine = self.owner.machines[step_run.record.kind]
        step = machine.bound_steps[step_run.record.state]
        try:
            if step_run.is_stopping:
                return StepStopped("told to stop before it began")
            outcome = step(step_run.record, context)
            if (
                self.owner.core.settings.bound_host
                and isinstance(outcome, Done)
                and _can_leave_files(machine, step_run.record.state)
            ):
                self.ensure_folder(context)
            return outcome
        except StepStopped as stopped:
            # Raised without a signal, the record would be released and claimed again at once, for ever.
            is_signalled = (
                context.is_stopped
                or step_run.is_stopping
                or step_run.is_claim_lost
                or step_run.unavailable_lock is not None
            )
            return stopped if is_signalled else RuntimeError("The step raised StepStopped and was not told to stop.")
        except Exception as error:
            context.log.info(
                "%s: %s",
                type(error).__name__,
                rules.clip(rules.describe_error(error)),
                exc_info=not isinstance(error, Fail),
            )
            return error
        except self.pass_through_errors:
            raise
        # it would end this thread silently, and the record would stay claimed for ever
        except BaseException as error:  # noqa: BLE001
            code = repr(error.code) if isinstance(error, SystemExit) else type(error).__name__
            return RuntimeError(f"The step left the program with {code}; a step returns an outcome or raises an error.")
        finally:
            self._of_thread.context = self.contexts.pop(step_run.number, None)
            self.replies.pop(step_run.number, None)

    def context_of(self, step_run: m.StepRun) -> WorkerStepContext:
        return WorkerStepContext(step_run, self._backend)

    def ensure_folder(self, context: WorkerStepContext) -> None:
        """Make the folder also where the step left no files: a record bound to a host without a folder there counts as
        lost, and would be sent back for ever.
        """
        context.make_folder()

    def send_save(self, save: m.SaveRequested) -> list[Record]:
        replies = self.replies.setdefault(save.step_run.number, queue.SimpleQueue())
        self.owner.post(lambda: self.owner.core.receive(save, self.owner.clock()))
        records: list[Record] = _unwrap(replies.get())
        return records

    def run_on_store(self, query: Callable[[Store], Any]) -> Any:
        answers: queue.SimpleQueue[Any] = queue.SimpleQueue()
        self.owner.post(lambda: answers.put(_try_query(query, self.owner.store)))
        return _unwrap(answers.get())

    def _remove_children(self, store: Store, parent: Ref, kind: str) -> int:
        """Runs in the step's own thread, one call at a time: a million children take many heartbeats."""
        machines = self.owner.machines
        return Engine(store, machines).remove_children(parent, machines[kind], who=self.owner.who)[1]


def _can_leave_files(machine: Machine, state: str) -> bool:
    declared = machine.find_state(state)
    return declared is not None and declared.leaves_files


def _try_query(query: Callable[[Store], Any], store: Store | None) -> Any:
    if store is None:
        return StepStopped("the worker has ended")
    try:
        return query(store)
    except BaseException as error:  # noqa: BLE001 - raised in the thread that asked
        return error


def _unwrap(answer: Any) -> Any:
    if isinstance(answer, BaseException):
        raise answer
    return answer
