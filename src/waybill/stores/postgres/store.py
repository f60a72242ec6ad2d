"""PostgresStore: most methods are one statement, one round trip and one transaction.

Commits, claims, maintenance and the change signal are in modules of their own beside this one.
"""

from __future__ import annotations

import secrets
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import msgspec

from waybill.record import (
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
    SessionRenewal,
    Store,
    Visibility,
    WorkQueue,
)
from waybill.sql_statements import load_statements
from waybill.stores import idle_parents
from waybill.stores.group_validation import check_count_filters
from waybill.stores.postgres import schema as schemas
from waybill.stores.postgres.change_signal import PostgresChangeSignal, PostgresChangeWatcher
from waybill.stores.postgres.claims import PostgresClaims, select_higher
from waybill.stores.postgres.commits import PostgresCommits, to_columns
from waybill.stores.postgres.connection import PostgresConnection
from waybill.stores.postgres.maintenance import PostgresMaintenance
from waybill.stores.postgres.rows import SELECT_LIST, action_request_of, documents_of, full_record_of, record_of

STATEMENTS = load_statements(schemas.PACKAGE, "queries.sql")
PAGE_STATEMENTS = load_statements(schemas.PACKAGE, "pages.sql")
# of a record that somebody may see; written so that no index can be used for it
SEEN_CONDITION = (
    "and (nullif(r.owner, '') = any (%(owners)s::text[]) or nullif(r.scope, '') = any (%(scopes)s::text[]))\n"
)
AFTER_LAST_SEQ = 2**63 - 1  # greater than every seq


class PostgresStore(Store):
    """A store in a schema of a PostgreSQL database.

    `migrate`: create the schema or bring it up to date; otherwise a missing or old schema raises BadStore. `schema`:
    where the tables are; several stores may share a database. `old_snapshot`: after how many seconds `check` names a
    transaction that is still open.
    """

    def __init__(
        self, url: str, migrate: bool = True, *, schema: str = "waybill", old_snapshot: float = 3600.0
    ) -> None:
        self._connection = PostgresConnection(url, schema)
        self.url = self._connection.safe_url
        self._connection.open(lambda db: schemas.prepare_schema(db, schema, self.url, migrate))
        self._claims = PostgresClaims(self._connection, STATEMENTS["claim_records"], self.get, self.now)
        self._commits = PostgresCommits(self._connection, STATEMENTS, self.get, self._claims.queue_positions)
        self._maintenance = PostgresMaintenance(self._connection, STATEMENTS, old_snapshot)
        self._written_positions: dict[str, int] = {}
        self._change_signal = PostgresChangeSignal.acquire(self._connection)
        self._change_watcher = PostgresChangeWatcher(self._connection)
        self._is_closed = False

    def __repr__(self) -> str:
        return f"PostgresStore({self.url!r})"

    def now(self) -> float:
        return self._touch(self._connection.run(STATEMENTS["now"], writes=False)[0][0])

    def _touch(self, now: float) -> float:
        self._connection.presence.touch(now)
        return now

    def commit(self, groups: Sequence[CommitGroup]) -> list[CommitAnswer]:
        try:
            return self._commits.commit(groups)
        finally:
            if self._commits.has_claimable:
                self._change_signal.notify_watchers()

    # --- queries

    def get(self, kind: str, id: str) -> Record:
        rows = self._connection.run(STATEMENTS["get"], {"kind": kind, "id": id}, writes=False)
        if not rows:
            raise RecordNotFound(f"There is no {kind} {id}.")
        return full_record_of(rows[0])

    def get_many(self, refs: Sequence[Ref]) -> dict[Ref, Record]:
        rows = (
            self._connection.run(STATEMENTS["get_many"], to_columns(dict.fromkeys(refs)), writes=False) if refs else []
        )
        return {record.ref: record for record in map(full_record_of, rows)}

    def get_by_idempotency_key(self, kind: str, idempotency_key: str) -> Record:
        rows = self._connection.run(
            STATEMENTS["get_by_idempotency_key"], {"kind": kind, "idempotency_key": idempotency_key}, writes=False
        )
        if not rows:
            raise RecordNotFound(f"No {kind} was created with the idempotency key {idempotency_key}.")
        return full_record_of(rows[0])

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
        filters = {
            name: value for name, value in (("state", state), ("parent", parent), ("owner", owner)) if value is not None
        }
        if len(filters) > 1:
            raise ValueError(f"find by one of {', '.join(filters)}, not by several")
        limit = max(1, min(limit, MAX_PAGE))
        name, value = next(iter(filters.items()), ("kind", None))
        args: dict[str, Any] = {
            "kind": kind,
            "value": value,
            "limit": limit + 1,
            "after": after if after is not None else AFTER_LAST_SEQ if newest else 0,
        }
        if parent is not None:
            args |= {"value": parent.id, "parent_kind": parent.kind}
        statement = PAGE_STATEMENTS["no_owner" if name == "owner" and not value else name]
        if visibility is not None:
            args |= {"state": state, "owners": list(visibility.owners), "scopes": list(visibility.scopes)}
            if name == "kind" or (state is not None and not self._is_state_smaller(kind, state, visibility)):
                statement = PAGE_STATEMENTS["seen"]
            else:
                statement = statement.replace("order by", SEEN_CONDITION + "order by")
        beyond, direction = ("<", "desc") if newest else (">", "asc")
        rows = self._connection.run(
            statement.format(columns=SELECT_LIST, beyond=beyond, direction=direction), args, writes=False
        )
        page, more = rows[:limit], len(rows) > limit
        loaded = {}
        if documents and page:
            found = self._connection.run(STATEMENTS["get_documents"], [kind, [row[1] for row in page]], writes=False)
            loaded = {id: documents_of(names, bodies) for id, names, bodies in found}
        records = [record_of(row, loaded.get(row[1], NO_DOCUMENTS)) for row in page]
        return Page(records, records[-1].seq if more else None)

    def count_by_state(
        self, kind: str, *, parent: Ref | None = None, visibility: Visibility | None = None
    ) -> dict[str, int]:
        check_count_filters(parent, visibility)
        if visibility is not None:
            return self._count_seen(kind, visibility)
        args = {"kind": kind, "parent_kind": parent.kind if parent else "", "parent_id": parent.id if parent else ""}
        return dict(self._connection.run(STATEMENTS["count_by_state"], args, writes=False))

    def _is_state_smaller(self, kind: str, state: str, visibility: Visibility) -> bool:
        """Whether fewer records are in the state than somebody may see."""
        return self.count_by_state(kind).get(state, 0) < sum(self._count_seen(kind, visibility).values())

    def _count_seen(self, kind: str, visibility: Visibility) -> dict[str, int]:
        args = {
            "kind": kind,
            "owners": [owner for owner in visibility.owners if owner],
            "scopes": [f"@{scope}" for scope in visibility.scopes if scope],
        }
        return dict(self._connection.run(STATEMENTS["count_seen_by_state"], args, writes=False))

    def parents_with_open_children(self, refs: Sequence[Ref]) -> set[Ref]:
        rows = (
            self._connection.run(STATEMENTS["parents_with_open_children"], to_columns(set(refs)), writes=False)
            if refs
            else []
        )
        return {Ref(*row) for row in rows}

    def history(self, kind: str, id: str) -> list[HistoryEntry]:
        return [HistoryEntry(*row) for row in self._connection.run(STATEMENTS["get_history"], [kind, id], writes=False)]

    # --- sessions

    def open_session(self, *, host: str, ttl: float, about: Mapping[str, Any]) -> str:
        name = f"{host or 'worker'}-{secrets.token_hex(8)}"
        args = {"name": name, "host": host, "ttl": float(ttl), "about": msgspec.json.encode(dict(about))}
        self._touch(self._connection.run(STATEMENTS["open_session"], args)[0][0])
        return name

    def renew_session(self, session: str, progress: Mapping[str, Any] | None = None) -> SessionRenewal:
        encoded = None if progress is None else msgspec.json.encode(dict(progress))
        rows = self._connection.run(STATEMENTS["renew_session"], {"name": session, "progress": encoded})
        if not rows:
            return SessionRenewal(False)
        self._touch(rows[0][0])
        self._change_watcher.read_notifications()
        if positions := select_higher(self._claims.queue_positions, self._written_positions):
            self._connection.run(STATEMENTS["raise_queue_positions"], [list(positions), list(positions.values())])
            self._written_positions |= positions
        return SessionRenewal(
            True,
            tuple(
                action_request_of(row)
                for row in self._connection.run(STATEMENTS["list_session_requests"], [session], writes=False)
            ),
        )

    def close_session(self, session: str) -> None:
        self._connection.run(STATEMENTS["end_sessions"], [[session], False])
        self._change_signal.notify_watchers()

    def list_sessions(self) -> list[SessionInfo]:
        return [
            SessionInfo(name, host, since, expires, msgspec.json.decode(about), msgspec.json.decode(progress))
            for name, host, since, expires, about, progress in self._connection.run(
                STATEMENTS["list_sessions"], writes=False
            )
        ]

    def reap_sessions(self) -> list[str]:
        rows = self._connection.run(STATEMENTS["find_expired_sessions"], writes=False)
        now = self._touch(rows[0][0])
        dead = self._connection.presence.select_dead_sessions(
            [(name, ttl) for _, name, ttl in rows if name is not None], now
        )
        if not dead:
            return []
        ended = [name for (name,) in self._connection.run(STATEMENTS["end_sessions"], [dead, True])]
        self._change_signal.notify_watchers()
        return ended

    # --- claims and action requests

    def claim(self, queues: Sequence[WorkQueue], session: str, limit: int) -> list[ClaimedRecord]:
        return self._claims.claim(queues, session, limit)

    def claim_one(self, kind: str, id: str, session: str) -> ClaimedRecord:
        return self._claims.claim_one(Ref(kind, id), session)

    def request_action(self, request: ActionRequest) -> bool:
        args = {
            "kind": request.ref.kind,
            "id": request.ref.id,
            "action": request.action,
            "who": request.who,
            "why": request.why,
            "args": request.args,
        }
        exists, claimed, added = self._connection.run(STATEMENTS["add_action_request"], args)[0]
        if not exists:
            raise RecordNotFound(f"There is no {request.ref}.")
        if claimed and not added:
            pending = self._connection.run(STATEMENTS["get_action_request"], list(request.ref), writes=False)
            raise RecordBusy(
                f"{pending[0][0] if pending else 'An action'} was requested of {request.ref} and is not answered yet."
            )
        return bool(added)

    def list_action_requests(self, limit: int = 100) -> list[ActionRequest]:
        return [
            action_request_of(row)
            for row in self._connection.run(STATEMENTS["list_action_requests"], [limit], writes=False)
        ]

    # --- holds, locks and waits

    def set_hold(self, name: str, who: str = "", why: str = "") -> None:
        self._connection.run(STATEMENTS["set_hold"], [name, who, why])

    def clear_hold(self, name: str) -> None:
        self._connection.run(STATEMENTS["clear_hold"], [name])
        if self._maintenance.unblock(f"hold {name}"):
            self._change_signal.notify_watchers()

    def list_holds(self) -> dict[str, str]:
        return {
            name: f"{who}: {why}" if why else who
            for name, who, why in self._connection.run(STATEMENTS["list_holds"], writes=False)
        }

    def list_locks(self, *, after: str = "", limit: int = MAX_PAGE) -> list[OwnedLock]:
        args = {"after": after, "limit": max(1, min(limit, MAX_PAGE)), "owners": MAX_LISTED_OWNERS}
        return [
            OwnedLock(name, tuple(Ref(*owner) for owner in zip(kinds or (), ids or (), strict=True)), sort, count, n)
            for name, sort, kinds, ids, count, n in self._connection.run(STATEMENTS["list_locks"], args, writes=False)
        ]

    def remove_foreign_lock(self, name: str) -> bool:
        rows = self._connection.run(STATEMENTS["get_lock_owner"], [name], writes=False)
        if rows:
            raise Conflict(
                f"{name} is owned by {Ref(*rows[0])}, which drops it when it moves on; it cannot be taken away."
            )
        return False

    def watch(self, timeout: float) -> bool:
        return self._change_watcher.wait(timeout)

    def interrupt_watch(self) -> None:
        self._change_watcher.interrupt()

    def release_due_waits(self, limit: int = MAX_PAGE) -> DueWaits:
        released = int(self._connection.run(STATEMENTS["release_due_waits"], [limit])[0][0])
        if released:
            self._change_signal.notify_watchers()
        now, wake_at = self._connection.run(STATEMENTS["get_next_due"], writes=False)[0]
        self._touch(now)
        return DueWaits(released, None if wake_at is None else max(0.0, wake_at - now))

    # --- maintenance

    def maintain_indexes(self, limit: int = MAX_PAGE) -> int:
        unblocked = self._maintenance.maintain_indexes(limit)
        if unblocked:
            self._change_signal.notify_watchers()
        return unblocked

    def find_idle_parents(self, *, after: str = "", limit: int = MAX_PAGE) -> IdleParents:
        return idle_parents.idle_page_of(
            self._connection.run(
                STATEMENTS["find_idle_parents"], [*idle_parents.parse_position(after), limit], writes=False
            ),
            limit,
        )

    def remember(self, name: str, value: str) -> str:
        self._connection.run(STATEMENTS["remember"], [name, value])
        return str(self._connection.run(STATEMENTS["get_remembered_value"], [name], writes=False)[0][0])

    def check(self) -> Iterator[Finding]:
        return self._maintenance.check()

    def repair(self, finding: Finding) -> bool:
        return self._maintenance.repair(finding)

    def close(self) -> None:
        if not self._is_closed:
            self._is_closed = True
            self._change_signal.release()
            self._change_watcher.close()
            self._connection.close()
