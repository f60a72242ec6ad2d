"""Parked notes: which records are blocked, by what, and how they become claimable again.

A blocked record has a parked note in /waybill/parked, and one that is blocked by a lock also a waiting note in
/waybill/waiting, which gives its position among the waiters. A record is blocked by

    wait        until its time has come: release_due_waits
    children    until a child wakes it (commit.py), or no open child is left: list_waiting_parents
    lock NAME   until the lock is free: the commit that drops it unblocks the first waiter (offer_locks), and sweep_locks
                finds the waiters that were missed
    hold NAME   until the hold is cleared: whoever clears it unblocks all of them (unblock_hold), and sweep_holds finds
                those of a hold that another service cleared

Blocking and unblocking write the engine node and the notes alone: the record's version stays.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator, Sequence

import msgspec
from msgspec.structs import replace

from waybill.record import CommitOutcomeUnknown, DueWaits, Ref
from waybill.stores.zookeeper import operations, paths, write_plan
from waybill.stores.zookeeper.operations import Operation, OperationFailure, list_names, read_data
from waybill.stores.zookeeper.paths import layout_of, lock_path_of, unquote_name
from waybill.stores.zookeeper.record_nodes import EngineNode, encode_engine_node
from waybill.stores.zookeeper.record_snapshot import RecordSnapshot, read_snapshots, reconcile_engine_node
from waybill.stores.zookeeper.write_plan import WritePlan, ZookeeperTree

_RECORDS_PER_TRANSACTION = 25
_MAX_TRIES = 20


class ParkedNoteIndex:
    """The parked notes, folder by folder. A folder is listed again only after it has changed."""

    def __init__(self, tree: ZookeeperTree) -> None:
        self._connection = tree.connection
        self._known_folders: dict[tuple[str, str], tuple[int, list[str]]] = {}

    def iter_notes(self) -> Iterator[tuple[str, str, str]]:
        """Yield (kind, state, note) of every parked note, sorted."""
        connection = self._connection
        kinds = connection.list_names(paths.PARKED)
        states = connection.read([list_names(f"{paths.PARKED}/{kind}") for kind in kinds]) if kinds else []
        folders = [
            (unquote_name(kind), unquote_name(state))
            for kind, listed in zip(kinds, states, strict=True)
            for state in listed or ()
        ]
        nodes = connection.read_nodes([paths.parked_folder_of(*folder) for folder in folders]) if folders else []
        changed = [
            f
            for f, node in zip(folders, nodes, strict=True)
            if node and self._known_folders.get(f, (-1, []))[0] != node.pzxid
        ]
        listed = connection.read([list_names(paths.parked_folder_of(*folder)) for folder in changed]) if changed else []
        folder_nodes = dict(zip(folders, nodes, strict=True))
        for folder, found in zip(changed, listed, strict=True):
            node = folder_nodes[folder]
            self._known_folders[folder] = (node.pzxid if node else -1, sorted(found or ()))
        self._known_folders = {folder: known for folder, known in self._known_folders.items() if folder in folder_nodes}
        for (kind, state), (_, found) in sorted(self._known_folders.items()):
            for note in found:
                yield kind, state, note


class ParkedNotes:
    """Unblocks records, and repairs the notes about blocked ones."""

    def __init__(self, tree: ZookeeperTree) -> None:
        self._tree = tree
        self._connection = tree.connection
        self._index = ParkedNoteIndex(tree)
        self._cursor: tuple[str, str, str] | None = None

    @staticmethod
    def to_unblocked(engine_node: EngineNode) -> EngineNode:
        return replace(engine_node, blocked_by=None, wake_at=0.0, waiting_name="")

    # --- unblocking

    def unblock(self, refs: Iterable[Ref], is_reason: Callable[[RecordSnapshot], bool]) -> int:
        """Unblock those for which `is_reason` still holds. Returns how many."""
        waiting, unblocked_count = list(dict.fromkeys(refs)), 0
        for _ in range(_MAX_TRIES):
            found = [
                snapshot
                for snapshot in read_snapshots(self._connection, waiting)
                if snapshot is not None and snapshot.session is None
            ]
            # A write by another service voids every reason.
            blocked = [
                snapshot
                for snapshot in found
                if snapshot.engine_node is not None
                and snapshot.engine_node.blocked_by is not None
                and (snapshot.has_foreign_write or is_reason(snapshot))
            ]
            if not blocked:
                break
            pending_chunks = [
                (chunk, self._connection.submit([op for snapshot in chunk for op in self._build_unblock_ops(snapshot)]))
                for chunk in _chunks_of(blocked)
            ]
            failed: list[RecordSnapshot] = []
            for chunk, pending in pending_chunks:
                outcome = pending.get()
                if isinstance(outcome, (OperationFailure, CommitOutcomeUnknown)):
                    failed += chunk
                elif isinstance(outcome, list):
                    unblocked_count += len(chunk)
                else:
                    raise outcome
            waiting = [snapshot.ref for snapshot in failed]
            if len(failed) == len(blocked) and len(failed) > 1:  # one that cannot be unblocked must not stop the others
                return unblocked_count + sum(self.unblock([ref], is_reason) for ref in waiting)
        return unblocked_count

    def _build_unblock_ops(self, snapshot: RecordSnapshot) -> list[Operation]:
        engine_node = snapshot.engine_node
        assert engine_node is not None
        plan = WritePlan(self._tree.known_folders)
        unblocked = reconcile_engine_node(snapshot) if snapshot.has_foreign_write else self.to_unblocked(engine_node)
        write_plan.plan_parked_notes(plan, snapshot.ref, engine_node, unblocked)
        return [
            operations.put(
                snapshot.layout.engine_path_of(snapshot.ref.id),
                encode_engine_node(unblocked),
                "engine",
                snapshot.engine_version,
            ),
            *plan.ops,
        ]

    def wake_records(self, refs: Sequence[Ref]) -> int:
        """End the wait of records that were woken."""
        return self.unblock(refs, lambda snapshot: snapshot.blocked_by in ("wait", "children")) if refs else 0

    def release_due_waits(self, limit: int) -> DueWaits:
        now = self._tree.now()
        waits: list[tuple[float, Ref]] = []
        for kind, _, note in self._index.iter_notes():
            if note.startswith("w"):
                parked = paths.parse_parked(note)
                waits.append((parked.until, Ref(kind, parked.id)))
        waits.sort()
        due = [ref for until, ref in waits if until <= now + 0.001][:limit]
        released = self.unblock(
            due,
            lambda snapshot: (
                snapshot.blocked_by == "wait"
                and snapshot.engine_node is not None
                and snapshot.engine_node.wake_at <= now
            ),
        )
        if released:
            self._tree.signal_change()
        if released < len(due):  # wrong notes must not be read again with every call
            self._repair_notes(set(due))
        later = waits[len(due) :]
        return DueWaits(released, max(0.0, later[0][0] - now) if later else None)

    def offer_locks(self, locks: Iterable[str]) -> int:
        """Unblock the first waiter of each of these locks that is free. Returns how many."""
        wanted = list(dict.fromkeys(locks))
        found = self._connection.read(
            [
                read
                for lock in wanted
                for read in (read_data(lock_path_of(lock)), list_names(paths.waiting_folder_of(lock)))
            ]
        )
        unblocked = 0
        for lock, owner_node, waiters in zip(wanted, found[::2], found[1::2], strict=True):
            if owner_node is not None or not waiters:
                continue
            for name in sorted(waiters):
                if self._offer_lock(lock, paths.ref_of_name(name)):
                    unblocked += 1
                    break
                if name in self.find_stale_waiters(lock, [name]):
                    self._connection.write([operations.delete(f"{paths.waiting_folder_of(lock)}/{name}", "note")])
        return unblocked

    def _offer_lock(self, lock: str, ref: Ref) -> bool:
        return bool(self.unblock([ref], lambda snapshot: snapshot.blocked_by == f"lock {lock}"))

    def find_stale_waiters(self, lock: str, waiters: Sequence[str]) -> list[str]:
        """Return those of these waiting notes that belong to no waiting record."""
        snapshots = read_snapshots(self._connection, [paths.ref_of_name(name) for name in waiters])
        expected_paths = [
            write_plan.waiting_note_path_of(snapshot.engine_node)
            if snapshot is not None and snapshot.engine_node is not None
            else None
            for snapshot in snapshots
        ]
        return [
            name
            for name, path in zip(waiters, expected_paths, strict=True)
            if path != f"{paths.waiting_folder_of(lock)}/{name}"
        ]

    def unblock_hold(self, hold: str) -> int:
        """Unblock everything that a cleared hold has blocked."""
        return self._unblock_matching({paths.hash_of(f"hold {hold}")}, lambda reason: reason == f"hold {hold}", None)

    def _unblock_matching(self, hashes: Collection[str], is_reason: Callable[[str], bool], limit: int | None) -> int:
        blocked = [
            Ref(kind, paths.parse_parked(note).id)
            for kind, _, note in self._index.iter_notes()
            if note.partition("~")[0] in hashes
        ]
        unblocked_count = 0
        for start in range(0, len(blocked[:limit]), 1000):
            part = blocked[start : start + 1000] if limit is None else blocked[start : min(start + 1000, limit)]
            unblocked_count += self.unblock(part, lambda snapshot: is_reason(snapshot.blocked_by or ""))
        if unblocked_count:
            self._tree.signal_change()
        return unblocked_count

    # --- sweeps and repairs

    def list_waiting_parents(self, after: str, limit: int) -> tuple[list[Ref], str | None]:
        """Return a page of the records that wait for their children, and the token of the next page if there is one."""
        last = tuple(msgspec.json.decode(after, type=list[str])) if after else ()
        waiting = [entry for entry in self._index.iter_notes() if entry[2].startswith("c~") and entry > last]
        part = waiting[:limit]
        end = msgspec.json.encode(part[-1]).decode() if len(waiting) > limit else None
        return [Ref(kind, paths.parse_parked(note).id) for kind, _, note in part], end

    def sweep_holds(self, active_holds: Collection[str], limit: int) -> int:
        """Unblock what is blocked by holds that are not set any more."""
        valid = {paths.hash_of(f"hold {hold}") for hold in active_holds}
        stale = {
            head
            for _, _, note in self._index.iter_notes()
            if note.startswith("h") and (head := note.partition("~")[0]) not in valid
        }
        return (
            self._unblock_matching(
                stale, lambda reason: reason.startswith("hold ") and reason[5:] not in active_holds, limit
            )
            if stale
            else 0
        )

    def sweep_locks(self, limit: int) -> int:
        """Offer free locks that have waiters, and delete the folders of locks without waiters."""
        folders = self._connection.list_names(paths.WAITING)
        locks = [unquote_name(folder) for folder in folders]
        found = (
            self._connection.read(
                [
                    read
                    for lock in locks
                    for read in (read_data(lock_path_of(lock)), read_data(paths.waiting_folder_of(lock)))
                ]
            )
            if locks
            else []
        )
        free = []
        for lock, owner_node, folder in zip(locks, found[::2], found[1::2], strict=True):
            path = paths.waiting_folder_of(lock)
            if folder is not None and not folder.children:
                self._tree.known_folders.discard(path)
                self._connection.write([operations.delete(path, "folder")])  # refused if there is a waiter by now
            elif folder is not None and owner_node is None:
                free.append(lock)
        return self.offer_locks(free[:limit]) if free else 0

    def sweep_notes(self, limit: int) -> int:
        """Delete parked notes that do not agree with the engine node, a page of notes with each call."""
        notes = self.list_notes()
        start = next((i for i, entry in enumerate(notes) if self._cursor is not None and entry > self._cursor), 0)
        part = notes[start : start + limit]
        self._cursor = part[-1] if part and start + limit < len(notes) else None
        return sum(self.repair_note(*entry) for entry in self.find_stale_notes(part))

    def _repair_notes(self, refs: Collection[Ref]) -> None:
        about = [entry for entry in self._index.iter_notes() if Ref(entry[0], paths.parse_parked(entry[2]).id) in refs]
        for entry in self.find_stale_notes(about):
            self.repair_note(*entry)

    def find_stale_notes(self, entries: Sequence[tuple[str, str, str]]) -> list[tuple[str, str, str]]:
        refs = [Ref(kind, paths.parse_parked(note).id) for kind, _, note in entries]
        stale = []
        for entry, ref, snapshot in zip(entries, refs, read_snapshots(self._connection, refs), strict=True):
            kind, state, note = entry
            right = (
                write_plan.parked_note_path_of(ref, snapshot.engine_node)
                if snapshot is not None and snapshot.engine_node is not None
                else None
            )
            if right != f"{paths.parked_folder_of(kind, state)}/{note}":
                stale.append(entry)
        return stale

    def repair_note(self, kind: str, state: str, note: str) -> bool:
        """Delete one parked note if it is wrong."""
        if not self.find_stale_notes([(kind, state, note)]):
            return False
        ref = Ref(kind, paths.parse_parked(note).id)
        layout = layout_of(kind)
        engine_znode = self._connection.read_node(layout.engine_path_of(ref.id))
        guard = (
            [operations.check(layout.engine_path_of(ref.id), "engine", engine_znode.version)]
            if engine_znode is not None
            else []
        )
        path = f"{paths.parked_folder_of(kind, state)}/{note}"
        return not isinstance(self._connection.write([*guard, operations.delete(path, "note")]), OperationFailure)

    def list_notes(self) -> list[tuple[str, str, str]]:
        return list(self._index.iter_notes())


def _chunks_of(snapshots: Sequence[RecordSnapshot]) -> Iterator[Sequence[RecordSnapshot]]:
    for start in range(0, len(snapshots), _RECORDS_PER_TRANSACTION):
        yield snapshots[start : start + _RECORDS_PER_TRANSACTION]
