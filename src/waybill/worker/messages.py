"""The messages that the worker's core receives, the commands that it returns, and the step run that both refer to.

The names follow the order of a worker's life: a session is opened, records are claimed, steps run and save, commits are
answered, the session is renewed and closed.
"""

from __future__ import annotations

import msgspec

from waybill.events import Event
from waybill.record import (
    ActionRequest,
    ClaimedRecord,
    CommitAnswer,
    CommitGroup,
    Documents,
    Record,
    Ref,
    SessionRenewal,
    StructType,
    WorkQueue,
)
from waybill.step import Act, New, Outcome, StepStopped


class StepRun(msgspec.Struct, gc=False):
    """One claimed record, and the run of its step."""

    number: int
    record: Record
    claim_version: int
    claimed_at: float  # on the worker's clock
    states_passed: int = 0  # states that the record has passed through under this claim
    is_running: bool = False
    is_claim_lost: bool = False  # the outcome of its step is ignored
    is_stopping: bool = False
    action_request: ActionRequest | None = None
    # a lock that another record owns, and all the locks that the step asked for
    unavailable_lock: tuple[str, tuple[str, ...]] | None = None
    failed_releases: int = 0  # how often the store refused to release the claim


class CommitEntry(msgspec.Struct, gc=False):
    """A group on its way to the store. Without a step run it only wakes parents."""

    group: CommitGroup
    step_run: StepRun | None = None
    is_save: bool = False
    acts: tuple[Act, ...] = ()  # on other records, in the same commit
    rounds: int = 0  # how often its acts found records that others keep changing
    readers: tuple[Ref, ...] = ()  # the subscriptions to the events that it logs
    existing_children: dict[int, Record] = {}  # by place among the children: those whose idempotency key already exists


# --- messages to the core


class SessionOpened(msgspec.Struct, frozen=True):
    session: str
    sent_at: float


class WorkHinted(msgspec.Struct, frozen=True):
    """Something may be claimable."""


class RecordsClaimed(msgspec.Struct, frozen=True):
    claimed: list[ClaimedRecord]
    limit: int


class ChildrenChecked(msgspec.Struct, frozen=True):
    step_runs: list[StepRun]
    open_parents: set[Ref]


class StepEnded(msgspec.Struct, frozen=True, gc=False):
    step_run: StepRun
    outcome: Outcome | Exception | StepStopped
    seconds: float | None = None


class SaveRequested(msgspec.Struct, frozen=True):
    """A step saves documents, takes more locks, creates children, acts on other records, wakes them or tells of events."""

    step_run: StepRun
    documents: Documents = ()
    remove: tuple[StructType, ...] = ()
    locks: tuple[str, ...] = ()
    children: tuple[New, ...] = ()
    acts: tuple[Act, ...] = ()
    wakes: tuple[Ref, ...] = ()
    events: tuple[Event, ...] = ()


class CommitAnswered(msgspec.Struct, frozen=True):
    entries: list[CommitEntry]
    answers: list[CommitAnswer | Exception]  # an Exception: why the acts of the entry are not possible


class SessionRenewed(msgspec.Struct, frozen=True):
    renewal: SessionRenewal
    sent_at: float


class HoldsRead(msgspec.Struct, frozen=True):
    holds: frozenset[str]


class WaitsReleased(msgspec.Struct, frozen=True):
    released_count: int
    next_due: float | None


class StoreUnreachable(msgspec.Struct, frozen=True):
    """The store cannot be reached; nothing was written."""


class SessionFailed(msgspec.Struct, frozen=True):
    """The session is gone, or the outcome of a write under it is unknown."""

    why: str


class StopRequested(msgspec.Struct, frozen=True):
    pass


CoreMessage = (
    SessionOpened
    | WorkHinted
    | RecordsClaimed
    | ChildrenChecked
    | StepEnded
    | SaveRequested
    | CommitAnswered
    | SessionRenewed
    | HoldsRead
    | WaitsReleased
    | StoreUnreachable
    | SessionFailed
    | StopRequested
)


# --- commands of the core


class OpenSessionCommand(msgspec.Struct, frozen=True):
    pass


class ClaimCommand(msgspec.Struct, frozen=True):
    queues: tuple[WorkQueue, ...]
    limit: int


class CheckChildrenCommand(msgspec.Struct, frozen=True):
    step_runs: list[StepRun]


class StartStepsCommand(msgspec.Struct, frozen=True):
    step_runs: list[StepRun]


class CommitCommand(msgspec.Struct, frozen=True):
    entries: list[CommitEntry]


class ReplyCommand(msgspec.Struct, frozen=True):
    step_run: StepRun
    result: list[Record] | Exception | StepStopped


class SignalStopCommand(msgspec.Struct, frozen=True):
    """Set the step's `ctx.stop`."""

    step_run: StepRun


class RecallCommand(msgspec.Struct, frozen=True):
    """Take back step runs whose step has not begun: each is answered with StepEnded(StepStopped)."""


class ReadHoldsCommand(msgspec.Struct, frozen=True):
    pass


class ReleaseWaitsCommand(msgspec.Struct, frozen=True):
    pass


class RenewSessionCommand(msgspec.Struct, frozen=True):
    session: str


class ReapSessionsCommand(msgspec.Struct, frozen=True):
    """End expired sessions. Every worker does this: the record of a maintenance routine may itself be claimed by the
    expired session.
    """


class ApplyRequestsCommand(msgspec.Struct, frozen=True):
    """Apply action requests that were left with this worker for records that it has released."""

    requests: tuple[ActionRequest, ...]


class ClearFolderCommand(msgspec.Struct, frozen=True):
    """Remove a record's working folder, up to this version. Safe to repeat; if the worker crashes before it, maintenance
    removes the folder.
    """

    record: Record


class CloseSessionCommand(msgspec.Struct, frozen=True):
    session: str
    why: str = ""  # why it is closed early; empty: it is not


class WarnCommand(msgspec.Struct, frozen=True):
    """Log something that the operator must know."""

    text: str


class SleepCommand(msgspec.Struct, frozen=True):
    until: float
    watches_store: bool  # a hint that something is claimable ends the sleep


class ExitCommand(msgspec.Struct, frozen=True):
    pass


CoreCommand = (
    OpenSessionCommand
    | ClaimCommand
    | CheckChildrenCommand
    | StartStepsCommand
    | CommitCommand
    | ReplyCommand
    | SignalStopCommand
    | RecallCommand
    | ReadHoldsCommand
    | ReleaseWaitsCommand
    | RenewSessionCommand
    | ReapSessionsCommand
    | ApplyRequestsCommand
    | ClearFolderCommand
    | CloseSessionCommand
    | WarnCommand
    | SleepCommand
    | ExitCommand
)
