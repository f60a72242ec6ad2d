"""The words in which a machine is declared: states, actions, lock families, the working folder; documents are declared
by `waybill.record.documents`.

A state has one of five types:

    work      a step runs
    join      a work state with a built-in step: it lasts until the children have settled
    rest      lasts until a person or an event acts
    end       nothing leaves it
    retired   being removed from the machine: no longer entered, still left

`work`, `join`, `rest`, `end` and `retired` declare a state: its name, then by keyword where it leads (`to`), what it is
(`description`) and what is special about it. `action` declares an action.

What is usual need not be declared: a permanent error leads to Failed, a settled rest state, from which `resume`
continues after the last state that was done. A machine whose steps can fail has both, unless it declares a state Failed
of its own.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal

from waybill.record import Documents, Record, Store

if TYPE_CHECKING:
    from waybill.step import Act

StateType = Literal["work", "join", "rest", "end", "retired"]
FAILED = "Failed"  # where a permanent error leads unless the table says otherwise
WORK_POOL = "work"  # the pool of threads of a state that names none
UPKEEP_POOL = "upkeep"  # of mail, subscriptions, maintenance and joins, which work never delays
MAX_WAIT = 1e9  # seconds of one wait, at most: 31 years are as good as for ever, and every store can represent them


@dataclass(frozen=True, slots=True)
class Backoff:
    """Seconds before the next try: first, first * factor, ... up to maximum."""

    first: float = 1.0
    factor: float = 2.0
    maximum: float = 300.0

    def compute_delay(self, error_count: int) -> float:
        try:
            return float(min(self.maximum, self.first * self.factor ** min(error_count, 64)))
        except OverflowError:
            return float(self.maximum)


@dataclass(frozen=True, slots=True)
class State:
    """Where a record is in its machine; made by `work`, `join`, `rest`, `end` and `retired`."""

    name: str
    type: StateType
    description: str  # one sentence, shown wherever the state is
    to: str | None = None  # where Done leads
    or_to: tuple[str, ...] = ()  # where Done(to=...) may lead instead
    on_fail: str | None = None  # where a permanent error leads; None: the step is retried for ever
    on_hold: str | None = None  # the rest state to which a hold in force sends a record that would be worked on
    blocks_on_hold: bool = False  # a hold in force blocks the record in this state instead
    max_tries: int = 3  # how many transient errors of the step make the record fail
    backoff: Backoff = Backoff()
    poll_interval: float = 1.0  # seconds of a Wait that does not say how long
    settled: bool = False  # the parent does not wait for a record in this state
    locks: tuple[str, ...] = ()  # the lock families of which a record owns locks while it is here
    shared_locks: tuple[str, ...] = ()  # the same, together with any number of others that share them
    leaves_files: bool = False  # its step leaves files in the working folder of its host
    reserves_space: bool = False  # a record may have disk space reserved here; elsewhere its reservation is removed
    on_host_lost: str | None = None  # where the record goes when the host that had its working files is lost
    clears_files: bool = False  # the working folder is removed on entering
    # of a join: the document that says whether all children are made; until it does, the step makes them
    children_document: str | None = None
    keep: float | None = None  # seconds after which a record that rests or ended here is removed; None: never
    pool: str = WORK_POOL  # the threads of a worker that run its steps

    @property
    def lock_families(self) -> tuple[str, ...]:
        """The families of which a record owns locks here, in whatever sort."""
        return (*self.locks, *self.shared_locks) if self.shared_locks else self.locks

    @property
    def works(self) -> bool:
        return self.type in ("work", "join", "retired")

    @property
    def open(self) -> bool:
        """Whether the parent waits for a record in this state."""
        return not (self.settled or self.type == "end")


def work(
    name: str,
    *,
    to: str,
    description: str,
    or_to: Iterable[str] = (),
    on_fail: str | None = FAILED,
    on_hold: str | None = None,
    blocks_on_hold: bool = False,
    max_tries: int = 3,
    backoff: Backoff = Backoff(),  # noqa: B008 - frozen
    poll_interval: float = 1.0,
    locks: Iterable[str] = (),
    shared_locks: Iterable[str] = (),
    leaves_files: bool = False,
    reserves_space: bool = False,
    on_host_lost: str | None = None,
    pool: str = WORK_POOL,
) -> State:
    """A state in which a step runs. An exception is a transient error and is retried; `Fail` and the last try lead to
    `on_fail`.
    """
    return State(
        name, "work", description, to, tuple(or_to), on_fail, on_hold, blocks_on_hold, max_tries, backoff, poll_interval,
        locks=tuple(locks), shared_locks=tuple(shared_locks), leaves_files=leaves_files, reserves_space=reserves_space,
        on_host_lost=on_host_lost, pool=pool,
    )  # fmt: skip


def join(
    name: str, *, to: str, description: str, or_to: Iterable[str] = (), on_fail: str | None = None, locks: Iterable[str] = (),
    shared_locks: Iterable[str] = (), children_document: str | None = None,
) -> State:  # fmt: skip
    """A state that lasts until no child is open. If it has a step, that runs then and may choose among `or_to`.

    With `children_document` the step makes the children too: it runs until that document, as `ctx.spawn_each` writes
    it, says that all are made.
    """
    return State(
        name, "join", description, to, tuple(or_to), on_fail,
        locks=tuple(locks), shared_locks=tuple(shared_locks), children_document=children_document,
        pool=UPKEEP_POOL,
    )  # fmt: skip


def rest(
    name: str,
    *,
    description: str,
    settled: bool = False,
    locks: Iterable[str] = (),
    shared_locks: Iterable[str] = (),
    clears_files: bool = False,
    keep: float | None = None,
) -> State:
    """A state that lasts until somebody acts."""
    return State(
        name, "rest", description, settled=settled, locks=tuple(locks), shared_locks=tuple(shared_locks),
        clears_files=clears_files, keep=keep,
    )  # fmt: skip


def end(name: str, *, description: str, clears_files: bool = True, keep: float | None = None) -> State:
    """A state that nothing leaves."""
    return State(name, "end", description, settled=True, clears_files=clears_files, keep=keep)


def retired(name: str, *, to: str, description: str = "No longer entered; records found here go on.") -> State:
    """A state of the previous release, declared for one more release so that records in it can leave."""
    return State(name, "retired", description, to)


RESUME = "<resume>"  # target of an action: the state after the last one that was done
STAY = "<stay>"  # target of an action that writes documents and leaves the state as it is

ActionGuard = Callable[[Record, Store], str | None]  # returns why the action is not possible, or None
# from an action's arguments to the documents that it writes
DocumentWriter = Callable[[Record, Mapping[str, Any]], Documents]
# from the record before an action, and the action's arguments, to the acts that it brings along
ActsOfAction = Callable[[Record, Mapping[str, Any]], "Iterable[Act]"]


@dataclass(frozen=True, slots=True)
class Action:
    """A transition that a person, or another machine, requests."""

    name: str
    sources: tuple[str, ...]
    target: str
    description: str
    guard: ActionGuard | None = None
    confirm: str | None = None  # what the caller must confirm first
    # while a worker has claimed the record: refuse, or request it of the worker, which stops the step and applies it
    when_claimed: Literal["refuse", "wait"] = "refuse"
    role: Literal["submitter", "operator", "admin"] = "operator"
    writes: DocumentWriter | None = None
    skip_confirm: Callable[[Record, Store], bool] | None = None  # when no confirmation is needed after all
    acts: ActsOfAction | None = None  # what it brings along on other records, in the same commit

    def get_confirmation(self, record: Record, store: Store) -> str | None:
        """Return what the caller must confirm first, for this record now; None: nothing."""
        return (
            None
            if self.confirm is None or (self.skip_confirm is not None and self.skip_confirm(record, store))
            else self.confirm
        )


def action(
    name: str,
    sources: str,
    target: str,
    description: str,
    *,
    guard: ActionGuard | None = None,
    confirm: str | None = None,
    when_claimed: Literal["refuse", "wait"] = "refuse",
    role: Literal["submitter", "operator", "admin"] = "operator",
    writes: DocumentWriter | None = None,
    skip_confirm: Callable[[Record, Store], bool] | None = None,
    acts: ActsOfAction | None = None,
) -> Action:
    """A transition that a person, or another machine, requests. `sources` is a list of states, separated by spaces."""
    return Action(
        name,
        tuple(sources.split()),
        target,
        description,
        guard,
        confirm,
        when_claimed,
        role,
        writes,
        skip_confirm,
        acts,
    )


FAILED_STATE = rest(
    FAILED, description="A step gave up; resume continues after the last step that was done.", settled=True
)
RESUME_ACTION = action("resume", FAILED, RESUME, "Continue after the last step that was done.")


def add_failed_state(states: Iterable[State]) -> tuple[State, ...]:
    """The states of a table, with Failed before the first end, if steps fail to it and the table does not declare it."""
    table = tuple(states)
    if all(s.name != FAILED for s in table) and any(s.on_fail == FAILED for s in table):
        at = next((i for i, s in enumerate(table) if s.type == "end"), len(table))
        return (*table[:at], FAILED_STATE, *table[at:])
    return table


@dataclass(frozen=True, slots=True)
class LockFamily:
    """A family of locks, and which of them a record needs: known from its documents, or requested by its step.

    A state says in which sort it needs them: `locks` exclusively, `shared_locks` together with others. The locks of a
    family with `limit_of` are counted: so many records may own one at a time. The limit that was computed last, for
    whichever record, holds for all.
    """

    name: str
    description: str
    names_of: Callable[[Record], Iterable[str]] | None = None
    limit_of: Callable[[Record], int] | None = None


@dataclass(frozen=True, slots=True)
class WorkingFolder:
    """Where the working folders of a machine's records are below the working root, if not under <kind>/<id>."""

    top: str  # the first folder, which no other machine uses
    path_of: Callable[[Record], tuple[str, ...]]  # the folders below it; the last one is the record's own
