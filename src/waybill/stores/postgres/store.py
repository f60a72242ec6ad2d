"""PostgresStore: the verbs of a store, each one round trip to PostgreSQL.

What they have in common is in the modules beside this one: the connection, commits, claims, the bell that watch listens
to, upkeep.
"""

from __future__ import annotations

import secrets
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import msgspec

from waybill.record import (
    MAX_PAGE,
    NO_DOCS,
    Answer,
    Ask,
    Claimed,
    Conflict,
    Due,
    Finding,
    Group,
    HeldKey,
    Idle,
    Line,
    NotFound,
    Page,
    Record,
    Ref,
    Renewed,
    Role,
    SessionInfo,
)
from waybill.statements import load
from waybill.stores import portions
from waybill.stores.postgres import schema as schemas
from waybill.stores.postgres.bell import Listener, Ringer
from waybill.stores.postgres.claims import Claims, higher
from waybill.stores.postgres.commits import Commits, columns
from waybill.stores.postgres.connection import Connection
from waybill.stores.postgres.rows import SELECTED, ask, documents, record, record_with_documents
from waybill.stores.postgres.upkeep import Upkeep

STATEMENTS = load(schemas.PACKAGE, "queries.sql")
PAGES = load(schemas.PACKAGE, "pages.sql")
LAST = 2**63 - 1  # after every seq


class PostgresStore:
    """A store in a schema of a PostgreSQL database.

    `migrate`: make the schema or bring it up to date; otherwise it is refused unless it is. `schema`: where the tables
    are; several stores may share a database. `old_snapshot`: after how many seconds `check` names a transaction that is
    still open.
    """

    def __init__(
        self, url: str, migrate: bool = True, *, schema: str = "waybill", old_snapshot: float = 3600.0
    ) -> None:
        self._connection = Connection(url, schema)
        self.url = self._connection.place
        self._connection.open(lambda db: schemas.prepare(db, schema, self.url, migrate))
        self._claims = Claims(self._connection, STATEMENTS["claim"], self.get, self.now)
        self._commits = Commits(self._connection, STATEMENTS, self.get, self._claims.turns)
        self._upkeep = Upkeep(self._connection, STATEMENTS, old_snapshot)
        self._written_turns: dict[str, int] = {}
        self._ringer = Ringer.of(self._connection)
        self._listener = Listener(self._connection)
        self._closed = False

    def __repr__(self) -> str:
        return f"PostgresStore({self.url!r})"

    def now(self) -> float:
        return self._touch(self._connection.run(STATEMENTS["now"], writes=False)[0][0])

    def _touch(self, now: float) -> float:
        self._connection.presence.touch(now)
        return now

    def commit(self, groups: Sequence[Group]) -> list[Answer]:
        try:
            return self._commits.commit(groups)
        finally:
            if self._commits.rang:
                self._ringer.ring()

    # --- reading

    def get(self, kind: str, id: str) -> Record:
        rows = self._connection.run(STATEMENTS["get"], {"kind": kind, "id": id}, writes=False)
        if not rows:
            raise NotFound(f"There is no {kind} {id}.")
        return record_with_documents(rows[0])

    def requested(self, kind: str, request: str) -> Record:
        rows = self._connection.run(STATEMENTS["requested"], {"kind": kind, "request": request}, writes=False)
        if not rows:
            raise NotFound(f"No {kind} was made by the request {request}.")
        return record_with_documents(rows[0])

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
            "after": after if after is not None else LAST if newest else 0,
        }
        if parent is not None:
            args |= {"value": parent.id, "parent_kind": parent.kind}
        statement = PAGES["no_owner" if name == "owner" and not value else name]
        beyond, direction = ("<", "desc") if newest else (">", "asc")
        rows = self._connection.run(
            statement.format(columns=SELECTED, beyond=beyond, direction=direction), args, writes=False
        )
        page, more = rows[:limit], len(rows) > limit
        loaded = {}
        if docs and page:
            found = self._connection.run(STATEMENTS["documents"], [kind, [row[1] for row in page]], writes=False)
            loaded = {id: documents(names, bodies) for id, names, bodies in found}
        records = [record(row, loaded.get(row[1], NO_DOCS)) for row in page]
        return Page(records, records[-1].seq if more else None)

    def tally(self, kind: str, *, parent: Ref | None = None) -> dict[str, int]:
        args = {"kind": kind, "parent_kind": parent.kind if parent else "", "parent_id": parent.id if parent else ""}
        return dict(self._connection.run(STATEMENTS["tally"], args, writes=False))

    def open_parents(self, refs: Sequence[Ref]) -> set[Ref]:
        rows = self._connection.run(STATEMENTS["open_parents"], columns(set(refs)), writes=False) if refs else []
        return {Ref(*row) for row in rows}

    def history(self, kind: str, id: str) -> list[Line]:
        return [Line(*row) for row in self._connection.run(STATEMENTS["history"], [kind, id], writes=False)]

    # --- sessions

    def open_session(self, *, host: str, ttl: float, about: Mapping[str, Any]) -> str:
        name = f"{host or 'worker'}-{secrets.token_hex(8)}"
        args = {"name": name, "host": host, "ttl": float(ttl), "about": msgspec.json.encode(dict(about))}
        self._touch(self._connection.run(STATEMENTS["open_session"], args)[0][0])
        return name

    def renew(self, session: str, progress: Mapping[str, Any] | None = None) -> Renewed:
        said = None if progress is None else msgspec.json.encode(dict(progress))
        rows = self._connection.run(STATEMENTS["renew"], {"name": session, "progress": said})
        if not rows:
            return Renewed(False)
        self._touch(rows[0][0])
        self._listener.hear()
        if turns := higher(self._claims.turns, self._written_turns):
            self._connection.run(STATEMENTS["note_turns"], [list(turns), list(turns.values())])
            self._written_turns |= turns
        return Renewed(
            True, tuple(ask(row) for row in self._connection.run(STATEMENTS["asked"], [session], writes=False))
        )

    def close_session(self, session: str) -> None:
        self._connection.run(STATEMENTS["end_sessions"], [[session], False])
        self._ringer.ring()

    def sessions(self) -> list[SessionInfo]:
        return [
            SessionInfo(name, host, since, expires, msgspec.json.decode(about), msgspec.json.decode(progress))
            for name, host, since, expires, about, progress in self._connection.run(
                STATEMENTS["sessions"], writes=False
            )
        ]

    def reap(self) -> list[str]:
        rows = self._connection.run(STATEMENTS["expired"], writes=False)
        now = self._touch(rows[0][0])
        dead = self._connection.presence.dead([(name, ttl) for _, name, ttl in rows if name is not None], now)
        if not dead:
            return []
        ended = [name for (name,) in self._connection.run(STATEMENTS["end_sessions"], [dead, True])]
        self._ringer.ring()
        return ended

    # --- claims and requests

    def claim(self, roles: Sequence[Role], session: str, limit: int) -> list[Claimed]:
        return self._claims.claim(roles, session, limit)

    def take(self, kind: str, id: str, session: str) -> Claimed:
        return self._claims.take(Ref(kind, id), session)

    def ask(self, ask: Ask) -> bool:
        args = {
            "kind": ask.ref.kind,
            "id": ask.ref.id,
            "action": ask.action,
            "who": ask.who,
            "why": ask.why,
            "args": ask.args,
        }
        there, held, left = self._connection.run(STATEMENTS["ask"], args)[0]
        if not there:
            raise NotFound(f"There is no {ask.ref}.")
        if held and not left:
            pending = self._connection.run(STATEMENTS["pending"], list(ask.ref), writes=False)
            raise Conflict(
                f"{ask.ref} was asked to {pending[0][0] if pending else 'do something'} and has not answered yet."
            )
        return bool(left)

    def asks(self, limit: int = 100) -> list[Ask]:
        return [ask(row) for row in self._connection.run(STATEMENTS["asks"], [limit], writes=False)]

    # --- marks and waits

    def mark(self, name: str, on: bool, who: str = "", why: str = "") -> None:
        if on:
            self._connection.run(STATEMENTS["mark_on"], [name, who, why])
            return
        self._connection.run(STATEMENTS["mark_off"], [name])
        if self._upkeep.unpark(f"mark {name}"):
            self._ringer.ring()

    def marks(self) -> dict[str, str]:
        return {
            name: f"{who}: {why}" if why else who
            for name, who, why in self._connection.run(STATEMENTS["marks"], writes=False)
        }

    def held_keys(self, *, after: str = "", limit: int = MAX_PAGE) -> list[HeldKey]:
        args = {"after": after, "limit": max(1, min(limit, MAX_PAGE))}
        return [
            HeldKey(name, Ref(kind, id))
            for name, kind, id in self._connection.run(STATEMENTS["held_keys"], args, writes=False)
        ]

    def free_key(self, name: str) -> bool:
        rows = self._connection.run(STATEMENTS["holder"], [name], writes=False)
        if rows:
            raise Conflict(
                f"{name} is held by {Ref(*rows[0])}, which drops it when it moves on; it is not taken from it."
            )
        return False

    def watch(self, timeout: float) -> bool:
        return self._listener.wait(timeout)

    def interrupt(self) -> None:
        self._listener.interrupt()

    def wake(self, limit: int = MAX_PAGE) -> Due:
        woken = int(self._connection.run(STATEMENTS["wake"], [limit])[0][0])
        if woken:
            self._ringer.ring()
        now, wake_at = self._connection.run(STATEMENTS["next_wait"], writes=False)[0]
        self._touch(now)
        return Due(woken, None if wake_at is None else max(0.0, wake_at - now))

    # --- upkeep

    def sweep(self, limit: int = MAX_PAGE) -> int:
        mended = self._upkeep.sweep(limit)
        if mended:
            self._ringer.ring()
        return mended

    def idle_parents(self, *, after: str = "", limit: int = MAX_PAGE) -> Idle:
        return portions.idle(
            self._connection.run(STATEMENTS["idle_parents"], [*portions.begin(after), limit], writes=False), limit
        )

    def remember(self, name: str, value: str) -> str:
        self._connection.run(STATEMENTS["remember"], [name, value])
        return str(self._connection.run(STATEMENTS["remembered"], [name], writes=False)[0][0])

    def check(self) -> Iterator[Finding]:
        return self._upkeep.check()

    def mend(self, finding: Finding) -> bool:
        return self._upkeep.mend(finding)

    def close(self) -> None:
        if not self._closed:
            self._closed = True
            self._ringer.leave()
            self._listener.close()
            self._connection.close()
