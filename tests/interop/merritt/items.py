"""QueueItem: what batches, jobs and assemblies have in common."""

from typing import Any, Self

from kazoo.exceptions import KazooException

from tests.interop.merritt.client import Client, Invalid
from tests.interop.merritt.states import Table


class Item:
    table: Table

    def __init__(self, client: Client, id: str) -> None:
        self.client, self.id = client, id
        self.status: str | None = None

    @property
    def home(self) -> str:
        raise NotImplementedError

    def load(self, writes: bool = True) -> Self:
        if not self.client.exists(self.home):
            raise Invalid(f"Missing Node {self.home}")
        self._load_status(self.client.json(f"{self.home}/status"))
        self._load_properties(writes)
        return self

    def _load_status(self, status: dict[str, Any]) -> None:
        state = status.get("status")
        if state not in self.table.next:
            raise Invalid(f"No enum constant {state}")
        self.status = state

    def _load_properties(self, writes: bool) -> None: ...

    def _status_object(self, old: dict[str, Any], state: str) -> dict[str, Any]:
        when = old["last_modified"] if self.client.ruby and "last_modified" in old else self.client.now()
        return {**old, "status": state, "last_modified": when}

    def set_status(self, state: str, message: str = "") -> None:
        """The same status writes no status, and triggers the rest all the same. Ruby lets every transition pass."""
        if state != self.status:
            if not self.client.ruby:
                self.table.check(self.status, state)
            path = f"{self.home}/status"
            old = self.client.json(path) if self.client.exists(path) else {}
            body = {**self._status_object(old, state), "message": message}
            if self.status is None:
                self.client.create(path, body)
            else:
                self.client.set(path, body)
            self.status = state
        self._trigger()

    def _trigger(self) -> None: ...

    def success(self) -> None:
        assert self.status is not None
        self.set_status(self.table.success[self.status])

    def fail(self, message: str = "") -> None:
        self.set_status("Failed", message)

    def lock(self) -> bool:
        path = f"{self.home}/lock"
        if self.client.exists(path):
            return False
        try:
            self.client.create(path, ephemeral=True)
        except KazooException:
            return False
        return True

    def unlock(self) -> None:
        self.client.delete(f"{self.home}/lock")
