"""Sessions: opened only on one host and with a clock that is not behind, renewed, closed, reaped; and the action requests
for records that sessions have claimed.
"""

from __future__ import annotations

import os
import secrets
from collections.abc import Mapping
from typing import Any

import msgspec

from waybill.record import (
    SERVER_ABOUT,
    ActionRequest,
    BadStore,
    RecordBusy,
    RecordNotFound,
    Ref,
    SessionInfo,
    SessionRenewal,
)
from waybill.stores.presence import ConnectionPresence
from waybill.stores.sqlite.database import Execute, SqliteDatabase
from waybill.stores.sqlite.rows import SQL, record_of

MAX_CLOCK_LAG = 60.0  # seconds that this machine's clock may be behind the newest write


def open_session(database: SqliteDatabase, host: str, ttl: float, about: Mapping[str, Any], now: float) -> str:
    name = f"{host or 'host'}-{os.getpid()}-{secrets.token_hex(6)}"
    with database.write() as execute:
        _refuse_another_host(database, execute, host, now)
        _refuse_clock_behind(database, execute, now)
        execute(SQL["open_session"], (name, host, ttl, now, msgspec.json.encode(about)))
        execute(SQL["note_write_time"], (now,))
    return name


def _refuse_another_host(database: SqliteDatabase, execute: Execute, host: str, now: float) -> None:
    """SQLite's file locks work on one machine only."""
    for other_host, expires in execute(SQL["find_other_host"], (host, now)).fetchall():
        raise BadStore(
            f"A process of the host {other_host} uses {database.location}; this is {host}. Two machines cannot share a SQLite file: "
            f"keep all on one, or use PostgreSQL. (If that one is gone, try again in {expires - now:.0f} s.)"
        )


def _refuse_clock_behind(database: SqliteDatabase, execute: Execute, now: float) -> None:
    """Waits and sessions are measured by this clock."""
    ((newest,),) = execute(SQL["get_newest_write"]).fetchall()
    if newest > now + MAX_CLOCK_LAG:
        behind = f"{newest - now:.0f} s behind the newest write to {database.location}"
        raise BadStore(
            f"The clock here is {behind}. Set the clock, then start again. (If this clock is right and another was wrong, "
            f"stop all workers and run `waybill doctor --fix`.)"
        )


def renew_session(
    database: SqliteDatabase, session: str, progress: Mapping[str, Any] | None, now: float
) -> SessionRenewal:
    with database.write() as execute:
        if progress is None:
            execute(SQL["renew_session"], (session, now))
        else:
            execute(SQL["renew_session_with_progress"], (session, now, msgspec.json.encode(progress)))
        if database.db.changes() != 1:
            return SessionRenewal(False)
        execute(SQL["note_write_time"], (now,))
        return SessionRenewal(True, tuple(_read_action_requests(execute, SQL["list_session_requests"], session)))


def close_session(database: SqliteDatabase, session: str) -> None:
    with database.write() as execute:
        _end_session(execute, session)


def _end_session(execute: Execute, session: str) -> None:
    execute(SQL["release_claims"], (session,))
    execute(SQL["end_session"], (session,))


def list_sessions(database: SqliteDatabase) -> list[SessionInfo]:
    with database.translate_errors():
        rows = database.execute(SQL["list_sessions"], (msgspec.json.encode(SERVER_ABOUT),)).fetchall()
    return [SessionInfo(*row[:4], *map(msgspec.json.decode, row[4:])) for row in rows]


def reap_sessions(database: SqliteDatabase, presence: ConnectionPresence, now: float) -> list[str]:
    with database.translate_errors():
        if not _find_dead_sessions(database.execute, presence, now):
            return []
    with database.write() as execute:
        dead = _find_dead_sessions(execute, presence, now)  # again: a session may have been renewed since
        for name in dead:
            _end_session(execute, name)
    return dead


def _find_dead_sessions(execute: Execute, presence: ConnectionPresence, now: float) -> list[str]:
    """Expired sessions whose renewal this connection would have seen (see presence.py)."""
    return presence.select_dead_sessions(execute(SQL["find_expired_sessions"], (now,)).fetchall(), now)


# --- action requests


def request_action(database: SqliteDatabase, request: ActionRequest) -> bool:
    with database.write() as execute:
        rows = execute(SQL["get"], request.ref).fetchall()
        if not rows:
            raise RecordNotFound(f"There is no {request.ref}.")
        record = record_of(rows[0])
        if record.session is None:
            return False
        execute(SQL["add_action_request"], (record.seq, request.action, request.who, request.why, request.args))
        if database.db.changes() != 1:
            ((action, who, *_),) = execute(SQL["get_action_request"], (record.seq,)).fetchall()
            raise RecordBusy(
                f"{action} was requested of {request.ref} by {who or 'somebody'} and is not answered yet. Try again when it is."
            )
    return True


def list_action_requests(database: SqliteDatabase, limit: int) -> list[ActionRequest]:
    with database.translate_errors():
        return _read_action_requests(database.execute, SQL["list_action_requests"], limit)


def _read_action_requests(execute: Execute, statement: str, parameter: str | int) -> list[ActionRequest]:
    return [ActionRequest(Ref(kind, id), *rest) for kind, id, *rest in execute(statement, (parameter,)).fetchall()]
