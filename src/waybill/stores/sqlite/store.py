"""SqliteStore: one connection to the file; each method calls the module that implements it."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

from waybill.record import (
    MAX_LISTED_OWNERS,
    MAX_PAGE,
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
    Ref,
    SessionInfo,
    SessionRenewal,
    Store,
    Visibility,
    WorkQueue,
)
from waybill.stores.group_validation import check_count_filters
from waybill.stores.presence import ConnectionPresence
from waybill.stores.sqlite import maintenance, queries, sessions
from waybill.stores.sqlite.change_watcher import SqliteChangeWatcher
from waybill.stores.sqlite.claims import SqliteClaims
from waybill.stores.sqlite.commits import commit
from waybill.stores.sqlite.database import PATIENCE, SqliteDatabase, path_of
from waybill.stores.sqlite.rows import SQL
from waybill.stores.sqlite.schema import prepare_schema

UNBLOCK_PAGE = 1_000  # records that one transaction unblocks


class SqliteStore(Store):
    """One connection to the file that `url` names. `patience`: how many seconds a write waits for another writer."""

    def __init__(
        self, url: str, *, clock: Callable[[], float] | None = None, migrate: bool = True, patience: float = PATIENCE
    ) -> None:
        self.url = url
        self._clock = clock or time.time
        self._db = SqliteDatabase(path_of(url), patience=patience)
        try:
            prepare_schema(self._db, migrate=migrate)
        except BaseException:
            self._db.close()
            raise
        self._claims = SqliteClaims(self._db)
        self._change_watcher = SqliteChangeWatcher(self._db.path)
        self._presence = ConnectionPresence(self._clock())

    def now(self) -> float:
        now = self._clock()
        self._presence.touch(now)
        return now

    def commit(self, groups: Sequence[CommitGroup]) -> list[CommitAnswer]:
        answers = commit(self._db, groups, self.now())
        self._change_watcher.notify_watchers()
        return answers

    # --- queries

    def get(self, kind: str, id: str) -> Record:
        return queries.get(self._db, kind, id)

    def get_many(self, refs: Sequence[Ref]) -> dict[Ref, Record]:
        return queries.get_many(self._db, refs)

    def get_by_idempotency_key(self, kind: str, idempotency_key: str) -> Record:
        return queries.get_by_idempotency_key(self._db, kind, idempotency_key)

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
        return queries.find(self._db, kind, state, parent, owner, visibility, after, newest, limit, documents)

    def count_by_state(
        self, kind: str, *, parent: Ref | None = None, visibility: Visibility | None = None
    ) -> dict[str, int]:
        check_count_filters(parent, visibility)
        if visibility is not None:
            return queries.count_seen_by_state(self._db, kind, visibility)
        return queries.count_by_state(self._db, kind, parent)

    def parents_with_open_children(self, refs: Sequence[Ref]) -> set[Ref]:
        return queries.parents_with_open_children(self._db, refs)

    def find_idle_parents(self, *, after: str = "", limit: int = MAX_PAGE) -> IdleParents:
        return queries.find_idle_parents(self._db, after, limit)

    def history(self, kind: str, id: str) -> list[HistoryEntry]:
        return queries.get_history(self._db, kind, id)

    # --- sessions and claims

    def open_session(self, *, host: str, ttl: float, about: Mapping[str, Any]) -> str:
        return sessions.open_session(self._db, host, ttl, about, self.now())

    def renew_session(self, session: str, progress: Mapping[str, Any] | None = None) -> SessionRenewal:
        return sessions.renew_session(self._db, session, progress, self.now())

    def close_session(self, session: str) -> None:
        self.now()
        sessions.close_session(self._db, session)
        self._change_watcher.notify_watchers()

    def list_sessions(self) -> list[SessionInfo]:
        return sessions.list_sessions(self._db)

    def reap_sessions(self) -> list[str]:
        dead = sessions.reap_sessions(self._db, self._presence, self.now())
        if dead:
            self._change_watcher.notify_watchers()
        return dead

    def claim(self, queues: Sequence[WorkQueue], session: str, limit: int) -> list[ClaimedRecord]:
        return self._claims.claim(queues, session, limit, self.now())

    def claim_one(self, kind: str, id: str, session: str) -> ClaimedRecord:
        return self._claims.claim_one(Ref(kind, id), session, self.now())

    def request_action(self, request: ActionRequest) -> bool:
        return sessions.request_action(self._db, request)

    def list_action_requests(self, limit: int = 100) -> list[ActionRequest]:
        return sessions.list_action_requests(self._db, limit)

    # --- holds, waits and locks

    def set_hold(self, name: str, who: str = "", why: str = "") -> None:
        now = self.now()
        with self._db.write() as execute:
            execute(SQL["set_hold"], (name, who, why, now))
        self._change_watcher.notify_watchers()

    def clear_hold(self, name: str) -> None:
        with self._db.write() as execute:
            execute(SQL["clear_hold"], (name,))
        unblocked = UNBLOCK_PAGE
        while unblocked == UNBLOCK_PAGE:
            with self._db.write() as execute:
                execute(SQL["unblock_records"], (f"hold {name}", UNBLOCK_PAGE))
                unblocked = self._db.db.changes()
        self._change_watcher.notify_watchers()

    def list_holds(self) -> dict[str, str]:
        with self._db.translate_errors():
            return {
                name: f"{who}: {why}" if why else who
                for name, who, why in self._db.execute(SQL["list_holds"]).fetchall()
            }

    def release_due_waits(self, limit: int = MAX_PAGE) -> DueWaits:
        now, released = self.now(), 0
        with self._db.translate_errors():
            rows = self._db.execute(SQL["get_next_due"]).fetchall()
        if rows and rows[0][0] <= now:
            with self._db.write() as execute:
                execute(SQL["release_due_waits"], (now, limit))
                released = self._db.db.changes()
                rows = execute(SQL["get_next_due"]).fetchall()
            self._change_watcher.notify_watchers()
        return DueWaits(released, max(0.0, rows[0][0] - now) if rows else None)

    def list_locks(self, *, after: str = "", limit: int = MAX_PAGE) -> list[OwnedLock]:
        with self._db.translate_errors():
            rows = self._db.execute(SQL["list_locks"], (after, max(1, min(limit, MAX_PAGE)))).fetchall()
            return [
                OwnedLock(
                    name,
                    tuple(Ref(*row) for row in self._db.execute(SQL["get_lock_owner"], (name, MAX_LISTED_OWNERS))),
                    sort,
                    count,
                    n,
                )
                for name, sort, count, n in rows
            ]

    def remove_foreign_lock(self, name: str) -> bool:
        with self._db.translate_errors():
            rows = self._db.execute(SQL["get_lock_owner"], (name, 1)).fetchall()
        if rows:
            raise Conflict(
                f"{name} is owned by {Ref(*rows[0])}, which drops it when it moves on; it cannot be taken away."
            )
        return False

    def watch(self, timeout: float) -> bool:
        with self._db.translate_errors():
            return self._change_watcher.wait(timeout)

    def interrupt_watch(self) -> None:
        self._change_watcher.interrupt()

    # --- maintenance

    def maintain_indexes(self, limit: int = MAX_PAGE) -> int:
        unblocked = maintenance.maintain_indexes(self._db, limit, self.now())
        if unblocked:
            self._change_watcher.notify_watchers()
        return unblocked

    def remember(self, name: str, value: str) -> str:
        with self._db.write() as execute:
            execute(SQL["remember"], (name, value))
            ((remembered,),) = execute(SQL["get_remembered_value"], (name,)).fetchall()
        return str(remembered)

    def check(self) -> Iterator[Finding]:
        return maintenance.check(self._db, self.now())

    def repair(self, finding: Finding) -> bool:
        return maintenance.repair(self._db, finding, self.now())

    def close(self) -> None:
        self._change_watcher.close()
        self._db.close()
