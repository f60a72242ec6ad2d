"""The file: checked and opened, read and written in transactions, and its errors translated into sentences.

    open (library, folder, file, write-ahead log) -> read | write: begin immediate ... commit -> checkpoint, now and
    then -> close

A write waits for the one writer that SQLite allows, for at most `patience` seconds. What was committed is on the disk
(synchronous = full). A commit whose outcome the system does not report raises CommitOutcomeUnknown; after every other
error nothing is written.
"""

from __future__ import annotations

import errno
import os
import random
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, Protocol
from urllib.parse import unquote, urlsplit

import apsw

from waybill.private_files import FileIdentity, get_file_identity, make_private_file
from waybill.record import BadStore, CommitOutcomeUnknown, StoreError, StoreUnavailable

# 3.7.0 to 3.51.2 can corrupt a database whose write-ahead log is reset while others read
MIN_LIBRARY_VERSION = (3, 51, 3)
PATIENCE = 10.0  # seconds that a write waits for another writer
BACK_OFF = 0.004  # seconds at most between two tries for the writer's lock
CHECKPOINT_PAGES = 8_000  # pages of 4 KiB in the write-ahead log; beyond that, commits try to move them into the file
OVERDUE_PAGES = 32_000  # pages; beyond that, a commit waits a moment for readers that prevent the move
PRAGMAS = (
    "pragma synchronous = full",
    "pragma foreign_keys = on",
    "pragma cache_size = -32000",  # KiB
    "pragma journal_size_limit = 67108864",  # the log is truncated to this size after it was larger
)

Execute = Callable[..., "SqliteRows"]


class SqliteRows(Protocol):
    """The rows of a statement. Read them before the next statement: all share one cursor."""

    def fetchall(self) -> list[tuple[Any, ...]]: ...

    def __iter__(self) -> Iterator[tuple[Any, ...]]: ...


def path_of(url: str) -> str:
    """The file that a sqlite: URL names; "" for a database in memory, which lasts until it is closed."""
    parts = urlsplit(url)
    if parts.query or parts.fragment:
        raise BadStore(f"{url} has a '?' or '#': write those in a path as %3F and %23.")
    if not parts.netloc and not parts.path:
        return ""
    path = unquote(parts.path[1:])
    if parts.netloc or not path:
        raise BadStore(
            f"{url} names no file. Write sqlite:///relative/path or sqlite:////absolute/path (three and four slashes)."
        )
    return path


def check_library(version: str) -> None:
    """Refuse a SQLite library that can lose what it wrote."""
    if tuple(int(part) for part in version.split(".")[:3]) < MIN_LIBRARY_VERSION:
        raise BadStore(
            f"The SQLite library here is {version}, which can corrupt a database that several processes use. "
            "Install apsw from its wheel, which brings a current one, not built against the system's library."
        )


class SqliteDatabase:
    """One connection."""

    def __init__(self, path: str, *, patience: float = PATIENCE) -> None:
        check_library(apsw.sqlite_lib_version())
        self.path = path
        self.location = path or "the database in memory"
        self.patience = patience
        self._wait_deadline = 0.0
        self._log_pages = 0
        self._next_checkpoint = CHECKPOINT_PAGES
        self._file: FileIdentity | None = None
        if path:
            folder = os.path.dirname(path) or "."
            if not os.path.isdir(folder):
                raise BadStore(f"The folder {folder} does not exist. Make it, or name another place for the store.")
            if os.path.isdir(path):
                raise BadStore(f"{path} is a folder. Name a file in it, such as {os.path.join(path, 'waybill.db')}.")
            make_private_file(path)  # its log and the log's index get the same mode from SQLite
        try:
            with self.translate_errors():
                self.db = apsw.Connection(path or ":memory:")
            try:
                with self.translate_errors():
                    self._prepare()
            except BaseException:
                self.db.close()
                raise
        except StoreUnavailable as error:
            raise BadStore(str(error)) from error.__cause__
        self.execute: Execute = self.db.cursor().execute
        self._file = get_file_identity(path) if path else None

    def _prepare(self) -> None:
        self.db.set_busy_handler(self._wait_for_writer)
        if self.db.readonly("main"):
            raise BadStore(self._explain_unwritable())
        if self.path:
            mode = self._enable_wal()
            if mode != "wal":
                raise BadStore(
                    f"{self.location} cannot have a write-ahead log here. Put it on a local disk, not on a network file system."
                )
        for pragma in PRAGMAS:
            self.db.execute(pragma).fetchall()
        self.db.set_wal_hook(self.note_log_pages)

    def _enable_wal(self) -> Any:
        """Turn the write-ahead log on. SQLite answers Busy at once, without calling the busy handler, when another
        process is doing the same.
        """
        deadline = time.monotonic() + self.patience
        while True:
            try:
                return self.db.pragma("journal_mode", "wal")
            except apsw.BusyError:
                if time.monotonic() > deadline:
                    raise
                time.sleep(random.uniform(0, BACK_OFF))

    def _wait_for_writer(self, tries: int) -> bool:
        """The busy handler: wait for the writer's lock. SQLite's own back-off goes up to 100 ms; this one stays short
        because our writes are short.
        """
        now = time.monotonic()
        if tries == 0:
            self._wait_deadline = now + self.patience
        if now > self._wait_deadline:
            return False
        time.sleep(random.uniform(0, BACK_OFF))
        return True

    # --- transactions

    @contextmanager
    def write(self) -> Iterator[Execute]:
        """A transaction: all that is executed within is written together, or nothing of it."""
        with self.translate_errors():
            self.execute("begin immediate")
            try:
                yield self.execute
            except BaseException:
                self._roll_back()
                raise
            self._commit()
        self._checkpoint()

    @contextmanager
    def read(self) -> Iterator[Execute]:
        """A transaction that reads one snapshot."""
        with self.translate_errors():
            self.execute("begin")
            try:
                yield self.execute
            finally:
                self._roll_back()

    def _commit(self) -> None:
        try:
            self.execute("commit")
        except apsw.IOError as error:
            self._roll_back()
            raise CommitOutcomeUnknown(
                f"The disk of {self.location} failed in the middle of a commit ({error}): it may or may not have been written."
            ) from error
        except apsw.Error:
            self._roll_back()
            raise

    def _roll_back(self) -> None:
        if self.db.in_transaction:  # a full disk and similar errors have rolled back already
            self.execute("rollback")

    # --- the write-ahead log

    def note_log_pages(self, _db: Any, _name: str, pages: int) -> int:
        """The hook that SQLite calls with each commit: how long the log is."""
        if pages < self._log_pages:  # the log was reset
            self._next_checkpoint = CHECKPOINT_PAGES
        self._log_pages = pages
        return apsw.SQLITE_OK

    def _checkpoint(self) -> None:
        """Move the log into the file: here and not inside the commit, so that its errors are never taken for the
        commit's.
        """
        if self._log_pages < self._next_checkpoint:
            return
        # not with every commit while a reader keeps an old snapshot open
        self._next_checkpoint = self._log_pages + CHECKPOINT_PAGES // 4
        patience, mode = self.patience, apsw.SQLITE_CHECKPOINT_PASSIVE
        if self._log_pages >= OVERDUE_PAGES:
            self.patience, mode = 0.5, apsw.SQLITE_CHECKPOINT_RESTART
        try:
            self.db.wal_checkpoint(mode=mode)
        except (apsw.BusyError, apsw.LockedError, apsw.ProtocolError, apsw.FullError, apsw.IOError):
            return  # nothing is lost: the log stays as it is, and a later commit tries again
        finally:
            self.patience = patience

    # --- errors

    @contextmanager
    def translate_errors(self) -> Iterator[None]:
        if self._file is not None and get_file_identity(self.path) != self._file:
            raise BadStore(
                f"{self.location} was deleted or replaced while this process had it open; nothing more is written. Stop everything "
                "that uses it, put the file (with its -wal file) or a backup in its place, and start again."
            )
        try:
            yield
        except apsw.Error as error:
            translated = self._translate_error(error)
            if translated is None:
                raise
            raise translated from error

    def _translate_error(self, error: apsw.Error) -> StoreError | None:
        location = self.location
        # ProtocolError: a writer stopped while it changed the log
        if isinstance(error, (apsw.BusyError, apsw.LockedError, apsw.ProtocolError)):
            return StoreUnavailable(
                f"Another process has been writing to {location} for more than {self.patience:g} s; nothing was written. "
                "If none of yours does, look for a program that keeps a transaction open on that file."
            )
        if isinstance(error, apsw.FullError) or self._is_disk_full(error):
            return StoreUnavailable(
                f"There is no space for {location} on its disk; nothing was written. Free some space; the work goes on by itself."
            )
        if isinstance(error, apsw.NotADBError):
            return BadStore(f"{location} is no SQLite database. Move it away or name another file; it was not changed.")
        if isinstance(error, apsw.CorruptError):
            return BadStore(
                f"{location} is damaged ({error}). Stop everything that uses it, keep a copy of it and of its -wal file, and "
                "restore a backup (or recover what can be read, with the sqlite3 shell's .recover)."
            )
        if isinstance(error, apsw.ReadOnlyError):
            return StoreUnavailable(self._explain_unwritable())
        if isinstance(error, (apsw.CantOpenError, apsw.PermissionsError)):
            return StoreUnavailable(
                f"{location} cannot be opened ({error}). The file and its folder must be readable and writable for this user."
            )
        if isinstance(error, apsw.IOError):
            return StoreUnavailable(
                f"The disk of {location} failed ({error}); nothing was written. Look at the system's log."
            )
        return None

    def _is_disk_full(self, error: apsw.Error) -> bool:
        """SQLite reports a failed disk when there is no space for the files that it creates beside the log."""
        if not isinstance(error, (apsw.CantOpenError, apsw.IOError)) or "db" not in self.__dict__:
            return False
        return self.db.system_errno in (errno.ENOSPC, errno.EDQUOT)

    def _explain_unwritable(self) -> str:
        if self.path and os.statvfs(self.path).f_flag & os.ST_RDONLY:
            return f"{self.location} is on a file system that is mounted read-only. Mount it for writing, or see in the system's log why."
        return (
            f"{self.location} may not be written by this user. Give it, and its folder, to the user that runs Waybill."
        )

    def close(self) -> None:
        self.db.close()
