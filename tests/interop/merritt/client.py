"""One connection, in one dialect. `dies_after=n` kills the service after its n-th write: what would follow is never
written.
"""

import json
import time
from contextlib import suppress
from typing import Any

from kazoo.client import KazooClient
from kazoo.exceptions import NodeExistsError, NoNodeError


class Killed(Exception):
    """kill -9 between two writes; the session goes, and its ephemeral nodes with it."""


class Invalid(Exception):
    """MerrittZKNodeInvalid: a node is missing, or not what the library expects."""


class Client:
    def __init__(self, hosts: str, *, ruby: bool = False, dies_after: int | None = None) -> None:
        self.ruby = ruby
        self.writes = 0
        self._dies_after = dies_after
        self.zk = KazooClient(hosts, timeout=50)  # the machine may stand still for a while
        self.zk.start(timeout=60)

    def close(self) -> None:
        self.zk.stop()
        self.zk.close()

    def _write(self) -> None:
        if self._dies_after is not None and self.writes >= self._dies_after:
            self.close()
            raise Killed
        self.writes += 1

    # --- what is written

    def data(self, value: object) -> bytes | None:
        """As the dialect writes it: JSON for tables, texts and numbers as they are; an empty table is "{}" in Java,
        null in Ruby.
        """
        if value is None or value == "" or (self.ruby and value == {}):
            return None if self.ruby else b""
        return (json.dumps(value) if isinstance(value, dict) else str(value)).encode()

    def create(self, path: str, value: object = None, **more: Any) -> str:
        self._write()
        made: str = self.zk.create(path, self.data(value), **more)
        return made

    def create_if_needed(self, path: str) -> None:
        """Forgiving: somebody else may need it too."""
        if not self.exists(path):
            with suppress(NodeExistsError):
                self.create(path)

    def set(self, path: str, value: object) -> None:
        self._write()
        self.zk.set(path, self.data(value))  # whatever its version

    def create_or_set(self, path: str, value: object) -> None:
        if self.exists(path):
            self.set(path, value)
        else:
            self.create(path, value)

    def delete(self, path: str) -> None:
        """Java looks first; Ruby's raises when the node is gone."""
        if self.ruby:
            self._write()
            self.zk.delete(path)
        elif self.exists(path):
            self._write()
            with suppress(NoNodeError):  # it tries three times, and then goes on
                self.zk.delete(path)

    def delete_all(self, path: str) -> None:
        """Children first, one by one."""
        for child in self.children(path):
            self.delete_all(f"{path}/{child}")
        if self.exists(path):
            self._write()
            with suppress(NoNodeError):
                self.zk.delete(path)

    # --- what is read

    def exists(self, path: str) -> bool:
        return self.zk.exists(path) is not None

    def children(self, path: str) -> list[str]:
        try:
            return sorted(self.zk.get_children(path))
        except NoNodeError:
            return []

    def text(self, path: str) -> str:
        try:
            return (self.zk.get(path)[0] or b"").decode()
        except NoNodeError:
            raise Invalid(f"Path not found for {path}") from None

    def json(self, path: str) -> dict[str, Any]:
        try:
            found = json.loads(self.text(path))
        except ValueError:
            raise Invalid(f"Improperly formatted object for {path}") from None
        if not isinstance(found, dict):
            raise Invalid(f"Improperly formatted object for {path}")
        return found

    def optional_json(self, path: str) -> dict[str, Any]:
        return self.json(path) if self.exists(path) and self.text(path) else {}

    def number(self, path: str) -> int:
        try:
            return int(self.text(path))
        except ValueError:
            raise Invalid(f"Improperly formatted number for {path}") from None

    @staticmethod
    def now() -> str:
        return time.strftime("%Y-%m-%d %H:%M:%S +0000", time.gmtime())
