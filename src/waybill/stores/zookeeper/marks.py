"""Marks: names that are set or not, and that stop records which name them among their gates.

Merritt's services know two families: `collections/X` is /locks/collections/X, `queue/X` is /locks/queue/X, nodes
without data. Whether such a mark is in force says that node alone, whoever made it. Who set it and why, and all of
every other mark, is in /waybill/marks.
"""

from __future__ import annotations

from collections.abc import Callable

import msgspec

from waybill.record import Conflict, StoreError
from waybill.stores.zookeeper import wire
from waybill.stores.zookeeper.link import Link
from waybill.stores.zookeeper.names import MARK_FOLDERS, mark_path, plain, shared_mark_path
from waybill.stores.zookeeper.wire import BAD_VERSION, NO_NODE, NODE_EXISTS, Ask, Failure, Op, names

_NOTES = "/waybill/marks"
_TRIES = 10  # against others who set and clear the same mark


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
        marks = {
            f"{family}/{name}" for family, listed in zip(MARK_FOLDERS, shared, strict=True) for name in listed or ()
        }
        return marks.union(name for name in map(plain, noted or ()) if shared_mark_path(name) is None)

    def in_force(self) -> set[str]:
        return self.named(self._link.read(self.asks()))

    def all(self) -> dict[str, str]:
        """Those in force, each with who set it and why."""
        marks = sorted(self.in_force())
        said: dict[str, str] = {}
        for mark, node in zip(marks, self._link.nodes([mark_path(mark) for mark in marks]), strict=True):
            who, why = (
                msgspec.json.decode(node.data, type=tuple[str, str]) if node is not None else ("another service", "")
            )
            said[mark] = f"{who}: {why}" if why else who
        return said

    def set(self, mark: str, who: str, why: str) -> None:
        shared, noted, said = shared_mark_path(mark), mark_path(mark), msgspec.json.encode((who, why))

        def ops() -> list[Op]:
            found = self._link.nodes([shared or noted, noted])
            first = wire.create(noted, said) if found[1] is None else wire.put(noted, said)
            return [first, wire.create(shared)] if shared is not None and found[0] is None else [first]

        self._write(mark, ops)

    def clear(self, mark: str) -> bool:
        """Whether it was set."""
        paths = [path for path in (shared_mark_path(mark), mark_path(mark)) if path is not None]

        def ops() -> list[Op]:
            return [
                wire.delete(path) for path, node in zip(paths, self._link.nodes(paths), strict=True) if node is not None
            ]

        return self._write(mark, ops)

    def _write(self, mark: str, ops: Callable[[], list[Op]]) -> bool:
        """Whether there was anything to write.

        Whoever sets or clears the same mark just now makes us look again, but not for ever.
        """
        for _ in range(_TRIES):
            if not (wanted := ops()):
                return False
            outcome = self._link.write(wanted)
            if not isinstance(outcome, Failure):
                return True
            if outcome.code not in (NO_NODE, BAD_VERSION, NODE_EXISTS):
                where = f"{self._link.root}{wanted[outcome.place].path}"
                raise StoreError(
                    f"ZooKeeper refuses to write {where} (error {outcome.code}); the mark {mark} is as it was."
                )
        raise Conflict(f"The mark {mark} is being set and cleared by others at the same time; look again.")
