"""Predicted numbers: the next id, seq and queue position, which a transaction must contain when it is sent.

ZooKeeper counts the children that were ever created in a node, and a sequential name is that count: (cversion +
children) / 2 of the node's stat. Waybill reads the stat and creates the node by name, in the same transaction as
everything below it. If somebody else was faster, the name exists and the transaction is refused: the stat is read again
(after a sync, because a follower may lag) and the transaction is repeated. A name beyond the count must never be
created, or a service that lets ZooKeeper choose the number would collide with it: so transactions that create records
are sent one after another, and a refused group gives its numbers back.

    Merritt's kinds   the id is predicted from the folder of the homes, and the seq is the number in the id
    all others        seq is one counter for the whole store, in the node /waybill/seq; a minted id is made of it

Queue positions make families take turns: the children of a parent, and the records of a kind that have no parent. Each
family starts from the position that is being claimed. The last position of a parent's children is in the parent's node
below /waybill/children, that of records without a parent in /waybill/seq.
"""

from __future__ import annotations

from collections.abc import Iterable
from copy import deepcopy
from dataclasses import dataclass, field

import msgspec

from waybill.record import Change, CommitTooLarge, Ref, StoreError
from waybill.stores.zookeeper import operations, paths
from waybill.stores.zookeeper.connection import ZookeeperConnection
from waybill.stores.zookeeper.operations import Operation
from waybill.stores.zookeeper.paths import KindLayout, folder_chain_of, layout_of, unquote_name
from waybill.stores.zookeeper.write_plan import WritePlan


class LastNumbers(msgspec.Struct, frozen=True):
    """The node /waybill/seq."""

    seq: int = 0
    parentless_positions: dict[str, int] = {}  # kind -> the last queue position of a record without a parent


@dataclass
class ParentPositions:
    """The last queue position that a parent gave to its children of each kind, from its node below /waybill/children."""

    last_positions: dict[str, int]
    version: int
    is_changed: bool = False


@dataclass
class NumberCounters:
    """The numbers as they were read, moved on by each allocation."""

    seq: int = 0
    parentless_positions: dict[str, int] = field(default_factory=dict)  # kind -> the last one given
    seq_version: int = -1
    has_new_seq: bool = False
    next_numbers: dict[str, int] = field(default_factory=dict)  # folder of homes -> the number of the next home
    record_counts: dict[str, int] = field(default_factory=dict)  # folder of homes -> how many it contains
    parent_positions: dict[Ref, ParentPositions] = field(default_factory=dict)


class NumberAllocator:
    """The numbers for the next transactions of one commit."""

    def __init__(self, connection: ZookeeperConnection, max_names: int, served_positions: dict[str, int]) -> None:
        self._connection = connection
        self._max_names = max_names
        # kind -> the queue position that is being claimed now, as far as this process knows
        self._served_positions = served_positions
        self._counters = NumberCounters()
        self._read_paths: set[str] = set()
        self._needs_sync = False

    def invalidate(self) -> None:
        """Somebody else was faster: read everything again, after a sync with the leader."""
        self._read_paths.clear()
        self._counters = NumberCounters()
        self._needs_sync = True

    def prepare(self, changes: Iterable[Change]) -> None:
        """Read what these creations and removals need to know, in one request."""
        wanted: dict[str, None] = {}
        for change in changes:
            kind = change.ref.kind
            layout = layout_of(kind)
            if not layout.id_prefix:
                wanted[paths.SEQ_PATH] = None
            if change.before is None:
                wanted[layout.records_folder] = None
                parent = change.after.parent if change.after else None
                if not layout.has_merritt_entries and change.after is not None and change.after.queue_position is None:
                    wanted[paths.queue_position_path_of(kind)] = None
                    if parent is not None:
                        wanted[paths.children_folder_of(parent)] = None
        unread_paths = [path for path in wanted if path not in self._read_paths]
        if not unread_paths:
            return
        if self._needs_sync:
            self._connection.sync()
            self._needs_sync = False
        counters = self._counters
        for path, node in zip(unread_paths, self._connection.read_nodes(unread_paths), strict=True):
            self._read_paths.add(path)
            if path == paths.SEQ_PATH:
                if node is not None:
                    last = msgspec.json.decode(node.data, type=LastNumbers)
                    counters.seq, counters.parentless_positions = last.seq, last.parentless_positions
                    counters.seq_version = node.version
            elif path.startswith(f"{paths.CHILDREN}/"):
                parent = Ref(*map(unquote_name, path.split("/")[3:5]))
                last_positions = (
                    msgspec.json.decode(node.data, type=dict[str, int]) if node is not None and node.data else {}
                )
                counters.parent_positions[parent] = ParentPositions(
                    last_positions, node.version if node is not None else 0
                )
            elif path.endswith("/queue_position"):
                kind = unquote_name(path.split("/")[3])
                self._served_positions[kind] = max(
                    self._served_positions.get(kind, 0), int(node.data) if node is not None and node.data else 0
                )
            else:
                counters.next_numbers[path] = (node.cversion + node.children) // 2 if node is not None else 0
                counters.record_counts[path] = node.children if node is not None else 0

    def save(self) -> NumberCounters:
        return deepcopy(self._counters)

    def restore(self, counters: NumberCounters) -> None:
        """Give back the numbers of a refused group: the next ones must follow without a gap."""
        self._counters = counters

    def allocate(self, change: Change) -> tuple[Ref, int, int] | StoreError:
        """Return the ref, the seq and the queue position of a new record."""
        record, counters = change.after, self._counters
        assert record is not None
        layout = layout_of(record.kind)
        if refusal := self._refuse_when_full(layout):
            return refusal
        counters.record_counts[layout.records_folder] = counters.record_counts.get(layout.records_folder, 0) + 1
        if layout.id_prefix:
            if not record.id.endswith("*"):
                return StoreError(
                    f"The ids of {record.kind} are minted; ask for {layout.id_prefix}* instead of {record.id}."
                )
            if record.id != f"{layout.id_prefix}*":
                return StoreError(
                    f"The ids of {record.kind} begin with {layout.id_prefix} in Merritt's tree, not with {record.id[:-1]}."
                )
            number = counters.next_numbers[layout.records_folder]
            counters.next_numbers[layout.records_folder] = number + 1
            ref = Ref(record.kind, f"{layout.id_prefix}{number:010d}")
            seq = layout.number_of(ref.id)
        else:
            counters.seq += 1
            counters.has_new_seq = True
            seq = counters.seq
            ref = Ref(record.kind, f"{record.id[:-1]}{seq:010d}" if record.id.endswith("*") else record.id)
        return ref, seq, self._allocate_position(layout, change, seq)

    def _allocate_position(self, layout: KindLayout, change: Change, seq: int) -> int:
        record = change.after
        assert record is not None
        if layout.has_merritt_entries:
            return seq
        if record.queue_position is not None:
            return record.queue_position
        if record.parent is None:
            last_positions = self._counters.parentless_positions
        else:
            parent_positions = self._counters.parent_positions[record.parent]
            last_positions = parent_positions.last_positions
            parent_positions.is_changed = True
        position = max(self._served_positions.get(record.kind, 0), last_positions.get(record.kind, 0) + 1)
        last_positions[record.kind] = position
        return position

    def advance_past(self, version: int) -> None:
        """A record of this version is removed: a later record with the same id must only have higher versions."""
        if self._counters.seq < version:
            self._counters.seq, self._counters.has_new_seq = version, True

    def plan_positions(self, plan: WritePlan) -> None:
        """Write the last queue position that each parent gave, after the group that took them."""
        for parent, parent_positions in self._counters.parent_positions.items():
            if parent_positions.is_changed:
                path = paths.children_folder_of(parent)
                plan.ensure_folders(*folder_chain_of(f"{path}/open"))
                plan.ops.append(
                    operations.put(
                        path,
                        msgspec.json.encode(parent_positions.last_positions),
                        "queue-positions",
                        parent_positions.version,
                    )
                )
                parent_positions.version += 1
                parent_positions.is_changed = False

    def build_seq_ops(self) -> list[Operation]:
        """Return the write of the seq counter, once for each transaction that takes numbers. If somebody else has
        moved the counter, the transaction is refused.
        """
        counters = self._counters
        if not counters.has_new_seq:
            return []
        op = operations.put(
            paths.SEQ_PATH,
            msgspec.json.encode(LastNumbers(counters.seq, counters.parentless_positions)),
            "seq",
            counters.seq_version,
        )
        counters.seq_version += 1
        counters.has_new_seq = False
        return [op]

    def _refuse_when_full(self, layout: KindLayout) -> StoreError | None:
        if self._counters.record_counts.get(layout.records_folder, 0) < self._max_names:
            return None
        return CommitTooLarge(
            f"{layout.records_folder} holds {self._max_names} records, the most that clients of ZooKeeper can list. "
            "Remove what has settled (retention does it), or keep this kind in PostgreSQL."
        )
