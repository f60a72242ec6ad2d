"""What a running step receives as its `StepContext`.

A step runs in a thread of its own and never touches the store: every call that needs the store is a message to the
worker's owner thread, and blocks only the step.
"""

from __future__ import annotations

import itertools
import logging
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple, TypeVar, cast

from waybill.events import Event
from waybill.record import CommitTooLarge, Documents, Page, Record, Ref, Store, StructType
from waybill.rules import Machines, clip
from waybill.step import Act, New, StepContext, StepStopped
from waybill.worker.attempts import StepLog
from waybill.worker.messages import SaveRequested, StepRun
from waybill.worker.working_folders import folder_of, make_folder, make_workdir

if TYPE_CHECKING:
    from waybill.objects import Objects

T = TypeVar("T")
MAX_UNIT_LENGTH = 40  # characters: all progress of a worker is one row or node
logger = logging.getLogger("waybill.step")


class StepBackend(NamedTuple):
    """What all steps of a worker share. `send_save` and `run_on_store` block only the step that calls them."""

    send_save: Callable[[SaveRequested], list[Record]]
    run_on_store: Callable[[Callable[[Store], Any]], Any]
    remove_children: Callable[[Store, Ref, str], int]
    now: Callable[[], float]
    work_root: Path
    objects: Objects
    who: str
    machines: Machines
    resources_of: Callable[[str], Any]


class WorkerStepContext:
    """The `StepContext` of one step run."""

    def __init__(self, step_run: StepRun, backend: StepBackend) -> None:
        self.step_run = step_run
        self.record = step_run.record
        self.claim_version = step_run.claim_version
        self.objects = backend.objects
        self.who = backend.who
        self.now = backend.now
        self.is_stopped = False  # set by the worker's owner thread
        self.last_progress: tuple[float, float | None, str] | None = None
        self._backend = backend

    @cached_property
    def log(self) -> StepLog:
        record = self.step_run.record
        return StepLog(
            logger, {"kind": record.kind, "id": record.id, "state": record.state, "claim_version": self.claim_version}
        )

    @property
    def stop(self) -> bool:
        return self.is_stopped

    def check(self) -> None:
        if self.is_stopped:
            raise StepStopped("told to stop")

    @property
    def resources(self) -> Any:
        return self._backend.resources_of(self.record.kind)

    @cached_property  # a machine may read documents to name it, and steps use it often
    def folder(self) -> Path:
        return folder_of(self._backend.work_root, self._backend.machines[self.record.kind], self.record)

    @cached_property
    def workdir(self) -> Path:
        return make_workdir(self.folder, self._backend.machines[self.record.kind], self.record, self.claim_version)

    def make_folder(self) -> None:
        """Make the record's working folder, whether or not the step has used it."""
        make_folder(self.folder, self._backend.machines[self.record.kind], self.record)

    def list_earlier_folders(self) -> list[Path]:
        folder = self.folder
        if not folder.is_dir():
            return []
        found = [
            p
            for p in folder.iterdir()
            if p.name.isdigit() and int(p.name) != self.claim_version and p.is_dir() and not p.is_symlink()
        ]
        return sorted(found, key=lambda p: int(p.name), reverse=True)

    def save(
        self,
        documents: Documents = (),
        *,
        remove: tuple[StructType, ...] = (),
        locks: Iterable[str] = (),
        acts: Iterable[Act] = (),
        wakes: Iterable[Ref] = (),
        spawn: Iterable[New] = (),
        events: Iterable[Event] = (),
    ) -> Record:
        save = SaveRequested(
            self.step_run, documents, remove, tuple(locks), tuple(spawn), tuple(acts), tuple(wakes), tuple(events)
        )
        return self._send_save(save)[0]

    def act(self, ref: Ref, action: str, args: Mapping[str, Any] | None = None, why: str = "") -> None:
        self.save(acts=(Act(ref, action, args or {}, why),))

    def spawn(self, children: Iterable[New], documents: Documents = ()) -> list[Record]:
        return self._send_save(SaveRequested(self.step_run, documents, children=tuple(children)))[1:]

    def _send_save(self, save: SaveRequested) -> list[Record]:
        self.check()
        records = self._backend.send_save(save)
        self.record = records[0]
        return records

    def spawn_each(self, children: Iterable[New], cursor: str = "spawned", page_size: int = 200) -> int:
        saved = self.record.documents.get(cursor, {})
        count = int(saved.get("count", 0))
        if saved.get("whole"):
            return count
        rest = itertools.islice(children, count, None)
        ahead = deque(itertools.islice(rest, page_size + 1))
        while True:
            page = list(itertools.islice(ahead, page_size))
            is_last = len(page) == len(ahead)
            try:
                # The count is written in the commit that creates them: a second run continues after the last page.
                self.spawn(page, {cursor: {"count": count + len(page), "whole": is_last}})
            except CommitTooLarge:
                if len(page) <= 1:
                    raise
                page_size = len(page) // 2  # how many fit depends on their documents and on the store
                continue
            count += len(page)
            if is_last:
                return count
            for _ in page:
                ahead.popleft()
            ahead.extend(itertools.islice(rest, max(0, page_size + 1 - len(ahead))))

    def remove_children(self, kind: str) -> int:
        self.check()
        return self._backend.remove_children(cast(Store, OwnerThreadStore(self)), self.record.ref, kind)

    def report_progress(self, done: float, total: float | None = None, unit: str = "") -> None:
        # Converted here, so that the step gets the error: with the heartbeat it would be the worker's.
        done, total = float(done), None if total is None else float(total)
        self.last_progress = (done, total, clip(str(unit))[:MAX_UNIT_LENGTH])

    def get(self, kind: str, id: str) -> Record:
        return self._run_on_store(lambda store: store.get(kind, id))

    def find(
        self,
        kind: str,
        *,
        state: str | None = None,
        parent: Ref | None = None,
        after: int | None = None,
        limit: int = 100,
        documents: bool = False,
    ) -> Page:
        return self._run_on_store(
            lambda store: store.find(kind, state=state, parent=parent, after=after, limit=limit, documents=documents)
        )

    def count_by_state(self, kind: str, *, parent: Ref | None = None) -> dict[str, int]:
        return self._run_on_store(lambda store: store.count_by_state(kind, parent=parent))

    def run_on_store(self, query: Callable[[Store], T]) -> T:
        """Run a few calls of the store on the owner thread, for maintenance routines. Keep it short: the heartbeat waits."""
        return self._run_on_store(query)

    def _run_on_store(self, query: Callable[[Store], T]) -> T:
        self.check()
        answer: T = self._backend.run_on_store(query)
        return answer


class OwnerThreadStore:
    """A store whose methods run on the worker's owner thread, one at a time; a step that is told to stop ends at the next
    call.
    """

    def __init__(self, ctx: StepContext) -> None:
        self._ctx = ctx

    def each(self, kind: str, **filters: Any) -> Iterator[Record]:
        """Each page is one call on the owner thread."""
        return Store.each(cast(Store, self), kind, **filters)

    def __getattr__(self, method: str) -> Callable[..., Any]:
        ctx = self._ctx

        def call(*args: Any, **options: Any) -> Any:
            return ctx.run_on_store(lambda store: getattr(store, method)(*args, **options))

        return call
