"""The index on PostgreSQL: a schema of its own, `waybill_index`, in the store's database or in another."""

from __future__ import annotations

import select
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any

import psycopg
from psycopg import errors, sql
from psycopg.conninfo import conninfo_to_dict
from psycopg.pq import TransactionStatus
from psycopg.rows import dict_row

from waybill.config import POSTGRES_TIMEOUTS
from waybill.index import Catalogue, Row
from waybill.index.catalogue_tables import BOOKKEEPING_TABLES, SqlCatalogueTables
from waybill.index.sql import Dialect, to_psycopg
from waybill.masking import mask_secrets
from waybill.record import BadStore, CommitOutcomeUnknown, StoreError, StoreUnavailable

SCHEMA = "waybill_index"
# Searches in the middle of a text, without the extension pg_trgm: an index `gin (trigrams(title))` serves
# `trigrams(title) @> trigrams(:text) and strpos(lower(title), lower(:text)) > 0`. A text of fewer than three characters
# has none, and finds everything.
TRIGRAMS = f"""create or replace function {SCHEMA}.trigrams(text) returns text[]
    language sql immutable strict parallel safe as $$
        select coalesce(array_agg(distinct substr(lower($1), n, 3)), '{{}}') from generate_series(1, length($1) - 2) as n
    $$"""


class PostgresIndex:
    dialect: Dialect = "postgres"

    def __init__(self, url: str) -> None:
        self.url = mask_secrets(url)
        self._url = url
        self._in_transaction = False  # a transaction is open
        self._db = self._connect()
        with self.begin():
            self.lock("")  # two that create the same schema at once would both fail
            self.run(f"create schema if not exists {SCHEMA}", {}, 0)
            for statement in BOOKKEEPING_TABLES:
                self.run(statement, {}, 0)
            if not self.run("select to_regprocedure(:f) as found", {"f": f"{SCHEMA}.trigrams(text)"}, 1)[0][0]["found"]:
                self.run(TRIGRAMS, {}, 0)

    def open_catalogue(self, catalogue: Catalogue) -> SqlCatalogueTables:
        return SqlCatalogueTables(self, catalogue)

    def run(self, statement: str, values: dict[str, Any], max_rows: int) -> tuple[list[Row], int]:
        with self._translate_errors():
            cursor = self._ensure_connection().execute(to_psycopg(statement), values)
            rows = cursor.fetchmany(max_rows + 1) if cursor.description is not None else []
            return rows, max(0, cursor.rowcount)

    def run_all(self, statement: str, rows: Iterable[Mapping[str, Any]]) -> int:
        with self._translate_errors(), self._ensure_connection().cursor() as cursor:
            cursor.executemany(to_psycopg(statement), rows)
            return max(0, cursor.rowcount)

    def load(self, table: str, columns: Sequence[str], rows: Iterable[Sequence[Any]]) -> int:
        statement = sql.SQL("copy {} ({}) from stdin").format(
            sql.Identifier(table), sql.SQL(", ").join(map(sql.Identifier, columns))
        )
        with self._translate_errors(), self._ensure_connection().cursor() as cursor:
            with cursor.copy(statement) as copy:
                for row in rows:
                    copy.write_row(row)
            return max(0, cursor.rowcount)

    @contextmanager
    def begin(self) -> Iterator[None]:
        db = self._ensure_connection()
        with self._translate_errors():
            db.execute("begin")
        self._in_transaction = True
        try:
            yield
            self._commit(db)
        except BaseException:
            if not db.closed and db.info.transaction_status != TransactionStatus.IDLE:
                db.execute("rollback")
            raise
        finally:
            self._in_transaction = False

    def _commit(self, db: psycopg.Connection[Row]) -> None:
        with self._translate_errors():
            try:
                db.execute("commit")
            except psycopg.OperationalError as error:
                raise CommitOutcomeUnknown(
                    f"The connection to {self.url} was lost during a commit; it may be committed. Repeat the write."
                ) from error

    def lock(self, name: str) -> None:
        self.run("select pg_advisory_xact_lock(hashtext('waybill_index'), hashtext(:name))", {"name": name}, 1)

    def list_tables(self) -> set[str]:
        return {
            row["tablename"]
            for row in self.run("select tablename from pg_tables where schemaname = :s", {"s": SCHEMA}, 100_000)[0]
        }

    def drop_routines(self, prefix: str) -> None:
        find = "select oid::regprocedure::text as name from pg_proc where pronamespace = :s::regnamespace and starts_with(proname, :p)"
        for row in self.run(find, {"s": SCHEMA, "p": prefix}, 100_000)[0]:
            self.run(f"drop function {row['name']}", {}, 0)

    def close(self) -> None:
        self._db.close()

    def _connect(self) -> psycopg.Connection[Row]:
        with self._translate_errors():
            given: dict[str, Any] = {
                "application_name": "waybill index",
                **POSTGRES_TIMEOUTS,
                **conninfo_to_dict(self._url),
            }
            db: psycopg.Connection[Row] = psycopg.connect(**given, autocommit=True, row_factory=dict_row)
            db.execute(f"set search_path = {SCHEMA}")
            db.execute("set idle_in_transaction_session_timeout = '60s'")
            return db

    def _ensure_connection(self) -> psycopg.Connection[Row]:
        """The connection, or a new one when it broke since the last call; not inside a transaction, whose first half would
        be missing.
        """
        if self._in_transaction:
            if self._db.closed:
                raise StoreUnavailable(
                    f"The connection to the index {self.url} was lost; nothing was written. Try again."
                )
        elif self._is_disconnected():
            self._db.close()
            self._db = self._connect()
        return self._db

    def _is_disconnected(self) -> bool:
        """Whether the server has closed the connection since the last call. No answer is expected now, so anything that can
        be read is its last message.

        Every thread of a worker has a connection: without this check each would find out by itself, at the cost of one try
        of a job.
        """
        poll = select.poll()
        try:
            poll.register(self._db.fileno(), select.POLLIN)
            while poll.poll(0):
                self._db.pgconn.consume_input()
        except psycopg.OperationalError:
            return True
        return self._db.closed

    @contextmanager
    def _translate_errors(self) -> Iterator[None]:
        try:
            yield
        except (
            errors.DiskFull,
            errors.InsufficientResources,
            errors.LockNotAvailable,
            errors.ReadOnlySqlTransaction,
        ) as error:
            raise StoreUnavailable(f"The index {self.url} cannot be written now: {_first_line_of(error)}") from error
        except (errors.InsufficientPrivilege, errors.InvalidCatalogName, errors.InvalidPassword) as error:
            raise BadStore(f"The index {self.url} cannot be used: {_first_line_of(error)}") from error
        except psycopg.OperationalError as error:
            raise StoreUnavailable(f"The index {self.url} cannot be reached: {_first_line_of(error)}") from error
        except psycopg.Error as error:
            raise StoreError(f"The index {self.url} failed: {_first_line_of(error)}") from error


def _first_line_of(error: Exception) -> str:
    return str(error).strip().splitlines()[0] if str(error).strip() else type(error).__name__
