"""Records in one SQLite file: the embedded default. Many threads and processes of one machine share it; two machines never do.

    sqlite:///relative/path.db    sqlite:////absolute/path.db    sqlite://  (in memory, for this connection alone)

SQLite has one writer at a time. So every verb that writes is one short transaction, a claim needs no lock of its own, and what a commit has
seen nobody else has changed meanwhile. Times are those of the clock that is passed in.

`database.py` the file · `migrations/` its schema · `statements.sql` what is asked of it · `commits.py` groups · `claims.py` who gets what ·
`keys.py` exclusive names · `ears.py` the watch · `upkeep.py` sweep and check.
"""

from __future__ import annotations

import os
import secrets
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

import msgspec

from waybill.record import (
    MAX_PAGE,
    Answer,
    Ask,
    BadStore,
    Claimed,
    Conflict,
    Docs,
    Due,
    Finding,
    Group,
    Line,
    NotFound,
    Page,
    Record,
    Ref,
    Renewed,
    Role,
    SessionInfo,
)
from waybill.stores.presence import Presence
from waybill.stores.sqlite import upkeep
from waybill.stores.sqlite.claims import Desk
from waybill.stores.sqlite.commits import commit
from waybill.stores.sqlite.database import PATIENCE, Database, path_of
from waybill.stores.sqlite.ears import Ear
from waybill.stores.sqlite.migrations import bring_up
from waybill.stores.sqlite.rows import SQL, record_of

PORTION = 1_000  # records that one transaction unparks
BEHIND = 60.0  # seconds that this machine's clock may be behind the newest write

NEWEST = {name: text.replace("seq > ?2", "seq < ?2").replace("order by seq", "order by seq desc") for name, text in SQL.items()}


class SqliteStore:
    """One connection to the file that `url` names. `patience`: how many seconds a write waits for another writer."""

    def __init__(self, url: str, *, clock: Callable[[], float] | None = None, migrate: bool = True, patience: float = PATIENCE) -> None:
        self.url = url
        self._clock = clock or time.time
        self._db = Database(path_of(url), patience=patience)
        try:
            bring_up(self._db, migrate=migrate)
        except BaseException:
            self._db.close()
            raise
        self._desk = Desk(self._db)
        self._ear = Ear(self._db.path)
        self._presence = Presence(self._clock())

    def now(self) -> float:
        now = self._clock()
        self._presence.touch(now)
        return now

    def commit(self, groups: Sequence[Group]) -> list[Answer]:
        answers = commit(self._db, groups, self.now())
        self._ear.ring()
        return answers

    # --- reading

    def get(self, kind: str, id: str) -> Record:
        with self._db.read() as execute:
            rows = execute(SQL["get"], (kind, id)).fetchall()
            if not rows:
                raise NotFound(f"There is no {kind} {id}.")
            record = record_of(rows[0])
            docs = execute(SQL["documents"], (record.seq,)).fetchall()
        return msgspec.structs.replace(record, docs=Docs(dict(docs)))

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
        wanted: dict[str, tuple[str, ...]] = {}
        for name, value in (("find_state", state), ("find_owner", owner), ("find_parent", parent)):
            if value is not None:
                wanted[name] = (value,) if isinstance(value, str) else tuple(value)
        if len(wanted) > 1:
            raise ValueError("find by a state, a parent or an owner, not by several of them: each has its own index")
        name, values = next(iter(wanted.items()), ("find", ()))
        limit = max(1, min(limit, MAX_PAGE))
        bound = after if after is not None else 1 << 62 if newest else 0
        with self._db.read() as execute:
            rows = execute((NEWEST if newest else SQL)[name], (kind, bound, limit + 1, *values)).fetchall()
            records = [record_of(row) for row in rows[:limit]]
            if docs:
                records = self._load(records)
        return Page(records, records[-1].seq if len(rows) > limit else None)

    def _load(self, records: list[Record]) -> list[Record]:
        found: dict[int, dict[str, bytes]] = {}
        seqs = msgspec.json.encode([record.seq for record in records]).decode()
        for seq, name, body in self._db.execute(SQL["documents_of"], (seqs,)):
            found.setdefault(seq, {})[name] = body
        return [msgspec.structs.replace(record, docs=Docs(found.get(record.seq))) for record in records]

    def tally(self, kind: str, *, parent: Ref | None = None) -> dict[str, int]:
        with self._db.sentences():
            return dict(self._db.execute(SQL["tally"], (kind, *(parent or ("", "")))).fetchall())

    def open_parents(self, refs: Sequence[Ref]) -> set[Ref]:
        with self._db.read() as execute:
            return {ref for ref in refs if execute(SQL["has_open_child"], ref).fetchall()}

    def history(self, kind: str, id: str) -> list[Line]:
        with self._db.sentences():
            return [Line(*row) for row in self._db.execute(SQL["history"], (kind, id)).fetchall()]

    # --- sessions

    def open_session(self, *, host: str, ttl: float, about: Mapping[str, Any]) -> str:
        now = self.now()
        name = f"{host or 'host'}-{os.getpid()}-{secrets.token_hex(6)}"
        with self._db.write() as execute:
            others = execute(SQL["other_host"], (host, now)).fetchall()
            if others:
                raise BadStore(
                    f"A worker of the host {others[0][0]} uses {self._db.place}; this is {host}. Two machines cannot share a SQLite file: "
                    f"keep all workers on one, or use PostgreSQL. (If that worker is gone, try again in {others[0][1] - now:.0f} s.)"
                )
            ((newest,),) = execute(SQL["newest"]).fetchall()
            if newest > now + BEHIND:
                raise BadStore(
                    f"The clock here is {newest - now:.0f} s behind the newest write to {self._db.place}. Set the clock, then start again: "
                    "sessions and waits are measured by it."
                )
            execute(SQL["open_session"], (name, host, ttl, now, msgspec.json.encode(about)))
            execute(SQL["wrote"], (now,))
        return name

    def renew(self, session: str, progress: Mapping[str, Any] | None = None) -> Renewed:
        now = self.now()
        with self._db.write() as execute:
            if progress is None:
                execute(SQL["renew"], (session, now))
            else:
                execute(SQL["renew_with_progress"], (session, now, msgspec.json.encode(progress)))
            if self._db.db.changes() != 1:
                return Renewed(False)
            execute(SQL["wrote"], (now,))
            return Renewed(True, tuple(Ask(Ref(*row[:2]), *row[2:]) for row in execute(SQL["asked_of"], (session,)).fetchall()))

    def close_session(self, session: str) -> None:
        self.now()
        with self._db.write() as execute:
            execute(SQL["free"], (session,))
            execute(SQL["end_session"], (session,))
        self._ear.ring()

    def sessions(self) -> list[SessionInfo]:
        with self._db.sentences():
            rows = self._db.execute(SQL["sessions"]).fetchall()
        return [SessionInfo(*row[:4], *map(msgspec.json.decode, row[4:])) for row in rows]

    def reap(self) -> list[str]:
        now = self.now()
        with self._db.sentences():
            if not self._expired(now):
                return []
        with self._db.write() as execute:
            dead = self._expired(now)  # again: it may just have been renewed
            for name in dead:
                execute(SQL["free"], (name,))
                execute(SQL["end_session"], (name,))
        self._ear.ring()
        return dead

    def _expired(self, now: float) -> list[str]:
        """Sessions whose time is over, and which this connection would have seen renewed."""
        rows = self._db.execute(SQL["expired"], (now,)).fetchall()
        return [name for name, ttl in rows if self._presence.since(ttl) + ttl <= now]

    # --- claims

    def claim(self, roles: Sequence[Role], session: str, limit: int) -> list[Claimed]:
        return self._desk.claim(roles, session, limit, self.now())

    def take(self, kind: str, id: str, session: str) -> Claimed:
        return self._desk.take(Ref(kind, id), session, self.now())

    def ask(self, ask: Ask) -> bool:
        with self._db.write() as execute:
            rows = execute(SQL["get"], ask.ref).fetchall()
            if not rows:
                raise NotFound(f"There is no {ask.ref}.")
            record = record_of(rows[0])
            if record.session is None:
                return False
            execute(SQL["ask"], (record.seq, ask.action, ask.who, ask.why, ask.args))
            if self._db.db.changes() != 1:
                ((action, who, *_),) = execute(SQL["asked"], (record.seq,)).fetchall()
                raise Conflict(f"{ask.ref} was asked to {action} by {who or 'somebody'} and has not answered yet. Try again when it has.")
        return True

    def asks(self, limit: int = 100) -> list[Ask]:
        with self._db.sentences():
            return [Ask(Ref(*row[:2]), *row[2:]) for row in self._db.execute(SQL["asks"], (limit,)).fetchall()]

    # --- marks, waits, upkeep

    def mark(self, name: str, on: bool, who: str = "", why: str = "") -> None:
        now = self.now()
        with self._db.write() as execute:
            execute(*((SQL["mark_on"], (name, who, why, now)) if on else (SQL["mark_off"], (name,))))
        while not on:
            with self._db.write() as execute:
                execute(SQL["unpark"], (f"mark {name}", PORTION))
                if self._db.db.changes() < PORTION:
                    break
        self._ear.ring()

    def marks(self) -> dict[str, str]:
        with self._db.sentences():
            return {name: f"{who}: {why}" for name, who, why in self._db.execute(SQL["marks"]).fetchall()}

    def watch(self, timeout: float) -> bool:
        with self._db.sentences():
            return self._ear.listen(timeout)

    def interrupt(self) -> None:
        self._ear.interrupt()

    def wake(self, limit: int = MAX_PAGE) -> Due:
        now, woken = self.now(), 0
        with self._db.sentences():
            rows = self._db.execute(SQL["next_due"]).fetchall()
        if rows and rows[0][0] <= now:
            with self._db.write() as execute:
                execute(SQL["due"], (now, limit))
                woken = self._db.db.changes()
                rows = execute(SQL["next_due"]).fetchall()
            self._ear.ring()
        return Due(woken, max(0.0, rows[0][0] - now) if rows else None)

    def sweep(self, limit: int = MAX_PAGE) -> int:
        mended = upkeep.sweep(self._db, limit)
        if mended:
            self._ear.ring()
        return mended

    def idle_parents(self, limit: int = MAX_PAGE) -> list[Ref]:
        with self._db.sentences():
            return [Ref(*row) for row in self._db.execute(SQL["idle_parents"], (limit,)).fetchall()]

    def remember(self, name: str, value: str) -> str:
        with self._db.write() as execute:
            execute(SQL["remember"], (name, value))
            ((kept,),) = execute(SQL["kept"], (name,)).fetchall()
        return str(kept)

    def check(self) -> Iterator[Finding]:
        return upkeep.check(self._db)

    def mend(self, finding: Finding) -> bool:
        return upkeep.mend(self._db, finding)

    def close(self) -> None:
        self._ear.close()
        self._db.close()
