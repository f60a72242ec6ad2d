"""The protocol of a store: the verbs that every driver implements."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Protocol, runtime_checkable

from waybill.record.commits import (
    MAX_PAGE,
    ActionRequest,
    ClaimedRecord,
    CommitAnswer,
    CommitGroup,
    DueWaits,
    Finding,
    HistoryEntry,
    IdleParents,
    OwnedLock,
    Page,
    SessionInfo,
    SessionRenewal,
    Visibility,
    WorkQueue,
)
from waybill.record.record import Record, Ref


@runtime_checkable
class Store(Protocol):
    """Where records are stored. One connection, used by one thread at a time; open another for another thread.

    A driver is one folder under stores/ and passes `waybill.stores.conformance`. Every verb may raise StoreUnavailable
    (nothing was written), and every verb that writes may raise CommitOutcomeUnknown (it may have been written).
    """

    url: str  # without secrets

    def now(self) -> float:
        """Return the time of the store's clock, in seconds since 1970."""

    def commit(self, groups: Sequence[CommitGroup]) -> list[CommitAnswer]:
        """Write each group completely or not at all, in one round trip; return one answer for each, in order.

        A record appears in at most one group of a call. A bad group never fails its neighbours. A creation whose
        idempotency key is known for its kind writes nothing of its group and returns the record created first.

        Conflict: a `before` is no longer current, or no worker has claimed the record of a request. ClaimLost: the session
        that is named no longer has the claim. RecordBusy: another action was requested before. ParentClosed: a child
        that requires an open parent has none.
        LockUnavailable: a save needs a lock that others own, or wait for. RecordExists: the id is in use.
        CommitOutcomeUnknown: it may have been written.
        """

    def get(self, kind: str, id: str) -> Record:
        """Return the record with its documents. Raises RecordNotFound."""

    def get_many(self, refs: Sequence[Ref]) -> dict[Ref, Record]:
        """Return those of these records that exist, with their documents, in one round trip."""

    def get_by_idempotency_key(self, kind: str, idempotency_key: str) -> Record:
        """Return the record that was created with this key, with its documents. Raises RecordNotFound.

        A record of another service may be found by the key that it was given there.
        """

    def find(
        self,
        kind: str,
        *,
        state: str | None = None,
        parent: Ref | None = None,
        owner: str | None = None,
        visibility: Visibility | None = None,
        after: int | None = None,
        newest: bool = False,
        limit: int = 100,
        documents: bool = False,
    ) -> Page:
        """Return a page in creation order, by at most one filter of state, parent and owner; raises ValueError for two.

        `visibility`: only what somebody may see; None: all. `after` is the seq of the last record of the previous page.
        """

    def each(
        self,
        kind: str,
        *,
        state: str | None = None,
        parent: Ref | None = None,
        owner: str | None = None,
        visibility: Visibility | None = None,
        newest: bool = False,
        documents: bool = False,
        page_size: int = 100,
    ) -> Iterator[Record]:
        """Yield all matching records in creation order, read page by page, however many there are.

        A record that changes state while this walks by state may be missed or seen twice, as with `find`.
        """
        after: int | None = None
        while True:
            page = self.find(
                kind,
                state=state,
                parent=parent,
                owner=owner,
                visibility=visibility,
                after=after,
                newest=newest,
                limit=page_size,
                documents=documents,
            )
            yield from page.records
            if page.after is None:
                return
            after = page.after

    def count_by_state(
        self, kind: str, *, parent: Ref | None = None, visibility: Visibility | None = None
    ) -> dict[str, int]:
        """Return the number of records in each state, without states that have none; cheap at a million records.

        `visibility`: only what somebody may see; not together with a parent, whose children are seen by whoever sees it:
        raises ValueError.
        """

    def parents_with_open_children(self, refs: Sequence[Ref]) -> set[Ref]:
        """Return which of these have an open child."""

    def history(self, kind: str, id: str) -> list[HistoryEntry]:
        """Return one entry for each transition, oldest first."""

    def open_session(self, *, host: str, ttl: float, about: Mapping[str, Any]) -> str:
        """Open a session and return its name, which was never used before and never will be again."""

    def renew_session(self, session: str, progress: Mapping[str, Any] | None = None) -> SessionRenewal:
        """Extend the session and all its claims by another ttl, publish progress, and return the action requests of
        its records.

        Progress need not trigger `watch`: every heartbeat of one worker would make all others look for work. Whoever
        displays it reads it again every second or so.
        """

    def close_session(self, session: str) -> None:
        """End the session; its claims end at once. Call it only when no step of the session runs any more."""

    def list_sessions(self) -> list[SessionInfo]:
        """Return the sessions that are open now."""

    def claim(self, queues: Sequence[WorkQueue], session: str, limit: int) -> list[ClaimedRecord]:
        """Claim what can be claimed now, most urgent first (one in ten by age), of records that are bound to no host
        or to the session's own.

        Sets `blocked_by` of records that it may not claim, and goes on with the next. Raises SessionLost when the
        session is gone. An empty result does not prove that the queue is empty.
        """

    def claim_one(self, kind: str, id: str, session: str) -> ClaimedRecord:
        """Claim this one record, whatever its queue position. Raises Conflict with the reason when it cannot be
        claimed now.
        """

    def request_action(self, request: ActionRequest) -> bool:
        """Leave an action request for the worker that has claimed the record. Return False when no worker has, and
        nothing was written.

        Raises RecordNotFound, or RecordBusy when a request is pending already.
        """

    def list_action_requests(self, limit: int = 100) -> list[ActionRequest]:
        """Return pending requests of records that are no longer claimed."""

    def set_hold(self, name: str, who: str = "", why: str = "") -> None:
        """Set a hold: records that name it are no longer claimed."""

    def clear_hold(self, name: str) -> None:
        """Clear a hold, if it is set; records that it blocked become claimable, page by page."""

    def list_holds(self) -> dict[str, str]:
        """Return the holds in force, each with who set it and why."""

    def list_locks(self, *, after: str = "", limit: int = MAX_PAGE) -> list[OwnedLock]:
        """Return the locks that are owned now, in the order of their names; `after` is the last name of the previous
        page.
        """

    def remove_foreign_lock(self, name: str) -> bool:
        """Remove a lock that another service left behind when it died; return whether it was there.

        Raises Conflict if a record owns it.
        """

    def watch(self, timeout: float) -> bool:
        """Return True soon after something may have become claimable, False at the timeout. Lossy: a hint."""

    def interrupt_watch(self) -> None:
        """Make a `watch` in another thread return; the only verb that another thread may call."""

    def release_due_waits(self, limit: int = MAX_PAGE) -> DueWaits:
        """Make records claimable whose wait is due."""

    def reap_sessions(self) -> list[str]:
        """End sessions that have expired, and their claims (version + 1); return their names.

        Only after this connection has been open for one full ttl: after an outage of the store every live session
        looks expired.
        """

    def maintain_indexes(self, limit: int = MAX_PAGE) -> int:
        """Maintain the store's own indexes; return how many entries were repaired.

        Records that wait for a lock that is free, records blocked by a hold that is cleared, counters to fold.
        """

    def find_idle_parents(self, *, after: str = "", limit: int = MAX_PAGE) -> IdleParents:
        """Of the next `limit` records blocked by "children", return those without an open child: their wake was lost.

        In any order that stays the same. A record that appears or moves meanwhile may be missed; the next walk finds
        it.
        """

    def remember(self, name: str, value: str) -> str:
        """Store `value` under `name` unless a value is stored there already; return the stored value."""

    def check(self) -> Iterator[Finding]:
        """Yield violations of the store's own consistency rules, slowly and read-only."""

    def repair(self, finding: Finding) -> bool:
        """Repair what `check` found, if it still holds; return True when something was written."""

    def close(self) -> None:
        """Close the connection; a second time is harmless. Sessions stay until they are closed or expire."""
