"""Holdings in the simulator: objects that are at rest before anybody asks for them, get versions meanwhile, are
damaged and restored.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

from waybill.apps.ingest.access.order import ALL, Order
from waybill.apps.ingest.storage import MANIFEST, Deposit, FileToStore
from waybill.apps.ingest.storage.sources import WorkingSources

if TYPE_CHECKING:
    from waybill.apps.ingest.inventory import Inventory
    from waybill.apps.ingest.simulation.around import Surroundings

Files = dict[str, bytes | None]  # by path; None: there, with bytes that nobody knows yet


class Holdings:
    def __init__(self, around: Surroundings) -> None:
        self.around, self.rng = around, around.world.rng
        self.versions: dict[str, list[Files]] = {}  # of each object
        # by object and place: the name and the bytes that were there
        self.damaged: dict[tuple[str, str], tuple[str, bytes]] = {}
        self.ever: dict[str, None] = {}  # objects that were damaged at any time
        for n in range(self.rng.choice((1, 1, 2))):
            for _ in range(self.rng.choice((1, 1, 2))):
                self.add(f"ark:/99999/fk4h{n}", around.catalogue)

    def add(self, ark: str, inventory: Inventory) -> None:
        """Another version, stored and recorded as a job does it: a file that stays, one that changes.

        Safe to repeat, by its request.
        """
        versions = self.versions.setdefault(ark, [])
        if not versions or versions[-1][MANIFEST] is not None:
            versions.append({**_files(ark, len(versions) + 1), MANIFEST: None})  # from now on it may be there
        number = len(versions)
        files = _files(ark, number)
        sources = WorkingSources(Path("unused"), self.around.objects)
        storage = self.around.storage(sources)
        with sources.lending(files) as lent:
            listed = [
                FileToStore(path, len(body), hashlib.sha256(body).hexdigest(), lent + path)
                for path, body in files.items()
            ]
            stored = storage.write(
                Deposit(object=ark, request=f"{ark} {number}", files=listed, about={"owner": "ark:/99999/owner"})
            )
        inventory.record(stored, storage)
        with storage.read(ark, stored.place) as body:
            versions[-1][MANIFEST] = body.read()

    def members(self, order: Order, named: frozenset[str] | None) -> Iterator[Files]:
        """What an archive of the order may have: the names in it, below its one folder. Of all versions, those that
        were there when it was packed.
        """
        versions = self.versions[order.object]
        if order.version != ALL:
            yield dict(_wanted(order, named, versions[order.version - 1], ""))
            return
        for count in range(len(versions), 0, -1):
            parts = [_wanted(order, named, files, f"v{n}/") for n, files in enumerate(versions[:count], 1)]
            yield {name: body for part in parts for name, body in part}

    def damage(self, ark: str) -> None:
        """A byte of some content changes by itself, or all of it is gone."""
        rows = [
            row
            for row in self.around.catalogue.files(ark, 1, most=1000).rows
            if (ark, row["place"]) not in self.damaged
        ]
        if not rows:
            return
        place = self.rng.choice(rows)["place"]
        with self.around.storage().read(ark, place) as body:
            name, data = body.info.name, body.read()
        self.damaged[ark, place] = name, data
        self.ever[ark] = None
        self.around.objects.spoil(name, data[:-1] + b"?" if self.rng.random() < 0.7 else None)

    def restore(self) -> None:
        """Everything from a copy."""
        for name, data in self.damaged.values():
            self.around.objects.put(name, data)
        self.damaged.clear()


def _files(ark: str, number: int) -> dict[str, bytes]:
    files = {"producer/a.txt": f"{ark} stays".encode(), "producer/d/b.txt": f"{ark} version {number}".encode() * 20}
    return {**files, "system/mrt-erc.txt": f"what: {ark}\n".encode()}


def _wanted(order: Order, named: frozenset[str] | None, files: Files, below: str) -> Iterator[tuple[str, bytes | None]]:
    for path, body in files.items():
        if path in named if named is not None else (order.content == "full" or path.startswith("producer/")):
            yield f"{order.top}/{below}{path}", body
