"""The verbs that every store has: the contract that a driver is written to."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Protocol, runtime_checkable

from waybill.record.answers import (
    MAX_PAGE,
    Answer,
    Ask,
    Claimed,
    Due,
    Finding,
    HeldKey,
    Idle,
    Line,
    Page,
    Renewed,
    Role,
    SessionInfo,
)
from waybill.record.change import Group
from waybill.record.thing import Record, Ref


@runtime_checkable
class Store(Protocol):
    """Where records live. One connection, used by one thread at a time; open another for another thread.

    A driver is one folder under stores/ and passes `waybill.stores.conformance`. Every verb may raise Unavailable
    (nothing was written) and every writing verb Unknown (perhaps it was).
    """

    url: str  # without secrets

    def now(self) -> float:
        """The store's clock, in seconds since 1970."""

    def commit(self, groups: Sequence[Group]) -> list[Answer]:
        """Write each group all or nothing, in one round trip; one answer each, in order. A record appears in at most
        one group of a call.

        Conflict: a `before` is no longer the truth. ClaimLost: it was held by a session that no longer holds it. Taken:
        a save asks for a key that another record holds. Exists: the id is taken. Unknown: perhaps written. A bad group
        never fails its neighbours. A creation whose `request` is known for its kind writes nothing of its group and is
        answered with the record made first.
        """

    def get(self, kind: str, id: str) -> Record:
        """The record with its documents, or NotFound."""

    def requested(self, kind: str, request: str) -> Record:
        """The record that this request made, with its documents, or NotFound.

        Also a batch of Merritt's services, by its batchID.
        """

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
        """A page in creation order, by at most one filter; ValueError for two.

        `after` is the seq of the last record of the page before.
        """

    def tally(self, kind: str, *, parent: Ref | None = None) -> dict[str, int]:
        """How many are in each state (none: left out); cheap at a million records."""

    def open_parents(self, refs: Sequence[Ref]) -> set[Ref]:
        """Which of these have a child that is open."""

    def history(self, kind: str, id: str) -> list[Line]:
        """One line per commit, oldest first."""

    def open_session(self, *, host: str, ttl: float, about: Mapping[str, Any]) -> str:
        """Begin a session and answer its name, never used before or again."""

    def renew(self, session: str, progress: Mapping[str, Any] | None = None) -> Renewed:
        """Keep the session and all its claims for another ttl, publish progress, and hear what was asked of its
        records.

        Progress need not ring `watch`: every heartbeat of one worker would send all the others to look for work. Who
        shows it looks again every second or so.
        """

    def close_session(self, session: str) -> None:
        """End it: its claims are free at once. Only when no step of it runs any more."""

    def sessions(self) -> list[SessionInfo]:
        """Who works now."""

    def claim(self, roles: Sequence[Role], session: str, limit: int) -> list[Claimed]:
        """Take what can be claimed now, most urgent first (one in ten by age), bound to no host or to the session's
        own.

        Parks what it may not take and looks on. SessionLost when the session is gone. An empty answer is no proof of an
        empty queue.
        """

    def take(self, kind: str, id: str, session: str) -> Claimed:
        """Claim this one record whatever its place in the queue; Conflict with the reason when it cannot be claimed
        now.
        """

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

    def held_keys(self, *, after: str = "", limit: int = MAX_PAGE) -> list[HeldKey]:
        """The keys that are held now, in the order of their names; `after` is the last name of the page before."""

    def free_key(self, name: str) -> bool:
        """Take away a key that another service left behind when it died; whether it was there.

        Conflict if a record holds it.
        """

    def watch(self, timeout: float) -> bool:
        """Return True soon after something may have become claimable, False at the timeout. Lossy: a hint."""

    def interrupt(self) -> None:
        """Make a `watch` in another thread return; the only verb that another thread may call."""

    def wake(self, limit: int = MAX_PAGE) -> Due:
        """Unpark waits that are due."""

    def reap(self) -> list[str]:
        """End sessions that expired and free what they held (version + 1); their names.

        Only after one full ttl of being connected.
        """

    def sweep(self, limit: int = MAX_PAGE) -> int:
        """Upkeep of the store's own indexes; how many it mended.

        Waiters of free keys, records parked on marks that are off, counters to fold.
        """

    def idle_parents(self, *, after: str = "", limit: int = MAX_PAGE) -> Idle:
        """Of the next `limit` records parked on "children" those that have no open child: their nudge was lost.

        In any order that stays the same; one that comes or moves meanwhile may be missed, and is found by the next
        walk.
        """

    def remember(self, name: str, value: str) -> str:
        """Keep `value` under `name` unless something is kept there already; answer what is kept."""

    def check(self) -> Iterator[Finding]:
        """Look for violations of the store's own consistency, slowly and read-only."""

    def mend(self, finding: Finding) -> bool:
        """Mend what `check` found, if it is still so; True when something was written."""

    def close(self) -> None:
        """Let go of the connection; a second time is harmless. Sessions stay until they are closed or expire."""
