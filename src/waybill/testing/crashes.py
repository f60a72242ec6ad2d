"""Crashes at chosen calls, and the worker that can crash: everything runs in the thread of the test.

    CrashPoints       counts the calls of a process, and crashes it before or after one of them
    CrashingProxy     an object whose method calls are such points: the store, the objects, the resources
    InlineWorker      the worker of `waybill step`, whose steps run in its own thread

A crash is `SimulatedCrash`, raised through the step and the worker. Every call that the process makes afterwards, in a
`finally` for example, raises it again: nothing more reaches the store or the objects.
"""

from __future__ import annotations

import queue
from collections.abc import Callable, Sequence
from functools import cached_property
from pathlib import Path
from types import MethodType
from typing import Any, TypeVar

from waybill.record import Record, Store
from waybill.worker import messages as m
from waybill.worker.single_step_worker import SingleStepWorker
from waybill.worker.step_context import WorkerStepContext
from waybill.worker.step_threads import StepThreads
from waybill.worker.working_folders import clear_folder

T = TypeVar("T")
# What every worker does before and after a step; a crash there leaves everything as it was.
NO_POINTS = ("open_session", "list_holds", "release_due_waits", "close_session", "close")


class SimulatedCrash(BaseException):  # not an Exception: no step may handle it
    """The process ends here."""


class CrashPoints:
    """The points of one process, in order. `crash_at`: the number of the point where it ends; None: it never crashes."""

    def __init__(self, crash_at: int | None = None) -> None:
        self.crash_at = crash_at
        self.reached = 0
        self.crashed_at = ""  # the name of that point, when it was reached

    def reach(self, name: str) -> None:
        """Crash here, if it is the point, or if the process has crashed before."""
        if not self.crashed_at and self.reached == self.crash_at:
            self.crashed_at = name
        if self.crashed_at:
            raise SimulatedCrash(self.crashed_at)
        self.reached += 1

    def wrap(self, inner: Any, name: str) -> Any:
        """Return the same object, with a point before and after each call of its methods; None stays None."""
        return None if inner is None else CrashingProxy(self, inner, name)


class CrashingProxy:
    def __init__(self, points: CrashPoints, inner: Any, name: str) -> None:
        self._points, self._inner, self._name = points, inner, name

    @property  # type: ignore[misc]
    def __class__(self) -> type:  # so that isinstance() answers as for the object itself
        return type(self._inner)

    def __getattr__(self, attribute: str) -> Any:
        found = getattr(self._inner, attribute)
        if isinstance(found, MethodType) and attribute not in NO_POINTS:
            return _add_points(self._points, found, f"{self._name}.{attribute}")
        return found


def _add_points(points: CrashPoints, call: Callable[..., Any], name: str) -> Callable[..., Any]:
    def call_between_points(*args: Any, **options: Any) -> Any:
        points.reach(f"before {name}")
        answer = call(*args, **options)
        points.reach(f"after {name}")
        return answer

    return call_between_points


class CrashingStepContext(WorkerStepContext):
    """The calls of a step that do not reach the store are points too; the others are points of the store."""

    points: CrashPoints

    @cached_property
    def workdir(self) -> Path:
        self.points.reach("before ctx.workdir")
        folder = super().workdir
        self.points.reach("after ctx.workdir")
        return folder

    def make_folder(self) -> None:
        self._call("make_folder", super().make_folder)

    def list_earlier_folders(self) -> list[Path]:
        return self._call("list_earlier_folders", super().list_earlier_folders)

    def report_progress(self, done: float, total: float | None = None, unit: str = "") -> None:
        self._call("report_progress", lambda: super(CrashingStepContext, self).report_progress(done, total, unit))

    def _call(self, name: str, call: Callable[[], T]) -> T:
        self.points.reach(f"before ctx.{name}")
        answer = call()
        self.points.reach(f"after ctx.{name}")
        return answer


class InlineStepThreads(StepThreads):
    """No threads: a step runs where it is started, and what it saves is committed before `save` returns."""

    pass_through_errors = (SimulatedCrash,)
    owner: InlineWorker

    def context_of(self, step_run: m.StepRun) -> WorkerStepContext:
        context = CrashingStepContext(step_run, self._backend)
        context.points = self.owner.points
        return context

    def start_threads(self, count: int) -> None: ...

    def start_runs(self, step_runs: Sequence[m.StepRun]) -> None:
        for step_run in step_runs:
            self.owner.post(m.StepEnded(step_run, self.run_step(step_run), 0.0))

    def send_save(self, save: m.SaveRequested) -> list[Record]:
        replies = self.replies[save.step_run.number] = queue.SimpleQueue()
        self.owner.core.receive(save, self.owner.clock())
        while replies.empty():
            self.owner.carry_out_commands()
        answer = replies.get()
        if isinstance(answer, BaseException):
            raise answer
        return answer

    def run_on_store(self, query: Callable[[Store], Any]) -> Any:
        assert self.owner.store is not None
        return query(self.owner.store)


class InlineWorker(SingleStepWorker):
    """Runs one step in the thread that calls it."""

    points: CrashPoints

    def _make_step_threads(self) -> StepThreads:
        return InlineStepThreads(self)

    def _start_thread(self) -> None: ...

    def carry_out_commands(self) -> None:
        """Carry out what the core wants now, while a step waits."""
        assert self.store is not None
        for command in self.core.tick(self.clock()):
            self._carry_out(self.store, command)

    def _sleep(self, store: Store, command: m.SleepCommand) -> None:
        raise AssertionError("The worker would sleep: the store did not answer.")

    def _clear(self, store: Store, command: m.ClearFolderCommand) -> None:
        clear_folder(self.folder_of(command.record), command.record.version)
