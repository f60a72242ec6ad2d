"""The index on PostgreSQL: a schema of its own, `waybill_index`, in the store's database or in another."""

from __future__ import annotations

import select
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any

import psycopg
from psycopg import errors
from psycopg.conninfo import conninfo_to_dict
from psycopg.pq import TransactionStatus
from psycopg.rows import dict_row

from waybill.config import POSTGRES_PATIENCE, masked
from waybill.index import Catalogue, Row
from waybill.index.shelf import BOOK, TableShelf
from waybill.index.sql import Dialect, for_psycopg
from waybill.record import BadStore, StoreError, Unavailable, Unknown

SCHEMA = "waybill_index"


class PostgresIndex:
    dialect: Dialect = "postgres"

    def __init__(self, url: str) -> None:
        self.url = masked(url)
        self._url = url
        self._inside = False  # a transaction is open
        self._db = self._connect()
        with self.begin():
            self.lock("")  # two that create the same schema at once would both be refused
            self.run(f"create schema if not exists {SCHEMA}", {}, 0)
            for statement in BOOK:
                self.run(statement, {}, 0)

    def shelf(self, catalogue: Catalogue[Any]) -> TableShelf:
        return TableShelf(self, catalogue)

    def run(self, statement: str, values: dict[str, Any], most: int) -> tuple[list[Row], int]:
        with self._refusals():
            cursor = self._open().execute(for_psycopg(statement), values)
            rows = cursor.fetchmany(most + 1) if cursor.description is not None else []
            return rows, max(0, cursor.rowcount)

    def run_all(self, statement: str, rows: Iterable[Mapping[str, Any]]) -> int:
        with self._refusals(), self._open().cursor() as cursor:
            cursor.executemany(for_psycopg(statement), rows)
            return max(0, cursor.rowcount)

    @contextmanager
    def begin(self) -> Iterator[None]:
        db = self._open()
        with self._refusals():
            db.execute("begin")
        self._inside = True
        try:
            yield
            self._commit(db)
        except BaseException:
            if not db.closed and db.info.transaction_status != TransactionStatus.IDLE:
                db.execute("rollback")
            raise
        finally:
            self._inside = False

    def _commit(self, db: psycopg.Connection[Row]) -> None:
        with self._refusals():
            try:
                db.execute("commit")
            except psycopg.OperationalError as error:
                raise Unknown(
                    f"The connection to {self.url} was lost while writing; what was written may be repeated."
                ) from error

    def lock(self, name: str) -> None:
        self.run("select pg_advisory_xact_lock(hashtext('waybill_index'), hashtext(:name))", {"name": name}, 1)

    def tables(self) -> set[str]:
        return {
            row["tablename"]
            for row in self.run("select tablename from pg_tables where schemaname = :s", {"s": SCHEMA}, 100_000)[0]
        }

    def close(self) -> None:
        self._db.close()

    def _connect(self) -> psycopg.Connection[Row]:
        with self._refusals():
            given: dict[str, Any] = {
                "application_name": "waybill index",
                **POSTGRES_PATIENCE,
                **conninfo_to_dict(self._url),
            }
            db: psycopg.Connection[Row] = psycopg.connect(**given, autocommit=True, row_factory=dict_row)
            db.execute(f"set search_path = {SCHEMA}")
            db.execute("set idle_in_transaction_session_timeout = '60s'")
            return db

    def _open(self) -> psycopg.Connection[Row]:
        """The connection, or a new one when it broke since the last call; never inside a transaction, half of which
        would be missing.
        """
        if self._inside:
            if self._db.closed:
                raise Unavailable(f"The connection to the index {self.url} was lost; nothing was written. Try again.")
        elif self._hung_up():
            self._db.close()
            self._db = self._connect()
        return self._db

    def _hung_up(self) -> bool:
        """Whether the server has gone since the last call. Nobody waits for an answer now, so what can be read is
        its last word.

        Every thread of a worker has a connection: without this look each would find out by itself, at the cost of a try
        of some job.
        """
        look = select.poll()
        try:
            look.register(self._db.fileno(), select.POLLIN)
            while look.poll(0):
                self._db.pgconn.consume_input()
        except psycopg.OperationalError:
            return True
        return self._db.closed

    @contextmanager
    def _refusals(self) -> Iterator[None]:
        try:
            yield
        except (
            errors.DiskFull,
            errors.InsufficientResources,
            errors.LockNotAvailable,
            errors.ReadOnlySqlTransaction,
        ) as error:
            raise Unavailable(f"The index {self.url} cannot be written now: {_first(error)}") from error
        except (errors.InsufficientPrivilege, errors.InvalidCatalogName, errors.InvalidPassword) as error:
            raise BadStore(f"The index {self.url} cannot be used: {_first(error)}") from error
        except psycopg.OperationalError as error:
            raise Unavailable(f"The index {self.url} cannot be reached: {_first(error)}") from error
        except psycopg.Error as error:
            raise StoreError(f"The index {self.url} refused: {_first(error)}") from error


def _first(error: Exception) -> str:
    return str(error).strip().splitlines()[0] if str(error).strip() else type(error).__name__
