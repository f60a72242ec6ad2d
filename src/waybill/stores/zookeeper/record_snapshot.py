"""A snapshot of a record: its nodes, read together, and the Record that they make.

`read_snapshots` reads many records at once. The version of a record is the sum of three numbers: its seq, the version
of the status node, and the version offset. Two events change a record without a write by Waybill, and are detected by
the next reader:

- a worker died (its lock node went with its session): nobody claims the record, but the engine node was written under
  a claim, or the record was claimed after the last commit;
- another service wrote the status: its checksum is not the one in the engine node.

Either raises the version offset by one; the next writer stores it in the engine node. A move by another service also
voids what the record asked for in its old state (locks, holds, waits). It may also say less than is known: a resume by
Merritt's Java library writes "Failed" as the last state done. The engine node remembers the last real one.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any

from msgspec.structs import replace

from waybill.record import HistoryEntry, Record, RecordDocuments, Ref
from waybill.stores.zookeeper.connection import ZookeeperConnection
from waybill.stores.zookeeper.operations import NodeRead, Znode, list_names, read_data
from waybill.stores.zookeeper.paths import KindLayout, checksum_of, layout_of, quote_name
from waybill.stores.zookeeper.record_nodes import (
    FOREIGN_CAUSE,
    MAX_HISTORY,
    EngineNode,
    StatusNode,
    decode_engine_node,
    decode_status,
)

STATES_WITHOUT_WORK = ("Failed", "Deleted", "Held")  # Merritt's states that no step works on
UNKNOWN_SESSION = "unknown"  # the session of a record whose lock node is not ephemeral
_SNAPSHOT_CHUNK = 100  # records read with their documents in one request


@dataclass(slots=True)
class RecordSnapshot:
    """The nodes of one record as they were read."""

    ref: Ref
    layout: KindLayout
    home_created: float  # when its home was created, by the server's clock
    wake_count: int  # the version of its home
    status_bytes: bytes
    status_node: StatusNode
    status_version: int  # of the status node
    status_mtime: float  # when the status node was last written, by the server's clock
    session: str | None  # the session that created the lock node
    engine_node: EngineNode | None
    engine_version: int
    priority: int
    parent: Ref | None
    child_names: frozenset[str]  # the names of the nodes below its home
    documents: dict[str, bytes] | None  # None: not read
    listed_entry: str | None = None  # the name of its queue entry, as it was listed
    has_bad_priority: bool = False  # its priority node holds no number from 0 to 99
    status_checksum: int = field(init=False)  # of `status_bytes`; computed once, because each commit uses it many times

    def __post_init__(self) -> None:
        self.status_checksum = checksum_of(self.status_bytes)

    @property
    def seq(self) -> int:
        if self.layout.id_prefix:
            return self.layout.number_of(self.ref.id)
        return self.engine_node.seq if self.engine_node else 0

    @property
    def queue_position(self) -> int:
        return (
            self.seq if self.layout.has_merritt_entries or self.engine_node is None else self.engine_node.queue_position
        )

    @property
    def state(self) -> str:
        return self.status_node.status

    @property
    def has_foreign_write(self) -> bool:
        """Whether another service wrote the status since Waybill did."""
        return self.engine_node is not None and self.engine_node.status_checksum != self.status_checksum

    @property
    def has_foreign_move(self) -> bool:
        """Whether another service moved it to another state: what it asked for in the old one is void."""
        return self.has_foreign_write and self.engine_node is not None and self.engine_node.state != self.state

    @property
    def needs_recompute(self) -> bool:
        """Whether the locks and holds that it needs are not known, because another service moved it to its state."""
        return self.engine_node is None or self.engine_node.needs_recompute or self.has_foreign_move

    @property
    def void_locks(self) -> tuple[str, ...]:
        """The locks that it owned in the state from which another service moved it. It does not need them any more, and
        perhaps somebody has removed them.
        """
        return self.engine_node.owned_locks if self.engine_node is not None and self.has_foreign_move else ()

    @property
    def last_done(self) -> str | None:
        """The last state whose work was done, as far as either node says."""
        known = self.engine_node.last_done if self.engine_node is not None else None
        if self.layout.has_brief_status:
            return known
        last_successful = self.status_node.last_successful_status or None
        return known if last_successful in STATES_WITHOUT_WORK else last_successful

    @property
    def has_lost_worker(self) -> bool:
        """Whether a worker died that had claimed it."""
        engine_node = self.engine_node
        return (
            engine_node is not None
            and self.session is None
            and (engine_node.session is not None or self.status_version != engine_node.status_version)
        )

    @property
    def version_offset(self) -> int:
        if self.engine_node is None:
            return 0
        return self.engine_node.version_offset + (self.has_foreign_write or self.has_lost_worker)

    @property
    def record_version(self) -> int:
        return self.seq + self.status_version + self.version_offset

    @property
    def blocked_by(self) -> str | None:
        """Why it cannot be claimed now, as Waybill has noted it. A write by another service voids that."""
        return self.engine_node.blocked_by if self.engine_node is not None and not self.has_foreign_write else None

    @property
    def open(self) -> bool:
        if self.layout.settled_buckets:
            return self.state not in self.layout.settled_buckets
        if self.engine_node is None or self.has_foreign_write:
            return self.state not in ("Completed", "Deleted")
        return self.engine_node.open

    @property
    def entry_name(self) -> str:
        """The name of its queue entry, as listed or as it should be."""
        return self.listed_entry or self.layout.entry_name_of(self.priority, self.queue_position, self.seq, self.ref.id)

    def build_history(self) -> list[HistoryEntry]:
        """Return its history, with a last entry that is not written yet if another service changed it."""
        engine_node = self.engine_node
        if engine_node is None:
            return [
                HistoryEntry(
                    self.record_version, self.updated, "", FOREIGN_CAUSE, None, self.state, "created by another service"
                )
            ]
        if self.has_foreign_write:
            reason = "moved by another service" if engine_node.state != self.state else "written by another service"
            return [
                *engine_node.history,
                HistoryEntry(
                    self.record_version, self.updated, "", FOREIGN_CAUSE, engine_node.state, self.state, reason
                ),
            ]
        return engine_node.history

    @property
    def updated(self) -> float:
        if self.engine_node is not None and not self.has_foreign_write:
            return self.engine_node.updated
        return self.status_node.modified_time or self.status_mtime

    def to_record(self) -> Record:
        engine_node = self.engine_node or EngineNode(created=self.home_created)
        known = self.engine_node is not None and not self.has_foreign_write
        return Record(
            self.ref.kind,
            self.ref.id,
            self.state,
            parent=self.parent,
            owner=engine_node.owner,
            scope=engine_node.scope,
            priority=self.priority,
            last_done=self.last_done,
            resume_count=engine_node.resume_count if self.layout.has_brief_status else self.status_node.retry_count,
            error_count=engine_node.error_count if known else 0,
            message=self.status_node.message,
            session=self.session,
            locks=() if self.has_foreign_move else engine_node.locks,
            hold_names=() if self.has_foreign_move else engine_node.hold_names,
            blocked_by=self.blocked_by if self.session is None else None,
            open=self.open,
            host=engine_node.host,
            idempotency_key=engine_node.idempotency_key,
            queue_position=self.queue_position,
            seq=self.seq,
            version=self.record_version,
            wake_count=self.wake_count,
            wake_at=engine_node.wake_at if known and self.session is None else 0.0,
            created=engine_node.created or self.home_created,
            updated=self.updated,
            documents=RecordDocuments(self.documents),
        )


def reconcile_engine_node(snapshot: RecordSnapshot) -> EngineNode:
    """Return the engine node of a record brought up to date with its status, after another service created or moved it
    or its worker died. The record's version stays the same.
    """
    base = snapshot.engine_node or EngineNode(
        seq=snapshot.seq, queue_position=snapshot.seq, created=snapshot.home_created
    )
    if snapshot.has_foreign_move:
        base = replace(base, locks=(), owned_locks=(), hold_names=())
    return replace(
        base,
        version_offset=snapshot.version_offset,
        status_version=snapshot.status_version,
        status_checksum=snapshot.status_checksum,
        state=snapshot.state,
        session=None,
        blocked_by=None,
        wake_at=0.0,
        needs_recompute=snapshot.needs_recompute,
        last_done=snapshot.last_done,
        waiting_name="",
        error_count=0 if snapshot.has_foreign_write else base.error_count,
        open=snapshot.open,
        priority=snapshot.priority,
        updated=snapshot.updated,
        history=snapshot.build_history()[-MAX_HISTORY:],
    )


def reads_of(layout: KindLayout, ref: Ref, documents: bool) -> list[NodeRead]:
    """Return the reads for one record, in the order in which `snapshot_of` takes them."""
    home = layout.home_path_of(ref.id)
    reads = [
        read_data(home),
        read_data(f"{home}/status"),
        read_data(f"{home}/lock"),
        read_data(layout.engine_path_of(ref.id)),
    ]
    if layout.has_merritt_entries:
        reads += (read_data(f"{home}/priority"), read_data(f"{home}/bid"))
    if documents:
        reads += [read_data(f"{home}/{name}") for name in layout.document_names]
    if not documents or not layout.has_merritt_entries:
        reads.append(list_names(home))
    return reads


def snapshot_of(layout: KindLayout, ref: Ref, found: Sequence[Any], documents: bool) -> RecordSnapshot | None:
    """Build the snapshot from the results of `reads_of`. None if there is no such record, or it cannot be read."""
    home, status_node, lock_node, engine_znode, *rest = found
    if home is None or status_node is None:
        return None
    status = decode_status(status_node.data)
    engine_node = decode_engine_node(engine_znode.data) if engine_znode is not None else None
    if status is None or (engine_node is None and not layout.id_prefix):
        return None
    priority, parent = (
        (engine_node.priority if engine_node else 5),
        (Ref(*engine_node.parent) if engine_node and engine_node.parent else None),
    )
    if layout.has_merritt_entries:
        priority_node, bid_node, *rest = rest
        priority = min(99, max(0, _parse_decimal(priority_node, priority)))
        parent = Ref(layout.parent_kind, bid_node.data.decode()) if bid_node is not None and bid_node.data else None
    if not documents or not layout.has_merritt_entries:
        children = rest.pop() or ()
    else:  # of a job's children only its documents matter
        children = [name for name, node in zip(layout.document_names, rest, strict=True) if node is not None]
    return RecordSnapshot(
        ref=ref,
        layout=layout,
        home_created=home.ctime / 1000,
        wake_count=home.version,
        status_bytes=status_node.data,
        status_node=status,
        status_version=status_node.version,
        status_mtime=status_node.mtime / 1000,
        session=None if lock_node is None else session_name_of(lock_node.owner) if lock_node.owner else UNKNOWN_SESSION,
        engine_node=engine_node,
        engine_version=engine_znode.version if engine_znode is not None else -1,
        priority=priority,
        parent=parent,
        child_names=frozenset(children),
        documents=_collect_documents(layout, engine_node, rest) if documents else None,
        has_bad_priority=layout.has_merritt_entries
        and priority_node is not None
        and priority_node.data != b"%d" % priority,
    )


def session_name_of(number: int) -> str:
    """Return the name of a session of ZooKeeper, its number as ZooKeeper's own tools write it."""
    return f"{number & 0xFFFFFFFFFFFFFFFF:x}"


def read_snapshots(
    connection: ZookeeperConnection, refs: Iterable[Ref], documents: bool = False
) -> list[RecordSnapshot | None]:
    """Read the records as they are now. None for those that do not exist, or are too damaged to be read (`check` reports
    those).
    """
    wanted = list(refs)
    snapshots: list[RecordSnapshot | None] = []
    chunk = _SNAPSHOT_CHUNK if documents else len(wanted) or 1
    for start in range(0, len(wanted), chunk):
        part = [(layout_of(ref.kind), ref) for ref in wanted[start : start + chunk]]
        reads = [reads_of(layout, ref, documents) for layout, ref in part]
        found = connection.read([read for record_reads in reads for read in record_reads])
        offset = 0
        for (layout, ref), record_reads in zip(part, reads, strict=True):
            snapshots.append(snapshot_of(layout, ref, found[offset : offset + len(record_reads)], documents))
            offset += len(record_reads)
    if documents:
        _add_separate_documents(connection, [snapshot for snapshot in snapshots if snapshot is not None])
    return snapshots


def read_snapshot(connection: ZookeeperConnection, ref: Ref, documents: bool = False) -> RecordSnapshot | None:
    return read_snapshots(connection, [ref], documents)[0]


def _collect_documents(
    layout: KindLayout, engine_node: EngineNode | None, found: Sequence[Znode | None]
) -> dict[str, bytes]:
    documents: dict[str, bytes] = {}
    defaults = engine_node.default_documents if engine_node else ()
    for name, node in zip(layout.document_names, found, strict=True):
        if node is None or (name in defaults and node.version == 0):
            continue
        documents[name] = node.data or layout.default_documents.get(name, b"{}")
    if engine_node:
        documents.update((name, body.encode()) for name, body in engine_node.documents.items())
    return documents


def _add_separate_documents(connection: ZookeeperConnection, snapshots: Sequence[RecordSnapshot]) -> None:
    wanted = [
        (snapshot, name)
        for snapshot in snapshots
        if snapshot.engine_node
        for name in snapshot.engine_node.separate_documents
    ]
    if not wanted:
        return
    found = connection.read_nodes(
        [f"{snapshot.layout.engine_path_of(snapshot.ref.id)}/{quote_name(name)}" for snapshot, name in wanted]
    )
    for (snapshot, name), node in zip(wanted, found, strict=True):
        if node is not None and snapshot.documents is not None:
            snapshot.documents[name] = node.data


def _parse_decimal(node: Znode | None, default: int) -> int:
    try:
        return int(node.data) if node is not None else default
    except ValueError:
        return default
