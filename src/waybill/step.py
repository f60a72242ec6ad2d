"""What a step is given and what it may answer.

A step is a function of a record and a `Context`. It answers `Done` or `Wait`, or raises: `Fail` for a mistake that
trying again cannot mend, anything else for trouble, which is tried again. `Stopped` it lets pass: the claim is lost or
the worker must go.

A step may run twice and, after a lost session, for a while beside itself; only one run can commit. So what it writes
goes under names that hold the attempt (`ctx.workdir` does), and what must not be repeated is checkpointed at once
(`ctx.save`).
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol, TypeVar

from waybill.record import Page, Record, Ref, Store

if TYPE_CHECKING:
    from waybill.objects import Objects

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class New:
    """A record to be made in the same commit as something else."""

    kind: str
    docs: Mapping[str, Any] = field(default_factory=dict)
    id: str | None = None  # None: minted
    state: str | None = None  # None: where its machine begins
    owner: str | None = None  # None: the maker's
    priority: int | None = None  # None: the maker's
    keys: tuple[str, ...] = ()
    request: str | None = None
    host: str = ""  # the only host that may work on it; "": any
    child: bool = True  # the maker waits for it, if its machine says so
    last_done: str | None = None  # what others have done of its work
    message: str = ""  # what is to be said of it at once, such as why it begins as failed
    # a record made before that waits for it, where nobody makes both; None: its maker, if it has one
    parent: Ref | None = None


@dataclass(frozen=True, slots=True)
class Done:
    """The state's work is done: go to its `then`, or to one of its `also`."""

    docs: Mapping[str, Any] = field(default_factory=dict)  # None as a value removes the document
    to: str | None = None
    message: str = ""
    priority: int | None = None
    spawn: tuple[New, ...] = ()


@dataclass(frozen=True, slots=True)
class Wait:
    """Not yet: look again after so many seconds (None: the state's `every`, 1 unless it says otherwise; 0: at once).

    No claim is held meanwhile, and this is no failure.
    """

    seconds: float | None = None
    message: str = ""
    docs: Mapping[str, Any] = field(default_factory=dict)


class Fail(Exception):
    """A mistake that trying again cannot mend; the text is a sentence for the person who can."""


class Stopped(BaseException):  # not an Exception: `except Exception` in a step lets it pass
    """The claim is lost, or the worker must go: leave the step at once, committing nothing."""


class Context(Protocol):
    """What a step may use. Every call that touches the store is a message to the worker's owner thread."""

    record: Record  # as of the last save
    attempt: int  # the version that the claim gave; unique to this run of the step
    objects: Objects
    who: str

    @property
    def log(self) -> logging.LoggerAdapter[logging.Logger]:
        """Every line carries the record's kind and id, its state and the attempt."""

    @property
    def outfit(self) -> Any:
        """What the record's application gives its steps to work with (`Application.outfit`), made once in each
        process.
        """

    @property
    def folder(self) -> Path:
        """The record's own folder, in which those of all attempts lie; removed when its state says so.

        Made with `workdir`.
        """

    def make_folder(self) -> None:
        """Make `folder` now, of a state that leaves files: else it is made when the step is done, and what is wrong
        then is its failure.
        """

    @property
    def workdir(self) -> Path:
        """This attempt's own folder; earlier attempts' folders lie beside it."""

    @property
    def stop(self) -> bool:
        """True when the claim is lost, an action was asked for, or the worker is told to stop; long loops look at
        it.
        """

    def check(self) -> None:
        """Raise Stopped when `stop` is set."""

    def now(self) -> float:
        """The time, from the clock that was passed in."""

    def save(self, docs: Mapping[str, Any] | None = None, *, keys: Iterable[str] = ()) -> Record:
        """A checkpoint under the claim, on disk when this returns.

        A key that another record holds ends the step; it runs again when the key is free.
        """

    def spawn(self, children: Iterable[New], docs: Mapping[str, Any] | None = None) -> list[Record]:
        """Make one portion of children together with a checkpoint (a cursor), all or nothing."""

    def spawn_each(self, children: Iterable[New], cursor: str = "spawned", portion: int = 200) -> int:
        """Make any number of children in portions, counted in the document `cursor`: after a crash it goes on where
        it was.

        With the last portion the document says that they are whole. `children` must come in the same order each time. A
        portion whose documents are more than the store takes at once is made in smaller ones. Answers how many there
        are.
        """

    def remove_children(self, kind: str) -> int:
        """Remove the children of that kind, and theirs, in portions; how many are left because a worker holds them
        now.
        """

    def progress(self, done: float, total: float | None = None, unit: str = "") -> None:
        """Shown as a bar; sent with the next heartbeat, kept nowhere else."""

    def earlier(self) -> list[Path]:
        """The folders of earlier attempts of this record that this host has, latest first: finished parts may be
        linked or copied.
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
        docs: bool = False,
    ) -> Page: ...

    def tally(self, kind: str, *, parent: Ref | None = None) -> dict[str, int]: ...

    def call(self, question: Callable[[Store], T]) -> T:
        """Run a few store verbs on the owner thread: for duties, which look after the store itself. Keep it short."""


Outcome = Done | Wait
Step = Callable[[Record, Context], Outcome]
