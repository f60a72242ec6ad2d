"""Planning a commit: from groups of changes to operations, or to refusals.

CommitReads      reads what the groups change, wake or close, in as few requests as possible
GroupPlanner     makes the operations of one group from its changes, the snapshots of its records and the numbers
                 that it takes
GroupAttempt     one group with what is known and planned for it
GroupTransaction the groups that are sent in one transaction
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass, field

from waybill.record import (
    ActionRequest,
    Change,
    CommitAnswer,
    CommitGroup,
    CommitResult,
    CommitTooLarge,
    Conflict,
    ParentClosed,
    RecordBusy,
    Ref,
    StoreError,
)
from waybill.stores.zookeeper import children, operations, paths, record_changes, write_plan
from waybill.stores.zookeeper.children import ZookeeperChildren
from waybill.stores.zookeeper.connection import MAX_REQUEST
from waybill.stores.zookeeper.numbers import NumberAllocator
from waybill.stores.zookeeper.operations import Operation, Znode, list_names, read_data
from waybill.stores.zookeeper.operator_controls import ZookeeperActionRequests, ZookeeperHolds, encode_request
from waybill.stores.zookeeper.parked_notes import ParkedNotes
from waybill.stores.zookeeper.paths import JOB_LAYOUT, layout_of
from waybill.stores.zookeeper.record_changes import ChangeResult
from waybill.stores.zookeeper.record_nodes import encode_engine_node
from waybill.stores.zookeeper.record_snapshot import RecordSnapshot, read_snapshot, read_snapshots
from waybill.stores.zookeeper.write_plan import ExistingNodes, WritePlan, ZookeeperTree

REQUEST_MARGIN = 2000  # bytes for what a transaction has besides its groups
MAX_FAILURES = 10  # how often a group may fail on an unexpected tree before it is refused
ENCODING_ERRORS = (ValueError, TypeError)  # e.g. a text that cannot be encoded


@dataclass(slots=True)
class GroupAttempt:
    """A group of a commit: its answer, or what is known and planned for it so far."""

    group: CommitGroup
    answer: CommitAnswer | None = None
    reads_existing: bool = False  # plan from the nodes that really exist
    failures: int = 0
    snapshots: dict[Ref, RecordSnapshot | None] = field(default_factory=dict)
    existing: ExistingNodes | None = None
    plan: WritePlan | None = None
    size: int = 0  # of the plan, in bytes
    results: list[ChangeResult] = field(default_factory=list)
    holds: Collection[str] = ()
    pending_requests: dict[Ref, ActionRequest] = field(default_factory=dict)
    takes_numbers: bool = field(init=False)  # no two transactions that take numbers may be pending at the same time

    def __post_init__(self) -> None:
        self.takes_numbers = any(
            c.before is None or (c.after is None and not layout_of(c.ref.kind).id_prefix) for c in self.group.changes
        )

    @property
    def needed_refs(self) -> list[Ref]:
        """The records that the group needs and does not change: woken, requested to act, or parents that must be open."""
        parents = [c.after.parent for c in self.group.changes if c.requires_open_parent and c.after is not None]
        return [
            *self.group.wake,
            *(request.ref for request in self.group.requests),
            *(parent for parent in parents if parent is not None),
        ]

    @property
    def sessions(self) -> set[str]:
        return {c.before.session for c in self.group.changes if c.before is not None and c.before.session is not None}


@dataclass(slots=True)
class GroupTransaction:
    """Groups that are sent in one transaction."""

    attempts: list[GroupAttempt] = field(default_factory=list)
    sessions: dict[str, None] = field(default_factory=dict)
    ops: list[Operation] = field(default_factory=list)
    op_attempts: list[GroupAttempt | None] = field(default_factory=list)  # the group of each operation
    size: int = 0
    takes_numbers: bool = False


class GroupPlanner:
    """Makes the operations of a group, or its refusal."""

    def __init__(self, tree: ZookeeperTree, parked_notes: ParkedNotes) -> None:
        self._tree = tree
        self._connection = tree.connection
        self._parked_notes = parked_notes

    @staticmethod
    def prepare_numbers(attempt: GroupAttempt, numbers: NumberAllocator) -> None:
        """Read what is needed to predict the numbers that the group takes, if that is not known yet."""
        if attempt.takes_numbers:
            numbers.prepare(c for c in attempt.group.changes if c.before is None or c.after is None)

    def plan_group(self, attempt: GroupAttempt, numbers: NumberAllocator) -> bool:
        """Plan the group's operations. Returns False when it is refused."""
        plan = WritePlan(self._tree.known_folders, attempt.existing)
        self.prepare_numbers(attempt, numbers)
        saved_numbers = numbers.save() if attempt.takes_numbers else None
        attempt.results, attempt.plan = [], None
        for change in attempt.group.changes:
            try:
                result = self.plan_change(attempt, plan, change, numbers)
            except ENCODING_ERRORS as error:
                result = StoreError(f"{change.ref} cannot be written: {error}.")
            if isinstance(result, StoreError):
                attempt.answer = result
                if saved_numbers is not None:
                    numbers.restore(saved_numbers)
                return False
            attempt.results.append(result)
        if refusal := self._plan_requirements(attempt, plan):
            attempt.answer = refusal
            if saved_numbers is not None:
                numbers.restore(saved_numbers)
            return False
        self._wake_parents(attempt, plan)
        if saved_numbers is not None:
            numbers.plan_positions(plan)
        plan.ops += plan.final_ops
        plan.final_ops = []
        attempt.size = self._connection.estimate_size(plan.ops)
        if attempt.size > MAX_REQUEST - REQUEST_MARGIN:
            attempt.answer = CommitTooLarge(
                f"One group of {attempt.size} bytes with all its nodes; ZooKeeper takes {MAX_REQUEST}. Split it into smaller groups."
            )
            if saved_numbers is not None:
                numbers.restore(saved_numbers)
            return False
        attempt.plan = plan
        return True

    def plan_change(
        self, attempt: GroupAttempt, plan: WritePlan, change: Change, numbers: NumberAllocator | None
    ) -> ChangeResult | StoreError:
        now = self._tree.now()
        if change.before is None:
            assert numbers is not None
            allocated = numbers.allocate(change)
            return (
                allocated
                if isinstance(allocated, StoreError)
                else record_changes.plan_create(plan, change, *allocated, now=now)
            )
        snapshot = attempt.snapshots.get(change.ref)
        if refusal := record_changes.find_outdated(change, snapshot):
            return refusal
        assert snapshot is not None
        if change.requires_children_settled:
            children.assert_no_open_child(plan, snapshot, change.after.state if change.after else None)
        if change.after is not None:
            return record_changes.plan_move(
                plan, change, snapshot, now, attempt.holds, is_woken=change.ref in attempt.group.wake
            )
        children.remove_child_folders(plan, change.ref)
        if numbers is not None and not snapshot.layout.id_prefix:
            numbers.advance_past(snapshot.record_version)
        return record_changes.plan_remove(plan, change, snapshot)

    def _plan_requirements(self, attempt: GroupAttempt, plan: WritePlan) -> StoreError | None:
        """Assert what the group requires of records that it does not change, and leave its action requests there."""
        afters = {change.ref: change.after for change in attempt.group.changes if change.before is not None}
        for change in attempt.group.changes:
            if not change.requires_open_parent or change.after is None or (parent := change.after.parent) is None:
                continue
            snapshot, after = attempt.snapshots.get(parent), afters.get(parent)
            is_open = (after is not None and after.open) if parent in afters else snapshot is not None and snapshot.open
            if not is_open or snapshot is None:
                state = after.state if after is not None else snapshot.state if snapshot is not None else "gone"
                return ParentClosed(f"{parent} is {state}, and takes no more children.")
            if parent not in afters:
                status_path = f"{snapshot.layout.home_path_of(parent.id)}/status"
                plan.ops.append(operations.check(status_path, "open-parent", snapshot.status_version))
        for request in attempt.group.requests:
            snapshot = attempt.snapshots.get(request.ref)
            if snapshot is None or snapshot.session is None:
                return Conflict(f"{request.ref} is gone or no longer claimed. Read it again, then decide again.")
            path = paths.action_request_path_of(request.ref)
            plan.ops.append(operations.check(f"{snapshot.layout.home_path_of(request.ref.id)}/lock", "request"))
            pending = attempt.pending_requests.get(request.ref)
            if pending is None:
                plan.ops.append(operations.create(path, encode_request(request), "request"))
            elif pending.is_repeated_by(request):
                plan.ops.append(operations.check(path, "request"))
            else:
                return RecordBusy(f"{pending.action} was requested of {request.ref} and is not answered yet.")
        return None

    def _wake_parents(self, attempt: GroupAttempt, plan: WritePlan) -> None:
        """Wake the records that the group wakes: raise their wake count and end their wait. That is not versioned, and
        a record that does not exist is no error.
        """
        changed = {change.ref for change in attempt.group.changes}
        for ref in dict.fromkeys(attempt.group.wake):
            snapshot = attempt.snapshots.get(ref)
            if snapshot is None:
                continue
            plan.final_ops.append(operations.put(snapshot.layout.home_path_of(ref.id), b"", "wake"))
            if ref in changed:
                continue
            if attempt.failures > MAX_FAILURES // 2:
                # Others keep writing it: the wake count rises all the same, and the wait is ended after the commit, by
                # ZookeeperCommitter._run_followups.
                continue
            if snapshot.engine_node is None:
                plan.final_ops += operations.check_absent(snapshot.layout.engine_path_of(ref.id), "wake")
                continue
            if snapshot.blocked_by not in ("wait", "children"):  # assert that it was not blocked since it was read
                plan.final_ops.append(
                    operations.check(snapshot.layout.engine_path_of(ref.id), "wake", snapshot.engine_version)
                )
                continue
            unblocked = self._parked_notes.to_unblocked(snapshot.engine_node)
            scratch = WritePlan(self._tree.known_folders)
            write_plan.plan_parked_notes(scratch, ref, snapshot.engine_node, unblocked)
            plan.final_ops += [op._replace(purpose="wake") for op in scratch.ops]
            plan.final_ops.append(
                operations.put(
                    snapshot.layout.engine_path_of(ref.id),
                    encode_engine_node(unblocked),
                    "wake",
                    snapshot.engine_version,
                )
            )


_LISTED_NODE = Znode(b"", *(0,) * 11)  # stands for a node of which only the name was read


class CommitReads:
    """Reads the records that groups change, wake or close, in as few requests as possible."""

    def __init__(
        self,
        tree: ZookeeperTree,
        children: ZookeeperChildren,
        holds: ZookeeperHolds,
        action_requests: ZookeeperActionRequests,
        planner: GroupPlanner,
    ) -> None:
        self._tree = tree
        self._connection = tree.connection
        self._children = children
        self._holds = holds
        self._action_requests = action_requests
        self._planner = planner

    def read_groups(self, attempts: Sequence[GroupAttempt]) -> None:
        """Read what these groups need. Answers those that are refused or answered by what was read."""
        wanted: dict[Ref, bool] = {}
        keyed_creations: list[tuple[GroupAttempt, str, str]] = []
        for attempt in attempts:
            attempt.snapshots, attempt.existing = {}, None
            for change in attempt.group.changes:
                if change.before is None:
                    if change.after is not None and change.after.idempotency_key is not None:
                        keyed_creations.append((attempt, change.ref.kind, change.after.idempotency_key))
                    continue
                if known := None if attempt.reads_existing else self._recall_snapshot(change):
                    attempt.snapshots[change.ref] = known
                    continue
                attempt.reads_existing = attempt.reads_existing or _needs_care(change)
                wanted[change.ref] = wanted.get(change.ref, False) or _needs_documents(change)
            wanted.update((ref, wanted.get(ref, False)) for ref in attempt.needed_refs)
        found = self._read_wanted(wanted)
        for attempt in attempts:
            for ref in [*(c.ref for c in attempt.group.changes if c.before is not None), *attempt.needed_refs]:
                attempt.snapshots.setdefault(ref, found.get(ref))
            # Which of its locks it still owns must be read: whoever moved it may have removed them.
            attempt.reads_existing = attempt.reads_existing or any(
                snapshot is not None and snapshot.void_locks for snapshot in attempt.snapshots.values()
            )
        self._answer_repeated_keys(keyed_creations)
        requested = [request.ref for attempt in attempts for request in attempt.group.requests]
        pending = {request.ref: request for request in self._action_requests.read_for(requested)} if requested else {}
        for attempt in attempts:
            attempt.pending_requests = pending
        if any(
            c.is_continuation and c.after and c.after.hold_names for attempt in attempts for c in attempt.group.changes
        ):
            holds = self._holds.read_active()
            for attempt in attempts:
                attempt.holds = holds
        self._refuse_open_parents([attempt for attempt in attempts if attempt.answer is None])
        self._read_existing_nodes(
            [attempt for attempt in attempts if attempt.reads_existing and attempt.answer is None]
        )

    def _recall_snapshot(self, change: Change) -> RecordSnapshot | None:
        """Return the remembered snapshot of a record that we have claimed, if it is enough to plan the change."""
        before, after = change.before, change.after
        snapshot = self._tree.claimed_snapshots.get(change.ref)
        if (
            snapshot is None
            or before is None
            or after is None
            or change.requires_children_settled
            or change.answers_request
        ):
            return None
        if snapshot.session != before.session or snapshot.record_version != before.version:
            return None
        if change.ref.kind == JOB_LAYOUT.parent_kind and (
            after.state != before.state or "submission" in change.documents
        ):
            return None  # its node `states` may have been created meanwhile
        return snapshot

    def _read_wanted(self, wanted: dict[Ref, bool]) -> dict[Ref, RecordSnapshot | None]:
        found: dict[Ref, RecordSnapshot | None] = {}
        for with_documents in (False, True):
            refs = [ref for ref, wants_documents in wanted.items() if wants_documents is with_documents]
            found.update(zip(refs, read_snapshots(self._connection, refs, with_documents), strict=True) if refs else ())
        return found

    def _answer_repeated_keys(self, keyed_creations: Sequence[tuple[GroupAttempt, str, str]]) -> None:
        """Answer a creation whose idempotency key is known with the record that was created first."""
        nodes = (
            self._connection.read_nodes(
                [paths.idempotency_path_of(kind, idempotency_key) for _, kind, idempotency_key in keyed_creations]
            )
            if keyed_creations
            else []
        )
        for (attempt, kind, idempotency_key), node in zip(keyed_creations, nodes, strict=True):
            if node is None or attempt.answer is not None:
                continue
            snapshot = read_snapshot(self._connection, Ref(kind, node.data.decode()), documents=True)
            if snapshot is not None:
                is_repeated = [
                    c.before is None and c.after is not None and c.after.idempotency_key == idempotency_key
                    for c in attempt.group.changes
                ]
                attempt.plan = None
                attempt.answer = CommitResult(
                    tuple(snapshot.to_record() if repeated else None for repeated in is_repeated)
                )

    def _refuse_open_parents(self, attempts: Sequence[GroupAttempt]) -> None:
        """Refuse groups that close a parent which has an open child, before anything is sent."""
        for attempt in attempts:
            closing = [c.ref for c in attempt.group.changes if c.requires_children_settled]
            if not closing:
                continue
            self._connection.sync()  # a job that only another server knows yet counts too
            settled = [
                c.ref for c in attempt.group.changes if c.before is not None and (c.after is None or not c.after.open)
            ]
            if open_parents := self._children.parents_with_open_children(closing, settled):
                attempt.answer = Conflict(f"{min(open_parents)} still has an open child; it cannot be closed.")

    def _read_existing_nodes(self, attempts: Sequence[GroupAttempt]) -> None:
        """Read which of the nodes that these groups would touch really exist."""
        reads: list[list[operations.NodeRead]] = []
        for attempt in attempts:
            scratch = WritePlan(self._tree.known_folders)
            folders: dict[str, None] = {}
            for change in attempt.group.changes:
                snapshot = attempt.snapshots.get(change.ref)
                if change.before is None or snapshot is None:
                    continue
                try:
                    self._planner.plan_change(attempt, scratch, change, None)
                except ENCODING_ERRORS:
                    continue  # plan_group reports it
                if snapshot.layout.has_merritt_entries and attempt.failures:  # its entry may be in any queue
                    folders |= {snapshot.layout.folder_of(state): None for state in snapshot.layout.states}
            reads.append(
                [read_data(path) for path in dict.fromkeys(scratch.touched_paths)]
                + [list_names(path) for path in folders]
            )
        found = self._connection.read([read for attempt in reads for read in attempt])
        offset = 0
        for attempt, group_reads in zip(attempts, reads, strict=True):
            existing: dict[str, Znode | None] = {}
            for (_, path), node in zip(group_reads, found[offset : offset + len(group_reads)], strict=True):
                if isinstance(node, list):
                    existing.update(
                        (f"{path}/{name}", _LISTED_NODE) for name in node if f"{path}/{name}" not in existing
                    )
                else:
                    existing[path] = node
            attempt.existing = existing
            offset += len(group_reads)


def _needs_care(change: Change) -> bool:
    """Return whether the plan needs to know more than the record itself: its action request, its children, or all nodes
    that are removed with it.
    """
    changes_states_node = (
        change.ref.kind == JOB_LAYOUT.parent_kind
        and change.after is not None
        and change.after.state in ("Pending", "Deleted")
    )
    return (
        change.after is None
        or change.answers_request
        or change.requires_children_settled
        or changes_states_node
        or "submission" in change.documents
    )


def _needs_documents(change: Change) -> bool:
    return change.ref.kind == JOB_LAYOUT.parent_kind and (change.after is None or "submission" in change.documents)
