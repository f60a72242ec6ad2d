"""The driver: one connection, and each verb handed to the module that knows it."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

from waybill.record import (
    MAX_PAGE,
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
    Page,
    Record,
    Ref,
    Renewed,
    Role,
    SessionInfo,
)
from waybill.stores.presence import Presence
from waybill.stores.sqlite import reading, sessions, upkeep
from waybill.stores.sqlite.claims import Desk
from waybill.stores.sqlite.commits import commit
from waybill.stores.sqlite.database import PATIENCE, Database, path_of
from waybill.stores.sqlite.ears import Ear
from waybill.stores.sqlite.migrations import bring_up
from waybill.stores.sqlite.rows import SQL

PORTION = 1_000  # records that one transaction unparks


class SqliteStore:
    """One connection to the file that `url` names. `patience`: how many seconds a write waits for another writer."""

    def __init__(
        self, url: str, *, clock: Callable[[], float] | None = None, migrate: bool = True, patience: float = PATIENCE
    ) -> None:
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
        return reading.get(self._db, kind, id)

    def requested(self, kind: str, request: str) -> Record:
        return reading.requested(self._db, kind, request)

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
        return reading.find(self._db, kind, state, parent, owner, after, newest, limit, docs)

    def tally(self, kind: str, *, parent: Ref | None = None) -> dict[str, int]:
        return reading.tally(self._db, kind, parent)

    def open_parents(self, refs: Sequence[Ref]) -> set[Ref]:
        return reading.open_parents(self._db, refs)

    def idle_parents(self, *, after: str = "", limit: int = MAX_PAGE) -> Idle:
        return reading.idle_parents(self._db, after, limit)

    def history(self, kind: str, id: str) -> list[Line]:
        return reading.history(self._db, kind, id)

    # --- sessions and claims

    def open_session(self, *, host: str, ttl: float, about: Mapping[str, Any]) -> str:
        return sessions.open_session(self._db, host, ttl, about, self.now())

    def renew(self, session: str, progress: Mapping[str, Any] | None = None) -> Renewed:
        return sessions.renew(self._db, session, progress, self.now())

    def close_session(self, session: str) -> None:
        self.now()
        sessions.close_session(self._db, session)
        self._ear.ring()

    def sessions(self) -> list[SessionInfo]:
        return sessions.sessions(self._db)

    def reap(self) -> list[str]:
        dead = sessions.reap(self._db, self._presence, self.now())
        if dead:
            self._ear.ring()
        return dead

    def claim(self, roles: Sequence[Role], session: str, limit: int) -> list[Claimed]:
        return self._desk.claim(roles, session, limit, self.now())

    def take(self, kind: str, id: str, session: str) -> Claimed:
        return self._desk.take(Ref(kind, id), session, self.now())

    def ask(self, ask: Ask) -> bool:
        return sessions.ask(self._db, ask)

    def asks(self, limit: int = 100) -> list[Ask]:
        return sessions.asks(self._db, limit)

    # --- marks and waits

    def mark(self, name: str, on: bool, who: str = "", why: str = "") -> None:
        now = self.now()
        with self._db.write() as execute:
            execute(*((SQL["mark_on"], (name, who, why, now)) if on else (SQL["mark_off"], (name,))))
        unparked = 0 if on else PORTION
        while unparked == PORTION:
            with self._db.write() as execute:
                execute(SQL["unpark"], (f"mark {name}", PORTION))
                unparked = self._db.db.changes()
        self._ear.ring()

    def marks(self) -> dict[str, str]:
        with self._db.sentences():
            return {
                name: f"{who}: {why}" if why else who for name, who, why in self._db.execute(SQL["marks"]).fetchall()
            }

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

    def held_keys(self, *, after: str = "", limit: int = MAX_PAGE) -> list[HeldKey]:
        with self._db.sentences():
            rows = self._db.execute(SQL["held_keys"], (after, max(1, min(limit, MAX_PAGE)))).fetchall()
        return [HeldKey(name, Ref(kind, id)) for name, kind, id in rows]

    def free_key(self, name: str) -> bool:
        with self._db.sentences():
            rows = self._db.execute(SQL["holder_name"], (name,)).fetchall()
        if rows:
            raise Conflict(
                f"{name} is held by {Ref(*rows[0])}, which drops it when it moves on; it is not taken from it."
            )
        return False

    def watch(self, timeout: float) -> bool:
        with self._db.sentences():
            return self._ear.listen(timeout)

    def interrupt(self) -> None:
        self._ear.interrupt()

    # --- upkeep

    def sweep(self, limit: int = MAX_PAGE) -> int:
        mended = upkeep.sweep(self._db, limit)
        if mended:
            self._ear.ring()
        return mended

    def remember(self, name: str, value: str) -> str:
        with self._db.write() as execute:
            execute(SQL["remember"], (name, value))
            ((kept,),) = execute(SQL["kept"], (name,)).fetchall()
        return str(kept)

    def check(self) -> Iterator[Finding]:
        return upkeep.check(self._db, self.now())

    def mend(self, finding: Finding) -> bool:
        return upkeep.mend(self._db, finding, self.now())

    def close(self) -> None:
        self._ear.close()
        self._db.close()
