"""The consistency check: all rules, asked of every node that they are about, and the repair of what they find.

The rules for Merritt's part of the tree are here, one class each: they ask what Merritt's own orphan test asks. Those
for Waybill's part are in consistency_rules.py.
"""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from itertools import islice
from typing import Any

import msgspec

from waybill.record import Finding, Ref
from waybill.stores.zookeeper import consistency_rules, operations, paths, write_plan
from waybill.stores.zookeeper.children import INCOMPLETE_JOB_AGE
from waybill.stores.zookeeper.consistency_rules import ConsistencyRule, RuleContext, RuleViolation, ViolationAges
from waybill.stores.zookeeper.operations import Operation, list_names, read_data
from waybill.stores.zookeeper.paths import (
    BATCH_LAYOUT,
    BUCKETS,
    JOB_LAYOUT,
    MERRITT_LAYOUTS,
    STATES_WITHOUT_JOBS,
    KindLayout,
)
from waybill.stores.zookeeper.record_nodes import decode_engine_node, decode_status, encode_status
from waybill.stores.zookeeper.record_snapshot import read_snapshots, session_name_of
from waybill.stores.zookeeper.write_plan import ZookeeperTree


class UuidTargetRule:
    name = "a uuid names a batch"

    def __init__(self, context: RuleContext) -> None:
        self._context = context

    def list_subjects(self) -> Iterator[str]:
        yield from (f"/batch-uuids/{name}" for name in sorted(self._context.connection.list_names("/batch-uuids")))

    def find_violations(self, subjects: Sequence[str]) -> Iterator[RuleViolation]:
        nodes = self._context.connection.read_nodes(subjects)
        batches = [node.data.decode(errors="replace") if node is not None else "" for node in nodes]
        homes = self._context.connection.read_nodes([f"/batches/{batch or '-'}" for batch in batches])
        for path, node, batch, home in zip(subjects, nodes, batches, homes, strict=True):
            if node is not None and home is None:
                problem = f"names {batch or 'no batch'}, which does not exist"
                ops = [operations.delete(path, "", node.version)]
                yield self._context.build_violation(
                    self.name, path, problem, "remove the name", ops, since=node.mtime / 1000
                )


class BatchUuidRule:
    name = "a batch is found by its batchID"

    def __init__(self, context: RuleContext) -> None:
        self._context = context

    def list_subjects(self) -> Iterator[str]:
        yield from (
            BATCH_LAYOUT.home_path_of(name)
            for name in sorted(self._context.connection.list_names(BATCH_LAYOUT.records_folder))
            if BATCH_LAYOUT.id_of(name)
        )

    def find_violations(self, subjects: Sequence[str]) -> Iterator[RuleViolation]:
        nodes = self._context.connection.read_nodes([f"{home}/submission" for home in subjects])
        named = [
            (home, node, uuid)
            for home, node in zip(subjects, nodes, strict=True)
            if node and (uuid := write_plan.batch_uuid_of(node.data))
        ]
        found = self._context.connection.read_nodes([f"/batch-uuids/{uuid}" for _, _, uuid in named]) if named else []
        for (home, node, uuid), uuid_node in zip(named, found, strict=True):
            id = home.rpartition("/")[2]
            if uuid_node is None:
                ops = [operations.check(home), operations.create(f"/batch-uuids/{uuid}", id.encode())]
                problem, remedy = f"its batchID {uuid} is not in /batch-uuids", "add it"
            elif uuid_node.data != id.encode():
                ops, remedy = [], "remove one of the two batches"
                problem = f"its batchID {uuid} belongs to {uuid_node.data.decode(errors='replace')}"
            else:
                continue
            yield self._context.build_violation(
                self.name, home, problem, remedy, ops, since=node.mtime / 1000, ref=Ref("batch", id)
            )


class StrayJobListingRule:
    name = "a batch lists jobs that are its own, each once"

    def __init__(self, context: RuleContext) -> None:
        self._context = context

    def list_subjects(self) -> Iterator[str]:
        connection = self._context.connection
        for batch in sorted(connection.list_names(BATCH_LAYOUT.records_folder)):
            base = f"{BATCH_LAYOUT.records_folder}/{batch}/states"
            for bucket, listed in zip(
                BUCKETS, connection.read([list_names(f"{base}/{bucket}") for bucket in BUCKETS]), strict=True
            ):
                yield from (f"{base}/{bucket}/{job}" for job in sorted(listed or ()))

    def find_violations(self, subjects: Sequence[str]) -> Iterator[RuleViolation]:
        jobs = [path.rpartition("/")[2] for path in subjects]
        reads: list[operations.NodeRead] = []
        for path, job in zip(subjects, jobs, strict=True):
            reads += (
                read_data(path),
                read_data(f"{JOB_LAYOUT.home_path_of(job)}/bid"),
                read_data(f"{JOB_LAYOUT.home_path_of(job)}/status"),
            )
        found = self._context.connection.read(reads)
        for path, job, entry, bid, status in zip(subjects, jobs, found[::3], found[1::3], found[2::3], strict=True):
            if entry is None:
                continue
            _, _, batch, _, bucket, _ = path.split("/")
            body = decode_status(status.data) if status is not None else None
            if bid is None and status is None:
                problem = f"lists {job}, which does not exist"
            elif bid is not None and bid.data != batch.encode():
                problem = f"lists {job}, which belongs to {bid.data.decode(errors='replace')}"
            elif body is not None and JOB_LAYOUT.bucket_of(body.status) != bucket:
                problem = f"lists {job}, which is {body.status}"
            else:
                continue
            guard = (
                [operations.check(f"{JOB_LAYOUT.home_path_of(job)}/status", "", status.version)]
                if status is not None
                else []
            )
            yield self._context.build_violation(
                self.name,
                path,
                problem,
                "delete it from the list",
                [*guard, operations.delete(path)],
                since=entry.ctime / 1000,
            )


class JobListingRule:
    name = "a job is listed by its batch, in the folder of its state"

    def __init__(self, context: RuleContext) -> None:
        self._context = context

    def list_subjects(self) -> Iterator[str]:
        yield from (
            JOB_LAYOUT.home_path_of(name)
            for name in sorted(self._context.connection.list_names(JOB_LAYOUT.records_folder))
            if JOB_LAYOUT.id_of(name)
        )

    def find_violations(self, subjects: Sequence[str]) -> Iterator[RuleViolation]:
        connection = self._context.connection
        snapshots = [
            snapshot
            for snapshot in read_snapshots(connection, [Ref("job", home.rpartition("/")[2]) for home in subjects])
            if snapshot is not None and snapshot.parent
        ]
        folders = [
            f"/batches/{snapshot.parent.id}/states/{JOB_LAYOUT.bucket_of(snapshot.state)}"
            for snapshot in snapshots
            if snapshot.parent
        ]
        reads = [read_data(f"{folder}/{snapshot.ref.id}") for snapshot, folder in zip(snapshots, folders, strict=True)]
        reads += [read_data(f"/batches/{snapshot.parent.id}") for snapshot in snapshots if snapshot.parent]
        found = connection.read(reads) if reads else []
        for snapshot, folder, entry, batch in zip(
            snapshots, folders, found[: len(snapshots)], found[len(snapshots) :], strict=True
        ):
            if entry is None and batch is not None:
                home = JOB_LAYOUT.home_path_of(snapshot.ref.id)
                guard = operations.check(f"{home}/status", "", snapshot.status_version)
                ops = [
                    guard,
                    *_build_bucket_ops(self._context, folder),
                    operations.create(f"{folder}/{snapshot.ref.id}"),
                ]
                problem = f"is {snapshot.state} and not in {folder}"
                yield self._context.build_violation(
                    self.name, home, problem, "list it there", ops, since=snapshot.status_mtime, ref=snapshot.ref
                )


class JobBatchRule:
    name = "a job has its batch"

    def __init__(self, context: RuleContext) -> None:
        self._context = context

    list_subjects = JobListingRule.list_subjects

    def find_violations(self, subjects: Sequence[str]) -> Iterator[RuleViolation]:
        connection = self._context.connection
        bids = connection.read_nodes([f"{home}/bid" for home in subjects])
        yield from self._find_without_batch([home for home, node in zip(subjects, bids, strict=True) if node is None])
        named = [
            (home, node, node.data.decode(errors="replace"))
            for home, node in zip(subjects, bids, strict=True)
            if node is not None
        ]
        homes = connection.read_nodes([f"/batches/{bid or '-'}" for _, _, bid in named]) if named else []
        for (home, node, bid), batch in zip(named, homes, strict=True):
            if batch is None:
                ops = _build_batch_ops(bid) if BATCH_LAYOUT.id_of(bid) else []
                problem = f"names {bid or 'no batch'} as its batch, which does not exist"
                remedy = "create the batch again, as failed, so that its jobs can be seen and removed with it"
                ref = Ref("job", home.rpartition("/")[2])
                yield self._context.build_violation(
                    self.name, home, problem, remedy, ops, since=node.mtime / 1000, ref=ref
                )

    def _find_without_batch(self, homes: Sequence[str]) -> Iterator[RuleViolation]:
        """A job has a status and no `bid` when the service that was removing it died. A settled one is removed; an
        operator must decide about the rest.
        """
        connection = self._context.connection
        found = connection.read([read for home in homes for read in (read_data(f"{home}/status"), list_names(home))])
        for home, status, children in zip(homes, found[::2], found[1::2], strict=True):
            body = decode_status(status.data) if status is not None else None
            if status is None or body is None:
                continue  # see RecordStatusRule
            id = home.rpartition("/")[2]
            ops: list[Operation] = []
            if body.status in ("Completed", "Deleted"):
                folder = JOB_LAYOUT.folder_of(body.status)
                entries = [f"{folder}/{name}" for name in connection.list_names(folder) if name.endswith(f"-{id}")]
                nodes = [f"{home}/{name}" for name in sorted(children or ()) if name != "status"]
                ops = [
                    operations.delete(f"{home}/status", "", status.version),
                    *(operations.delete(path) for path in (*nodes, *entries, home)),
                ]
            problem = f"is {body.status} and does not name its batch"
            yield self._context.build_violation(
                self.name, home, problem, "remove it", ops, since=status.mtime / 1000, ref=Ref("job", id)
            )


class RecordStatusRule:
    name = "a record has a status"

    def __init__(self, context: RuleContext) -> None:
        self._context = context

    def list_subjects(self) -> Iterator[str]:
        for layout in MERRITT_LAYOUTS.values():
            yield from (
                layout.home_path_of(name)
                for name in sorted(self._context.connection.list_names(layout.records_folder))
                if layout.id_of(name)
            )

    def find_violations(self, subjects: Sequence[str]) -> Iterator[RuleViolation]:
        connection = self._context.connection
        found = connection.read(
            [read for home in subjects for read in (read_data(home), read_data(f"{home}/status"), list_names(home))]
        )
        for path, home, status, children in zip(subjects, found[::3], found[1::3], found[2::3], strict=True):
            if home is None or (status is not None and decode_status(status.data) is not None):
                continue
            layout, id = _layout_of_home(path), path.rpartition("/")[2]
            problem = "has no status" if status is None else f"has a status that names no state: {status.data[:60]!r}"
            ops, remedy = self._plan_repair(layout, path, status is not None, set(children or ()))
            yield self._context.build_violation(
                self.name, path, problem, remedy, ops, since=home.ctime / 1000, ref=Ref(layout.kind, id)
            )

    def _plan_repair(
        self, layout: KindLayout, home: str, has_status: bool, children: set[str]
    ) -> tuple[list[Operation], str]:
        known = "bid" in children if layout.has_merritt_entries else bool(layout.documents & children)
        if not known:
            remedy = "remove it: its creator died before it named its batch or wrote a document"
            return self._plan_removal(home, children), remedy
        message = "Its status was lost; Waybill restored its state."
        engine_znode = self._context.connection.read_node(layout.engine_path_of(home.rpartition("/")[2]))
        engine_node = decode_engine_node(engine_znode.data) if engine_znode is not None else None
        if engine_node is not None and engine_node.state in ("Completed", "Deleted", "Failed"):
            state = engine_node.state  # as Waybill last saw it: a settled record must not start again
        elif layout.has_merritt_entries and engine_node is None and not has_status and self._is_half_made(home):
            if "configuration" not in children:
                return self._plan_removal(home, children), "remove it: its creator died before it said what the job is"
            if self._is_made_again(home):
                return self._plan_removal(home, children), "remove it: its batch has another job for it, or has ended"
            state, message = "Pending", "Its creator died before it was queued; Waybill completed it."
        else:
            state = (
                self._find_queued_state(home.rpartition("/")[2])
                if layout.has_merritt_entries
                else "Processing"
                if "states" in children
                else "Pending"
            )
        last = engine_node.last_done if engine_node is not None else None
        body = encode_status(state, last, 0, message, self._context.tree.now(), layout.has_brief_status)
        ops = [operations.put(f"{home}/status", body) if has_status else operations.create(f"{home}/status", body)]
        needed = {**layout.default_documents, **({"priority": b"5"} if layout.has_merritt_entries else {})}
        ops += [operations.create(f"{home}/{name}", filler) for name, filler in needed.items() if name not in children]
        return ops, f"write one that says {state}"

    def _plan_removal(self, home: str, children: set[str]) -> list[Operation]:
        """Remove a record that was not finished, and the batchID that names it."""
        nodes = [operations.delete(f"{home}/{name}") for name in sorted(children)]
        connection, uuids = self._context.connection, list[str]()
        if home.startswith(f"{BATCH_LAYOUT.records_folder}/"):
            uuids = [f"/batch-uuids/{name}" for name in connection.list_names("/batch-uuids")]
        named = connection.read_nodes(uuids) if uuids else []
        id = home.rpartition("/")[2].encode()
        names = [
            operations.delete(path, "", node.version)
            for path, node in zip(uuids, named, strict=True)
            if node is not None and node.data == id
        ]
        return [*nodes, *names, operations.delete(home)]

    def _is_half_made(self, home: str) -> bool:
        """Whether no queue and no folder of its batch lists a job: both are written after its status, when it is made, so it was
        not made yet, and is not one that is being removed.
        """
        connection, id = self._context.connection, home.rpartition("/")[2]
        bid = connection.read_node(f"{home}/bid")
        states = f"/batches/{bid.data.decode(errors='replace') if bid is not None and bid.data else '-'}/states"
        listed = connection.read_nodes([f"{states}/{bucket}/{id}" for bucket in BUCKETS])
        queued = connection.read([list_names(JOB_LAYOUT.folder_of(state)) for state in JOB_LAYOUT.states])
        is_queued = any(name.endswith(f"-{id}") for names in queued for name in names or ())
        return not is_queued and all(node is None for node in listed)

    def _is_made_again(self, home: str) -> bool:
        """Whether the batch of a half-made job has settled, or has another job of the same configuration: that job is its row's."""
        connection = self._context.connection
        bid, configuration = connection.read_nodes([f"{home}/bid", f"{home}/configuration"])
        batch = BATCH_LAYOUT.home_path_of(bid.data.decode(errors="replace")) if bid is not None else ""
        status = connection.read_node(f"{batch}/status") if batch else None
        body = decode_status(status.data) if status is not None else None
        if body is None or body.status in ("Completed", "Failed", "Deleted"):
            return True
        homes = [
            JOB_LAYOUT.home_path_of(name)
            for name in connection.list_names(JOB_LAYOUT.records_folder)
            if JOB_LAYOUT.id_of(name) and JOB_LAYOUT.home_path_of(name) != home
        ]
        for chunk in (homes[at : at + _SUBJECT_CHUNK] for at in range(0, len(homes), _SUBJECT_CHUNK)):
            found = connection.read(
                [read_data(f"{each}/{name}") for each in chunk for name in ("bid", "configuration", "status")]
            )
            for theirs, other, its_status in zip(found[::3], found[1::3], found[2::3], strict=True):
                if theirs is None or bid is None or theirs.data != bid.data or its_status is None:
                    continue
                if _row_of(other.data if other is not None else None) == _row_of(
                    configuration.data if configuration is not None else None
                ):
                    return True
        return False

    def _find_queued_state(self, id: str) -> str:
        """Return the state in whose queue a job is; Failed, for an operator to look at, when it is in none."""
        listed = self._context.connection.read([list_names(JOB_LAYOUT.folder_of(state)) for state in JOB_LAYOUT.states])
        return next(
            (
                s
                for s, found in zip(JOB_LAYOUT.states, listed, strict=True)
                if any(n.endswith(f"-{id}") for n in found or ())
            ),
            "Failed",
        )


class BatchStatesRule:
    name = "a batch's states has folders in it"

    def __init__(self, context: RuleContext) -> None:
        self._context = context

    list_subjects = BatchUuidRule.list_subjects

    def find_violations(self, subjects: Sequence[str]) -> Iterator[RuleViolation]:
        found = self._context.connection.read(
            [read for home in subjects for read in (read_data(f"{home}/states"), read_data(f"{home}/status"))]
        )
        for home, states, status in zip(subjects, found[::2], found[1::2], strict=True):
            if states is None or states.children:
                continue
            body = decode_status(status.data) if status is not None else None
            pending = body is not None and body.status == "Pending"
            folder = (
                "batch-completed" if body is not None and body.status in STATES_WITHOUT_JOBS else "batch-processing"
            )
            op = operations.delete(f"{home}/states") if pending else operations.create(f"{home}/states/{folder}")
            problem = "has an empty node states, so that no service works on it"
            remedy = "delete the node" if pending else f"create {folder}"
            ref = Ref("batch", home.rpartition("/")[2])
            yield self._context.build_violation(
                self.name, home, problem, remedy, [op], since=states.ctime / 1000, ref=ref
            )


class ForeignLockAgeRule:
    name = "another service's lock is not held for long"

    def __init__(self, context: RuleContext) -> None:
        self._context = context

    list_subjects = RecordStatusRule.list_subjects

    def find_violations(self, subjects: Sequence[str]) -> Iterator[RuleViolation]:
        connection = self._context.connection
        locks = connection.read_nodes([f"{home}/lock" for home in subjects])
        own_sessions = set(connection.list_names(paths.SESSIONS))
        for home, lock in zip(subjects, locks, strict=True):
            # a live session of Waybill may keep its claims for any time
            if lock is None or session_name_of(lock.owner) in own_sessions:
                continue
            age = time.time() - lock.ctime / 1000
            if age >= self._context.ages.foreign_lock:
                ref = Ref(_layout_of_home(home).kind, home.rpartition("/")[2])
                problem = f"is locked by session {session_name_of(lock.owner)} for {age:.0f} s (FAIL)"
                ops = [operations.delete(f"{home}/lock", "", lock.version)]
                yield self._context.build_violation(self.name, home, problem, "remove the lock", ops, ref=ref)


def _row_of(configuration: bytes | None) -> tuple[Any, ...]:
    """What tells the rows of a batch apart, as a job's configuration says it."""
    try:
        found = msgspec.json.decode(configuration or b"")
    except (msgspec.DecodeError, UnicodeDecodeError):
        return ()
    fields = found if isinstance(found, dict) else {}
    return tuple(fields.get(name) for name in ("payload_url", "filename", "localIdentifier", "primaryIdentifier"))


def _build_batch_ops(bid: str) -> list[Operation]:
    home, now = BATCH_LAYOUT.home_path_of(bid), time.time()
    status = encode_status(
        "Failed", None, 0, "Its nodes were lost; Waybill created it again for the jobs that name it.", now, True
    )
    return [
        operations.create(home),
        operations.create(f"{home}/submission", b"{}"),
        operations.create(f"{home}/status", status),
        operations.create(f"{home}/states"),
        operations.create(f"{home}/states/batch-processing"),
    ]


def _build_bucket_ops(context: RuleContext, folder: str) -> list[Operation]:
    states = folder.rpartition("/")[0]
    context.tree.known_folders.difference_update((states, folder))  # whether they exist is not known
    return [operations.create(path, b"", "folder") for path in (states, folder)]


def _layout_of_home(home: str) -> KindLayout:
    folder = home.rpartition("/")[0]
    return next(layout for layout in MERRITT_LAYOUTS.values() if layout.records_folder == folder)


# --- the check

_SUBJECT_CHUNK = 500  # subjects examined together


class ConsistencyChecker:
    """Asks all rules, and repairs what they find."""

    def __init__(self, tree: ZookeeperTree, ages: ViolationAges, unfinished_age: float = INCOMPLETE_JOB_AGE) -> None:
        self._tree, self._unfinished_age = tree, unfinished_age
        context = RuleContext(tree, ages)
        self._status_rule = RecordStatusRule(context)
        # What must be repaired first comes first: a job without a status is in no queue, and a batch that does not
        # exist lists no job.
        self._rules: list[ConsistencyRule] = [
            UuidTargetRule(context),
            BatchUuidRule(context),
            self._status_rule,
            consistency_rules.ReadableNodesRule(context),
            JobBatchRule(context),
            BatchStatesRule(context),
            StrayJobListingRule(context),
            JobListingRule(context),
            consistency_rules.StrayQueueEntryRule(context),
            consistency_rules.RecordQueueEntryRule(context),
            ForeignLockAgeRule(context),
            consistency_rules.EngineNodeRule(context),
            consistency_rules.LockOwnerRule(context),
            consistency_rules.OwnedLocksRule(context),
            consistency_rules.WrongNoteRule(context),
            consistency_rules.MissingNoteRule(context),
            consistency_rules.ActionRequestRule(context),
            consistency_rules.DeadWorkerRule(context),
        ]

    @property
    def rule_names(self) -> list[str]:
        return [rule.name for rule in self._rules]

    def check(self) -> Iterator[Finding]:
        """Yield every violation that a second examination finds again."""
        self._tree.connection.sync()
        for rule in self._rules:
            subjects = rule.list_subjects()
            while chunk := list(islice(subjects, _SUBJECT_CHUNK)):
                suspects = list(dict.fromkeys(violation.finding.where for violation in rule.find_violations(chunk)))
                if suspects:
                    self._tree.connection.sync()
                    yield from (violation.finding for violation in rule.find_violations(suspects))

    def repair(self, finding: Finding) -> bool:
        """Repair a violation if it still exists. Returns True when something was written."""
        for violation in self._find_again(finding):
            if violation.ops and self._tree.write(violation.ops) is None:
                self._tree.signal_change()
                return True
        return False

    def repair_unfinished(self, homes: Sequence[str]) -> int:
        """Complete or remove those of these homes that have no status, were not written for a while, and nobody locks. Returns how
        many. Safe to repeat, and beside their creator: the status is only created where there is none.
        """
        nodes = self._tree.connection.read_nodes(homes)
        locks = self._tree.connection.read_nodes([f"{home}/lock" for home in homes])
        now, count = time.time(), 0
        old = [
            home
            for home, node, lock in zip(homes, nodes, locks, strict=True)
            if node is not None and lock is None and now - node.ctime / 1000 >= self._unfinished_age
        ]
        for violation in self._status_rule.find_violations(old) if old else ():
            guard = operations.check_absent(f"{violation.finding.where}/lock", "free")
            if violation.ops and self._tree.write([*guard, *violation.ops]) is None:
                count += 1
        return count

    def _find_again(self, finding: Finding) -> Iterator[RuleViolation]:
        for rule in self._rules:
            if rule.name == finding.rule:
                yield from rule.find_violations([finding.where])
