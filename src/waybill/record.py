"""What every store holds, and what every store does: the nouns and the verbs that all other modules share.

A `Record` is one thing in motion. It is only ever moved by a `Change`, a pair (before, after); a `Group` of changes is written whole or
not at all. A worker opens a session, claims records under it, and commits what its steps made of them:

    open_session -> claim -> (renew ...) -> commit: save | go on | release -> ... -> close_session

What a change is, follows from its two sides:

    before  after   sessions              event   meaning
    None    record  -                     set     create; an id that ends in "*" is minted by the store: prefix + ten digits
    record  None    same as before        set     remove, with documents, history and keys
    record  record  mine -> mine          ""      save: a checkpoint under the claim, no history line
    record  record  mine -> mine          set     go on: the next state under the same claim; answered with or without the claim
    record  record  mine -> None          any     release: the claim ends with this commit
    record  record  None -> None          any     act: nobody may hold the record

Times are the store's own; a change carries a delay, never a time. A store knows no rule of any machine.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any, ClassVar, NamedTuple, Protocol, runtime_checkable

import msgspec

MAX_DOCUMENT = 512 * 1024  # bytes of one document
MAX_GROUP = 900 * 1024  # bytes of all documents and messages of a group: a ZooKeeper transaction is limited to 1 MiB
MAX_CHANGES = 1000  # changes in a group
MAX_PAGE = 1000  # records in a page
MAX_MESSAGE = 4096  # characters of a message or a reason

Parked = str  # why a record cannot be claimed now: "wait" | "children" | "key NAME" | "mark NAME"; None: it can


class Ref(NamedTuple):
    """The name of a record."""

    kind: str
    id: str

    def __str__(self) -> str:
        return f"{self.kind} {self.id}"


class Docs(Mapping[str, Any]):
    """Named pieces of JSON, kept as the bytes that were written and decoded when read."""

    __slots__ = ("raw",)

    def __init__(self, raw: Mapping[str, bytes] | None = None) -> None:
        self.raw: dict[str, bytes] = dict(raw) if raw else {}

    def __getitem__(self, name: str) -> Any:
        return msgspec.json.decode(self.raw[name])

    def __iter__(self) -> Iterator[str]:
        return iter(self.raw)

    def __len__(self) -> int:
        return len(self.raw)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Docs) and self.raw == other.raw

    def __hash__(self) -> int:
        return hash(frozenset(self.raw.items()))

    def __repr__(self) -> str:
        return f"Docs({', '.join(self.raw)})"

    def with_changes(self, changes: Mapping[str, bytes | None]) -> Docs:
        """These documents after a change that writes some and removes those given as None."""
        if not changes:
            return self
        merged = {name: body for name, body in {**self.raw, **changes}.items() if body is not None}
        return Docs(merged)


NO_DOCS = Docs()


# gc=False here and below: what is frozen and made of what was there before cannot be part of a cycle, so the collector need not look at it.
class Record(msgspec.Struct, frozen=True, gc=False):
    """One thing in motion. Fields up to `host` are the engine's to set; the rest are the store's."""

    kind: str
    id: str
    state: str
    parent: Ref | None = None
    owner: str = ""  # whose it is: a depositor, a project, an account
    priority: int = 5  # 0..99, lower first
    last_done: str | None = None  # the last state whose step succeeded; resume goes on after it
    retries: int = 0  # how often a person resumed it
    tries: int = 0  # how often the present state's step met trouble
    message: str = ""  # the last reason, a sentence for people
    session: str | None = None  # who holds the claim; None: free
    keys: tuple[str, ...] = ()  # "family/name": names that it asks for when free, and holds exclusively from its claim on
    gates: tuple[str, ...] = ()  # the marks that stop it now
    parked: Parked | None = None
    open: bool = True  # its parent waits for it
    host: str = ""  # the only host that has its working files; "": any host will do
    request: str | None = None  # the caller's key of its creation: asked twice, made once
    turn: int | None = None  # order inside a priority; None at creation: the store gives one
    # --- written by the store
    seq: int = 0  # creation order over the whole store
    version: int = 0  # moves with every write; starts from seq
    nudges: int = 0  # how often a child called; never versioned
    wake_at: float = 0.0  # when parked on "wait": until when
    created: float = 0.0
    updated: float = 0.0
    docs: Docs = NO_DOCS  # as loaded; a Change names what it writes in its own `docs`

    @property
    def ref(self) -> Ref:
        return Ref(self.kind, self.id)


class Change(msgspec.Struct, frozen=True, gc=False):
    """From `before` to `after`. See the head of this module for what the pair means."""

    before: Record | None
    after: Record | None
    event: str = ""  # what happened, for history: "done", "fail", an action's name; "": no history line
    who: str = ""
    why: str = ""
    docs: Mapping[str, bytes | None] = {}  # the documents it writes, or removes with None
    delay: float = 0.0  # with parked "wait": seconds from now, by the store's clock
    closes: bool = False  # refuse with Conflict while a child of this record is open, seen in the commit itself
    answers: bool = False  # this change settles what was asked of the record

    @property
    def ref(self) -> Ref:
        record = self.after if self.after is not None else self.before
        if record is None:
            raise ValueError("a change needs a before or an after")
        return Ref(record.kind, record.id)

    @property
    def saves(self) -> bool:
        return self.before is not None and self.after is not None and self.after.session is not None and not self.event

    @property
    def goes_on(self) -> bool:
        return self.before is not None and self.after is not None and self.after.session is not None and bool(self.event)


class Group(msgspec.Struct, frozen=True, gc=False):
    """Changes that are written together or not at all, and parents to call: a nudge is not versioned and never a Conflict."""

    changes: tuple[Change, ...]
    nudges: tuple[Ref, ...] = ()


class Ask(NamedTuple):
    """What a person asked of a record while a worker held it."""

    ref: Ref
    action: str
    who: str
    why: str
    args: bytes = b"{}"


class Committed(msgspec.Struct, frozen=True, gc=False):
    """A group was written. `records` answers the changes in order (None: removed)."""

    records: tuple[Record | None, ...]
    idle: tuple[Ref, ...] = ()  # parents of records that the group closed, which have no open child left, read after the commit
    asked: tuple[Ask, ...] = ()  # asked of records that the group released, and not yet answered


class Claimed(msgspec.Struct, frozen=True, gc=False):
    """A record that is now ours, its `version` being the attempt. `mark`: a mark in force that its role says it must yield to."""

    record: Record
    mark: str | None = None
    ask: Ask | None = None


class Role(NamedTuple):
    """A queue that a worker serves. `holds`: hand out records that a mark stops (they move to a rest state) instead of parking them."""

    kind: str
    state: str
    holds: bool = False


class Renewed(NamedTuple):
    alive: bool  # False: the session is gone, and all its claims with it
    asked: tuple[Ask, ...] = ()


class SessionInfo(msgspec.Struct, frozen=True):
    """A worker as the others see it."""

    name: str
    host: str
    since: float
    expires: float
    about: dict[str, Any] = {}  # version and digest of the tables it works by, its roles, its process
    progress: dict[str, Any] = {}  # "kind id" -> [done, total, unit]


class Line(NamedTuple):
    """One line of a record's history."""

    version: int
    at: float
    who: str
    event: str
    before: str | None
    after: str | None
    why: str = ""


class Page(NamedTuple):
    records: list[Record]
    after: int | None  # the seq to go on from; None: this was the last page


class Due(NamedTuple):
    woken: int
    next: float | None  # seconds until the next wait is due; None: none waits


class Finding(msgspec.Struct, frozen=True):
    """A consistency rule that does not hold, in words, and what would mend it."""

    rule: str
    where: str
    problem: str
    remedy: str
    mendable: bool = True
    ref: Ref | None = None


class StoreError(Exception):
    """The store refused; nothing was written."""

    code: ClassVar[str] = "refused"

    def __init__(self, message: str | None = None) -> None:
        super().__init__(message or (self.__doc__ or "").strip())


class NotFound(StoreError):
    """There is no such record."""

    code = "not-found"


class Conflict(StoreError):
    """The record moved on since it was read. Read it again, then decide again."""

    code = "conflict"


class ClaimLost(Conflict):
    """The claim ended; perhaps another worker has the record now."""

    code = "claim-lost"


class Taken(StoreError):
    """A key that this needs is held by another record."""

    code = "taken"

    def __init__(self, message: str | None = None, key: str = "") -> None:
        super().__init__(message)
        self.key = key


class Exists(StoreError):
    """A record of this kind and id exists already."""

    code = "exists"


class SessionLost(StoreError):
    """This session has ended. Open a new one; the claims of the old one are free or with others."""

    code = "session-lost"


class Unknown(StoreError):
    """The connection was lost while writing: it may or may not have been written. The truth is in the store."""

    code = "unknown"


class Unavailable(StoreError):
    """The store cannot be reached or cannot write now; nothing was written. It is safe to try again."""

    code = "unavailable"


class TooLarge(StoreError):
    """More than a store takes at once. Put bulk into a manifest in object storage and name that instead."""

    code = "too-large"


class BadStore(StoreError):
    """The store cannot be opened as it is."""

    code = "bad-store"


Answer = Committed | StoreError


def encode(body: Any) -> bytes:
    """A document's bytes, as every writer makes them."""
    return msgspec.json.encode(body)


def check_group(group: Group) -> None:
    """Raise TooLarge for a group that some store could not take; the limits are the same on all."""
    if len(group.changes) > MAX_CHANGES:
        raise TooLarge(f"{len(group.changes)} changes in one group; at most {MAX_CHANGES}. Write in portions.")
    total = 0
    for change in group.changes:
        if change.after is not None:
            after = change.after
            total += len(after.message) + len(change.why) + len(change.who) + len(after.owner) + len(after.host) + 256
            total += len(after.id) + len(after.request or "") if change.before is None else 0
            total += sum(map(len, after.keys)) + sum(map(len, after.gates)) if after.keys or after.gates else 0
        for name, body in change.docs.items():
            total += len(name)
            if body is None:
                continue
            if len(body) > MAX_DOCUMENT:
                raise TooLarge(f"document {name} of {change.ref} has {len(body)} bytes; at most {MAX_DOCUMENT}. Put bulk into a manifest.")
            total += len(body)
    if total > MAX_GROUP:
        raise TooLarge(f"one group of {total} bytes; at most {MAX_GROUP}. Write in portions.")


@runtime_checkable
class Store(Protocol):
    """Where records live. One connection, used by one thread at a time; open another for another thread.

    A driver is one folder under stores/ and passes `waybill.stores.conformance`. Every verb may raise Unavailable (nothing was written) and
    every writing verb Unknown (perhaps it was).
    """

    url: str  # without secrets

    def now(self) -> float:
        """The store's clock, in seconds since 1970."""

    def commit(self, groups: Sequence[Group]) -> list[Answer]:
        """Write each group all or nothing, in one round trip; one answer each, in order. A record appears in at most one group of a call.

        Conflict: a `before` is no longer the truth. ClaimLost: it was held by a session that no longer holds it. Taken: a save asks for a
        key that another record holds. Exists: the id is taken. Unknown: perhaps written. A bad group never fails its neighbours.
        A creation whose `request` is known for its kind writes nothing of its group and is answered with the record made first.
        """

    def get(self, kind: str, id: str) -> Record:
        """The record with its documents, or NotFound."""

    def requested(self, kind: str, request: str) -> Record:
        """The record that this request made, with its documents, or NotFound. Also a batch of Merritt's services, by its batchID."""

    def find(
        self,
        kind: str,
        *,
        state: str | None = None,
        parent: Ref | None = None,
        owner: str | None = None,
        after: int | None = None,
        newest: bool = False,
        limit: int = 100,
        docs: bool = False,
    ) -> Page:
        """A page in creation order, by at most one filter; ValueError for two. `after` is the seq of the last record of the page before."""

    def tally(self, kind: str, *, parent: Ref | None = None) -> dict[str, int]:
        """How many are in each state (none: left out); cheap at a million records."""

    def open_parents(self, refs: Sequence[Ref]) -> set[Ref]:
        """Which of these have a child that is open."""

    def history(self, kind: str, id: str) -> list[Line]:
        """One line per commit, oldest first."""

    def open_session(self, *, host: str, ttl: float, about: Mapping[str, Any]) -> str:
        """Begin a session and answer its name, never used before or again."""

    def renew(self, session: str, progress: Mapping[str, Any] | None = None) -> Renewed:
        """Keep the session and all its claims for another ttl, publish progress, and hear what was asked of its records."""

    def close_session(self, session: str) -> None:
        """End it: its claims are free at once. Only when no step of it runs any more."""

    def sessions(self) -> list[SessionInfo]:
        """Who works now."""

    def claim(self, roles: Sequence[Role], session: str, limit: int) -> list[Claimed]:
        """Take what can be claimed now, most urgent first (one in ten by age), bound to no host or to the session's own.

        Parks what it may not take and looks on. SessionLost when the session is gone. An empty answer is no proof of an empty queue.
        """

    def take(self, kind: str, id: str, session: str) -> Claimed:
        """Claim this one record whatever its place in the queue; Conflict with the reason when it cannot be claimed now."""

    def ask(self, ask: Ask) -> bool:
        """Leave a request with whoever holds the record; False: nobody holds it, and nothing was left.

        NotFound; Conflict when one is pending already.
        """

    def asks(self, limit: int = 100) -> list[Ask]:
        """Requests that wait on records that nobody holds any more."""

    def mark(self, name: str, on: bool, who: str = "", why: str = "") -> None:
        """Set or clear a mark; clearing unparks what it stopped, in portions."""

    def marks(self) -> dict[str, str]:
        """The marks in force, each with who set it and why."""

    def watch(self, timeout: float) -> bool:
        """Return True soon after something may have become claimable, False at the timeout. Lossy: a hint."""

    def interrupt(self) -> None:
        """Make a `watch` in another thread return; the only verb that another thread may call."""

    def wake(self, limit: int = MAX_PAGE) -> Due:
        """Unpark waits that are due."""

    def reap(self) -> list[str]:
        """End sessions that expired and free what they held (version + 1); their names. Only after one full ttl of being connected."""

    def sweep(self, limit: int = MAX_PAGE) -> int:
        """Upkeep of the store's own indexes; how many it mended.

        Waiters of free keys, records parked on marks that are off, counters to fold.
        """

    def idle_parents(self, limit: int = MAX_PAGE) -> list[Ref]:
        """Records parked on "children" that have no open child: their nudge was lost."""

    def remember(self, name: str, value: str) -> str:
        """Keep `value` under `name` unless something is kept there already; answer what is kept."""

    def check(self) -> Iterator[Finding]:
        """Look for violations of the store's own consistency, slowly and read-only."""

    def mend(self, finding: Finding) -> bool:
        """Mend what `check` found, if it is still so; True when something was written."""

    def close(self) -> None:
        """Let go of the connection. Sessions stay until they are closed or expire."""
