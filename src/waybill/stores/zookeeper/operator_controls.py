"""Action requests, holds and locks: what operators and other services set in the tree, and records must respect.

action requests   one node each in /waybill/action_requests, until a change answers it. A request is added only while
                  the record is claimed, which the same transaction asserts; so whoever releases the record and reads
                  afterwards sees every request that was added.
holds             names that are set or not, and that block the records which have them among their hold names. Who
                  set one and why is in /waybill/holds; the holds of collections and queues are also nodes in
                  /locks, where Merritt's services see and set them.
locks             names that at most one record owns. The node of a lock names its owner; an empty one belongs to
                  another service.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence

import msgspec

from waybill.record import ActionRequest, Conflict, OwnedLock, RecordBusy, RecordNotFound, Ref, StoreError
from waybill.stores.zookeeper import operations, paths
from waybill.stores.zookeeper.connection import ZookeeperConnection
from waybill.stores.zookeeper.operations import (
    BAD_VERSION,
    NO_NODE,
    NODE_EXISTS,
    NodeRead,
    Operation,
    OperationFailure,
    Znode,
    list_names,
    read_data,
)
from waybill.stores.zookeeper.parked_notes import ParkedNotes
from waybill.stores.zookeeper.paths import (
    HOLD_FOLDERS,
    hold_path_of,
    layout_of,
    lock_path_of,
    shared_hold_path_of,
    unquote_name,
)
from waybill.stores.zookeeper.record_snapshot import read_snapshots, session_name_of

_LOCK_FOLDERS = ("/locks/inventory", "/locks/localid", "/locks/storage", "/waybill/locks")  # in alphabetical order
_HOLDS_FOLDER = "/waybill/holds"
_MAX_TRIES = 10  # when others set and clear the same hold


def encode_request(request: ActionRequest) -> bytes:
    return msgspec.json.encode((request.action, request.who, request.why, request.args.decode()))


class ZookeeperActionRequests:
    """The action requests to the workers that have claimed the records."""

    def __init__(self, connection: ZookeeperConnection) -> None:
        self._connection = connection

    def add(self, action_request: ActionRequest) -> bool:
        """Add a request. Returns False when nobody claims the record."""
        home = layout_of(action_request.ref.kind).home_path_of(action_request.ref.id)
        ops = [
            operations.check(home, "home"),
            operations.check(f"{home}/lock", "lock"),
            operations.create(
                paths.action_request_path_of(action_request.ref), encode_request(action_request), "action-request"
            ),
        ]
        outcome = self._connection.write(ops)
        if not isinstance(outcome, OperationFailure):
            return True
        if ops[outcome.position].purpose == "home":
            raise RecordNotFound(f"There is no {action_request.ref}.")
        if ops[outcome.position].purpose == "action-request" and outcome.code == NODE_EXISTS:
            raise RecordBusy(f"{action_request.ref} has a pending request already. Wait until it is answered.")
        return False

    def list_refs(self) -> list[Ref]:
        return [paths.ref_of_name(name) for name in sorted(self._connection.list_names(paths.ACTION_REQUESTS))]

    def read_for(self, refs: Iterable[Ref]) -> list[ActionRequest]:
        """Return the requests to these records."""
        wanted = set(refs)
        return self._read([ref for ref in self.list_refs() if ref in wanted])

    def list_unclaimed(self, limit: int) -> list[ActionRequest]:
        """Return requests to records that nobody claims any more."""
        refs, unclaimed = self.list_refs(), []
        for start in range(0, len(refs), 1000):
            part = refs[start : start + 1000]
            homes = [layout_of(ref.kind).home_path_of(ref.id) for ref in part]
            found = self._connection.read(
                [read for home in homes for read in (read_data(home), read_data(f"{home}/lock"))]
            )
            unclaimed += [
                ref
                for ref, home, lock in zip(part, found[::2], found[1::2], strict=True)
                if home is not None and lock is None
            ]
            if len(unclaimed) >= limit:
                break
        return self._read(unclaimed[:limit])

    def list_for_session(self, session: str) -> tuple[ActionRequest, ...]:
        refs = self.list_refs()
        if not refs:
            return ()
        locks = self._connection.read_nodes([f"{layout_of(ref.kind).home_path_of(ref.id)}/lock" for ref in refs])
        mine = [
            ref
            for ref, lock in zip(refs, locks, strict=True)
            if lock is not None and session_name_of(lock.owner) == session
        ]
        return tuple(self._read(mine))

    def _read(self, refs: Sequence[Ref]) -> list[ActionRequest]:
        if not refs:
            return []
        requests = []
        for ref, node in zip(
            refs, self._connection.read_nodes([paths.action_request_path_of(ref) for ref in refs]), strict=True
        ):
            if node is not None:
                action, who, why, args = msgspec.json.decode(node.data, type=tuple[str, str, str, str])
                requests.append(ActionRequest(ref, action, who, why, args.encode()))
        return requests


class ZookeeperHolds:
    """The holds that are set."""

    def __init__(self, connection: ZookeeperConnection) -> None:
        self._connection = connection

    @staticmethod
    def build_reads() -> list[NodeRead]:
        """Return the reads whose results `parse_names` takes."""
        return [*(list_names(folder) for folder in HOLD_FOLDERS.values()), list_names(_HOLDS_FOLDER)]

    @staticmethod
    def parse_names(found: list[list[str] | None]) -> set[str]:
        """Return the names of the holds that are set."""
        *shared, own_names = found
        holds = {
            f"{family}/{name}" for family, listed in zip(HOLD_FOLDERS, shared, strict=True) for name in listed or ()
        }
        return holds.union(name for name in map(unquote_name, own_names or ()) if shared_hold_path_of(name) is None)

    def read_active(self) -> set[str]:
        return self.parse_names(self._connection.read(self.build_reads()))

    def list_all(self) -> dict[str, str]:
        """Return the holds that are set, each with who set it and why."""
        holds = sorted(self.read_active())
        descriptions: dict[str, str] = {}
        for hold, node in zip(holds, self._connection.read_nodes([hold_path_of(hold) for hold in holds]), strict=True):
            who, why = (
                msgspec.json.decode(node.data, type=tuple[str, str]) if node is not None else ("another service", "")
            )
            descriptions[hold] = f"{who}: {why}" if why else who
        return descriptions

    def set(self, hold: str, who: str, why: str) -> None:
        shared, own, data = shared_hold_path_of(hold), hold_path_of(hold), msgspec.json.encode((who, why))

        def build_ops() -> list[Operation]:
            found = self._connection.read_nodes([shared or own, own])
            first = operations.create(own, data) if found[1] is None else operations.put(own, data)
            return [first, operations.create(shared)] if shared is not None and found[0] is None else [first]

        self._write(hold, build_ops)

    def clear(self, hold: str) -> bool:
        """Clear a hold. Returns whether it was set."""
        hold_paths = [path for path in (shared_hold_path_of(hold), hold_path_of(hold)) if path is not None]

        def build_ops() -> list[Operation]:
            return [
                operations.delete(path)
                for path, node in zip(hold_paths, self._connection.read_nodes(hold_paths), strict=True)
                if node is not None
            ]

        return self._write(hold, build_ops)

    def _write(self, hold: str, build_ops: Callable[[], list[Operation]]) -> bool:
        """Write the operations. Returns whether there was anything to write.

        They are built again when somebody else sets or clears the same hold at the same time, up to _MAX_TRIES times.
        """
        for _ in range(_MAX_TRIES):
            if not (wanted := build_ops()):
                return False
            outcome = self._connection.write(wanted)
            if not isinstance(outcome, OperationFailure):
                return True
            if outcome.code not in (NO_NODE, BAD_VERSION, NODE_EXISTS):
                where = f"{self._connection.root}{wanted[outcome.position].path}"
                raise StoreError(
                    f"ZooKeeper refuses to write {where} (error {outcome.code}); the hold {hold} is unchanged."
                )
        raise Conflict(f"Others set and clear the hold {hold} at the same time. Try again.")


class ZookeeperLocks:
    """The locks that are owned now, and the removal of one that another service left behind."""

    def __init__(self, connection: ZookeeperConnection, parked_notes: ParkedNotes) -> None:
        self._connection = connection
        self._parked_notes = parked_notes

    def list_page(self, after: str, limit: int) -> list[OwnedLock]:
        """Return a page of locks in the order of their nodes, which is that of their names within a family."""
        last = lock_path_of(after) if after else ""
        listed = self._connection.read([list_names(folder) for folder in _LOCK_FOLDERS])
        lock_paths = [
            f"{folder}/{name}"
            for folder, found in zip(_LOCK_FOLDERS, listed, strict=True)
            for name in sorted(found or ())
        ]
        wanted = [path for path in lock_paths if path > last][:limit]
        nodes = self._connection.read_nodes(wanted) if wanted else []
        owners = [(path, _owner_of(node)) for path, node in zip(wanted, nodes, strict=True) if node is not None]
        refs = list(dict.fromkeys(owner for _, owner in owners if owner is not None))
        known = {
            ref: snapshot.to_record().locks
            for ref, snapshot in zip(refs, read_snapshots(self._connection, refs), strict=True)
            if snapshot is not None
        }
        return [
            OwnedLock(_lock_name_of(path, known.get(owner, ()) if owner else ()), (owner,) if owner else ())
            for path, owner in owners
        ]

    def remove_foreign(self, lock: str) -> bool:
        """Remove another service's lock and offer it to its waiters. Returns False when there is no such lock."""
        path = lock_path_of(lock)
        node = self._connection.read_node(path)
        if node is None:
            return False
        if (owner := _owner_of(node)) is not None:
            raise Conflict(f"{lock} is owned by {owner}, which drops it when it moves on; it is not taken from it.")
        outcome = self._connection.write([operations.delete(path)])
        if isinstance(outcome, OperationFailure) and outcome.code != NO_NODE:
            raise Conflict(f"{lock} could not be removed (error {outcome.code}). Try again.")
        self._parked_notes.offer_locks([lock])
        return True


def _owner_of(node: Znode) -> Ref | None:
    kind, _, id = node.data.decode(errors="replace").partition(" ")
    return Ref(kind, id) if id else None


def _lock_name_of(path: str, locks: tuple[str, ...]) -> str:
    """Return the name of a lock from its node. `locks`: those of its owner, which knows the name as it was written;
    otherwise it is as Merritt writes it.
    """
    if path.startswith("/waybill/locks/"):
        return unquote_name(path.rpartition("/")[2])
    return next((lock for lock in locks if lock_path_of(lock) == path), path.removeprefix("/locks/"))
