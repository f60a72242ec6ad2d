"""One connection to PostgreSQL, which reconnects after it was lost.

    connect -> settings -> run, run, ... -> lost: the call raises StoreUnavailable or CommitOutcomeUnknown -> the next
    call connects again

Sessions are rows, so they continue on a new connection. A connection that was lost cannot know which sessions were renewed
in the meantime: `presence` starts again with each connection.
"""

from __future__ import annotations

import select
from collections.abc import Callable, Sequence
from typing import Any

import psycopg
from psycopg.conninfo import conninfo_to_dict

from waybill.config import POSTGRES_TIMEOUTS
from waybill.masking import mask_secrets
from waybill.record import BadStore, StoreUnavailable
from waybill.stores.postgres import errors
from waybill.stores.postgres.binary_rows import CompositeArray, make_array_dumper
from waybill.stores.presence import ConnectionPresence

# how often a statement is sent that fails because of concurrent writes: a deadlock, or rows that others just wrote
MAX_TRIES = 5

DEFAULTS: dict[str, Any] = {"application_name": "waybill", **POSTGRES_TIMEOUTS}  # a URL may override them

SETTINGS = {
    "synchronous_commit": "on",  # what is reported as written is on the disk
    "default_transaction_isolation": "read committed",  # each statement of a function sees what was committed before it
    "idle_in_transaction_session_timeout": "60s",
    "lock_timeout": "30s",
    "client_min_messages": "warning",
    # The statements leave the planner no choice (see schema.sql). A plan that it chose on an empty table would be kept
    # too long.
    "plan_cache_mode": "force_generic_plan",
    "enable_seqscan": "off",
    "enable_bitmapscan": "off",
    "enable_hashjoin": "off",
    "enable_mergejoin": "off",
    "jit": "off",
}

Row = tuple[Any, ...]


class PostgresConnection:
    """The connection on which a store runs its statements, each in a transaction of its own."""

    def __init__(self, url: str, schema: str) -> None:
        self.safe_url = mask_secrets(url)
        self.schema = schema
        self.presence = ConnectionPresence(0.0)
        self._db: psycopg.Connection[Row] | None = None
        self._is_closed = False
        self._socket_poll = select.poll()
        try:
            given = conninfo_to_dict(url)
        except psycopg.Error as error:
            raise errors.open_error_of(error, self.safe_url) from None  # the cause quotes the URL with the password
        self._conninfo: dict[str, Any] = {**DEFAULTS, **given, "client_encoding": "UTF8"}

    def open(self, prepare: Callable[[psycopg.Connection[Row]], None]) -> None:
        """Open the first connection; `prepare` creates or checks the schema on it."""
        try:
            db = self._connect()
        except psycopg.Error as error:
            raise errors.open_error_of(error, self.safe_url) from error
        try:
            if db.info.server_version < errors.MIN_SERVER_VERSION:
                raise BadStore(
                    f"{self.safe_url} is PostgreSQL {db.info.server_version // 10000}; Waybill needs 14 or newer."
                )
            encoding = db.info.parameter_status("server_encoding")
            if encoding != "UTF8":
                raise BadStore(
                    f"{self.safe_url} has the encoding {encoding}; create the database with --encoding=UTF8, to store any text."
                )
            prepare(db)
            self._activate(db)
        except psycopg.Error as error:
            user = db.info.user
            db.close()
            raise errors.open_error_of(error, self.safe_url, user) from error
        except BaseException:
            db.close()
            raise

    def run(
        self,
        statement: str,
        args: Sequence[Any] | dict[str, Any] = (),
        *,
        writes: bool = True,
        max_tries: int = MAX_TRIES,
    ) -> list[Row]:
        """The rows of one statement, in a transaction of its own.

        Where others wrote the same rows at the same time it is sent again, at most `max_tries` times; then it raises
        StoreUnavailable. With a single try it raises ConcurrentWriteError, and the caller decides what to send next.
        """
        for left in range(max_tries - 1, -1, -1):
            try:
                return self._run(statement, args, writes)
            except errors.ConcurrentWriteError as error:
                if max_tries == 1:
                    raise
                if not left:
                    raise StoreUnavailable(
                        f"{error} It was tried {max_tries} times; nothing was written. Try again."
                    ) from error
        raise ValueError("a statement is tried at least once")

    def _run(self, statement: str, args: Sequence[Any] | dict[str, Any], writes: bool) -> list[Row]:
        db = self._ensure_open()
        try:
            cursor = db.execute(statement, args, prepare=True, binary=True)
            return cursor.fetchall() if cursor.description is not None else []
        except psycopg.Error as error:
            raise self._error_of(db, error, writes) from error

    def run_scan(self, statement: str, args: Sequence[Any] | dict[str, Any] = ()) -> list[Row]:
        """The same for a statement that scans whole tables: the planner may choose such plans."""
        db = self._ensure_open()
        try:
            with db.transaction():
                for setting in ("enable_seqscan", "enable_bitmapscan", "enable_hashjoin", "enable_mergejoin"):
                    db.execute(f"set local {setting} = on")
                return db.execute(statement, args, prepare=False, binary=True).fetchall()
        except psycopg.Error as error:
            raise self._error_of(db, error, writes=False) from error

    def open_another(self) -> psycopg.Connection[Row]:
        """A connection beside this one, for LISTEN or NOTIFY."""
        try:
            return self._connect()
        except psycopg.Error as error:
            raise errors.reconnect_error_of(error, self.safe_url) from error

    def close(self) -> None:
        self._is_closed = True
        if self._db is not None:
            self._db.close()
            self._db = None

    # --- connecting

    def _ensure_open(self) -> psycopg.Connection[Row]:
        """The open connection. One that the server has closed is replaced before anything is sent."""
        db = self._db
        while db is not None and not db.closed and self._socket_poll.poll(0):
            try:
                db.pgconn.consume_input()  # unrequested messages: a changed setting, or that the server closes the connection
            except psycopg.OperationalError:
                db.close()
        if self._is_closed:
            raise StoreUnavailable("This store was closed; open another.")
        if db is None or db.closed:
            self._db = None
            try:
                db = self._connect()
                self._activate(db)
            except psycopg.Error as error:
                raise errors.reconnect_error_of(error, self.safe_url) from error
        return db

    def _connect(self) -> psycopg.Connection[Row]:
        db = psycopg.connect(**self._conninfo, autocommit=True)
        path = '"' + self.schema.replace('"', '""') + '"'
        settings = {**SETTINGS, "search_path": path}
        db.execute(
            "select set_config(name, value, false) from unnest(%s::text[], %s::text[]) s(name, value)",
            (list(settings), list(settings.values())),
        )
        return db

    def _activate(self, db: psycopg.Connection[Row]) -> None:
        types = db.execute(
            "select t.typname, t.oid, t.typarray from pg_type t join pg_class c on c.oid = t.typrelid"
            " join pg_namespace s on s.oid = t.typnamespace where c.relkind = 'c' and s.nspname = %s",
            [self.schema],
        ).fetchall()
        db.adapters.register_dumper(
            CompositeArray, make_array_dumper({name: (oid, array) for name, oid, array in types})
        )
        (now,) = db.execute("select waybill_now()").fetchall()[0]
        self.presence = ConnectionPresence(now)
        self._socket_poll = select.poll()
        self._socket_poll.register(db.pgconn.socket, select.POLLIN)
        self._db = db

    def _error_of(self, db: psycopg.Connection[Row], error: psycopg.Error, writes: bool) -> Exception:
        if not db.closed and db.pgconn.status == psycopg.pq.ConnStatus.OK:
            return errors.statement_error_of(error, db.info.user)
        db.close()
        self._db = None
        return errors.connection_error_of(error, writes)
