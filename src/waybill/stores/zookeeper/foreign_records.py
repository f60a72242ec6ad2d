"""Foreign records: what other services created, moved or removed, and what they left undone.

Merritt's services write node after node, without transactions; a kill between two writes leaves a record whose status
says one thing and whose entries say another. Only the service that has locked a record is in the middle of such a move.
So a record that nobody has locked, and whose status was not written within the grace period (a service that creates a
record need not lock it), is repaired here:

    adopt_new          batches and assemblies that others created get an engine node and an entry in our queue
    refile             a record that was listed under a state in which it is not
    repair_next_page   a page of all records with each call: whatever is not where its status says
    remove_leftovers   our nodes beside records that others removed
"""

from __future__ import annotations

import time
from collections import defaultdict
from collections.abc import Callable, Collection, Mapping, Sequence

from waybill.record import Ref
from waybill.stores.zookeeper import operations, paths, write_plan
from waybill.stores.zookeeper.operations import Operation, list_names, read_data
from waybill.stores.zookeeper.paths import (
    BUCKETS,
    JOB_LAYOUT,
    MERRITT_LAYOUTS,
    KindLayout,
    folder_chain_of,
    layout_of,
    lock_path_of,
    parent_of,
    quote_name,
)
from waybill.stores.zookeeper.record_nodes import EngineNode, decode_engine_node, encode_engine_node
from waybill.stores.zookeeper.record_snapshot import RecordSnapshot, read_snapshots, reconcile_engine_node
from waybill.stores.zookeeper.write_plan import WritePlan, ZookeeperTree


class ForeignRecords:
    """Repairs what other services left in the tree."""

    def __init__(self, tree: ZookeeperTree, grace_period: float) -> None:
        self._tree = tree
        self._grace_period = grace_period  # seconds within which a service without a lock has written a whole record
        self._last_pzxids: dict[
            str, int
        ] = {}  # kind -> the transaction that last changed the names in its folder of homes
        self._cursor: tuple[str, str] = ("", "")
        # removes the jobs of a batch that another service removed; set by the store
        self.remove_orphaned_jobs: Callable[[str], None] = lambda batch: None
        # completes or removes records whose creator died before it wrote their status; set by the store
        self.repair_unfinished: Callable[[Sequence[str]], int] = lambda homes: 0

    def adopt_new(self, kinds: Collection[str]) -> int:
        """Adopt records of these kinds that have no engine node yet and whose queue entries only Waybill writes."""
        layouts = [
            layout for kind in sorted(kinds) if not (layout := layout_of(kind)).has_merritt_entries and layout.id_prefix
        ]
        nodes = self._tree.connection.read_nodes([layout.records_folder for layout in layouts]) if layouts else []
        adopted = 0
        for layout, node in zip(layouts, nodes, strict=True):
            if node is None or self._last_pzxids.get(layout.kind) == node.pzxid:
                continue
            homes, engine_names = self._tree.connection.read(
                [list_names(layout.records_folder), list_names(layout.engine_folder)]
            )
            new = sorted(set(homes or ()) - set(engine_names or ()))
            snapshots = read_snapshots(
                self._tree.connection, [Ref(layout.kind, name) for name in new if layout.id_of(name)]
            )
            ready = [snapshot for snapshot in snapshots if snapshot is not None and self._is_quiet(snapshot)]
            adopted += sum(self._adopt(snapshot) for snapshot in ready)
            if len(ready) == len(new):
                self._last_pzxids[layout.kind] = node.pzxid
        return adopted

    def _adopt(self, snapshot: RecordSnapshot) -> bool:
        plan = WritePlan(self._tree.known_folders)
        entry = f"{snapshot.layout.folder_of(snapshot.state)}/{snapshot.entry_name}"
        plan.ensure_folders(*folder_chain_of(parent_of(entry)))
        plan.ensure_node(entry, "entry")
        home = snapshot.layout.home_path_of(snapshot.ref.id)
        create_engine_node = operations.create(
            snapshot.layout.engine_path_of(snapshot.ref.id),
            encode_engine_node(reconcile_engine_node(snapshot)),
            "engine",
        )
        return (
            self._tree.write(
                [operations.check(f"{home}/status", "status", snapshot.status_version), create_engine_node, *plan.ops]
            )
            is None
        )

    def refile(self, misfiled: Sequence[tuple[RecordSnapshot, str]]) -> int:
        """Correct entries under which records were listed that have another state or priority, unless somebody is just
        moving them.
        """
        quiet = [(snapshot, wrong) for snapshot, wrong in misfiled if self._is_quiet(snapshot)]
        if not quiet:
            return 0
        right_paths = [
            f"{snapshot.layout.folder_of(snapshot.state)}/{_entry_name_of(snapshot)}" for snapshot, _ in quiet
        ]
        found = self._tree.connection.read_nodes(
            [path for (_, wrong), right in zip(quiet, right_paths, strict=True) for path in (wrong, right)]
        )
        repaired_count = 0
        for (snapshot, wrong), right, wrong_node, right_node in zip(
            quiet, right_paths, found[::2], found[1::2], strict=True
        ):
            if wrong_node is None or wrong == right:
                continue  # it was moved meanwhile
            ops = [operations.delete(wrong, "entry"), *build_priority_ops(snapshot)]
            if right_node is None:
                ops += self._build_entry_ops(snapshot.layout, right)
            repaired_count += self._write_if_unclaimed(snapshot, ops)
        return repaired_count

    def repair_next_page(self, limit: int) -> int:
        """Repair the next page of all records that other services write too. The next call continues after it."""
        repaired_count, left = 0, limit
        for kind in sorted(MERRITT_LAYOUTS):
            if left <= 0 or (kind, "~") < self._cursor:
                continue
            layout = layout_of(kind)
            last = self._cursor[1] if self._cursor[0] == kind else ""
            homes = [name for name in self._tree.connection.list_names(layout.records_folder) if layout.id_of(name)]
            ids = sorted(name for name in homes if name > last)[:left]
            left -= len(ids)
            self._cursor = (kind, ids[-1] if ids else last)
            snapshots = read_snapshots(self._tree.connection, [Ref(kind, id) for id in ids])
            unfinished = [layout.home_path_of(id) for id, each in zip(ids, snapshots, strict=True) if each is None]
            repaired_count += self.repair_unfinished(unfinished) if unfinished else 0
            found = [snapshot for snapshot in snapshots if snapshot is not None]
            # A service that died while it moved a job may have left an entry in any queue; so may one that read a job
            # just before we moved it. A batch that others removed may have had an entry in one of our queues that its
            # engine node no longer named.
            is_foreign = layout.has_merritt_entries and any(
                snapshot.engine_node is None or snapshot.has_foreign_write for snapshot in found
            )
            queued = self._list_entries(layout) if is_foreign or self._has_surplus_entries(layout, len(homes)) else {}
            repaired_count += sum(
                self.repair(snapshot, queued.get(snapshot.ref.id, ()) if layout.has_merritt_entries else ())
                for snapshot in found
            )
            repaired_count += self._drop_orphans(layout, {id: queued[id] for id in queued.keys() - set(homes)})
            if left > 0:
                repaired_count += self.remove_leftovers(layout)
        if left > 0:
            self._cursor = ("", "")
        return repaired_count

    def remove_leftovers(self, layout: KindLayout, limit: int = 100) -> int:
        """Remove our nodes beside records that another service removed. Ids are never used again, so this is safe.

        Merritt's services remove a deleted batch and leave its failed jobs, which nobody would ever find: they are
        removed with it.
        """
        # listed before the homes: a record that is created meanwhile is in neither list or in both
        engine_names = self._tree.connection.list_names(layout.engine_folder)
        gone = (
            sorted(set(engine_names) - set(self._tree.connection.list_names(layout.records_folder)))[:limit]
            if engine_names
            else []
        )
        nodes = self._tree.connection.read_nodes([f"{layout.engine_folder}/{id}" for id in gone]) if gone else []
        if layout.kind == JOB_LAYOUT.parent_kind:
            for id in gone:
                self.remove_orphaned_jobs(id)
        leftovers = [
            (Ref(layout.kind, id), node, decode_engine_node(node.data))
            for id, node in zip(gone, nodes, strict=True)
            if node is not None
        ]
        return sum(
            self._remove_leftovers_of(layout, ref, engine_node, node.version)
            for ref, node, engine_node in leftovers
            if engine_node is not None
        )

    def _remove_leftovers_of(self, layout: KindLayout, ref: Ref, engine_node: EngineNode, version: int) -> bool:
        plan = WritePlan(self._tree.known_folders)
        engine_path = layout.engine_path_of(ref.id)
        for name in engine_node.separate_documents:
            plan.remove_node(f"{engine_path}/{quote_name(name)}", "document")
        write_plan.plan_parked_notes(plan, ref, engine_node, None)
        write_plan.plan_owner_and_scope_notes(plan, ref, engine_node, None)
        write_plan.plan_child_note(plan, layout, ref, engine_node, None)
        plan.remove_node(_noted_entry_of(layout, ref, engine_node), "entry")
        plan.remove_node(paths.action_request_path_of(ref), "note")
        if engine_node.idempotency_key is not None:
            plan.remove_node(paths.idempotency_path_of(ref.kind, engine_node.idempotency_key), "note")
        for folder in ("open", "closed", ""):
            plan.remove_node(f"{paths.children_folder_of(ref)}/{folder}".rstrip("/"), "note")
        lock_paths = list(dict.fromkeys(map(lock_path_of, engine_node.owned_locks)))
        read_paths = [*plan.touched_paths, *lock_paths]
        existing = dict(zip(read_paths, self._tree.connection.read_nodes(read_paths), strict=True))
        lock_ops = [
            operations.delete(path, "owned-lock")
            for path in lock_paths
            if (node := existing[path]) is not None and node.data == str(ref).encode()
        ]
        ops = [op for op in plan.ops if existing[op.path] is not None]
        return self._tree.write([*ops, *lock_ops, operations.delete(engine_path, "engine", version)]) is None

    def _has_surplus_entries(self, layout: KindLayout, homes: int) -> bool:
        """Return whether there are more entries than records: Merritt's library creates an entry for a job that it
        loads, if it saw none.
        """
        folders = self._tree.connection.read_nodes([layout.folder_of(state) for state in layout.states])
        return sum(node.children for node in folders if node is not None) > homes

    def _drop_orphans(self, layout: KindLayout, queued: Mapping[str, Sequence[str]]) -> int:
        """Delete entries of records that do not exist. A record is created before its entry, and no id is used twice, so
        no check is needed.
        """
        ids = sorted(queued)
        homes = self._tree.connection.read_nodes([layout.home_path_of(id) for id in ids]) if ids else []
        gone = [path for id, home in zip(ids, homes, strict=True) if home is None for path in queued[id]]
        return sum(self._tree.write([operations.delete(path, "entry")]) is None for path in gone)

    def _list_entries(self, layout: KindLayout) -> dict[str, list[str]]:
        """Return the paths of all queue entries, by the id of their record."""
        folders = [layout.folder_of(state) for state in layout.states]
        entries: dict[str, list[str]] = defaultdict(list)
        for folder, listed in zip(
            folders, self._tree.connection.read([list_names(folder) for folder in folders]), strict=True
        ):
            for name in listed or ():
                if entry := layout.parse_entry(name):
                    entries[entry.id].append(f"{folder}/{name}")
        return entries

    def repair(self, snapshot: RecordSnapshot, queued: Sequence[str] = ()) -> bool:
        """Create the record's queue entry and its entry in its batch where they are missing, and delete the other ones
        of `queued`. Returns True when something was written.
        """
        if not self._is_quiet(snapshot):
            return False
        if not snapshot.layout.has_merritt_entries and snapshot.engine_node is None:
            return self._adopt(snapshot)
        ops = self.build_placement_ops(snapshot)
        right = f"{snapshot.layout.folder_of(snapshot.state)}/{_entry_name_of(snapshot)}"
        ops += [operations.delete(path, "entry") for path in queued if path != right]
        if snapshot.engine_node is None:  # from now on it remembers the last state done
            ops.append(
                operations.create(
                    snapshot.layout.engine_path_of(snapshot.ref.id),
                    encode_engine_node(reconcile_engine_node(snapshot)),
                    "engine",
                )
            )
        elif snapshot.has_foreign_write:
            ops += self._note_move(snapshot)
        return bool(ops) and self._write_if_unclaimed(snapshot, ops)

    def _note_move(self, snapshot: RecordSnapshot) -> list[Operation]:
        """Remove the notes about its old state and add the foreign move to its history."""
        old, new = snapshot.engine_node, reconcile_engine_node(snapshot)
        assert old is not None
        plan = WritePlan(self._tree.known_folders)
        write_plan.plan_parked_notes(plan, snapshot.ref, old, new)
        entry = _noted_entry_of(snapshot.layout, snapshot.ref, old)
        if (
            not snapshot.layout.has_merritt_entries
            and entry != f"{snapshot.layout.folder_of(snapshot.state)}/{_entry_name_of(snapshot)}"
        ):
            plan.remove_node(entry, "entry")
        touched_paths = [*plan.touched_paths, *map(lock_path_of, snapshot.void_locks)]
        existing = (
            dict(zip(touched_paths, self._tree.connection.read_nodes(touched_paths), strict=True))
            if touched_paths
            else {}
        )
        ops = [op for op in plan.ops if existing.get(op.path) is not None]
        for path in dict.fromkeys(map(lock_path_of, snapshot.void_locks)):
            lock_node = existing[path]
            if lock_node is not None and lock_node.data == str(snapshot.ref).encode():
                ops.append(operations.delete(path, "owned-lock"))  # ParkedNotes.sweep_locks offers it to its waiters
        return [
            *ops,
            operations.put(
                snapshot.layout.engine_path_of(snapshot.ref.id),
                encode_engine_node(new),
                "engine",
                snapshot.engine_version,
            ),
        ]

    def build_placement_ops(self, snapshot: RecordSnapshot) -> list[Operation]:
        """Return the operations that move its entries to where they belong; none when they are there."""
        layout, id = snapshot.layout, snapshot.ref.id
        right = f"{layout.folder_of(snapshot.state)}/{_entry_name_of(snapshot)}"
        folders = (
            [f"/batches/{snapshot.parent.id}/states/{bucket}" for bucket in BUCKETS]
            if layout.parent_kind and snapshot.parent
            else []
        )
        reads = [read_data(right), *(read_data(f"{folder}/{id}") for folder in folders)]
        reads.append(
            read_data(f"/batches/{snapshot.parent.id}")
            if layout.parent_kind and snapshot.parent
            else read_data(layout.records_folder)
        )
        entry, *nodes, batch = self._tree.connection.read(reads)
        ops = [*([] if entry is not None else self._build_entry_ops(layout, right)), *build_priority_ops(snapshot)]
        if batch is None:
            return ops
        for folder, node in zip(folders, nodes, strict=True):
            belongs = folder.endswith(f"/{layout.bucket_of(snapshot.state)}")
            if node is not None and not belongs:
                ops.append(operations.delete(f"{folder}/{id}", "entry"))
            elif node is None and belongs:
                # whether they exist is not known
                self._tree.known_folders.difference_update((parent_of(folder), folder))
                ops += [operations.create(path, b"", "folder") for path in (parent_of(folder), folder)]
                ops.append(operations.create(f"{folder}/{id}", b"", "entry"))
        return ops

    def _build_entry_ops(self, layout: KindLayout, entry: str) -> list[Operation]:
        plan = WritePlan(self._tree.known_folders)
        if not layout.has_merritt_entries:
            plan.ensure_folders(*folder_chain_of(parent_of(entry)))
        plan.ensure_node(entry, "entry")
        return plan.ops

    def _write_if_unclaimed(self, snapshot: RecordSnapshot, ops: Sequence[Operation]) -> bool:
        home = snapshot.layout.home_path_of(snapshot.ref.id)
        guards = [
            *operations.check_absent(f"{home}/lock", "free"),
            operations.check(f"{home}/status", "status", snapshot.status_version),
        ]
        return self._tree.write([*guards, *ops]) is None

    def _is_quiet(self, snapshot: RecordSnapshot) -> bool:
        return snapshot.session is None and time.time() - snapshot.status_mtime >= self._grace_period


def build_priority_ops(snapshot: RecordSnapshot) -> list[Operation]:
    """Return the write of its priority as it is read: its entry is named by it, and other services compute that name from
    the node.
    """
    return (
        [
            operations.put(
                f"{snapshot.layout.home_path_of(snapshot.ref.id)}/priority", b"%d" % snapshot.priority, "priority"
            )
        ]
        if snapshot.has_bad_priority
        else []
    )


def _entry_name_of(snapshot: RecordSnapshot) -> str:
    return snapshot.layout.entry_name_of(snapshot.priority, snapshot.queue_position, snapshot.seq, snapshot.ref.id)


def _noted_entry_of(layout: KindLayout, ref: Ref, engine_node: EngineNode) -> str:
    """Return the queue entry that belongs to an engine node, whatever the status says now."""
    name = layout.entry_name_of(engine_node.priority, engine_node.queue_position, engine_node.seq, ref.id)
    return f"{layout.folder_of(engine_node.state)}/{name}"
