"""What a step receives and what it may return.

A step is a function of a record and a `StepContext`. It returns `Done` or `Wait`, or raises: `Fail` for a permanent
error, any other exception for a transient error, which is retried. It lets `StepStopped` pass: the claim is lost or the
worker must stop.

A step may run twice and, after a lost session, for a while side by side with itself; only one run can commit. So it
writes under names that contain the claim version (`ctx.workdir` does), and checkpoints at once what must not be
repeated (`ctx.save`).
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol, TypeVar

from waybill.errors import WaybillError
from waybill.events import Event
from waybill.record import Documents, DocumentStruct, Page, Record, Ref, Store, StructType

if TYPE_CHECKING:
    from waybill.objects import Objects

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Act:
    """An action on another record, in the same commit as something else: all or nothing.

    It is decided as an operator's action is, and needs no confirmation. Where a worker has claimed the record, the action
    is requested of that worker, or refused, as its `when_claimed` says.
    """

    ref: Ref
    action: str
    args: Mapping[str, Any] = field(default_factory=dict)
    why: str = ""  # for the history of the other record, which names the record whose step acts in any case


@dataclass(frozen=True, slots=True)
class New:
    """A record to be created in the same commit as something else."""

    kind: str
    documents: Documents = ()
    # None: minted. Where a step creates a record under a name that exists already, the existing one is its child
    id: str | None = None
    state: str | None = None  # None: the first state of its machine
    owner: str | None = None  # None: the maker's
    priority: int | None = None  # None: the maker's
    locks: tuple[str, ...] = ()
    idempotency_key: str | None = None
    host: str = ""  # the only host that may work on it; "": any host
    is_child: bool = True  # the maker waits for it, if its machine says so
    last_done: str | None = None  # the last state whose work others have done already
    message: str = ""  # its first message, such as why it begins as failed
    # an existing record that waits for it, where no step makes both; None: its maker, if it has one
    parent: Ref | None = None
    if_parent_open: bool = False  # refuse the commit (ParentClosed) unless the parent is open when it is written


@dataclass(frozen=True, slots=True)
class Done:
    """The work of the state is done: go to its `to`, or to one of its `or_to`."""

    documents: Documents = ()
    to: str | None = None
    message: str = ""
    priority: int | None = None
    spawn: tuple[New, ...] = ()
    remove: tuple[StructType, ...] = ()  # the types of the documents that it removes, if the record has them
    acts: tuple[Act, ...] = ()  # on other records, in this commit
    wakes: tuple[Ref, ...] = ()  # records that wait, and whose steps run again after this commit
    events: tuple[Event, ...] = ()  # what this commit tells others; dropped where nobody subscribes


@dataclass(frozen=True, slots=True)
class Wait:
    """Not yet: run the step again after so many seconds (None: the state's `poll_interval`, 1 by default; 0: at once).

    The record is not claimed meanwhile, and this is no error.
    """

    seconds: float | None = None
    message: str = ""
    documents: Documents = ()
    remove: tuple[StructType, ...] = ()
    acts: tuple[Act, ...] = ()  # on other records, in this commit
    wakes: tuple[Ref, ...] = ()
    events: tuple[Event, ...] = ()


class SpawnedChildren(DocumentStruct, frozen=True):
    """How many children a step has created: the document that `ctx.spawn_each` writes under the name "spawned"."""

    count: int = 0
    whole: bool = False  # whether these are all


class Fail(WaybillError):
    """A permanent error: retrying cannot help. The text is a sentence for the person who can."""

    code = "failed"


class StepStopped(BaseException):  # not an Exception: `except Exception` in a step lets it pass
    """The claim is lost, or the worker must stop: leave the step at once, committing nothing."""


class StepContext(Protocol):
    """What a step may use. Every call that touches the store is a message to the worker's owner thread."""

    record: Record  # as of the last save
    claim_version: int  # the record's version after the claim; unique to this run of the step
    objects: Objects
    who: str

    @property
    def log(self) -> logging.LoggerAdapter[logging.Logger]:
        """A logger whose lines carry the record's kind and id, its state and the claim version."""

    @property
    def resources(self) -> Any:
        """What the record's application gives its steps to use (`Application.resources`), made once in each process."""

    @property
    def folder(self) -> Path:
        """The record's own folder, which contains the folders of all its claims; removed when its state says so.

        Created together with `workdir`.
        """

    def make_folder(self) -> None:
        """Create `folder` now, in a state that leaves files: otherwise it is created when the step is done, and an
        error then fails the step.
        """

    @property
    def workdir(self) -> Path:
        """The folder of this claim; the folders of earlier claims are beside it."""

    @property
    def stop(self) -> bool:
        """True when the claim is lost, an action was requested, or the worker must stop; long loops check it."""

    def check(self) -> None:
        """Raise StepStopped when `stop` is true."""

    def now(self) -> float:
        """Return the time of the clock that was passed in."""

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
        """Commit a checkpoint under the claim; it is on disk when this returns.

        A lock that another record owns ends the step; it runs again when the lock is free. What is spawned, acted on, woken
        and told is part of the same commit; raises ActionRefused, and writes nothing, where an act is not possible now.
        """

    def act(self, ref: Ref, action: str, args: Mapping[str, Any] | None = None, why: str = "") -> None:
        """Take an action on another record now, in a checkpoint of this one. Raises ActionRefused.

        It is done when this returns, and a second run of the step does it again: its guard, or the step, must know that it
        is done already.
        """

    def spawn(self, children: Iterable[New], documents: Documents = ()) -> list[Record]:
        """Create one page of children together with a checkpoint (a cursor), all or nothing."""

    def spawn_each(self, children: Iterable[New], cursor: str = "spawned", page_size: int = 200) -> int:
        """Create any number of children page by page, counted in the document `cursor`: after a crash it goes on where
        it stopped. Return how many there are.

        With the last page the document says that all are made ("whole"). `children` must come in the same order each
        time. A page whose documents are more than the store takes in one commit is split.
        """

    def remove_children(self, kind: str) -> int:
        """Remove the children of that kind, and their descendants, page by page; return how many remain because a
        worker has claimed them.
        """

    def report_progress(self, done: float, total: float | None = None, unit: str = "") -> None:
        """Publish progress, shown as a bar; sent with the next heartbeat and stored nowhere else."""

    def list_earlier_folders(self) -> list[Path]:
        """Return the folders of earlier claims of this record on this host, latest first: finished parts may be linked
        or copied.
        """

    def get(self, kind: str, id: str) -> Record: ...

    def find(
        self,
        kind: str,
        *,
        state: str | None = None,
        parent: Ref | None = None,
        after: int | None = None,
        limit: int = 100,
        documents: bool = False,
    ) -> Page: ...

    def count_by_state(self, kind: str, *, parent: Ref | None = None) -> dict[str, int]: ...

    def run_on_store(self, query: Callable[[Store], T]) -> T:
        """Run a few store verbs on the owner thread: for maintenance routines, which work on the store itself. Keep it
        short.
        """


Outcome = Done | Wait
Step = Callable[[Record, StepContext], Outcome]
