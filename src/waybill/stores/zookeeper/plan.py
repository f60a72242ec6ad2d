"""Plans: the operations that write one group of changes, each saying what it means.

A plan is first made from what is known (a claim remembers its record's nodes) and assumes that the tree is as Waybill
left it. Where a foreign service moved or lost an entry, the transaction fails on just that; the plan is then made again
with `real`, what is really there: it leaves out the deletion of what is gone and the creation of what exists. That is a
repair, and no Conflict.
"""

from __future__ import annotations

from collections.abc import Mapping

from waybill.record import Ref
from waybill.stores.zookeeper import wire
from waybill.stores.zookeeper.layout import BUCKETS, Layout
from waybill.stores.zookeeper.wire import Node, Op

Real = Mapping[str, Node | None]


class Plan:
    def __init__(self, folders: set[str], real: Real | None = None) -> None:
        self.ops: list[Op] = []
        self.last: list[Op] = []  # to be done when all else of the group is done
        self.real = real
        self.touched: list[str] = []  # what a repair must know of
        self._folders = folders

    def make(self, path: str, means: str, data: bytes = b"") -> None:
        """The node is there afterwards."""
        self.touched.append(path)
        if self.real is None or self.real.get(path) is None:
            self.ops.append(wire.create(path, data, means))

    def drop(self, path: str, means: str) -> None:
        """The node is not there afterwards."""
        self.touched.append(path)
        if self.real is None or self.real.get(path) is not None:
            self.ops.append(wire.delete(path, means))

    def write(self, path: str, data: bytes, means: str, there: bool) -> None:
        """The node holds this afterwards; `there`: it exists already, as far as is known."""
        self.touched.append(path)
        if self.real is not None:
            there = self.real.get(path) is not None
        self.ops.append(wire.put(path, data, means) if there else wire.create(path, data, means))

    def folder(self, *chain: str) -> None:
        """These folders are there afterwards; an outer one is named before those inside it. Known ones cost nothing."""
        if chain[-1] not in self._folders:
            self.ops += [wire.create(path, b"", "folder") for path in chain]

    def entries(self, layout: Layout, id: str, old: str | None, new: str | None) -> None:
        """Its place in the queue, from one path to another; in a repair every other entry of the record in those
        folders goes too.
        """
        self.touched += [path for path in (old, new) if path is not None]
        if self.real is not None:
            for path in [
                path for path, node in self.real.items() if node is not None and layout.native and _is_entry(path, id)
            ]:
                if path not in (old, new):
                    self.drop(path, "entry")
        if old == new and self.real is None:
            return
        if old is not None and old != new:
            self.drop(old, "entry")
        if new is not None:
            if not layout.native:
                self.folder(*chain(parent_of(new)))
            self.make(new, "entry")

    def buckets(self, batch: Ref, id: str, old: str | None, new: str | None) -> None:
        """A job's place among its batch's jobs."""
        states = f"/batches/{batch.id}/states"
        self.touched += [f"{states}/{bucket}/{id}" for bucket in BUCKETS]
        if self.real is not None:
            for bucket in BUCKETS:
                if bucket not in (old, new) and self.real.get(f"{states}/{bucket}/{id}") is not None:
                    self.drop(f"{states}/{bucket}/{id}", "entry")
        if old == new and self.real is None:
            return
        if old is not None and old != new:
            self.drop(f"{states}/{old}/{id}", "entry")
        if new is not None:
            self.folder(states, f"{states}/{new}")
            self.make(f"{states}/{new}/{id}", "entry")


def _is_entry(path: str, id: str) -> bool:
    return path.startswith("/jobs/states/") and path.endswith(f"-{id}")


def chain(folder: str) -> list[str]:
    """A folder of our own with those around it that may not be there yet, outermost first: /waybill and what is in
    it always is.
    """
    parts = folder.split("/")
    return ["/".join(parts[:n]) for n in range(4, len(parts) + 1)]


def parent_of(path: str) -> str:
    return path.rpartition("/")[0]
