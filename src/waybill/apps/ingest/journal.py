"""Journal: lines that all processes of a host append to one file under a lock, each keeping in memory what it has
made of them.

    with journal.locked():          alone, and every line that others wrote has been taken in
        journal.append(line)

Taking in costs as much as is new. `write_anew` puts a shorter file in its place, which the others notice by its inode.
Nothing is synced: it serves processes that run, and a crash of the machine ends them all. A line that was torn by a
kill is not taken in, and spoils no other.
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
_PORTION = 2**20


class Journal:
    """For all threads of a process. `forget`: begin with nothing; `take`: one line."""

    def __init__(self, path: Path, forget: Callable[[], None], take: Callable[[bytes], None]) -> None:
        self._path, self._lock = str(path), str(path.with_name("lock"))
        self._forget, self._take = forget, take
        self._mine = threading.Lock()
        self._lock_fd = self._lock_inode = -1  # stays open: it is taken and given back three times for a job
        self._unlock: Callable[[], object] = lambda: None
        self._close: Callable[[], object] = lambda: None
        self._begin(-1)

    def _begin(self, fd: int) -> None:
        # The file stays open: nobody else can get its inode while we compare by it.
        self._close()
        self._close = _closing(self, fd) if fd >= 0 else lambda: None
        self._fd, self._inode = fd, os.fstat(fd).st_ino if fd >= 0 else -1
        self._read, self._torn = 0, False
        self.lines = 0
        self._forget()

    @contextmanager
    def locked(self) -> Iterator[None]:
        with self._mine:
            lock = self._taken_lock()
            try:
                self._take_in()
                yield
            finally:
                fcntl.flock(lock, fcntl.LOCK_UN)

    def append(self, line: bytes) -> None:
        """A line that was taken in already; if it cannot be written, everything is taken in anew next time."""
        try:
            self._write(b"\n" * self._torn + line + b"\n")
        except OSError:
            self._inode = -1
            raise
        self.lines, self._torn = self.lines + 1, False

    def write_anew(self, lines: Iterable[bytes]) -> None:
        """Only these lines, which say all that was taken in. Safe at any time: the new file takes the place of the
        old one at once.
        """
        data, new = b"".join(line + b"\n" for line in lines), self._path + ".new"
        try:
            Path(new).write_bytes(data)
            os.replace(new, self._path)
        except OSError:
            self._inode = -1  # what was taken in is not written: the file counts
            raise
        self._take_in()

    def _taken_lock(self) -> int:
        """The lock, alone; it is the file of that name, and not one that somebody has removed since."""
        while True:
            if self._lock_fd >= 0:
                fcntl.flock(self._lock_fd, fcntl.LOCK_EX)
                with suppress(FileNotFoundError):
                    if os.stat(self._lock).st_ino == self._lock_inode:  # which nobody else can get while it is open
                        return self._lock_fd
                self._unlock()
                self._lock_fd = -1
            os.makedirs(os.path.dirname(self._lock), exist_ok=True)
            self._lock_fd = os.open(self._lock, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
            self._lock_inode = os.fstat(self._lock_fd).st_ino
            self._unlock = _closing(self, self._lock_fd)

    def _take_in(self) -> None:
        try:
            found = os.stat(self._path)
            same = found.st_ino == self._inode and found.st_size >= self._read
            if same and found.st_size == self._read:
                return
        except FileNotFoundError:
            same = False
        if not same:
            self._begin(os.open(self._path, _APPEND, 0o600))
        rest = b""
        while portion := os.pread(self._fd, _PORTION, self._read):
            self._read += len(portion)
            *lines, rest = (rest + portion).split(b"\n")
            self._torn = bool(rest)  # its writer was killed in the middle of it
            for line in lines:
                self.lines += 1
                self._take(line)

    def _write(self, data: bytes) -> None:
        while data:
            count = os.write(self._fd, data)
            self._read, data = self._read + count, data[count:]


def _closing(journal: object, fd: int) -> Callable[[], object]:
    """Closes it once, when it is called or with the journal; at the end of the process the system does: a thread may
    still write then.
    """
    closing = weakref.finalize(journal, os.close, fd)
    closing.atexit = False
    return closing
