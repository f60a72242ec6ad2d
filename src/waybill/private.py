"""Files that hold what is nobody else's business: made for their owner alone, whatever the folder and the umask
allow.
"""

from __future__ import annotations

import os
import threading
from contextlib import suppress

_one_by_one = threading.Lock()


def make_file(path: str | os.PathLike[str]) -> None:
    """Make an empty file with mode 0600, where none is. One that is there keeps its mode, and is not even opened.

    One thread at a time, because a file that is closed loses the locks that other threads of the process have set on it
    meanwhile, such as SQLite's. What hinders it hinders also whoever opens the file next, and is said there.
    """
    with _one_by_one, suppress(OSError):
        made = os.open(path, os.O_CREAT | os.O_EXCL | os.O_WRONLY | os.O_CLOEXEC, 0o600)
        os.close(made)
