"""One connection to PostgreSQL, which makes itself again after it was lost.

    connect -> settings -> run, run, ... -> lost: the call answers Unavailable or Unknown -> the next call connects
    again

Sessions are rows, so a new connection goes on with them. Whoever was away does not know who died meanwhile: `presence`
begins anew with each connection.
"""

from __future__ import annotations

import select
from collections.abc import Callable, Sequence
from typing import Any
from urllib.parse import parse_qsl, quote, urlencode, urlsplit, urlunsplit

import psycopg
from psycopg.conninfo import conninfo_to_dict

from waybill.config import POSTGRES_PATIENCE
from waybill.record import BadStore, Unavailable
from waybill.stores.postgres import troubles
from waybill.stores.postgres.wire import Rows, rows_dumper
from waybill.stores.presence import Presence

# how often a statement is sent that others get in the way of: a deadlock, rows that were written in that moment
TRIES = 5
SECRETS = frozenset({"password", "sslpassword"})

DEFAULTS: dict[str, Any] = {"application_name": "waybill", **POSTGRES_PATIENCE}  # what a URL may say otherwise

SETTINGS = {
    "synchronous_commit": "on",  # what is answered as written is on the disk
    "default_transaction_isolation": "read committed",  # each statement of a function sees what was committed before it
    "idle_in_transaction_session_timeout": "60s",
    "lock_timeout": "30s",
    "client_min_messages": "warning",
    # The statements leave the planner no choice (see schema.sql); what it would choose on an empty table is kept too
    # long.
    "plan_cache_mode": "force_generic_plan",
    "enable_seqscan": "off",
    "enable_bitmapscan": "off",
    "enable_hashjoin": "off",
    "enable_mergejoin": "off",
    "jit": "off",
}

Row = tuple[Any, ...]


def without_secrets(url: str) -> str:
    parts = urlsplit(url)
    user, host = parts.netloc.rpartition("@")[::2]
    netloc = f"{user.partition(':')[0]}@{host}" if user else host
    query = urlencode([(name, value) for name, value in parse_qsl(parts.query) if name not in SECRETS], quote_via=quote)
    return urlunsplit((parts.scheme, netloc, parts.path, query, ""))


class Connection:
    def __init__(self, url: str, schema: str) -> None:
        self.place = without_secrets(url)
        self.schema = schema
        self.presence = Presence(0.0)
        self._db: psycopg.Connection[Row] | None = None
        self._closed = False
        self._socket = select.poll()
        try:
            given = conninfo_to_dict(url)
        except psycopg.Error as error:
            raise troubles.opening(error, self.place) from None  # its text quotes the URL, with the password
        self._conninfo: dict[str, Any] = {**DEFAULTS, **given, "client_encoding": "UTF8"}

    def open(self, prepare: Callable[[psycopg.Connection[Row]], None]) -> None:
        """The first connection; `prepare` makes or checks the schema on it."""
        try:
            db = self._connect()
        except psycopg.Error as error:
            raise troubles.opening(error, self.place) from error
        try:
            if db.info.server_version < troubles.OLDEST:
                raise BadStore(
                    f"{self.place} is PostgreSQL {db.info.server_version // 10000}; Waybill needs 14 or newer."
                )
            encoding = db.info.parameter_status("server_encoding")
            if encoding != "UTF8":
                raise BadStore(
                    f"{self.place} has the encoding {encoding}; create the database with --encoding=UTF8, so that text is kept."
                )
            prepare(db)
            self._begin(db)
        except psycopg.Error as error:
            user = db.info.user
            db.close()
            raise troubles.opening(error, self.place, user) from error
        except BaseException:
            db.close()
            raise

    def run(
        self, statement: str, args: Sequence[Any] | dict[str, Any] = (), *, writes: bool = True, tries: int = TRIES
    ) -> list[Row]:
        """The rows of one statement, in a transaction of its own. Where others wrote the same rows in that moment it is
        sent again, at most `tries` times; then Unavailable, or Again to whoever asked for a single try and knows better
        what to send.
        """
        for left in range(tries - 1, -1, -1):
            try:
                return self._run(statement, args, writes)
            except troubles.Again as error:
                if tries == 1:
                    raise
                if not left:
                    raise Unavailable(f"{error} It was tried {tries} times; nothing was written. Try again.") from error
        raise ValueError("a statement is tried at least once")

    def _run(self, statement: str, args: Sequence[Any] | dict[str, Any], writes: bool) -> list[Row]:
        db = self._ready()
        try:
            cursor = db.execute(statement, args, prepare=True, binary=True)
            return cursor.fetchall() if cursor.description is not None else []
        except psycopg.Error as error:
            raise self._trouble(db, error, writes) from error

    def slowly(self, statement: str, args: Sequence[Any] | dict[str, Any] = ()) -> list[Row]:
        """The same for a statement that looks through whole tables and may be planned for that."""
        db = self._ready()
        try:
            with db.transaction():
                for setting in ("enable_seqscan", "enable_bitmapscan", "enable_hashjoin", "enable_mergejoin"):
                    db.execute(f"set local {setting} = on")
                return db.execute(statement, args, prepare=False, binary=True).fetchall()
        except psycopg.Error as error:
            raise self._trouble(db, error, writing=False) from error

    def another(self) -> psycopg.Connection[Row]:
        """A connection beside this one, for whoever listens or notifies."""
        try:
            return self._connect()
        except psycopg.Error as error:
            raise troubles.unreachable(error, self.place) from error

    def close(self) -> None:
        self._closed = True
        if self._db is not None:
            self._db.close()
            self._db = None

    # --- its life

    def _ready(self) -> psycopg.Connection[Row]:
        """A connection that was there a moment ago: one that the server closed meanwhile is replaced before anything
        is sent.
        """
        db = self._db
        while db is not None and not db.closed and self._socket.poll(0):
            try:
                db.pgconn.consume_input()  # what the server says unasked: a setting that changed, or its farewell
            except psycopg.OperationalError:
                db.close()
        if self._closed:
            raise Unavailable("This store was closed; open another.")
        if db is None or db.closed:
            self._db = None
            try:
                db = self._connect()
                self._begin(db)
            except psycopg.Error as error:
                raise troubles.unreachable(error, self.place) from error
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

    def _begin(self, db: psycopg.Connection[Row]) -> None:
        types = db.execute(
            "select t.typname, t.oid, t.typarray from pg_type t join pg_class c on c.oid = t.typrelid"
            " join pg_namespace s on s.oid = t.typnamespace where c.relkind = 'c' and s.nspname = %s",
            [self.schema],
        ).fetchall()
        db.adapters.register_dumper(Rows, rows_dumper({name: (oid, array) for name, oid, array in types}))
        (now,) = db.execute("select waybill_now()").fetchall()[0]
        self.presence = Presence(now)
        self._socket = select.poll()
        self._socket.register(db.pgconn.socket, select.POLLIN)
        self._db = db

    def _trouble(self, db: psycopg.Connection[Row], error: psycopg.Error, writing: bool) -> Exception:
        if not db.closed and db.pgconn.status == psycopg.pq.ConnStatus.OK:
            return troubles.calling(error, db.info.user)
        db.close()
        self._db = None
        return troubles.losing(error, writing)
