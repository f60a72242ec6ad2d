"""Private files: created so that only their owner can read them, whatever the folder and the umask allow."""

from __future__ import annotations

import os
import threading
from contextlib import suppress

_make_lock = threading.Lock()


FileIdentity = tuple[int, int]  # of one file, whatever its name


def get_file_identity(path: str | os.PathLike[str]) -> FileIdentity | None:
    """Return what identifies the file that has this path now; None if there is none.

    A database that was deleted or replaced while it is open can be written on, and all of that is lost: whoever keeps a file
    open compares this from time to time.
    """
    try:
        found = os.stat(path)
    except OSError:
        return None
    return found.st_dev, found.st_ino


def make_private_file(path: str | os.PathLike[str]) -> None:
    """Create an empty file with mode 0600 unless one exists. An existing file keeps its mode, and is not even opened.

    One thread at a time, because closing a file drops the locks that other threads of the process have set on it
    meanwhile, such as SQLite's. Errors are ignored: whoever opens the file next meets and reports the same error.
    """
    with _make_lock, suppress(OSError):
        handle = os.open(path, os.O_CREAT | os.O_EXCL | os.O_WRONLY | os.O_CLOEXEC, 0o600)
        os.close(handle)
