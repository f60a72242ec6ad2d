"""What PostgreSQL says when something is wrong, told as what it means and what to do.

    opening   the store cannot be opened                    -> BadStore, or Unavailable where nobody answers or it passes
    calling   a statement failed, the connection is there   -> Again, Unavailable, or StoreError for a value that no row can hold
    losing    the connection broke                          -> Unavailable, or Unknown where something was being written

No message holds a password: the client library tells hosts, users and databases, and its complaints about a URL, which
quote it, are not passed on.
"""

from __future__ import annotations

import psycopg

from waybill.record import BadStore, SessionLost, StoreError, Unavailable, Unknown

OLDEST = 140000  # PostgreSQL 14


class Again(StoreError):
    """Others wrote the same rows in that moment; nothing was written, and it can be sent again."""


AGAIN = frozenset({"WBR01", "23505", "40001", "40P01"})  # looked free and was taken; unique; serialization; deadlock
SESSION_GONE = "WBS01"
# another moment may do: connections, races, resources, locks, a restart
PASSING = frozenset({"08", "40", "53", "55P03", "57"})

# By code or class of codes; {said} is the server's own sentence, {user} the user's name.
SENTENCES = {
    "25006": "The database is read-only, as a standby is: name the primary server, or add target_session_attrs=read-write to the URL.",
    "53100": "The disk of the database is full ({said}): free some space there; nothing was written.",
    "53300": "The database takes no more connections: raise max_connections, or stop something that is connected.",
    "53": "The database lacks resources: {said}.",
    "42501": "The user {user} may not do this: {said}. Grant it, or open the store as the owner of its schema.",
    "55P03": "Others kept the rows locked for too long; nothing was written. Look for a transaction that stays open.",
    "57014": "The statement was cancelled by somebody, or ran into a statement_timeout; nothing was written.",
    "57": "The database is going down or coming up: {said}.",
    "58": "The database has trouble with its files: {said}.",
    "3D000": "There is no such database any more: {said}.",
    "3F": "The store's schema is not there: {said}. Was it dropped?",
    "42": "The store's schema is not the one that this version of Waybill works with: {said}.",
    "XX": "The database reports damage or a fault of its own: {said}.",
}


def opening(error: psycopg.Error, place: str, user: str = "of this URL") -> StoreError:
    """Why `place`, the URL without secrets, cannot be opened."""
    said = " ".join(str(error).split())
    said = said.rpartition("FATAL: ")[2].strip() or said
    if isinstance(error, psycopg.ProgrammingError) and error.sqlstate is None:
        return BadStore(
            "The store's URL is malformed; it is postgresql://user:password@host:port/database, special characters as %XX."
        )
    if error.sqlstate is not None:
        refusal = Unavailable if error.sqlstate in PASSING or error.sqlstate[:2] in PASSING else BadStore
        return refusal(f"{place} cannot be opened. {sentence(error, user)}")
    if error.pgconn is not None and (error.pgconn.needs_password or error.pgconn.used_password):
        return BadStore(
            f"{place} refuses the password, or the lack of one ({said}): put it into the URL, PGPASSWORD or ~/.pgpass."
        )
    if "database" in said and "does not exist" in said:
        return BadStore(f"{place}: {said}. Create it: createdb --encoding=UTF8 NAME.")
    if "does not exist" in said or "pg_hba.conf" in said or "authentication" in said:
        return BadStore(f"{place} does not let this user in: {said}.")
    said = said if said.endswith((".", "?")) else f"{said}."
    return Unavailable(f"{place} cannot be reached: {said} Start the server, or correct the URL.")


def unreachable(error: psycopg.Error, place: str) -> Unavailable:
    """The connection was lost before, and there is no new one yet."""
    return Unavailable(str(opening(error, place)))


def calling(error: psycopg.Error, user: str) -> StoreError:
    """The server refused a statement of this user."""
    code = error.sqlstate or ""
    if code in AGAIN:
        return Again(f"Others wrote the same rows in that moment: {error.diag.message_primary}.")
    if code == SESSION_GONE:
        return SessionLost()
    if code in SENTENCES or code[:2] in SENTENCES:
        return Unavailable(sentence(error, user))
    # A value that no row can hold: a null character, a number out of range, a name too long for an index, a broken rule
    # of the table.
    return StoreError(f"PostgreSQL cannot keep this: {error.diag.message_primary}.")


def losing(error: psycopg.Error, writing: bool) -> StoreError:
    said = (error.diag.message_primary or " ".join(str(error).split()) or "it was cut").rstrip(".")
    if writing:
        return Unknown(
            f"The connection to the database was lost while writing ({said}): it may or may not have been written."
        )
    return Unavailable(f"The connection to the database was lost ({said}). It is made again with the next call.")


def sentence(error: psycopg.Error, user: str) -> str:
    code = error.sqlstate or ""
    said = (error.diag.message_primary or " ".join(str(error).split()) or "no reason given").rstrip(".")
    form = SENTENCES.get(code) or SENTENCES.get(code[:2]) or "PostgreSQL refused: {said}."
    return form.format(said=said, user=user)
