"""Inventories on their way to storage: one with its sidecar, which are written twice, and the file that declares a
new object.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterable
from typing import NamedTuple

from waybill.apps.ingest.storage import ocfl_inventory as ocfl
from waybill.apps.ingest.storage.holding import DECLARATION, Write, sidecar_data
from waybill.apps.ingest.storage.ocfl_inventory import Inventory, NewVersion


class Written(NamedTuple):
    """The inventory of an object with a new version: it lies with the version, and in the object's root."""

    names: tuple[str, str]
    portions: Callable[[], Iterable[bytes]]
    size: int
    sha256: str
    digest: str  # by its own algorithm, for the sidecar

    @classmethod
    def of(cls, before: Inventory | None, new: NewVersion) -> Written:
        def portions() -> Iterable[bytes]:
            return ocfl.encode(before, new)

        return cls((ocfl.FILE, ocfl.sidecar(new.algorithm)), portions, *ocfl.digest_of(portions(), new.algorithm))

    def at(self, folder: str, main: str | None = None, beside: str | None = None) -> list[Write]:
        """Both, in the place of these versions of them, or where none is."""
        side = sidecar_data(self.digest)
        return [
            Write(f"{folder}/{self.names[0]}", self.portions, self.size, self.sha256, True, main),
            Write(
                f"{folder}/{self.names[1]}", lambda: [side], len(side), hashlib.sha256(side).hexdigest(), True, beside
            ),
        ]


def declaration(root: str) -> Write:
    """What makes a folder an object of OCFL."""
    name, words = DECLARATION
    return Write(f"{root}/{name}", lambda: [words], len(words), hashlib.sha256(words).hexdigest())
