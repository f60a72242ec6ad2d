"""What is written to a store, and what a store returns.

A `Change` is a pair of a record as it was read and as it shall be. A `CommitGroup` of changes is written completely or
not at all. What a change means follows from the two sides:

    before  after   session               cause   meaning
    None    record  -                     set     create; an id that ends in "*" is minted by the store: prefix + ten digits
    record  None    same as before        set     remove, with documents, history and locks
    record  record  mine -> mine          ""      save: a checkpoint under the claim, no history entry
    record  record  mine -> mine          set     continue: the next state under the same claim; returned with or without it
    record  record  mine -> None          any     release: the claim ends with this commit
    record  record  None -> None          any     act: the record must be unclaimed

Times are the store's own: a change carries a delay, never a time.

Below the changes follow the values that the verbs of `waybill.record.store` take and return: queues, claims, sessions,
history, pages, locks, findings.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple

import msgspec

from waybill.record.errors import CommitTooLarge, StoreError
from waybill.record.locks import EXCLUSIVE, LockSort
from waybill.record.record import Record, Ref

MAX_DOCUMENT = 512 * 1024  # bytes of one document
MAX_GROUP = 900 * 1024  # bytes of all documents and messages of a group: a ZooKeeper transaction is limited to 1 MiB
MAX_CHANGES = 1000  # changes in a group
MAX_MESSAGE = 4096  # characters of a message or a reason
MAX_PAGE = 1000  # records in a page

FOREIGN_CAUSE = "changed by another service"  # the cause of a history entry that a store adds when it finds such a move


class Change(msgspec.Struct, frozen=True, gc=False):
    """From `before` to `after`. The head of this module says what each pair means."""

    before: Record | None
    after: Record | None
    cause: str = ""  # what happened, for history: "done", "fail", an action's name; "": no history entry
    who: str = ""
    why: str = ""
    documents: Mapping[str, bytes | None] = {}  # the documents that it writes; None removes one
    delay: float = 0.0  # with blocked_by "wait": seconds from now, by the store's clock
    # refuse with Conflict while a child of this record is open, as seen inside the commit itself
    requires_children_settled: bool = False
    answers_request: bool = False  # this change settles the action request of the record
    # of a creation: refuse with ParentClosed unless the parent is open, as seen inside the commit itself
    requires_open_parent: bool = False

    @property
    def ref(self) -> Ref:
        record = self.after if self.after is not None else self.before
        if record is None:
            raise ValueError("a change needs a before or an after")
        return Ref(record.kind, record.id)

    @property
    def is_checkpoint(self) -> bool:
        return self.before is not None and self.after is not None and self.after.session is not None and not self.cause

    @property
    def is_continuation(self) -> bool:
        return (
            self.before is not None and self.after is not None and self.after.session is not None and bool(self.cause)
        )


class ActionRequest(NamedTuple):
    """An action that somebody requested of a record while a worker had claimed it."""

    ref: Ref
    action: str
    who: str
    why: str
    args: bytes = b"{}"

    def is_repeated_by(self, other: ActionRequest) -> bool:
        """Return whether the other is the same request of the same requester, who need not leave it a second time."""
        return (self.ref, self.action, self.args, self.who) == (other.ref, other.action, other.args, other.who)


class CommitGroup(msgspec.Struct, frozen=True, gc=False):
    """Changes that are written together or not at all, records to wake, and actions to request of workers.

    A wake is not versioned and never causes a Conflict. A request is left for the worker that has claimed the record,
    as by `Store.request_action`: Conflict where no worker has, RecordBusy where another action was requested before;
    the same request of the same requester is left as it is.
    """

    changes: tuple[Change, ...]
    wake: tuple[Ref, ...] = ()
    requests: tuple[ActionRequest, ...] = ()


def check_group_size(group: CommitGroup) -> None:
    """Raise CommitTooLarge for a group that some store could not take; the limits are the same on all stores."""
    if (count := len(group.changes) + len(group.requests)) > MAX_CHANGES:
        raise CommitTooLarge(f"{count} changes in one group; at most {MAX_CHANGES}. Write several groups.")
    total = 0
    for change in group.changes:
        if change.after is not None:
            after = change.after
            total += (
                len(after.message)
                + len(change.why)
                + len(change.who)
                + len(after.owner)
                + len(after.scope)
                + len(after.host)
                + 256
            )
            total += len(after.id) + len(after.idempotency_key or "") if change.before is None else 0
            total += (
                sum(map(len, after.locks)) + sum(map(len, after.hold_names)) if after.locks or after.hold_names else 0
            )
        for name, body in change.documents.items():
            total += len(name)
            if body is None:
                continue
            if len(body) > MAX_DOCUMENT:
                raise CommitTooLarge(
                    f"document {name} of {change.ref} has {len(body)} bytes; at most {MAX_DOCUMENT}. Put bulk into a manifest."
                )
            total += len(body)
    total += sum(len(r.action) + len(r.who) + len(r.why) + len(r.args) + 256 for r in group.requests)
    if total > MAX_GROUP:
        raise CommitTooLarge(f"one group of {total} bytes; at most {MAX_GROUP}. Write several groups.")


class CommitResult(msgspec.Struct, frozen=True, gc=False):
    """A group was written. `records` has one entry for each change, in order (None: removed)."""

    records: tuple[Record | None, ...]
    # parents of records that the group closed and that have no open child left, read after the commit
    idle_parents: tuple[Ref, ...] = ()
    action_requests: tuple[ActionRequest, ...] = ()  # unanswered requests of records that the group released


CommitAnswer = CommitResult | StoreError


class WorkQueue(NamedTuple):
    """A queue that a worker serves: the records of a kind in one state.

    `claims_on_hold`: hand out records that a hold stops, so that they can move to a rest state, instead of blocking
    them.
    """

    kind: str
    state: str
    claims_on_hold: bool = False


class ClaimedRecord(msgspec.Struct, frozen=True, gc=False):
    """A record that the session has claimed; `record.version` is the claim version.

    `hold`: a hold in force to which the record must yield, in a queue with `claims_on_hold`.
    """

    record: Record
    hold: str | None = None
    action_request: ActionRequest | None = None
    # another service created it or moved it into its state: its hold names and locks have not been computed
    needs_recompute: bool = False


class SessionRenewal(NamedTuple):
    alive: bool  # False: the session is gone, and all its claims with it
    action_requests: tuple[ActionRequest, ...] = ()


# SessionInfo.about of a server on a SQLite file: only other hosts see it, and it is not listed among the workers
SERVER_ABOUT: Mapping[str, Any] = {"server": True}


class SessionInfo(msgspec.Struct, frozen=True):
    """A worker as the others see it."""

    name: str
    host: str
    since: float
    expires: float
    about: dict[str, Any] = {}  # the version and digest of its machines, its queues, its process
    progress: dict[str, Any] = {}  # "kind id" -> [done, total, unit, state]


class HistoryEntry(NamedTuple):
    """One entry of a record's history."""

    version: int
    at: float
    who: str
    cause: str
    before: str | None
    after: str | None
    why: str = ""


class Page(NamedTuple):
    records: list[Record]
    after: int | None  # the seq to go on from; None: this was the last page


class Visibility(NamedTuple):
    """Whose records somebody may see who may not see all of a kind: those of these owners, and those within these scopes."""

    owners: tuple[str, ...] = ()
    scopes: tuple[str, ...] = ()

    def includes(self, record: Record) -> bool:
        return bool((record.owner and record.owner in self.owners) or (record.scope and record.scope in self.scopes))


class OwnedLock(NamedTuple):
    """A lock that is owned now, and by whom.

    `owners` is empty for a lock of another service, whose name may be spelt as that service spells it.
    """

    name: str
    owners: tuple[Ref, ...]  # in the order of kind and id, the first MAX_LISTED_OWNERS of them
    sort: LockSort = EXCLUSIVE
    owner_count: int = 1
    limit: int | None = None  # of a counted lock: how many records may own it


class IdleParents(NamedTuple):
    """One page of the records that wait for children, already filtered."""

    refs: list[Ref]  # those that have no open child
    after: str | None  # where the next page begins; None: this was the last page


class DueWaits(NamedTuple):
    released_count: int
    seconds_to_next: float | None  # seconds until the next wait is due; None: no record waits


class Finding(msgspec.Struct, frozen=True):
    """A consistency rule that does not hold, in words, and what would repair it."""

    rule: str
    where: str
    problem: str
    remedy: str
    repairable: bool = True
    ref: Ref | None = None
