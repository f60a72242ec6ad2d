"""Marks: names that are set or not, and that stop records which name them among their gates.

Merritt's services know two families: `collections/X` is /locks/collections/X, `queue/X` is /locks/queue/X, nodes without data. Whether
such a mark is in force says that node alone, whoever made it. Who set it and why, and all of every other mark, is in /waybill/marks.
"""

from __future__ import annotations

import msgspec

from waybill.stores.zookeeper import wire
from waybill.stores.zookeeper.link import Link
from waybill.stores.zookeeper.names import MARK_FOLDERS, mark_path, plain, shared_mark_path
from waybill.stores.zookeeper.wire import Ask, Failure, names

_NOTES = "/waybill/marks"


class Marks:
    def __init__(self, link: Link) -> None:
        self._link = link

    @staticmethod
    def asks() -> list[Ask]:
        """What is read to know which marks are in force; for `named`."""
        return [*(names(folder) for folder in MARK_FOLDERS.values()), names(_NOTES)]

    @staticmethod
    def named(found: list[list[str] | None]) -> set[str]:
        *shared, noted = found
        marks = {f"{family}/{name}" for family, listed in zip(MARK_FOLDERS, shared, strict=True) for name in listed or ()}
        return marks.union(name for name in map(plain, noted or ()) if shared_mark_path(name) is None)

    def in_force(self) -> set[str]:
        return self.named(self._link.read(self.asks()))

    def all(self) -> dict[str, str]:
        """Those in force, each with who set it and why."""
        marks = sorted(self.in_force())
        said: dict[str, str] = {}
        for mark, node in zip(marks, self._link.nodes([mark_path(mark) for mark in marks]), strict=True):
            who, why = msgspec.json.decode(node.data, type=tuple[str, str]) if node is not None else ("another service", "")
            said[mark] = f"{who}: {why}"
        return said

    def set(self, mark: str, who: str, why: str) -> None:
        shared, noted, said = shared_mark_path(mark), mark_path(mark), msgspec.json.encode((who, why))
        while True:
            found = self._link.nodes([shared or noted, noted])
            ops = [wire.create(noted, said) if found[1] is None else wire.put(noted, said)]
            if shared is not None and found[0] is None:
                ops.append(wire.create(shared))
            if not isinstance(self._link.write(ops), Failure):
                return

    def clear(self, mark: str) -> bool:
        """Whether it was set."""
        paths = [path for path in (shared_mark_path(mark), mark_path(mark)) if path is not None]
        while True:
            here = [path for path, node in zip(paths, self._link.nodes(paths), strict=True) if node is not None]
            if not here:
                return False
            if not isinstance(self._link.write([wire.delete(path) for path in here]), Failure):
                return True
