"""The file: opened, guarded, written in transactions, and its troubles said in sentences.

    open (library, folder, file, write-ahead log) -> read | write: begin immediate ... commit -> checkpoint, now and
    then -> close

A write waits for the one writer that SQLite allows, for at most `patience` seconds. What was committed is on the disk
(synchronous = full). A commit whose own outcome the system does not tell is Unknown; every other trouble leaves nothing
behind.
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

from waybill.private import make_file
from waybill.record import BadStore, StoreError, Unavailable, Unknown

SAFE_LIBRARY = (3, 51, 3)  # 3.7.0 to 3.51.2 can corrupt a database whose write-ahead log is reset while others read
PATIENCE = 10.0  # seconds that a write waits for another writer
BACK_OFF = 0.004  # seconds at most between two looks at the writer's lock
CHECKPOINT = 8_000  # pages of 4 KiB in the write-ahead log from which each commit tries to move them into the file
OVERDUE = 32_000  # pages from which a commit waits a moment for readers that are in the way of that
PRAGMAS = (
    "pragma synchronous = full",
    "pragma foreign_keys = on",
    "pragma cache_size = -32000",  # KiB
    "pragma journal_size_limit = 67108864",  # what is left of the log when it was large
)

Execute = Callable[..., "Rows"]


class Rows(Protocol):
    """What a statement answers. Read it before the next one: all share one cursor."""

    def fetchall(self) -> list[tuple[Any, ...]]: ...

    def __iter__(self) -> Iterator[tuple[Any, ...]]: ...


def path_of(url: str) -> str:
    """The file that a sqlite: URL names; "" for a database in memory, which is gone when it is closed."""
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
    if tuple(int(part) for part in version.split(".")[:3]) < SAFE_LIBRARY:
        raise BadStore(
            f"The SQLite library here is {version}, which can corrupt a database that several processes use. "
            "Install apsw from its wheel, which brings a current one, not built against the system's library."
        )


class Database:
    """One connection."""

    def __init__(self, path: str, *, patience: float = PATIENCE) -> None:
        check_library(apsw.sqlite_lib_version())
        self.path = path
        self.place = path or "the database in memory"
        self.patience = patience
        self._waits_until = 0.0
        self._pages = 0  # in the log
        self._next_checkpoint = CHECKPOINT
        if path:
            folder = os.path.dirname(path) or "."
            if not os.path.isdir(folder):
                raise BadStore(f"The folder {folder} does not exist. Make it, or name another place for the store.")
            if os.path.isdir(path):
                raise BadStore(f"{path} is a folder. Name a file in it, such as {os.path.join(path, 'waybill.db')}.")
            make_file(path)  # its log and the log's index get the same mode from SQLite
        try:
            with self.sentences():
                self.db = apsw.Connection(path or ":memory:")
            try:
                with self.sentences():
                    self._prepare()
            except BaseException:
                self.db.close()
                raise
        except Unavailable as error:
            raise BadStore(str(error)) from error.__cause__
        self.execute: Execute = self.db.cursor().execute

    def _prepare(self) -> None:
        self.db.set_busy_handler(self._wait)
        if self.db.readonly("main"):
            raise BadStore(self._unwritable())
        if self.path:
            mode = self._begin_log()
            if mode != "wal":
                raise BadStore(
                    f"{self.place} cannot have a write-ahead log here. Put it on a local disk, not on a network file system."
                )
        for pragma in PRAGMAS:
            self.db.execute(pragma).fetchall()
        self.db.set_wal_hook(self.logged)

    def _begin_log(self) -> Any:
        """Turn the log on; SQLite answers Busy at once, and asks no handler, when another process is just doing the
        same.
        """
        deadline = time.monotonic() + self.patience
        while True:
            try:
                return self.db.pragma("journal_mode", "wal")
            except apsw.BusyError:
                if time.monotonic() > deadline:
                    raise
                time.sleep(random.uniform(0, BACK_OFF))

    def _wait(self, tries: int) -> bool:
        """Wait for the writer's lock; SQLite's own back-off goes up to 100 ms, ours stays short because our writes
        are short.
        """
        now = time.monotonic()
        if tries == 0:
            self._waits_until = now + self.patience
        if now > self._waits_until:
            return False
        time.sleep(random.uniform(0, BACK_OFF))
        return True

    # --- transactions

    @contextmanager
    def write(self) -> Iterator[Execute]:
        """All that is executed within is written together, or nothing of it."""
        with self.sentences():
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
        """All that is read within is of one moment."""
        with self.sentences():
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
            raise Unknown(
                f"The disk of {self.place} failed in the middle of a commit ({error}): perhaps it was written."
            ) from error
        except apsw.Error:
            self._roll_back()
            raise

    def _roll_back(self) -> None:
        if self.db.in_transaction:  # a full disk and the like have rolled back already
            self.execute("rollback")

    # --- the write-ahead log

    def logged(self, _db: Any, _name: str, pages: int) -> int:
        """Called by SQLite with each commit: how long the log is."""
        if pages < self._pages:  # it began anew
            self._next_checkpoint = CHECKPOINT
        self._pages = pages
        return apsw.SQLITE_OK

    def _checkpoint(self) -> None:
        """Move the log into the file, here and not inside the commit, so that its trouble is never taken for the
        commit's.
        """
        if self._pages < self._next_checkpoint:
            return
        # while somebody keeps reading an old state, not with every commit
        self._next_checkpoint = self._pages + CHECKPOINT // 4
        patience, mode = self.patience, apsw.SQLITE_CHECKPOINT_PASSIVE
        if self._pages >= OVERDUE:
            self.patience, mode = 0.5, apsw.SQLITE_CHECKPOINT_RESTART
        try:
            self.db.wal_checkpoint(mode=mode)
        except (apsw.BusyError, apsw.LockedError, apsw.ProtocolError, apsw.FullError, apsw.IOError):
            return  # nothing is lost: the log stays as it is, and a later commit tries again
        finally:
            self.patience = patience

    # --- troubles

    @contextmanager
    def sentences(self) -> Iterator[None]:
        try:
            yield
        except apsw.Error as error:
            told = self._sentence(error)
            if told is None:
                raise
            raise told from error

    def _sentence(self, error: apsw.Error) -> StoreError | None:
        place = self.place
        # the last: a writer stopped while it changed the log
        if isinstance(error, (apsw.BusyError, apsw.LockedError, apsw.ProtocolError)):
            return Unavailable(
                f"Another process has been writing to {place} for more than {self.patience:g} s; nothing was written. "
                "If none of yours does, look for a program that keeps a transaction open on that file."
            )
        if isinstance(error, apsw.FullError) or self._is_without_room(error):
            return Unavailable(
                f"There is no room for {place} on its disk; nothing was written. Make room, and the work goes on."
            )
        if isinstance(error, apsw.NotADBError):
            return BadStore(f"{place} is no SQLite database. Move it away or name another file; it was not changed.")
        if isinstance(error, apsw.CorruptError):
            return BadStore(
                f"{place} is damaged ({error}). Stop everything that uses it, keep a copy of it and of its -wal file, and restore a backup "
                "(or recover what can be read, with the sqlite3 shell's .recover)."
            )
        if isinstance(error, apsw.ReadOnlyError):
            return Unavailable(self._unwritable())
        if isinstance(error, (apsw.CantOpenError, apsw.PermissionsError)):
            return Unavailable(
                f"{place} cannot be opened ({error}). The file and its folder must be readable and writable for this user."
            )
        if isinstance(error, apsw.IOError):
            return Unavailable(f"The disk of {place} failed ({error}); nothing was written. Look at the system's log.")
        return None

    def _is_without_room(self, error: apsw.Error) -> bool:
        """SQLite calls it a failure of the disk when there is no room for the files that it makes beside the log."""
        if not isinstance(error, (apsw.CantOpenError, apsw.IOError)) or "db" not in self.__dict__:
            return False
        return self.db.system_errno in (errno.ENOSPC, errno.EDQUOT)

    def _unwritable(self) -> str:
        if self.path and os.statvfs(self.path).f_flag & os.ST_RDONLY:
            return f"{self.place} is on a file system that is mounted read-only. Mount it for writing, or see in the system's log why."
        return f"{self.place} may not be written by this user. Give it, and its folder, to the user that runs Waybill."

    def close(self) -> None:
        self.db.close()
