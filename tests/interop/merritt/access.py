"""Assemblies, in a small and a large queue, which are nothing but folders."""

from typing import Any

from tests.interop.merritt.client import Client, Invalid
from tests.interop.merritt.items import Item
from tests.interop.merritt.states import ACCESS


class Assembly(Item):
    table = ACCESS

    def __init__(self, client: Client, size: str, id: str) -> None:
        super().__init__(client, id)
        self.size = size
        self.token: dict[str, Any] = {}

    @property
    def home(self) -> str:
        return f"/access/{self.size}/{self.id}"

    @classmethod
    def create(cls, client: Client, size: str, token: dict[str, Any]) -> "Assembly":
        assembly = cls(client, size, client.create(f"/access/{size}/qid", sequence=True).rpartition("/")[2])
        client.create(f"{assembly.home}/token", token)
        assembly.set_status("Pending")
        return assembly

    def _load_properties(self, writes: bool) -> None:
        self.token = self.client.optional_json(f"{self.home}/token")

    @classmethod
    def acquire_pending(cls, client: Client, size: str) -> "Assembly | None":
        for name in client.children(f"/access/{size}"):
            assembly = cls(client, size, name).load()
            if assembly.status == "Pending" and assembly.lock():
                return assembly.load()
        return None

    def delete(self) -> None:
        assert self.status is not None
        if not self.table.deletable(self.status):
            raise Invalid(f"Delete invalid for {self.home}")
        self.client.delete_all(self.home)
