"""Errors of PostgreSQL, translated into errors of the store that say what is wrong and what to do.

    open_error_of        the store cannot be opened: BadStore, or StoreUnavailable if the error is transient
    reconnect_error_of   there is no new connection yet: StoreUnavailable
    statement_error_of   a statement failed and the connection is there: ConcurrentWriteError, StoreUnavailable, SessionLost,
                         or StoreError for a value that no row can store
    connection_error_of  the connection was lost: StoreUnavailable, or CommitOutcomeUnknown if something was being written

No message contains a password: the client library names hosts, users and databases only, and its errors about a malformed
URL, which quote the URL, are not passed on.
"""

from __future__ import annotations

import psycopg

from waybill.record import BadStore, CommitOutcomeUnknown, SessionLost, StoreError, StoreUnavailable

MIN_SERVER_VERSION = 140000  # PostgreSQL 14


class ConcurrentWriteError(StoreError):
    """Others wrote the same rows at the same time; nothing was written, and the statement can be sent again."""


# a lock was taken meanwhile (functions.sql); unique violation; serialization failure; deadlock
CONCURRENT_WRITE_CODES = frozenset({"WBR01", "23505", "40001", "40P01"})
SESSION_GONE_CODE = "WBS01"
# may succeed later: connections, races, resources, locks, a restart
TRANSIENT_CODES = frozenset({"08", "40", "53", "55P03", "57"})

# By code or class of codes; {server_message} is the server's own message, {user} the user's name.
MESSAGES = {
    "25006": "The database is read-only, as a standby is: name the primary server, or add target_session_attrs=read-write to the URL.",
    "53100": "The disk of the database is full ({server_message}): free some space there; nothing was written.",
    "53300": "The database accepts no more connections: raise max_connections, or stop something that is connected.",
    "53": "The database lacks resources: {server_message}.",
    "42501": "The user {user} may not do this: {server_message}. Grant it, or open the store as the owner of its schema.",
    "55P03": "Others kept the rows locked for too long; nothing was written. Look for a transaction that stays open.",
    "57014": "The statement was cancelled by somebody, or ran into a statement_timeout; nothing was written.",
    "57": "The database is going down or coming up: {server_message}.",
    "58": "The database has a problem with its files: {server_message}.",
    "3D000": "The database no longer exists: {server_message}.",
    "3F": "The store's schema does not exist: {server_message}. Was it dropped?",
    "42": "The store's schema is not the one that this version of Waybill works with: {server_message}.",
    "XX": "The database reports damage or a fault of its own: {server_message}.",
}


def open_error_of(error: psycopg.Error, safe_url: str, user: str = "of this URL") -> StoreError:
    """Why the store at `safe_url`, the URL without secrets, cannot be opened."""
    server_message = " ".join(str(error).split())
    server_message = server_message.rpartition("FATAL: ")[2].strip() or server_message
    if isinstance(error, psycopg.ProgrammingError) and error.sqlstate is None:
        return BadStore(
            "The store's URL is malformed; it is postgresql://user:password@host:port/database, special characters as %XX."
        )
    if error.sqlstate is not None:
        refusal = (
            StoreUnavailable if error.sqlstate in TRANSIENT_CODES or error.sqlstate[:2] in TRANSIENT_CODES else BadStore
        )
        return refusal(f"{safe_url} cannot be opened. {message_of(error, user)}")
    if error.pgconn is not None and (error.pgconn.needs_password or error.pgconn.used_password):
        return BadStore(
            f"{safe_url} refuses the password, or the lack of one ({server_message}): put it into the URL, PGPASSWORD or ~/.pgpass."
        )
    if "database" in server_message and "does not exist" in server_message:
        return BadStore(f"{safe_url}: {server_message}. Create it: createdb --encoding=UTF8 NAME.")
    if "does not exist" in server_message or "pg_hba.conf" in server_message or "authentication" in server_message:
        return BadStore(f"{safe_url} refuses this user: {server_message}.")
    server_message = server_message if server_message.endswith((".", "?")) else f"{server_message}."
    return StoreUnavailable(f"{safe_url} cannot be reached: {server_message} Start the server, or correct the URL.")


def reconnect_error_of(error: psycopg.Error, safe_url: str) -> StoreUnavailable:
    """The connection was lost earlier, and a new one cannot be made yet."""
    return StoreUnavailable(str(open_error_of(error, safe_url)))


def statement_error_of(error: psycopg.Error, user: str) -> StoreError:
    """The server refused a statement of this user."""
    code = error.sqlstate or ""
    if code in CONCURRENT_WRITE_CODES:
        return ConcurrentWriteError(f"Others wrote the same rows at the same time: {error.diag.message_primary}.")
    if code == SESSION_GONE_CODE:
        return SessionLost()
    if code in MESSAGES or code[:2] in MESSAGES:
        return StoreUnavailable(message_of(error, user))
    # A value that no row can store: a null character, a number out of range, a name too long for an index, a violated
    # constraint of the table.
    return StoreError(f"PostgreSQL cannot store this: {error.diag.message_primary}.")


def connection_error_of(error: psycopg.Error, writes: bool) -> StoreError:
    server_message = (error.diag.message_primary or " ".join(str(error).split()) or "it was cut").rstrip(".")
    if writes:
        return CommitOutcomeUnknown(
            f"The connection to the database was lost while writing ({server_message}): it may or may not have been written."
        )
    return StoreUnavailable(
        f"The connection to the database was lost ({server_message}). The next call connects again."
    )


def message_of(error: psycopg.Error, user: str) -> str:
    code = error.sqlstate or ""
    server_message = (error.diag.message_primary or " ".join(str(error).split()) or "no reason given").rstrip(".")
    form = MESSAGES.get(code) or MESSAGES.get(code[:2]) or "PostgreSQL refused: {server_message}."
    return form.format(server_message=server_message, user=user)
