"""A log file that all processes of a host append to under a lock; each keeps in memory the state that the lines make up.

    with log.acquire():          exclusive, and every line that others wrote is applied
        log.append(line)

Acquiring costs as much as there are new lines. `rewrite` replaces the file by a shorter one, which other processes
notice by its inode. Nothing is synced: the log serves running processes, and a crash of the machine ends them all. A
line that was torn by a kill is not applied, and does not damage the next.
"""

from __future__ import annotations

import fcntl
import os
import threading
import weakref
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

_APPEND = os.O_RDWR | os.O_APPEND | os.O_CREAT | os.O_CLOEXEC
_CHUNK = 2**20


class LockedLog:
    """May be used from all threads of a process. `reset` empties the state in memory; `apply_line` applies one line."""

    def __init__(self, path: Path, reset: Callable[[], None], apply_line: Callable[[bytes], None]) -> None:
        self._path, self._lock = str(path), str(path.with_name("lock"))
        self._reset, self._apply_line = reset, apply_line
        self._thread_lock = threading.Lock()
        self._lock_fd = self._lock_inode = -1  # stays open: it is locked and unlocked three times for each reservation
        self._unlock: Callable[[], object] = lambda: None
        self._close: Callable[[], object] = lambda: None
        self._open_file(-1)

    def _open_file(self, fd: int) -> None:
        # The file stays open, so that no other file gets its inode while it is compared.
        self._close()
        self._close = _make_closer(self, fd) if fd >= 0 else lambda: None
        self._fd, self._inode = fd, os.fstat(fd).st_ino if fd >= 0 else -1
        self._read_offset, self._is_torn = 0, False
        self.lines = 0
        self._reset()

    @contextmanager
    def acquire(self) -> Iterator[None]:
        with self._thread_lock:
            lock = self._acquire_file_lock()
            try:
                self._read_new_lines()
                yield
            finally:
                fcntl.flock(lock, fcntl.LOCK_UN)

    def append(self, line: bytes) -> None:
        """Write a line that is already applied in memory. If it cannot be written, the whole file is read again next time."""
        try:
            self._write(b"\n" * self._is_torn + line + b"\n")
        except OSError:
            self._inode = -1
            raise
        self.lines, self._is_torn = self.lines + 1, False

    def rewrite(self, lines: Iterable[bytes]) -> None:
        """Replace the file by these lines, which make up the same state. Safe at any time: the replacement is atomic."""
        data, new = b"".join(line + b"\n" for line in lines), self._path + ".new"
        try:
            Path(new).write_bytes(data)
            os.replace(new, self._path)
        except OSError:
            self._inode = -1  # the state in memory was not written: the file counts
            raise
        self._read_new_lines()

    def _acquire_file_lock(self) -> int:
        """Lock the file that has the name of the lock now, not one that was removed meanwhile."""
        while True:
            if self._lock_fd >= 0:
                fcntl.flock(self._lock_fd, fcntl.LOCK_EX)
                with suppress(FileNotFoundError):
                    if os.stat(self._lock).st_ino == self._lock_inode:  # no other file gets this inode while it is open
                        return self._lock_fd
                self._unlock()
                self._lock_fd = -1
            os.makedirs(os.path.dirname(self._lock), exist_ok=True)
            self._lock_fd = os.open(self._lock, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
            self._lock_inode = os.fstat(self._lock_fd).st_ino
            self._unlock = _make_closer(self, self._lock_fd)

    def _read_new_lines(self) -> None:
        try:
            found = os.stat(self._path)
            is_same = found.st_ino == self._inode and found.st_size >= self._read_offset
            if is_same and found.st_size == self._read_offset:
                return
        except FileNotFoundError:
            is_same = False
        if not is_same:
            self._open_file(os.open(self._path, _APPEND, 0o600))
        rest = b""
        while chunk := os.pread(self._fd, _CHUNK, self._read_offset):
            self._read_offset += len(chunk)
            *lines, rest = (rest + chunk).split(b"\n")
            self._is_torn = bool(rest)  # its writer was killed in the middle of it
            for line in lines:
                self.lines += 1
                self._apply_line(line)

    def _write(self, data: bytes) -> None:
        while data:
            count = os.write(self._fd, data)
            self._read_offset, data = self._read_offset + count, data[count:]


def _make_closer(log: object, fd: int) -> Callable[[], object]:
    """A function that closes the descriptor once: when called, or when the log is collected. At the end of the process
    the system closes it, because a thread may still be writing.
    """
    closer = weakref.finalize(log, os.close, fd)
    closer.atexit = False
    return closer
