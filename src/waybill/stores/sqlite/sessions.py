"""Sessions: opened on one host and a clock that can be trusted, renewed, closed, reaped; and what is asked of those
who hold records.
"""

from __future__ import annotations

import os
import secrets
from collections.abc import Mapping
from typing import Any

import msgspec

from waybill.record import SERVES, Ask, BadStore, Conflict, NotFound, Ref, Renewed, SessionInfo
from waybill.stores.presence import Presence
from waybill.stores.sqlite.database import Database, Execute
from waybill.stores.sqlite.rows import SQL, record_of

BEHIND = 60.0  # seconds that this machine's clock may be behind the newest write


def open_session(database: Database, host: str, ttl: float, about: Mapping[str, Any], now: float) -> str:
    name = f"{host or 'host'}-{os.getpid()}-{secrets.token_hex(6)}"
    with database.write() as execute:
        _refuse_another_host(database, execute, host, now)
        _refuse_a_clock_behind(database, execute, now)
        execute(SQL["open_session"], (name, host, ttl, now, msgspec.json.encode(about)))
        execute(SQL["wrote"], (now,))
    return name


def _refuse_another_host(database: Database, execute: Execute, host: str, now: float) -> None:
    """SQLite's locks hold on one machine only."""
    for other, expires in execute(SQL["other_host"], (host, now)).fetchall():
        raise BadStore(
            f"A process of the host {other} uses {database.place}; this is {host}. Two machines cannot share a SQLite file: "
            f"keep all on one, or use PostgreSQL. (If that one is gone, try again in {expires - now:.0f} s.)"
        )


def _refuse_a_clock_behind(database: Database, execute: Execute, now: float) -> None:
    """Waits and sessions are measured by it."""
    ((newest,),) = execute(SQL["newest"]).fetchall()
    if newest > now + BEHIND:
        behind = f"{newest - now:.0f} s behind the newest write to {database.place}"
        raise BadStore(
            f"The clock here is {behind}. Set the clock, then start again. (If this clock is right and another was wrong, "
            f"stop all workers and run `waybill doctor --fix`.)"
        )


def renew(database: Database, session: str, progress: Mapping[str, Any] | None, now: float) -> Renewed:
    with database.write() as execute:
        if progress is None:
            execute(SQL["renew"], (session, now))
        else:
            execute(SQL["renew_with_progress"], (session, now, msgspec.json.encode(progress)))
        if database.db.changes() != 1:
            return Renewed(False)
        execute(SQL["wrote"], (now,))
        return Renewed(True, tuple(_asks(execute, SQL["asked_of"], session)))


def close_session(database: Database, session: str) -> None:
    with database.write() as execute:
        _end(execute, session)


def _end(execute: Execute, session: str) -> None:
    execute(SQL["free"], (session,))
    execute(SQL["end_session"], (session,))


def sessions(database: Database) -> list[SessionInfo]:
    with database.sentences():
        rows = database.execute(SQL["sessions"], (msgspec.json.encode(SERVES),)).fetchall()
    return [SessionInfo(*row[:4], *map(msgspec.json.decode, row[4:])) for row in rows]


def reap(database: Database, presence: Presence, now: float) -> list[str]:
    with database.sentences():
        if not _expired(database.execute, presence, now):
            return []
    with database.write() as execute:
        dead = _expired(execute, presence, now)  # again: it may just have been renewed
        for name in dead:
            _end(execute, name)
    return dead


def _expired(execute: Execute, presence: Presence, now: float) -> list[str]:
    """Sessions whose time is over, and which this connection was there to see renewed."""
    return presence.dead(execute(SQL["expired"], (now,)).fetchall(), now)


# --- asking


def ask(database: Database, ask: Ask) -> bool:
    with database.write() as execute:
        rows = execute(SQL["get"], ask.ref).fetchall()
        if not rows:
            raise NotFound(f"There is no {ask.ref}.")
        record = record_of(rows[0])
        if record.session is None:
            return False
        execute(SQL["ask"], (record.seq, ask.action, ask.who, ask.why, ask.args))
        if database.db.changes() != 1:
            ((action, who, *_),) = execute(SQL["asked"], (record.seq,)).fetchall()
            raise Conflict(
                f"{ask.ref} was asked to {action} by {who or 'somebody'} and has not answered yet. Try again when it has."
            )
    return True


def asks(database: Database, limit: int) -> list[Ask]:
    with database.sentences():
        return _asks(database.execute, SQL["asks"], limit)


def _asks(execute: Execute, statement: str, which: str | int) -> list[Ask]:
    return [Ask(Ref(kind, id), *rest) for kind, id, *rest in execute(statement, (which,)).fetchall()]
