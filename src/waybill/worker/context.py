"""What a running step holds in its hand: every call that touches the store is a message to the thread that owns it."""

from __future__ import annotations

import itertools
import logging
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple, TypeVar, cast

from waybill.record import Page, Record, Ref, Store, TooLarge
from waybill.rules import Machines, clip
from waybill.step import Context, New, Stopped
from waybill.worker.folders import folder_of, make_attempt, make_folder
from waybill.worker.messages import Saving, Task

if TYPE_CHECKING:
    from waybill.objects import Objects

T = TypeVar("T")
MAX_UNIT = 40  # characters: all progress of a worker is one row or node
logger = logging.getLogger("waybill.step")


class Desk(NamedTuple):
    """What all steps of a worker share. `send` checkpoints, `read` asks the store; both block the step alone."""

    send: Callable[[Saving], list[Record]]
    read: Callable[[Callable[[Store], Any]], Any]
    remove: Callable[[Store, Ref, str], int]
    now: Callable[[], float]
    root: Path
    objects: Objects
    who: str
    machines: Machines
    outfit: Callable[[str], Any]


class StepContext:
    """The `Context` of one task."""

    def __init__(self, task: Task, desk: Desk) -> None:
        self.task = task
        self.record = task.record
        self.attempt = task.attempt
        self.objects = desk.objects
        self.who = desk.who
        self.now = desk.now
        self.stopped = False  # set by the worker's owner thread
        self.progressed: tuple[float, float | None, str] | None = None
        self._desk = desk

    @cached_property
    def log(self) -> logging.LoggerAdapter[logging.Logger]:
        record = self.task.record
        return logging.LoggerAdapter(
            logger, {"kind": record.kind, "id": record.id, "state": record.state, "attempt": self.attempt}
        )

    @property
    def stop(self) -> bool:
        return self.stopped

    def check(self) -> None:
        if self.stopped:
            raise Stopped("told to stop")

    @property
    def outfit(self) -> Any:
        return self._desk.outfit(self.record.kind)

    @cached_property  # a machine may read documents to name it, and steps ask for it often
    def folder(self) -> Path:
        return folder_of(self._desk.root, self._desk.machines[self.record.kind], self.record)

    @cached_property
    def workdir(self) -> Path:
        return make_attempt(self.folder, self._desk.machines[self.record.kind], self.record, self.attempt)

    def make_folder(self) -> None:
        """The record's own folder, also where no step has asked for one."""
        make_folder(self.folder, self._desk.machines[self.record.kind], self.record)

    def earlier(self) -> list[Path]:
        folder = self.folder
        if not folder.is_dir():
            return []
        found = [
            p
            for p in folder.iterdir()
            if p.name.isdigit() and int(p.name) != self.attempt and p.is_dir() and not p.is_symlink()
        ]
        return sorted(found, key=lambda p: int(p.name), reverse=True)

    def save(self, docs: Mapping[str, Any] | None = None, *, keys: Iterable[str] = ()) -> Record:
        return self._saved(Saving(self.task, docs or {}, tuple(keys)))[0]

    def spawn(self, children: Iterable[New], docs: Mapping[str, Any] | None = None) -> list[Record]:
        return self._saved(Saving(self.task, docs or {}, (), tuple(children)))[1:]

    def _saved(self, saving: Saving) -> list[Record]:
        self.check()
        records = self._desk.send(saving)
        self.record = records[0]
        return records

    def spawn_each(self, children: Iterable[New], cursor: str = "spawned", portion: int = 200) -> int:
        before = self.record.docs.get(cursor, {})
        made = int(before.get("count", 0))
        if before.get("whole"):
            return made
        rest = itertools.islice(children, made, None)
        ahead = deque(itertools.islice(rest, portion + 1))
        while True:
            batch = list(itertools.islice(ahead, portion))
            whole = len(batch) == len(ahead)
            try:
                # The count is in the commit that makes them: a second run goes on after the last portion that is there.
                self.spawn(batch, {cursor: {"count": made + len(batch), "whole": whole}})
            except TooLarge:
                if len(batch) <= 1:
                    raise
                portion = len(batch) // 2  # how many fit depends on their documents and on the store
                continue
            made += len(batch)
            if whole:
                return made
            for _ in batch:
                ahead.popleft()
            ahead.extend(itertools.islice(rest, max(0, portion + 1 - len(ahead))))

    def remove_children(self, kind: str) -> int:
        self.check()
        return self._desk.remove(cast(Store, ByMessage(self)), self.record.ref, kind)

    def progress(self, done: float, total: float | None = None, unit: str = "") -> None:
        # Checked here, where the step is told: with the heartbeat it would be the worker's trouble.
        done, total = float(done), None if total is None else float(total)
        self.progressed = (done, total, clip(str(unit))[:MAX_UNIT])

    def get(self, kind: str, id: str) -> Record:
        return self._asked(lambda store: store.get(kind, id))

    def find(
        self,
        kind: str,
        *,
        state: str | None = None,
        parent: Ref | None = None,
        after: int | None = None,
        limit: int = 100,
        docs: bool = False,
    ) -> Page:
        return self._asked(
            lambda store: store.find(kind, state=state, parent=parent, after=after, limit=limit, docs=docs)
        )

    def each(
        self, kind: str, *, state: str | None = None, parent: Ref | None = None, docs: bool = False
    ) -> Iterator[Record]:
        """All that fit, page by page."""
        after: int | None = None
        while True:
            page = self.find(kind, state=state, parent=parent, after=after, docs=docs)
            yield from page.records
            if page.after is None:
                return
            after = page.after

    def tally(self, kind: str, *, parent: Ref | None = None) -> dict[str, int]:
        return self._asked(lambda store: store.tally(kind, parent=parent))

    def call(self, question: Callable[[Store], T]) -> T:
        """Run a few store verbs on the owner thread: for duties, which look after the store itself. Keep it short."""
        return self._asked(question)

    def _asked(self, question: Callable[[Store], T]) -> T:
        self.check()
        answer: T = self._desk.read(question)
        return answer


class ByMessage:
    """A store whose verbs are carried out by the worker's owner thread, one at a time; a step that is told to stop
    ends at the next.
    """

    def __init__(self, ctx: Context) -> None:
        self._ctx = ctx

    def __getattr__(self, verb: str) -> Callable[..., Any]:
        ctx = self._ctx

        def call(*args: Any, **options: Any) -> Any:
            return ctx.call(lambda store: getattr(store, verb)(*args, **options))

        return call
