"""The public SSH keys of accounts: a folder with a file for each account, as OpenSSH has authorized_keys.

    authorized_keys/alice          one public key a line; a line that begins with # is a comment

Files are read again when they change; who may write the folder says who may sign for whom.
"""

from __future__ import annotations

import threading
from collections.abc import Sequence
from pathlib import Path

from waybill.apps.compute.paths import is_account_name

MAX_FILE = 1024 * 1024  # bytes
MAX_REMEMBERED = 10_000


class AuthorizedKeyFiles:
    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._lock = threading.Lock()
        self._read: dict[str, tuple[tuple[int, int], list[str]]] = {}

    def find_keys(self, account: str, subuser: str) -> Sequence[str] | None:
        if subuser or not is_account_name(account):
            return None
        file = self._folder / account
        try:
            found = file.stat()
            stamp = (found.st_mtime_ns, found.st_size)
            with self._lock:
                known = self._read.get(account)
            if known is not None and known[0] == stamp:
                return known[1]
            text = file.read_bytes()[:MAX_FILE].decode("utf-8", "replace")
        except FileNotFoundError:
            return None
        keys = [line.strip() for line in text.splitlines() if line.strip() and not line.startswith("#")]
        with self._lock:
            if len(self._read) >= MAX_REMEMBERED:
                self._read.clear()
            self._read[account] = (stamp, keys)
        return keys
