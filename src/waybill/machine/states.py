"""A state of a machine, and the words that a table is written in: work, join, rest, end, retired.

**work**: a step runs. **join**: a work state with a built-in step, until the children have settled. **rest**: until a person or an event
acts. **end**: nothing leaves it. **retired**: on its way out of the table, not entered, still left.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Literal

Sort = Literal["work", "join", "rest", "end", "retired"]
MAX_WAIT = 1e9  # seconds between two looks, at most: 31 years are as good as for ever, and every store can keep them


@dataclass(frozen=True, slots=True)
class Backoff:
    """Seconds before the next try: first, first * factor, ... up to most."""

    first: float = 1.0
    factor: float = 2.0
    most: float = 300.0

    def delay(self, tries: int) -> float:
        try:
            return float(min(self.most, self.first * self.factor ** min(tries, 64)))
        except OverflowError:
            return float(self.most)


@dataclass(frozen=True, slots=True)
class State:
    name: str
    sort: Sort
    doc: str  # one sentence, shown wherever the state is
    then: str | None = None  # where Done leads
    also: tuple[str, ...] = ()  # where Done(to=...) may lead instead
    fails: str | None = None  # where giving up leads; None: it never gives up
    holds: str | None = None  # where a mark in force sends a record that would enter this work
    gated: bool = False  # a mark in force parks the record here instead
    tries: int = 3  # how often the step may meet trouble before the record fails
    backoff: Backoff = Backoff()
    every: float = 1.0  # seconds between two looks while the step answers Wait without saying how long
    settled: bool = False  # the parent does not wait for a record in this state
    needs: tuple[str, ...] = ()  # the families of keys that a record holds while here
    leaves_files: bool = False  # its step leaves files in the working folder of its host
    remakes: str | None = None  # where the record goes when the host that had its working files is gone
    clears_files: bool = False  # the working folder is removed on entering
    # of a join: the document that says whether all children are made; until it does, the step makes them
    opens: str | None = None
    keep: float | None = None  # seconds after which a record that rests or ended here is removed; None: never

    @property
    def works(self) -> bool:
        return self.sort in ("work", "join", "retired")

    @property
    def open(self) -> bool:
        """Whether the parent waits for a record in this state."""
        return not (self.settled or self.sort == "end")


def work(
    name: str,
    then: str,
    doc: str,
    *,
    also: Iterable[str] = (),
    fails: str | None = "Failed",
    holds: str | None = None,
    gated: bool = False,
    tries: int = 3,
    backoff: Backoff = Backoff(),  # noqa: B008 - frozen
    every: float = 1.0,
    needs: Iterable[str] = (),
    leaves_files: bool = False,
    remakes: str | None = None,
) -> State:
    """A state in which a step runs. An exception is trouble and tried again; `Fail` and the last try lead to
    `fails`.
    """
    return State(
        name, "work", doc, then, tuple(also), fails, holds, gated, tries, backoff, every,
        needs=tuple(needs), leaves_files=leaves_files, remakes=remakes,
    )  # fmt: skip


def join(
    name: str, then: str, doc: str, *, also: Iterable[str] = (), fails: str | None = None, needs: Iterable[str] = (),
    opens: str | None = None,
) -> State:  # fmt: skip
    """A state that lasts until no child is open. A step registered for it runs then, and may choose among `also`.

    With `opens` the step makes the children too: it runs until that document, as `ctx.spawn_each` writes it, says that
    they are whole.
    """
    return State(name, "join", doc, then, tuple(also), fails, needs=tuple(needs), opens=opens)


def rest(
    name: str,
    doc: str,
    *,
    settled: bool = False,
    needs: Iterable[str] = (),
    clears_files: bool = False,
    keep: float | None = None,
) -> State:
    """A state that lasts until somebody acts."""
    return State(name, "rest", doc, settled=settled, needs=tuple(needs), clears_files=clears_files, keep=keep)


def end(name: str, doc: str, *, clears_files: bool = True, keep: float | None = None) -> State:
    """A state that nothing leaves."""
    return State(name, "end", doc, settled=True, clears_files=clears_files, keep=keep)


def retired(name: str, then: str, doc: str = "No longer entered; records found here go on.") -> State:
    """A state of the last release: kept for one more, so that records in it are led on."""
    return State(name, "retired", doc, then)
