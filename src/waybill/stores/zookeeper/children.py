"""Children: which records are the children of a parent, and whether one of them is still open.

A job is a child of the batch that its `bid` node names, which never changes. Merritt's services delete and create its
entry in the batch's folders with every move, so that one empty listing of those proves nothing. The members of a batch
are therefore the jobs whose `bid` names it, kept in memory and filled from the names in /jobs. A batch has no open job
when all of its members have settled and no job in /jobs is still without its `bid`; the closing transaction then asserts
that batch-processing is empty, by deleting it and creating it again.

All other children are listed in /waybill/children, which Waybill alone writes.
"""

from __future__ import annotations

import time
from collections import Counter, defaultdict
from collections.abc import Collection, Iterable, Mapping, Sequence

from waybill.record import Ref
from waybill.stores.zookeeper import operations, paths
from waybill.stores.zookeeper.connection import ZookeeperConnection
from waybill.stores.zookeeper.operations import list_names, read_data
from waybill.stores.zookeeper.paths import BUCKETS, JOB_LAYOUT, STATES_WITHOUT_JOBS, folder_chain_of, layout_of
from waybill.stores.zookeeper.record_nodes import decode_status
from waybill.stores.zookeeper.record_snapshot import RecordSnapshot
from waybill.stores.zookeeper.write_plan import WritePlan

INCOMPLETE_JOB_AGE = 60.0  # seconds after which a job without a `bid` is taken for abandoned: its creator died


class BatchMembers:
    """Which job belongs to which batch."""

    def __init__(self, connection: ZookeeperConnection) -> None:
        self._connection = connection
        self._batch_of: dict[str, str] = {}
        self._jobs_of: dict[str, set[str]] = defaultdict(set)
        self._last_pzxid = -1  # the transaction that last changed the names in /jobs

    def refresh(self) -> bool:
        """Read the `bid` of new jobs. Returns True when a job is being created whose batch is not known yet."""
        connection = self._connection
        folder = connection.read_node(JOB_LAYOUT.records_folder)
        if folder is None or folder.pzxid == self._last_pzxid:
            return False
        job_ids = {name for name in connection.list_names(JOB_LAYOUT.records_folder) if JOB_LAYOUT.id_of(name)}
        for removed_id in self._batch_of.keys() - job_ids:
            self._jobs_of[self._batch_of.pop(removed_id)].discard(removed_id)
        new_ids = sorted(job_ids - self._batch_of.keys())
        found = connection.read(
            [
                read
                for id in new_ids
                for read in (read_data(f"{JOB_LAYOUT.home_path_of(id)}/bid"), read_data(JOB_LAYOUT.home_path_of(id)))
            ]
        )
        has_incomplete_job = False
        for id, bid, home in zip(new_ids, found[::2], found[1::2], strict=True):
            if bid is not None and bid.data:
                batch = bid.data.decode(errors="replace")
                self._batch_of[id] = batch
                self._jobs_of[batch].add(id)
            elif home is not None and time.time() - home.ctime / 1000 < INCOMPLETE_JOB_AGE:
                has_incomplete_job = True
        # The folder's stat was read before the names: jobs created in between are read again next time.
        self._last_pzxid = -1 if has_incomplete_job else folder.pzxid
        return has_incomplete_job

    def jobs_of(self, batch: str) -> list[str]:
        return sorted(self._jobs_of.get(batch, ()))


class ZookeeperChildren:
    """The children of parents of all kinds."""

    def __init__(self, connection: ZookeeperConnection) -> None:
        self._connection = connection
        self.members = BatchMembers(connection)

    def parents_with_open_children(self, refs: Iterable[Ref], settled: Collection[Ref] = ()) -> set[Ref]:
        """Return which of these have an open child. Children in `settled` do not count: the same group settles them."""
        wanted = list(dict.fromkeys(refs))
        found = self._connection.read(
            [
                read
                for ref in wanted
                for read in (read_data(f"{paths.children_folder_of(ref)}/open"), read_data(_processing_folder_of(ref)))
            ]
        )
        with_open_children, batches = set(), []
        for ref, open, processing in zip(wanted, found[::2], found[1::2], strict=True):
            many = any(folder is not None and folder.children > len(settled) for folder in (open, processing))
            if many or (
                open is not None and open.children and any(child not in settled for child in self._list_open(ref))
            ):
                with_open_children.add(ref)
            elif ref.kind == JOB_LAYOUT.parent_kind:
                batches.append(ref)
        if batches:
            has_incomplete_job = self.members.refresh()
            with_open_children.update(ref for ref in batches if has_incomplete_job or self._has_open_jobs(ref, settled))
        return with_open_children

    def _list_open(self, parent: Ref) -> list[Ref]:
        children = map(paths.parse_child, self._connection.list_names(f"{paths.children_folder_of(parent)}/open"))
        return [Ref(child.kind, child.id) for child in children]

    def _has_open_jobs(self, batch: Ref, settled: Collection[Ref]) -> bool:
        jobs = [id for id in self.members.jobs_of(batch.id) if Ref(JOB_LAYOUT.kind, id) not in settled]
        nodes = self._connection.read_nodes([f"{JOB_LAYOUT.home_path_of(id)}/status" for id in jobs])
        found = [decode_status(node.data) for node in nodes if node is not None]
        if any(status is None or status.status not in JOB_LAYOUT.settled_buckets for status in found):
            return True
        # A job without a status is being created or removed, or its creator died.
        incomplete_homes = [JOB_LAYOUT.home_path_of(id) for id, node in zip(jobs, nodes, strict=True) if node is None]
        return any(
            home is not None and time.time() - home.ctime / 1000 < INCOMPLETE_JOB_AGE
            for home in (self._connection.read_nodes(incomplete_homes) if incomplete_homes else ())
        )

    def find_idle(self, parents: Sequence[Ref]) -> list[Ref]:
        """Return which of these exist and seem to have no open child left. A hint: whoever acts on it checks again."""
        if not parents:
            return []
        # Of two children that settle at the same time on two servers, one of the two reads must see both.
        self._connection.sync()
        reads = [
            (
                read_data(layout_of(ref.kind).home_path_of(ref.id)),
                read_data(f"{paths.children_folder_of(ref)}/open"),
                read_data(_processing_folder_of(ref)),
            )
            for ref in parents
        ]
        found = self._connection.read([read for parent_reads in reads for read in parent_reads])
        idle = []
        for ref, home, open, processing in zip(parents, found[::3], found[1::3], found[2::3], strict=True):
            busy = (open is not None and open.children) or (processing is not None and processing.children)
            if home is not None and not busy:
                idle.append(ref)
        return idle

    def list_children(self, kind: str, parent: Ref) -> list[tuple[int, str]]:
        """Return the (seq, id) of all children of a kind, in creation order."""
        if kind == JOB_LAYOUT.kind and parent.kind == JOB_LAYOUT.parent_kind:
            self.members.refresh()
            return [(JOB_LAYOUT.number_of(id), id) for id in self.members.jobs_of(parent.id)]
        return sorted((child.seq, child.id) for child in self._read_children(parent) if child.kind == kind)

    def count_by_state(self, kind: str, parent: Ref) -> Mapping[str, int]:
        if kind != JOB_LAYOUT.kind or parent.kind != JOB_LAYOUT.parent_kind:
            return Counter(child.state for child in self._read_children(parent) if child.kind == kind)
        jobs = self.list_children(kind, parent)
        nodes = self._connection.read_nodes([f"{JOB_LAYOUT.home_path_of(id)}/status" for _, id in jobs])
        return Counter(
            status.status for node in nodes if node is not None and (status := decode_status(node.data)) is not None
        )

    def _read_children(self, parent: Ref) -> list[paths.ChildNoteName]:
        base = paths.children_folder_of(parent)
        found = self._connection.read([list_names(f"{base}/open"), list_names(f"{base}/closed")])
        children = [paths.parse_child(name) for listed in found for name in listed or ()]
        return list({(child.kind, child.id): child for child in children}.values())


def _processing_folder_of(ref: Ref) -> str:
    """Return the folder of a batch's open jobs; for other kinds a node that never exists."""
    return f"/batches/{ref.id}/states/batch-processing" if ref.kind == JOB_LAYOUT.parent_kind else "/waybill/none"


def assert_no_open_child(plan: WritePlan, snapshot: RecordSnapshot, state: str | None) -> None:
    """Assert in the transaction that no child is open. `state`: the parent's new state; None: it is removed."""
    base = paths.children_folder_of(snapshot.ref)
    plan.touched_paths += [base, f"{base}/open", f"{base}/closed"]
    existing = plan.existing or {}
    if existing.get(f"{base}/open") is not None:
        if state is not None:
            plan.final_ops += (
                operations.delete(f"{base}/open", "children"),
                operations.create(f"{base}/open", b"", "children"),
            )
    elif plan.existing is not None:
        plan.ensure_folders(*folder_chain_of(base))
        plan.final_ops.append(operations.create(f"{base}/open", b"", "children"))
        if state is None:
            plan.final_ops.append(operations.delete(f"{base}/open", "children"))
    if snapshot.ref.kind != JOB_LAYOUT.parent_kind or state is None:
        return
    states = f"{snapshot.layout.home_path_of(snapshot.ref.id)}/states"
    processing = f"{states}/batch-processing"
    plan.touched_paths += [processing, *(f"{states}/{bucket}" for bucket in BUCKETS)]
    # the same plan creates it, when the batch leaves Pending
    is_created = state not in (snapshot.state, "Pending", *STATES_WITHOUT_JOBS) and "states" not in snapshot.child_names
    if is_created or existing.get(processing) is not None:
        plan.final_ops += (operations.delete(processing, "children"), operations.create(processing, b"", "children"))
    elif "states" in snapshot.child_names:
        plan.final_ops.append(operations.create(processing, b"", "children"))
    else:
        plan.final_ops += operations.check_absent(
            processing if state in STATES_WITHOUT_JOBS and state != snapshot.state else states, "children"
        )


def remove_child_folders(plan: WritePlan, ref: Ref) -> None:
    """Remove the folders of a parent that is removed, unless they still list children."""
    base = paths.children_folder_of(ref)
    folders = [f"{base}/open", f"{base}/closed"]
    plan.touched_paths += [base, *folders]
    existing = plan.existing or {}
    if existing.get(base) is None or any(node is not None and node.children for node in map(existing.get, folders)):
        return
    plan.final_ops += [
        operations.delete(path, "children") for path in [*folders, base] if existing.get(path) is not None
    ]
