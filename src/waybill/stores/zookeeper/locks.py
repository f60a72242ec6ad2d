"""Locks: which keys are held now, by whom, and the end of one that another service left behind.

A key is a node: /locks/storage, /locks/inventory and /locks/localid are Merritt's too, everything else lies in
/waybill/keys. Ours say in their data which record holds them; one that says nothing is another service's, and only its
name is known, as Merritt writes it.
"""

from __future__ import annotations

from waybill.record import Conflict, HeldKey, Ref
from waybill.stores.zookeeper import wire
from waybill.stores.zookeeper.link import Link
from waybill.stores.zookeeper.names import key_path, plain
from waybill.stores.zookeeper.parking import Parking
from waybill.stores.zookeeper.seen import look
from waybill.stores.zookeeper.wire import NO_NODE, Failure, Node, names

_FOLDERS = ("/locks/inventory", "/locks/localid", "/locks/storage", "/waybill/keys")  # in the order of their names


class Locks:
    def __init__(self, link: Link, parking: Parking) -> None:
        self._link = link
        self._parking = parking

    def page(self, after: str, limit: int) -> list[HeldKey]:
        """In the order of their nodes, which is that of the keys within a family."""
        last = key_path(after) if after else ""
        listed = self._link.read([names(folder) for folder in _FOLDERS])
        paths = [
            f"{folder}/{name}" for folder, found in zip(_FOLDERS, listed, strict=True) for name in sorted(found or ())
        ]
        wanted = [path for path in paths if path > last][:limit]
        nodes = self._link.nodes(wanted) if wanted else []
        held = [(path, _holder(node)) for path, node in zip(wanted, nodes, strict=True) if node is not None]
        refs = list(dict.fromkeys(holder for _, holder in held if holder is not None))
        known = {
            ref: seen.record().keys for ref, seen in zip(refs, look(self._link, refs), strict=True) if seen is not None
        }
        return [HeldKey(_name(path, known.get(holder, ()) if holder else ()), holder) for path, holder in held]

    def free(self, key: str) -> bool:
        """Take away another service's lock; its waiters among us are told."""
        path = key_path(key)
        node = self._link.node(path)
        if node is None:
            return False
        if (holder := _holder(node)) is not None:
            raise Conflict(f"{key} is held by {holder}, which drops it when it moves on; it is not taken from it.")
        outcome = self._link.write([wire.delete(path)])
        if isinstance(outcome, Failure) and outcome.code != NO_NODE:
            raise Conflict(f"{key} could not be freed (error {outcome.code}); look again.")
        self._parking.offer([key])
        return True


def _holder(node: Node) -> Ref | None:
    kind, _, id = node.data.decode(errors="replace").partition(" ")
    return Ref(kind, id) if id else None


def _name(path: str, keys: tuple[str, ...]) -> str:
    """The key of a node: its holder knows how it is written; otherwise it is as Merritt writes it."""
    if path.startswith("/waybill/keys/"):
        return plain(path.rpartition("/")[2])
    return next((key for key in keys if key_path(key) == path), path.removeprefix("/locks/"))
