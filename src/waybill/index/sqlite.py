"""The index on SQLite: in the store's own file, or in one of its own.

In the store's file the index is one more writer, so its transactions are short and it waits for the write lock like the
workers. SQLite waits by polling, so by default the index has a file of its own, and threads of one process queue for a
lock in memory.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any

import apsw

from waybill.config import sqlite_path
from waybill.index import URL_FORMS, Catalogue, Row
from waybill.index.catalogue_tables import BOOKKEEPING_TABLES, SqlCatalogueTables
from waybill.index.sql import Dialect
from waybill.private_files import FileIdentity, get_file_identity, make_private_file
from waybill.record import BadStore, StoreError, StoreUnavailable

IN_MEMORY = ":memory:"  # SQLite's name for a database that ends with its connection
BUSY_TIMEOUT_MS = 30_000  # milliseconds to wait for another writer

_write_locks: dict[str, threading.Lock] = {}  # by file, for the threads of this process
_write_locks_guard = threading.Lock()


class SqliteIndex:
    dialect: Dialect = "sqlite"

    def __init__(self, url: str) -> None:
        self.url = url
        if (path := sqlite_path(url)) is None:
            raise BadStore(f"{url} names no file for an index; write {URL_FORMS}.")
        self._path = path
        with _write_locks_guard:
            self._write_lock = _write_locks.setdefault(str(path.absolute()), threading.Lock())
        self._file: FileIdentity | None = None
        if str(path) != IN_MEMORY:
            self._make_file()
        try:
            with self._translate_errors():
                self._db = apsw.Connection(str(self._path))
                self._db.set_busy_timeout(BUSY_TIMEOUT_MS)
                self._enable_wal()
                for pragma in ("pragma synchronous = full", "pragma foreign_keys = on"):
                    self._db.execute(pragma).fetchall()
            with self.begin():
                for statement in BOOKKEEPING_TABLES:
                    self._db.execute(statement)
            self._file = get_file_identity(path) if str(path) != IN_MEMORY else None
        except BaseException:
            self.close()
            raise

    def _make_file(self) -> None:
        try:
            self._path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
        except OSError as error:
            raise BadStore(
                f"The folder {self._path.parent} cannot be made: {error.strerror}. Choose another folder."
            ) from error
        make_private_file(self._path)

    def _enable_wal(self) -> None:
        """SQLite reports Busy at once, without the busy time-out, while another process does the same."""
        deadline = time.monotonic() + BUSY_TIMEOUT_MS / 1000
        while True:
            try:
                self._db.execute("pragma journal_mode = wal").fetchall()
                return
            except apsw.BusyError:
                if time.monotonic() > deadline:
                    raise
                time.sleep(0.005)

    def open_catalogue(self, catalogue: Catalogue) -> SqlCatalogueTables:
        return SqlCatalogueTables(self, catalogue)

    def run(self, statement: str, values: dict[str, Any], max_rows: int) -> tuple[list[Row], int]:
        with self._translate_errors():
            before = self._db.total_changes()
            cursor = self._db.execute(statement, values)
            rows: list[Row] = []
            for row in cursor:
                rows.append(dict(zip((column[0] for column in cursor.get_description()), row, strict=True)))
                if len(rows) > max_rows:
                    break
            cursor.close(True)
            # The changes of triggers count in total_changes only; changes() is stale after a statement that changes nothing.
            return rows, self._db.changes() if self._db.total_changes() != before else 0

    def run_all(self, statement: str, rows: Iterable[Mapping[str, Any]]) -> int:
        with self._translate_errors():
            changed = 0

            def iter_values() -> Iterator[dict[str, Any]]:
                nonlocal changed
                for values in rows:
                    yield dict(values)
                    changed += self._db.changes()  # by the statement with these values, without those of triggers

            self._db.executemany(statement, iter_values()).close(True)
            return changed

    def load(self, table: str, columns: Sequence[str], rows: Iterable[Sequence[Any]]) -> int:
        with self._translate_errors():
            count = 0

            def iter_rows() -> Iterator[Sequence[Any]]:
                nonlocal count
                for count, row in enumerate(rows, start=1):  # noqa: B007 - the last one is the answer
                    yield row

            marks = ", ".join("?" * len(columns))
            self._db.executemany(f"insert into {table} ({', '.join(columns)}) values ({marks})", iter_rows()).close(
                True
            )
            return count

    @contextmanager
    def begin(self) -> Iterator[None]:
        with self._write_lock:
            with self._translate_errors():
                self._db.execute("begin immediate")
            try:
                yield
                with self._translate_errors():
                    self._db.execute("commit")
            except BaseException:
                if self._db.in_transaction:
                    self._db.execute("rollback")
                raise

    def lock(self, name: str) -> None:
        """Nothing to do: `begin immediate` admits one writer."""

    def list_tables(self) -> set[str]:
        return {row["name"] for row in self.run("select name from sqlite_schema where type = 'table'", {}, 100_000)[0]}

    def drop_routines(self, prefix: str) -> None:
        """Nothing to do: a trigger goes with its table."""

    def close(self) -> None:
        if hasattr(self, "_db"):
            self._db.close()

    @contextmanager
    def _translate_errors(self) -> Iterator[None]:
        if self._file is not None and get_file_identity(self._path) != self._file:
            raise BadStore(
                f"The index {self._path} was deleted or replaced while this process had it open. Stop everything that uses it, put "
                "the file (with its -wal file) or a backup in its place, or rebuild it, and start again."
            )
        try:
            yield
        except (apsw.FullError, apsw.IOError) as error:
            raise StoreUnavailable(
                f"The index {self._path} cannot be written ({error}); is its disk full? Nothing is lost."
            ) from error
        except (apsw.BusyError, apsw.LockedError) as error:
            raise StoreUnavailable(f"The index {self._path} is being written by another process; try again.") from error
        except (apsw.ReadOnlyError, apsw.CantOpenError, apsw.PermissionsError) as error:
            raise BadStore(
                f"The index {self._path} cannot be opened for writing ({error}); check who may write there."
            ) from error
        except (apsw.NotADBError, apsw.CorruptError) as error:
            raise BadStore(
                f"{self._path} is damaged, or no SQLite database ({error}). Restore a backup; "
                "a file without durable catalogues can also be removed, and they are rebuilt."
            ) from error
        except apsw.Error as error:
            raise StoreError(f"The index {self._path} failed: {error}.") from error
