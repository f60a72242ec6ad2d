"""Write plans: the operations that write one group of changes, each with its purpose.

A plan is first made from what is known (a claim remembers its record's nodes) and assumes that the tree is as Waybill
left it. Where another service moved or lost an entry, the transaction fails on that operation. The plan is then made
again with `existing`, the nodes that really exist: it leaves out the deletion of what is gone and the creation of what
exists. That is a repair, and no Conflict.

Beside a record's own nodes a plan writes notes: why the record is blocked, who owns it, whose child it is. The functions
`plan_..._note` write a note that is wrong before the change, or missing after it.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

import msgspec

from waybill.record import Ref, StoreError
from waybill.stores.zookeeper import operations, paths
from waybill.stores.zookeeper.connection import ZookeeperConnection
from waybill.stores.zookeeper.operations import NO_NODE, NODE_EXISTS, Operation, OperationFailure, Znode
from waybill.stores.zookeeper.paths import (
    BUCKETS,
    MERRITT_FOLDERS,
    WAYBILL_FOLDERS,
    KindLayout,
    folder_chain_of,
    parent_of,
    quote_name,
)
from waybill.stores.zookeeper.record_nodes import MAX_INLINE_DOCUMENT, EngineNode
from waybill.stores.zookeeper.record_snapshot import RecordSnapshot

_MAX_KNOWN_FOLDERS = 200_000


class ZookeeperTree:
    """The tree as one connection knows it: the connection, and what it may remember of the tree between two calls."""

    def __init__(self, connection: ZookeeperConnection, clock: Callable[[], float], max_names: int) -> None:
        self.connection = connection
        self.now = clock
        self.max_names = max_names
        self.known_folders: set[str] = {*MERRITT_FOLDERS, *WAYBILL_FOLDERS}
        self.claimed_snapshots: dict[Ref, RecordSnapshot] = {}  # what sessions of this connection have claimed
        self.queue_positions: dict[str, int] = {}  # kind -> the highest queue position that was claimed
        self.signal_change: Callable[[], None] = lambda: None  # called when something may have become claimable

    def remember_folder(self, folder: str) -> None:
        if len(self.known_folders) > _MAX_KNOWN_FOLDERS:
            self.known_folders = {*MERRITT_FOLDERS, *WAYBILL_FOLDERS}
        self.known_folders.add(folder)

    def write(self, ops: Sequence[Operation]) -> tuple[Operation, int] | None:
        """Write one transaction, whose folders may exist already. None, or the refused operation and the error."""
        while True:
            wanted = [op for op in ops if op.purpose != "folder" or op.path not in self.known_folders]
            outcome = self.connection.write(wanted)
            if not isinstance(outcome, OperationFailure):
                self.learn_folders(wanted)
                return None
            refused = wanted[outcome.position]
            if refused.purpose == "folder" and outcome.code == NODE_EXISTS:
                self.remember_folder(refused.path)
                continue
            if outcome.code == NO_NODE:
                self.forget_folders_above(refused.path)
            return refused, outcome.code

    def learn_folders(self, ops: Sequence[Operation]) -> None:
        """Remember the folders that these operations created, and forget what they deleted."""
        for op in ops:
            if op.is_create and op.purpose == "folder":
                self.remember_folder(op.path)
            elif op.is_delete:
                self.known_folders.discard(op.path)

    def forget_folders_above(self, path: str) -> None:
        """Forget the folders above this node: one of them does not exist."""
        while path.count("/") > 1:
            path = parent_of(path)
            self.known_folders.discard(path)


ExistingNodes = Mapping[str, Znode | None]  # path -> the node, None if there is none


class WritePlan:
    """The operations that write one group. `existing`: the nodes that really exist, for a repair."""

    def __init__(self, known_folders: set[str], existing: ExistingNodes | None = None) -> None:
        self.ops: list[Operation] = []
        self.final_ops: list[Operation] = []  # come after all others of the group
        self.existing = existing
        self.touched_paths: list[str] = []  # the nodes that a repair must read first
        self._known_folders = known_folders

    def ensure_node(self, path: str, purpose: str, data: bytes = b"") -> None:
        """Create the node, unless it exists."""
        self.touched_paths.append(path)
        if self.existing is None or self.existing.get(path) is None:
            self.ops.append(operations.create(path, data, purpose))

    def remove_node(self, path: str, purpose: str) -> None:
        """Delete the node, unless it is gone."""
        self.touched_paths.append(path)
        if self.existing is None or self.existing.get(path) is not None:
            self.ops.append(operations.delete(path, purpose))

    def write_node(self, path: str, data: bytes, purpose: str, exists: bool) -> None:
        """Write the node. `exists`: whether it exists already, as far as is known."""
        self.touched_paths.append(path)
        if self.existing is not None:
            exists = self.existing.get(path) is not None
        self.ops.append(operations.put(path, data, purpose) if exists else operations.create(path, data, purpose))

    def ensure_folders(self, *folders: str) -> None:
        """Create these folders, outer ones first, unless the last one is known to exist."""
        if folders[-1] not in self._known_folders:
            self.ops += [operations.create(path, b"", "folder") for path in folders]

    def move_entry(self, layout: KindLayout, id: str, old: str | None, new: str | None) -> None:
        """Move a record's queue entry from one path to another. A repair also removes every other entry of the record
        that was read.
        """
        self.touched_paths += [path for path in (old, new) if path is not None]
        if self.existing is not None:
            for path in [
                path
                for path, node in self.existing.items()
                if node is not None and layout.has_merritt_entries and _is_entry(path, id)
            ]:
                if path not in (old, new):
                    self.remove_node(path, "entry")
        if old == new and self.existing is None:
            return
        if old is not None and old != new:
            self.remove_node(old, "entry")
        if new is not None:
            if not layout.has_merritt_entries:
                self.ensure_folders(*folder_chain_of(parent_of(new)))
            self.ensure_node(new, "entry")

    def move_job_listing(self, batch: Ref, id: str, old: str | None, new: str | None) -> None:
        """Move a job from one folder of its batch to another."""
        states = f"/batches/{batch.id}/states"
        self.touched_paths += [f"{states}/{bucket}/{id}" for bucket in BUCKETS]
        if self.existing is not None:
            for bucket in BUCKETS:
                if bucket not in (old, new) and self.existing.get(f"{states}/{bucket}/{id}") is not None:
                    self.remove_node(f"{states}/{bucket}/{id}", "entry")
        if old == new and self.existing is None:
            return
        if old is not None and old != new:
            self.remove_node(f"{states}/{old}/{id}", "entry")
        if new is not None:
            self.ensure_folders(states, f"{states}/{new}")
            self.ensure_node(f"{states}/{new}/{id}", "entry")


def _is_entry(path: str, id: str) -> bool:
    return path.startswith("/jobs/states/") and path.endswith(f"-{id}")


# --- notes and documents


def parked_note_path_of(ref: Ref, engine_node: EngineNode) -> str | None:
    return (
        paths.parked_path_of(ref.kind, engine_node.state, ref.id, engine_node.blocked_by, engine_node.wake_at)
        if engine_node.blocked_by
        else None
    )


def waiting_note_path_of(engine_node: EngineNode) -> str | None:
    reason, _, lock = (engine_node.blocked_by or "").partition(" ")
    return (
        f"{paths.waiting_folder_of(lock)}/{engine_node.waiting_name}"
        if reason == "lock" and engine_node.waiting_name
        else None
    )


def plan_parked_notes(plan: WritePlan, ref: Ref, before: EngineNode | None, after: EngineNode | None) -> None:
    """Write the notes that say why the record is blocked."""
    for old, new in (
        (before and parked_note_path_of(ref, before), after and parked_note_path_of(ref, after)),
        (before and waiting_note_path_of(before), after and waiting_note_path_of(after)),
    ):
        if old == new:
            continue
        if old:
            plan.remove_node(old, "note")
        if new:
            plan.ensure_folders(*folder_chain_of(parent_of(new)))
            plan.ensure_node(new, "note")


def plan_owner_and_scope_notes(plan: WritePlan, ref: Ref, before: EngineNode | None, after: EngineNode | None) -> None:
    """Write the notes that list the record below its owner and below its scope."""
    old = owner_and_scope_notes_of(ref, before) if before is not None else []
    new = owner_and_scope_notes_of(ref, after) if after is not None else []
    for path in old:
        if path not in new:
            plan.remove_node(path, "note")
    for path in new:
        if path not in old:
            plan.ensure_folders(*folder_chain_of(parent_of(path)))
            plan.ensure_node(path, "note")


def owner_and_scope_notes_of(ref: Ref, engine_node: EngineNode) -> list[str]:
    owner, scope, seq = engine_node.owner, engine_node.scope, engine_node.seq
    return [
        *([paths.owner_path_of(owner, ref.kind, seq, ref.id)] if owner else []),
        *([paths.scope_path_of(scope, ref.kind, seq, ref.id)] if scope else []),
    ]


def child_note_path_of(layout: KindLayout, ref: Ref, engine_node: EngineNode, open: bool) -> str | None:
    """Return the note that lists a record below its parent. None without a parent, and where Merritt's folders list it."""
    if engine_node.parent is None or layout.parent_kind:
        return None
    name = paths.child_name_of(ref.kind, engine_node.seq, engine_node.state, ref.id)
    return f"{paths.children_folder_of(Ref(*engine_node.parent))}/{'open' if open else 'closed'}/{name}"


def plan_child_note(
    plan: WritePlan, layout: KindLayout, ref: Ref, before: EngineNode | None, after: EngineNode | None
) -> None:
    """Write the note that lists the record below its parent, as an open or a closed child."""
    old = child_note_path_of(layout, ref, before, before.open) if before else None
    new = child_note_path_of(layout, ref, after, after.open) if after else None
    if old == new:
        return
    if old:
        plan.remove_node(old, "note")
    if new:
        plan.ensure_folders(*folder_chain_of(parent_of(new)))
        plan.ensure_node(new, "note")


def plan_documents(
    plan: WritePlan,
    layout: KindLayout,
    ref: Ref,
    nodes: frozenset[str],
    engine_node: EngineNode,
    documents: Mapping[str, bytes | None],
) -> StoreError | None:
    """Write and remove documents. `engine_node` is the one that will be written, and is changed here.

    `nodes`: the document nodes that exist.
    """
    inline, separate, defaults = (
        dict(engine_node.documents),
        dict.fromkeys(engine_node.separate_documents),
        dict.fromkeys(engine_node.default_documents),
    )
    home, engine_path = layout.home_path_of(ref.id), layout.engine_path_of(ref.id)
    for name, body in documents.items():
        if name in layout.documents:
            path = f"{home}/{name}"
            if body is None:
                if name in nodes:
                    plan.remove_node(path, "document")
                if name in layout.default_documents:  # the other services need the node
                    plan.ops.append(operations.create(path, layout.default_documents[name], "document"))
                    defaults[name] = None
                continue
            if name in layout.numeric_documents and not _is_number(body):
                return StoreError(f"The document {name} of {ref} must be a whole number; {body[:40]!r} is not.")
            plan.write_node(path, body, "document", name in nodes)
            defaults.pop(name, None)
            continue
        path = f"{engine_path}/{quote_name(name)}"
        text = _decode_text(body) if body is not None and len(body) <= MAX_INLINE_DOCUMENT else None
        if body is not None and text is None:
            plan.write_node(path, body, "document", name in separate)
            separate[name] = None
            inline.pop(name, None)
            continue
        if name in separate:
            plan.remove_node(path, "document")
            del separate[name]
        if text is None:
            inline.pop(name, None)
        else:
            inline[name] = text
    engine_node.documents, engine_node.separate_documents, engine_node.default_documents = (
        inline,
        tuple(separate),
        tuple(defaults),
    )
    return None


def _decode_text(body: bytes) -> str | None:
    try:
        return body.decode()
    except UnicodeDecodeError:
        return None


def _is_number(body: bytes) -> bool:
    digits = body[1:] if body.startswith(b"-") else body
    return digits.isdigit()


def batch_uuid_of(submission: bytes | None) -> str | None:
    """Return the name by which Merritt's services look a batch up."""
    if submission is None:
        return None
    try:
        uuid = msgspec.json.decode(submission).get("batchID")
    except (msgspec.DecodeError, AttributeError):
        return None
    return uuid if isinstance(uuid, str) and uuid and "/" not in uuid else None
