"""Consistency rules: what must always hold in Waybill's part of the tree. The rules for Merritt's part are in
consistency_check.py.

A rule lists its subjects (the paths of records or other nodes), examines many of them at once, and yields a violation
for each that breaks it, with the operations that repair it. `check` reports a violation only if a second examination
finds it again, because the tree is never quite still; `repair` examines the subject a third time, and writes only what
that examination says.

    records and queues   each record is in the queue of its state, and can be read
    locks, requests      each lock has an owner, each action request a record; dead workers are reported
    notes                there is a note for all that a record's engine node says, and none for what it does not say
"""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Protocol

from msgspec.structs import replace

from waybill.record import Finding, Ref, is_json
from waybill.stores.zookeeper import operations, paths, write_plan
from waybill.stores.zookeeper.foreign_records import build_priority_ops
from waybill.stores.zookeeper.operations import Operation, list_names, read_data
from waybill.stores.zookeeper.paths import (
    MERRITT_LAYOUTS,
    KindLayout,
    folder_chain_of,
    layout_of,
    lock_path_of,
    parent_of,
    unquote_name,
)
from waybill.stores.zookeeper.record_nodes import decode_engine_node, decode_status, encode_engine_node
from waybill.stores.zookeeper.record_snapshot import RecordSnapshot, read_snapshots
from waybill.stores.zookeeper.write_plan import ZookeeperTree


@dataclass(frozen=True)
class ViolationAges:
    """The ages at which a violation is not just somebody's write in progress."""

    foreign_lock: float = 120.0  # seconds: no step of Merritt's services locks a record for longer
    fail_after: float = 3600.0  # seconds: a younger violation is a warning, because somebody may still be writing


@dataclass(frozen=True)
class RuleViolation:
    """A finding, and the operations that repair it."""

    finding: Finding
    ops: tuple[Operation, ...]  # none: an operator must decide


class ConsistencyRule(Protocol):
    """One consistency rule. `name` is what a Finding calls it."""

    name: str

    def list_subjects(self) -> Iterator[str]:
        """Yield the paths of all nodes that the rule is about."""

    def find_violations(self, subjects: Sequence[str]) -> Iterator[RuleViolation]:
        """Yield a violation for each of these that breaks the rule."""


class RuleContext:
    """What the rules share: the tree, the ages, and the form of a finding."""

    def __init__(self, tree: ZookeeperTree, ages: ViolationAges) -> None:
        self.tree = tree
        self.connection = tree.connection
        self.ages = ages

    def build_violation(
        self,
        rule: str,
        where: str,
        problem: str,
        remedy: str,
        ops: Sequence[Operation],
        *,
        since: float | None = None,
        ref: Ref | None = None,
    ) -> RuleViolation:
        """Build a violation. `since`: when it came to be, which the problem then says, with WARN or FAIL by its age."""
        if since is not None:
            age = max(0.0, time.time() - since)
            problem = f"{problem} ({'FAIL' if age >= self.ages.fail_after else 'WARN'}: for {age:.0f} s)"
        return RuleViolation(Finding(rule, where, problem, remedy, bool(ops), ref), tuple(ops))


_DOCUMENT_CHUNK = 50  # records read together with their documents, each of which may have half a megabyte


def list_layouts(context: RuleContext) -> list[KindLayout]:
    return [
        layout_of(kind)
        for kind in sorted({*MERRITT_LAYOUTS, *map(unquote_name, context.connection.list_names("/waybill/kinds"))})
    ]


def ref_of_home(path: str) -> Ref:
    """Return the record whose home this is."""
    folder, _, node = path.rpartition("/")
    for layout in MERRITT_LAYOUTS.values():
        if layout.records_folder == folder:
            return Ref(layout.kind, node)
    return Ref(unquote_name(path.split("/")[3]), unquote_name(node))


def read_with_damage(context: RuleContext, refs: Sequence[Ref]) -> tuple[list[RecordSnapshot | None], list[bool]]:
    """Read the records, and return also which of them exist and cannot be read. Only ReadableNodesRule and
    RecordStatusRule report those.
    """
    homes = context.connection.read_nodes([layout_of(ref.kind).home_path_of(ref.id) for ref in refs]) if refs else []
    snapshots = read_snapshots(context.connection, refs)
    return snapshots, [snapshot is None and home is not None for snapshot, home in zip(snapshots, homes, strict=True)]


class RecordRule:
    """The base of rules whose subjects are records."""

    def __init__(self, context: RuleContext) -> None:
        self._context = context

    def list_subjects(self) -> Iterator[str]:
        for layout in list_layouts(self._context):
            yield from (
                f"{layout.records_folder}/{name}"
                for name in sorted(self._context.connection.list_names(layout.records_folder))
                if layout.id_of(name)
            )

    def read_records(self, subjects: Sequence[str]) -> list[RecordSnapshot]:
        return [
            snapshot
            for snapshot in read_snapshots(self._context.connection, [ref_of_home(path) for path in subjects])
            if snapshot is not None
        ]

    @staticmethod
    def check_unchanged(snapshot: RecordSnapshot) -> list[Operation]:
        """Return operations that assert that the record has not changed since it was read."""
        ops = [operations.check(f"{snapshot.layout.home_path_of(snapshot.ref.id)}/status", "", snapshot.status_version)]
        return (
            [*ops, operations.check(snapshot.layout.engine_path_of(snapshot.ref.id), "", snapshot.engine_version)]
            if snapshot.engine_node is not None
            else ops
        )


class RecordQueueEntryRule(RecordRule):
    name = "a record is in the queue of its state"

    def find_violations(self, subjects: Sequence[str]) -> Iterator[RuleViolation]:
        # A batch that another service created and Waybill has not read yet gets its entry when it is adopted.
        snapshots = [
            snapshot
            for snapshot in self.read_records(subjects)
            if snapshot.layout.has_merritt_entries or snapshot.engine_node is not None
        ]
        entry_paths = [f"{snapshot.layout.folder_of(snapshot.state)}/{snapshot.entry_name}" for snapshot in snapshots]
        for snapshot, path, node in zip(
            snapshots, entry_paths, self._context.connection.read_nodes(entry_paths) if entry_paths else (), strict=True
        ):
            if node is None:
                folders = (
                    [] if snapshot.layout.has_merritt_entries else build_folder_ops(self._context, parent_of(path))
                )
                ops = [
                    *self.check_unchanged(snapshot),
                    *folders,
                    operations.create(path),
                    *build_priority_ops(snapshot),
                ]
                home = snapshot.layout.home_path_of(snapshot.ref.id)
                yield self._context.build_violation(
                    self.name,
                    home,
                    f"is {snapshot.state} and not queued as {path}",
                    "queue it",
                    ops,
                    since=snapshot.status_mtime,
                    ref=snapshot.ref,
                )


class ReadableNodesRule(RecordRule):
    """A damaged record of ours does not exist for any reader: only this rule reports it.

    It cannot be repaired, because its contents are lost.
    """

    name = "what is written can be read"
    remedy = "restore a backup, or write the node again"

    def find_violations(self, subjects: Sequence[str]) -> Iterator[RuleViolation]:
        for start in range(0, len(subjects), _DOCUMENT_CHUNK):
            yield from self._find_in_chunk(
                [(path, ref_of_home(path)) for path in subjects[start : start + _DOCUMENT_CHUNK]]
            )

    def _find_in_chunk(self, homes: Sequence[tuple[str, Ref]]) -> Iterator[RuleViolation]:
        connection = self._context.connection
        reads = [read_data(f"{path}/status") for path, _ in homes] + [
            read_data(layout_of(ref.kind).engine_path_of(ref.id)) for _, ref in homes
        ]
        found = connection.read(reads)
        for (path, ref), status, engine_znode in zip(homes, found[: len(homes)], found[len(homes) :], strict=True):
            if ref.kind not in MERRITT_LAYOUTS and (status is None or decode_status(status.data) is None):
                since = status.mtime / 1000 if status is not None else None
                yield self._context.build_violation(
                    self.name, path, "its status names no state", self.remedy, (), since=since, ref=ref
                )
            if engine_znode is not None and decode_engine_node(engine_znode.data) is None:
                problem = f"{layout_of(ref.kind).engine_path_of(ref.id)} is no engine node"
                yield self._context.build_violation(
                    self.name, path, problem, self.remedy, (), since=engine_znode.mtime / 1000, ref=ref
                )
        for (path, ref), snapshot in zip(
            homes, read_snapshots(connection, [ref for _, ref in homes], documents=True), strict=True
        ):
            for name, body in sorted((snapshot.documents or {}).items()) if snapshot is not None else ():
                if not is_json(body):
                    problem = f"its document {name} is no JSON"
                    yield self._context.build_violation(self.name, path, problem, self.remedy, (), ref=ref)


class StrayQueueEntryRule:
    name = "a queue holds records of its state, each once"

    def __init__(self, context: RuleContext) -> None:
        self._context = context

    def list_subjects(self) -> Iterator[str]:
        connection = self._context.connection
        for layout in list_layouts(self._context):
            for folder in sorted(connection.list_names(layout.states_folder)):
                yield from (
                    f"{layout.states_folder}/{folder}/{name}"
                    for name in sorted(connection.list_names(f"{layout.states_folder}/{folder}"))
                )

    def find_violations(self, subjects: Sequence[str]) -> Iterator[RuleViolation]:
        context, parsed = self._context, []
        for path in subjects:
            queue, folder, name = path.rsplit("/", 2)
            layout = (
                MERRITT_LAYOUTS["job"]
                if queue == MERRITT_LAYOUTS["job"].states_folder
                else layout_of(unquote_name(queue.split("/")[3]))
            )
            parsed.append((path, layout, layout.state_of(folder), layout.parse_entry(name)))
        nodes = context.connection.read_nodes(subjects)
        refs = [Ref(layout.kind, entry.id if entry else "-") for _, layout, _, entry in parsed]
        for (path, layout, state, entry), node, snapshot, damaged in zip(
            parsed, nodes, *read_with_damage(context, refs), strict=True
        ):
            if node is None or damaged:
                continue
            if entry is None or snapshot is None:
                problem, guard = "belongs to no record", []
            elif snapshot.state != state:
                problem, guard = (
                    f"belongs to {snapshot.ref}, which is {snapshot.state}",
                    RecordRule.check_unchanged(snapshot),
                )
            elif entry.name != snapshot.entry_name:
                problem, guard = (
                    f"belongs to {snapshot.ref}, whose entry is {snapshot.entry_name}",
                    RecordRule.check_unchanged(snapshot),
                )
            else:
                continue
            ops = [*guard, operations.delete(path)]
            ref = Ref(layout.kind, entry.id) if entry is not None else None
            yield context.build_violation(
                self.name, path, problem, "delete the entry", ops, since=node.ctime / 1000, ref=ref
            )


class EngineNodeRule:
    name = "an engine node has a record"

    def __init__(self, context: RuleContext) -> None:
        self._context = context

    def list_subjects(self) -> Iterator[str]:
        for layout in MERRITT_LAYOUTS.values():
            yield from (
                f"{layout.engine_folder}/{name}"
                for name in sorted(self._context.connection.list_names(layout.engine_folder))
            )

    def find_violations(self, subjects: Sequence[str]) -> Iterator[RuleViolation]:
        connection = self._context.connection
        refs = [Ref(path.split("/")[3], path.rpartition("/")[2]) for path in subjects]
        homes = [layout_of(ref.kind).home_path_of(ref.id) for ref in refs]
        found = connection.read(
            [
                read
                for path, home in zip(subjects, homes, strict=True)
                for read in (read_data(path), read_data(home), list_names(path))
            ]
        )
        for path, ref, engine_znode, home, document_names in zip(
            subjects, refs, found[::3], found[1::3], found[2::3], strict=True
        ):
            if engine_znode is not None and home is None:
                ops = [
                    *(operations.delete(f"{path}/{name}") for name in sorted(document_names or ())),
                    operations.delete(path, "", engine_znode.version),
                ]
                child_folders = [
                    f"{paths.children_folder_of(ref)}/open",
                    f"{paths.children_folder_of(ref)}/closed",
                    paths.children_folder_of(ref),
                ]
                existing = [
                    (folder, node)
                    for folder, node in zip(child_folders, connection.read_nodes(child_folders), strict=True)
                    if node is not None
                ]
                # the folders are kept as long as they list children
                if not any(node.children for folder, node in existing if folder != child_folders[-1]):
                    ops += [operations.delete(folder) for folder, _ in existing]
                yield self._context.build_violation(
                    self.name, path, f"{ref} does not exist", "delete it", ops, since=engine_znode.mtime / 1000, ref=ref
                )


class LockOwnerRule:
    name = "a lock is owned by a record that names it"

    def __init__(self, context: RuleContext) -> None:
        self._context = context

    def list_subjects(self) -> Iterator[str]:
        for folder in ("/waybill/locks", "/locks/storage", "/locks/inventory", "/locks/localid"):
            yield from (f"{folder}/{name}" for name in sorted(self._context.connection.list_names(folder)))

    def find_violations(self, subjects: Sequence[str]) -> Iterator[RuleViolation]:
        connection = self._context.connection
        owned_nodes = []
        for path, node in zip(subjects, connection.read_nodes(subjects), strict=True):
            kind, _, id = node.data.decode(errors="replace").partition(" ") if node is not None else ("", "", "")
            if node is not None and id:  # an empty one is another service's
                owned_nodes.append((path, node, Ref(kind, id)))
        for (path, node, ref), snapshot, damaged in zip(
            owned_nodes, *read_with_damage(self._context, [ref for _, _, ref in owned_nodes]), strict=True
        ):
            if damaged:
                continue
            if (
                snapshot is None
                or snapshot.engine_node is None
                or path not in map(lock_path_of, snapshot.engine_node.owned_locks)
            ):
                ops = [
                    *(RecordRule.check_unchanged(snapshot) if snapshot is not None else ()),
                    operations.delete(path, "", node.version),
                ]
                problem = f"names {ref}, which {'does not own it' if snapshot is not None else 'does not exist'}"
                yield self._context.build_violation(
                    self.name, path, problem, "release it", ops, since=node.mtime / 1000, ref=ref
                )


class OwnedLocksRule(RecordRule):
    name = "a record owns the locks that it says it owns"

    def find_violations(self, subjects: Sequence[str]) -> Iterator[RuleViolation]:
        wanted = [
            (snapshot, lock)
            for snapshot in self.read_records(subjects)
            if snapshot.engine_node
            for lock in snapshot.engine_node.owned_locks
        ]
        nodes = self._context.connection.read_nodes([lock_path_of(lock) for _, lock in wanted]) if wanted else []
        for (snapshot, lock), node in zip(wanted, nodes, strict=True):
            if snapshot.engine_node is not None and (node is None or node.data != str(snapshot.ref).encode()):
                engine_node = replace(
                    snapshot.engine_node,
                    owned_locks=tuple(owned for owned in snapshot.engine_node.owned_locks if owned != lock),
                )
                ops = [
                    *self.check_unchanged(snapshot),
                    operations.put(
                        snapshot.layout.engine_path_of(snapshot.ref.id),
                        encode_engine_node(engine_node),
                        "",
                        snapshot.engine_version,
                    ),
                ]
                problem = f"says that it owns {lock}, and {'nobody does' if node is None else 'another record does'}"
                home = snapshot.layout.home_path_of(snapshot.ref.id)
                yield self._context.build_violation(
                    self.name,
                    home,
                    problem,
                    "let it ask for the lock again",
                    ops,
                    since=snapshot.status_mtime,
                    ref=snapshot.ref,
                )


class ActionRequestRule:
    name = "an action request has a record"

    def __init__(self, context: RuleContext) -> None:
        self._context = context

    def list_subjects(self) -> Iterator[str]:
        yield from (
            f"{paths.ACTION_REQUESTS}/{name}"
            for name in sorted(self._context.connection.list_names(paths.ACTION_REQUESTS))
        )

    def find_violations(self, subjects: Sequence[str]) -> Iterator[RuleViolation]:
        refs = [paths.ref_of_name(path.rpartition("/")[2]) for path in subjects]
        homes = self._context.connection.read_nodes([layout_of(ref.kind).home_path_of(ref.id) for ref in refs])
        for path, ref, home, node in zip(
            subjects, refs, homes, self._context.connection.read_nodes(subjects), strict=True
        ):
            if node is not None and home is None:
                ops = [operations.delete(path, "", node.version)]
                yield self._context.build_violation(
                    self.name, path, f"{ref} does not exist", "delete it", ops, since=node.mtime / 1000, ref=ref
                )


class DeadWorkerRule:
    name = "a dead worker is reported and removed"

    def __init__(self, context: RuleContext) -> None:
        self._context = context

    def list_subjects(self) -> Iterator[str]:
        yield from (f"{paths.WORKERS}/{name}" for name in sorted(self._context.connection.list_names(paths.WORKERS)))

    def find_violations(self, subjects: Sequence[str]) -> Iterator[RuleViolation]:
        sessions = [path.rpartition("/")[2] for path in subjects]
        workers = self._context.connection.read_nodes(subjects)
        living = self._context.connection.read_nodes([paths.session_path_of(name) for name in sessions])
        for path, name, worker, session in zip(subjects, sessions, workers, living, strict=True):
            if (
                worker is None
                or session is not None
                or time.time() - worker.ctime / 1000 < self._context.ages.fail_after
            ):
                continue  # reap_sessions reports those that died just now
            ops = [operations.delete(path, "", worker.version)]
            problem = f"the session {name} has ended, and its end was not reported"
            yield self._context.build_violation(self.name, path, problem, "delete it", ops, since=worker.ctime / 1000)


def build_folder_ops(context: RuleContext, folder: str) -> list[Operation]:
    folders = folder_chain_of(folder)
    context.tree.known_folders.difference_update(folders)  # whether they exist is not known
    return [operations.create(path, b"", "folder") for path in folders]


# --- notes


class MissingNoteRule(RecordRule):
    name = "a record has the notes that its engine node requires"

    def find_violations(self, subjects: Sequence[str]) -> Iterator[RuleViolation]:
        wanted = [(snapshot, path) for snapshot in self.read_records(subjects) for path in _notes_of(snapshot)]
        nodes = self._context.connection.read_nodes([path for _, path in wanted]) if wanted else []
        for (snapshot, path), node in zip(wanted, nodes, strict=True):
            if node is None:
                body = snapshot.ref.id.encode() if path.startswith("/waybill/idempotency_keys/") else b""
                ops = [
                    *self.check_unchanged(snapshot),
                    *build_folder_ops(self._context, parent_of(path)),
                    operations.create(path, body),
                ]
                home = snapshot.layout.home_path_of(snapshot.ref.id)
                yield self._context.build_violation(
                    self.name,
                    home,
                    f"{path} does not exist",
                    "create it",
                    ops,
                    since=snapshot.status_mtime,
                    ref=snapshot.ref,
                )


class WrongNoteRule:
    name = "a note agrees with its record's engine node"

    def __init__(self, context: RuleContext) -> None:
        self._context = context

    def list_subjects(self) -> Iterator[str]:
        connection = self._context.connection
        for base in (paths.PARKED, "/waybill/owners", "/waybill/scopes", paths.CHILDREN):
            for outer in sorted(connection.list_names(base)):
                for inner in sorted(connection.list_names(f"{base}/{outer}")):
                    folder = f"{base}/{outer}/{inner}"
                    note_folders = (
                        [f"{folder}/{bucket}" for bucket in ("open", "closed")] if base == paths.CHILDREN else [folder]
                    )
                    for note_folder, listed in zip(
                        note_folders, connection.read([list_names(path) for path in note_folders]), strict=True
                    ):
                        yield from (f"{note_folder}/{name}" for name in sorted(listed or ()))
        for base in (paths.WAITING, "/waybill/idempotency_keys"):
            for outer in sorted(connection.list_names(base)):
                yield from (f"{base}/{outer}/{name}" for name in sorted(connection.list_names(f"{base}/{outer}")))

    def find_violations(self, subjects: Sequence[str]) -> Iterator[RuleViolation]:
        connection = self._context.connection
        nodes = connection.read_nodes(subjects)
        refs = [
            _ref_of_note(path, node.data if node is not None else b"")
            for path, node in zip(subjects, nodes, strict=True)
        ]
        for path, node, ref, snapshot, damaged in zip(
            subjects, nodes, refs, *read_with_damage(self._context, refs), strict=True
        ):
            # the notes about its old state are removed when the foreign move is recorded
            if node is None or damaged or (snapshot is not None and snapshot.has_foreign_write):
                continue
            if snapshot is None or path not in _notes_of(snapshot):
                ops = [
                    *(RecordRule.check_unchanged(snapshot) if snapshot is not None else ()),
                    operations.delete(path, "", node.version),
                ]
                problem = (
                    f"does not agree with {ref}" if snapshot is not None else f"is about {ref}, which does not exist"
                )
                yield self._context.build_violation(
                    self.name, path, problem, "delete it", ops, since=node.ctime / 1000, ref=ref
                )


def _notes_of(snapshot: RecordSnapshot) -> list[str]:
    """Return the notes that must exist for a record."""
    engine_node, ref = snapshot.engine_node, snapshot.ref
    if engine_node is None:
        return []
    note_paths = [write_plan.child_note_path_of(snapshot.layout, ref, engine_node, engine_node.open)]
    if not snapshot.has_foreign_write:
        note_paths += (write_plan.parked_note_path_of(ref, engine_node), write_plan.waiting_note_path_of(engine_node))
    note_paths += write_plan.owner_and_scope_notes_of(ref, engine_node)
    if engine_node.idempotency_key is not None:
        note_paths.append(paths.idempotency_path_of(ref.kind, engine_node.idempotency_key))
    return [path for path in note_paths if path is not None]


def _ref_of_note(path: str, data: bytes) -> Ref:
    """Return the record that a note is about."""
    parts = path.split("/")
    if parts[2] == "idempotency_keys":
        return Ref(unquote_name(parts[3]), data.decode(errors="replace") or "-")
    if parts[2] in ("owners", "scopes"):
        return Ref(unquote_name(parts[4]), unquote_name(parts[5].partition("~")[2]))
    if parts[2] == "parked":
        return Ref(unquote_name(parts[3]), paths.parse_parked(parts[5]).id)
    if parts[2] == "children":
        child = paths.parse_child(parts[6])
        return Ref(child.kind, child.id)
    return paths.ref_of_name(parts[-1])
