"""The model store: the reference implementation of a store, in plain dicts, for tests and the simulator. Nothing outlives
the process.

Each `ModelStore` is one connection to a `ModelDatabase`, which the connections share. Every call is atomic and nothing
depends on wall time, threads or the order of sets, so the same calls give the same answers: a simulator interleaves
connections between calls, and copies or restores the contents of the database. (`watch` with a timeout is the one method
that waits, by a real clock; a simulator calls it with 0.)
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import msgspec

from waybill.record import (
    COUNTED,
    EXCLUSIVE,
    MAX_LISTED_OWNERS,
    MAX_PAGE,
    NO_DOCUMENTS,
    ActionRequest,
    ClaimedRecord,
    CommitAnswer,
    CommitGroup,
    Conflict,
    DueWaits,
    Finding,
    HistoryEntry,
    IdleParents,
    OwnedLock,
    Page,
    Record,
    RecordBusy,
    RecordNotFound,
    Ref,
    SessionInfo,
    SessionLost,
    SessionRenewal,
    Visibility,
    WorkQueue,
    find_lock_request,
    lock_names_of,
    parse_lock,
)
from waybill.record.store import Store
from waybill.stores.group_validation import check_count_filters, validate_groups
from waybill.stores.model_database import ModelDatabase, StoreSnapshot
from waybill.stores.presence import ConnectionPresence
from waybill.stores.turns import take_turns

__all__ = ["ModelDatabase", "ModelStore", "StoreSnapshot"]

replace = msgspec.structs.replace
LOCK_WAITER_RULE = "lock waiters wait for an owned lock"
HOLD_RULE = "holds block only while they are set"


class ModelStore(Store):
    """One connection to a model database."""

    def __init__(self, database: ModelDatabase) -> None:
        self.url = "model:"
        self.database = database
        self._presence = ConnectionPresence(database.clock())
        self._seen_change_count = database.contents.change_count
        self._is_interrupted = False
        self._claim_count = 0

    @property
    def _contents(self) -> StoreSnapshot:
        return self.database.contents

    def now(self) -> float:
        now = self.database.clock()
        self._presence.touch(now)
        return now

    def commit(self, groups: Sequence[CommitGroup]) -> list[CommitAnswer]:
        self.now()
        return [
            refusal or self.database.apply(group)
            for group, refusal in zip(groups, validate_groups(groups), strict=True)
        ]

    # --- queries

    def get(self, kind: str, id: str) -> Record:
        try:
            return self._contents.records[Ref(kind, id)]
        except KeyError:
            raise RecordNotFound(f"There is no {kind} {id}.") from None

    def get_many(self, refs: Sequence[Ref]) -> dict[Ref, Record]:
        return {ref: self._contents.records[ref] for ref in refs if ref in self._contents.records}

    def get_by_idempotency_key(self, kind: str, idempotency_key: str) -> Record:
        found = next(
            (r for r in self._contents.records.values() if r.kind == kind and r.idempotency_key == idempotency_key),
            None,
        )
        if found is None:
            raise RecordNotFound(f"No {kind} was created with the idempotency key {idempotency_key}.")
        return found

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
        filters = (("state", state), ("parent", parent), ("owner", owner))
        wanted = {name: value for name, value in filters if value is not None}
        if len(wanted) > 1:
            raise ValueError(f"find by one of {', '.join(wanted)}, not by several")
        found = [
            r
            for r in self._contents.records.values()
            if r.kind == kind
            and all(getattr(r, n) == v for n, v in wanted.items())
            and (visibility is None or visibility.includes(r))
        ]
        if newest:
            found.reverse()
        if after is not None:
            found = [r for r in found if (r.seq < after if newest else r.seq > after)]
        limit = min(limit, MAX_PAGE)
        page = [r if documents else replace(r, documents=NO_DOCUMENTS) for r in found[:limit]]
        return Page(page, page[-1].seq if len(found) > limit else None)

    def count_by_state(
        self, kind: str, *, parent: Ref | None = None, visibility: Visibility | None = None
    ) -> dict[str, int]:
        check_count_filters(parent, visibility)
        counts: dict[str, int] = {}
        for record in self._contents.records.values():
            if (
                record.kind == kind
                and parent in (None, record.parent)
                and (visibility is None or visibility.includes(record))
            ):
                counts[record.state] = counts.get(record.state, 0) + 1
        return counts

    def parents_with_open_children(self, refs: Sequence[Ref]) -> set[Ref]:
        return {ref for ref in refs if self.database.has_open_child(ref)}

    def history(self, kind: str, id: str) -> list[HistoryEntry]:
        return list(self._contents.history.get(Ref(kind, id), ()))

    # --- sessions and claims

    def open_session(self, *, host: str, ttl: float, about: Mapping[str, Any]) -> str:
        now = self.now()
        self._contents.session_count += 1
        name = f"session-{self._contents.session_count}"
        self._contents.sessions[name] = (SessionInfo(name, host, now, now + ttl, dict(about)), ttl)
        return name

    def renew_session(self, session: str, progress: Mapping[str, Any] | None = None) -> SessionRenewal:
        now = self.now()
        if session not in self._contents.sessions:
            return SessionRenewal(False)
        info, ttl = self._contents.sessions[session]
        info = replace(info, expires=now + ttl, progress=info.progress if progress is None else dict(progress))
        self._contents.sessions[session] = (info, ttl)
        return SessionRenewal(
            True,
            tuple(
                request
                for ref, request in self._contents.action_requests.items()
                if self._contents.records[ref].session == session
            ),
        )

    def close_session(self, session: str) -> None:
        self.now()
        self.database.end_session(session)

    def list_sessions(self) -> list[SessionInfo]:
        return [info for info, _ in self._contents.sessions.values()]

    def claim(self, queues: Sequence[WorkQueue], session: str, limit: int) -> list[ClaimedRecord]:
        host = self._host_of(session)
        claims_on_hold = {(queue.kind, queue.state): queue.claims_on_hold for queue in queues}
        claimed: list[ClaimedRecord] = []
        while len(claimed) < limit:
            claimable = [
                r
                for r in self._contents.records.values()
                if (r.kind, r.state) in claims_on_hold and r.session is None and r.blocked_by is None
            ]
            claimable = [r for r in claimable if r.host in ("", host)]
            if not claimable:
                break
            by_age = (
                self._claim_count % 10 == 9
            )  # every tenth, so that a stream of urgent work does not starve the rest
            record = claimable[0] if by_age else take_turns(claimable, lambda each: each, self._claim_count)[0]
            answer = self.database.try_claim(record.ref, session, claims_on_hold[record.kind, record.state])
            if isinstance(answer, str):
                self.database.block(record.ref, answer)
            else:
                claimed.append(answer)
                self._claim_count += 1
        return claimed

    def claim_one(self, kind: str, id: str, session: str) -> ClaimedRecord:
        host = self._host_of(session)
        record = self.get(kind, id)
        seconds = record.wake_at - self.now() if record.blocked_by == "wait" else 0.0
        if record.session is not None:
            raise Conflict(f"{kind} {id} is claimed by {record.session}.")
        if record.host not in ("", host):
            raise Conflict(f"{kind} {id} can only be worked on at {record.host}, where its files are.")
        if seconds > 0 or record.blocked_by == "children":
            raise Conflict(f"{kind} {id} waits for {f'another {seconds:.0f} s' if seconds > 0 else 'its children'}.")
        answer = self.database.try_claim(record.ref, session, claims_on_hold=False)
        if isinstance(answer, str):
            raise Conflict(f"{kind} {id} is blocked by {answer}.")
        return answer

    def _host_of(self, session: str) -> str:
        self.now()
        if session not in self._contents.sessions:
            raise SessionLost()
        return self._contents.sessions[session][0].host

    def request_action(self, request: ActionRequest) -> bool:
        if self.get(*request.ref).session is None:
            return False
        if request.ref in self._contents.action_requests:
            raise RecordBusy(
                f"{self._contents.action_requests[request.ref].action} was requested of {request.ref} and is not answered yet."
            )
        self._contents.action_requests[request.ref] = request
        return True

    def list_action_requests(self, limit: int = 100) -> list[ActionRequest]:
        return [
            request
            for ref, request in self._contents.action_requests.items()
            if self._contents.records[ref].session is None
        ][:limit]

    # --- holds, locks, waits, maintenance

    def set_hold(self, name: str, who: str = "", why: str = "") -> None:
        self._contents.holds[name] = f"{who}: {why}" if why else who

    def clear_hold(self, name: str) -> None:
        if self._contents.holds.pop(name, None) is not None:
            self.database.unblock(lambda blocked_by: blocked_by == f"hold {name}", len(self._contents.records))
            self.database.notify_watchers()

    def list_holds(self) -> dict[str, str]:
        return dict(sorted(self._contents.holds.items()))

    def list_locks(self, *, after: str = "", limit: int = MAX_PAGE) -> list[OwnedLock]:
        return [
            OwnedLock(
                name,
                tuple(sorted(owners)[:MAX_LISTED_OWNERS]),
                sort := next(iter(owners.values())),
                len(owners),
                self._contents.lock_limits.get(name) if sort == COUNTED else None,
            )
            for name, owners in sorted(self._contents.locks.items())
            if name > after
        ][: max(1, min(limit, MAX_PAGE))]

    def remove_foreign_lock(self, name: str) -> bool:
        if name in self._contents.locks:
            owner = min(self._contents.locks[name])
            raise Conflict(f"{name} is owned by {owner}, which drops it when it moves on; it cannot be taken away.")
        return False

    def watch(self, timeout: float) -> bool:
        with self.database.change_condition:
            self.database.change_condition.wait_for(
                lambda: self._is_interrupted or self._seen_change_count != self._contents.change_count, timeout
            )
        changed, self._seen_change_count = (
            self._seen_change_count != self._contents.change_count,
            self._contents.change_count,
        )
        self._is_interrupted = False
        return changed

    def interrupt_watch(self) -> None:
        with self.database.change_condition:
            self._is_interrupted = True
            self.database.change_condition.notify_all()

    def release_due_waits(self, limit: int = MAX_PAGE) -> DueWaits:
        now = self.now()
        waits = sorted(
            (r for r in self._contents.records.values() if r.blocked_by == "wait"), key=lambda r: (r.wake_at, r.seq)
        )
        due = [r for r in waits if r.wake_at <= now][:limit]
        for record in due:
            self._contents.records[record.ref] = replace(record, blocked_by=None, wake_at=0.0)
        if due:
            self.database.notify_watchers()
        return DueWaits(len(due), max(0.0, waits[len(due)].wake_at - now) if len(waits) > len(due) else None)

    def reap_sessions(self) -> list[str]:
        now = self.now()
        dead = self._presence.select_dead_sessions(
            [(n, ttl) for n, (info, ttl) in self._contents.sessions.items() if info.expires <= now], now
        )
        for name in dead:
            self.database.end_session(name)
        return dead

    def maintain_indexes(self, limit: int = MAX_PAGE) -> int:
        awaited = dict.fromkeys(
            r.blocked_by[5:]
            for r in self._contents.records.values()
            if r.blocked_by and r.blocked_by.startswith("lock ")
        )
        unblocked = self.database.unblock_next_waiters(list(awaited)[:limit])
        return unblocked + self.database.unblock(
            lambda blocked_by: blocked_by.startswith("hold ") and blocked_by[5:] not in self._contents.holds, limit
        )

    def find_idle_parents(self, *, after: str = "", limit: int = MAX_PAGE) -> IdleParents:
        waiting = sorted(
            (r.seq, ref)
            for ref, r in self._contents.records.items()
            if r.blocked_by == "children" and r.seq > int(after or 0)
        )
        idle = [ref for _, ref in waiting[:limit] if not self.database.has_open_child(ref)]
        return IdleParents(idle, str(waiting[limit - 1][0]) if len(waiting) > limit else None)

    def remember(self, name: str, value: str) -> str:
        return self._contents.remembered_values.setdefault(name, value)

    def check(self) -> Iterator[Finding]:
        for ref, record in self._contents.records.items():
            if record.session is not None and record.session not in self._contents.sessions:
                yield Finding(
                    "claims belong to live sessions",
                    str(ref),
                    f"claimed by {record.session}, which has ended",
                    "release it",
                    ref=ref,
                )
            for request in map(
                parse_lock, record.locks if record.session is not None and not record.hold_names else ()
            ):
                if self._contents.locks.get(request.name, {}).get(ref) != request.sort:
                    yield Finding(
                        "claimed records own their locks",
                        str(ref),
                        f"claimed without the lock {request.to_text()}",
                        "release it",
                        ref=ref,
                    )
            reason, _, name = (record.blocked_by or "").partition(" ")
            if reason == "lock" and name not in self._contents.locks and not self._is_lock_wanted(name):
                yield Finding(
                    LOCK_WAITER_RULE,
                    str(ref),
                    f"blocked by the lock {name}, which no record owns or is about to take",
                    "unblock it",
                    ref=ref,
                )
            if reason == "hold" and name not in self._contents.holds:
                yield Finding(
                    HOLD_RULE, str(ref), f"blocked by the hold {name}, which is not set", "unblock it", ref=ref
                )
        for lock, owners in self._contents.locks.items():
            for ref, sort in owners.items():
                owner = self._contents.records.get(ref)
                asked = find_lock_request(owner.locks, lock) if owner is not None else None
                if asked is None or asked.sort != sort:
                    yield Finding(
                        "locks have owners", lock, f"owned by {ref}, which does not ask for it", "drop it", ref=ref
                    )
            if len(owners) > 1 and (EXCLUSIVE in owners.values() or len(set(owners.values())) > 1):
                yield Finding(
                    "locks are owned in one sort",
                    lock,
                    f"owned by {', '.join(f'{ref} ({sort})' for ref, sort in owners.items())}",
                    "stop the workers and find out who works on what",
                    repairable=False,
                )

    def _is_lock_wanted(self, lock: str) -> bool:
        """Whether a record is about to take it: not claimed, not blocked, and asking for it."""
        return any(
            lock in lock_names_of(r.locks) and r.session is None and r.blocked_by is None
            for r in self._contents.records.values()
        )

    def repair(self, finding: Finding) -> bool:
        if finding not in list(self.check()):
            return False
        record = self._contents.records.get(finding.ref) if finding.ref else None
        if finding.rule == "locks have owners":
            owners = {r: s for r, s in self._contents.locks.pop(finding.where).items() if r != finding.ref}
            if owners:
                self._contents.locks[finding.where] = owners
        elif record is not None and finding.rule in (LOCK_WAITER_RULE, HOLD_RULE):
            self._contents.records[record.ref] = replace(record, blocked_by=None)
        elif record is not None:
            self._contents.records[record.ref] = replace(record, session=None, version=record.version + 1)
        return True

    def close(self) -> None:
        """Nothing to close."""
