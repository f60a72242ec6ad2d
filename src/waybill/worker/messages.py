"""What the worker's core hears (events) and says (commands), and the task that both speak of."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import msgspec

from waybill.record import Answer, Ask, Claimed, Group, Record, Ref, Renewed, Role
from waybill.step import New, Outcome, Stopped


class Task(msgspec.Struct, gc=False):
    """One claimed record, and the run of its step."""

    number: int
    record: Record
    attempt: int
    since: float  # when the claim began
    kept: int = 0  # states gone through under this claim
    running: bool = False
    dead: bool = False  # its claim is lost: what its step answers is worth nothing
    stopping: bool = False
    ask: Ask | None = None
    taken: tuple[str, tuple[str, ...]] | None = None  # the key that another record holds, and all the keys asked for
    stuck: int = 0  # times that it could not be given back


class Entry(msgspec.Struct, gc=False):
    """A group on its way to the store. No task: nudges of parents."""

    group: Group
    task: Task | None = None
    saves: bool = False
    known: dict[int, Record] = {}  # by place among the children: those whose request had made them before


# --- events


class Opened(msgspec.Struct, frozen=True):
    session: str
    sent: float


class Woke(msgspec.Struct, frozen=True):
    """Something may be claimable."""


class Took(msgspec.Struct, frozen=True):
    claimed: list[Claimed]
    wanted: int


class Looked(msgspec.Struct, frozen=True):
    tasks: list[Task]
    open: set[Ref]


class Ended(msgspec.Struct, frozen=True, gc=False):
    task: Task
    outcome: Outcome | Exception | Stopped
    seconds: float | None = None


class Saving(msgspec.Struct, frozen=True):
    """A step checkpoints: documents, more keys, children."""

    task: Task
    docs: Mapping[str, Any]
    keys: tuple[str, ...] = ()
    spawn: tuple[New, ...] = ()


class Answered(msgspec.Struct, frozen=True):
    batch: list[Entry]
    answers: list[Answer]


class Heard(msgspec.Struct, frozen=True):
    renewed: Renewed
    sent: float


class Marked(msgspec.Struct, frozen=True):
    marks: frozenset[str]


class Woken(msgspec.Struct, frozen=True):
    woken: int
    next: float | None


class Away(msgspec.Struct, frozen=True):
    """The store cannot be reached; nothing was written."""


class Lost(msgspec.Struct, frozen=True):
    """The session is gone, or what became of its writes is not known."""

    why: str


class Stop(msgspec.Struct, frozen=True):
    pass


Event = Opened | Woke | Took | Looked | Ended | Saving | Answered | Heard | Marked | Woken | Away | Lost | Stop


# --- commands


class OpenSession(msgspec.Struct, frozen=True):
    pass


class Claim(msgspec.Struct, frozen=True):
    roles: tuple[Role, ...]
    limit: int


class Look(msgspec.Struct, frozen=True):
    tasks: list[Task]


class Start(msgspec.Struct, frozen=True):
    tasks: list[Task]


class Commit(msgspec.Struct, frozen=True):
    batch: list[Entry]


class Reply(msgspec.Struct, frozen=True):
    task: Task
    result: list[Record] | Exception | Stopped


class Signal(msgspec.Struct, frozen=True):
    """Set the step's `ctx.stop`."""

    task: Task


class Recall(msgspec.Struct, frozen=True):
    """Give back tasks whose step has not begun: each is answered with Ended(Stopped)."""


class ReadMarks(msgspec.Struct, frozen=True):
    pass


class Wake(msgspec.Struct, frozen=True):
    pass


class Renew(msgspec.Struct, frozen=True):
    session: str


class Reap(msgspec.Struct, frozen=True):
    """End sessions that expired. Every worker does this: a duty's record may itself be held by the session that
    died.
    """


class Apply(msgspec.Struct, frozen=True):
    """Requests that were left with us for records that we have released."""

    asks: tuple[Ask, ...]


class Clear(msgspec.Struct, frozen=True):
    """Remove a record's working folder, up to this attempt. Safe to repeat, and found by a duty if we die before it."""

    record: Record


class Close(msgspec.Struct, frozen=True):
    session: str
    why: str = ""  # it was given up before its time


class Warn(msgspec.Struct, frozen=True):
    """Something that whoever looks after the worker must know."""

    words: str


class Sleep(msgspec.Struct, frozen=True):
    until: float
    watch: bool  # a hint that something is claimable is of use


class Exit(msgspec.Struct, frozen=True):
    pass


Command = (
    OpenSession
    | Claim
    | Look
    | Start
    | Commit
    | Reply
    | Signal
    | Recall
    | ReadMarks
    | Wake
    | Renew
    | Reap
    | Apply
    | Clear
    | Close
    | Warn
    | Sleep
    | Exit
)
