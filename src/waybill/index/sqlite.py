"""The index on SQLite: in the store's own file, or in one of its own.

In the store's file the index is one more writer, so its transactions are short and it waits for its turn as the workers
do: but SQLite waits by looking again after a while, so by default it has a file of its own, and threads of one process
queue up for it.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any

import apsw

from waybill.config import sqlite_path
from waybill.index import FORMS, Catalogue, Row
from waybill.index.shelf import BOOK, TableShelf
from waybill.index.sql import Dialect
from waybill.private import make_file
from waybill.record import BadStore, StoreError, Unavailable

IN_MEMORY = ":memory:"  # a file's name to SQLite, and none: what is in it goes with the connection
BUSY = 30_000  # milliseconds to wait for another writer

_turns: dict[str, threading.Lock] = {}  # by file: who of this process writes it
_guard = threading.Lock()


class SqliteIndex:
    dialect: Dialect = "sqlite"

    def __init__(self, url: str) -> None:
        self.url = url
        if (path := sqlite_path(url)) is None:
            raise BadStore(f"{url} names no file for an index; write {FORMS}.")
        self._path = path
        with _guard:
            self._turn = _turns.setdefault(str(path.absolute()), threading.Lock())
        if str(path) != IN_MEMORY:
            self._make_file()
        try:
            with self._refusals():
                self._db = apsw.Connection(str(self._path))
                self._db.set_busy_timeout(BUSY)
                self._begin_log()
                for pragma in ("pragma synchronous = full", "pragma foreign_keys = on"):
                    self._db.execute(pragma).fetchall()
            with self.begin():
                for statement in BOOK:
                    self._db.execute(statement)
        except BaseException:
            self.close()
            raise

    def _make_file(self) -> None:
        try:
            self._path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
        except OSError as error:
            raise BadStore(
                f"The folder {self._path.parent} cannot be made: {error.strerror}. Choose another place."
            ) from error
        make_file(self._path)

    def _begin_log(self) -> None:
        """SQLite answers Busy at once, and asks no time-out, when another process is just doing the same."""
        deadline = time.monotonic() + BUSY / 1000
        while True:
            try:
                self._db.execute("pragma journal_mode = wal").fetchall()
                return
            except apsw.BusyError:
                if time.monotonic() > deadline:
                    raise
                time.sleep(0.005)

    def shelf(self, catalogue: Catalogue[Any]) -> TableShelf:
        return TableShelf(self, catalogue)

    def run(self, statement: str, values: dict[str, Any], most: int) -> tuple[list[Row], int]:
        with self._refusals():
            before = self._db.total_changes()
            cursor = self._db.execute(statement, values)
            rows: list[Row] = []
            for row in cursor:
                rows.append(dict(zip((column[0] for column in cursor.get_description()), row, strict=True)))
                if len(rows) > most:
                    break
            cursor.close(True)
            return rows, self._db.total_changes() - before

    def run_all(self, statement: str, rows: Iterable[Mapping[str, Any]]) -> int:
        with self._refusals():
            before = self._db.total_changes()
            self._db.executemany(statement, (dict(values) for values in rows)).close(True)
            return self._db.total_changes() - before

    @contextmanager
    def begin(self) -> Iterator[None]:
        with self._turn:
            with self._refusals():
                self._db.execute("begin immediate")
            try:
                yield
                with self._refusals():
                    self._db.execute("commit")
            except BaseException:
                if self._db.in_transaction:
                    self._db.execute("rollback")
                raise

    def lock(self, name: str) -> None:
        """Nothing to do: `begin immediate` lets one writer in."""

    def tables(self) -> set[str]:
        return {row["name"] for row in self.run("select name from sqlite_schema where type = 'table'", {}, 100_000)[0]}

    def close(self) -> None:
        if hasattr(self, "_db"):
            self._db.close()

    @contextmanager
    def _refusals(self) -> Iterator[None]:
        try:
            yield
        except (apsw.FullError, apsw.IOError) as error:
            raise Unavailable(
                f"The index {self._path} cannot be written ({error}); is its disk full? Nothing is lost."
            ) from error
        except (apsw.BusyError, apsw.LockedError) as error:
            raise Unavailable(f"The index {self._path} is being written by another process; try again.") from error
        except (apsw.ReadOnlyError, apsw.CantOpenError, apsw.PermissionsError) as error:
            raise BadStore(
                f"The index {self._path} cannot be opened for writing ({error}); see who may write there."
            ) from error
        except (apsw.NotADBError, apsw.CorruptError) as error:
            raise BadStore(
                f"{self._path} is no sound SQLite database ({error}). An index can be removed and rebuilt."
            ) from error
        except apsw.Error as error:
            raise StoreError(f"The index {self._path} refused: {error}.") from error
