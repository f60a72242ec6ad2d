"""Commits: groups of changes as ZooKeeper transactions, 25 groups each.

    read         the records that are changed, woken or closed (CommitReads)
    plan         each group's operations, or its refusal (GroupPlanner)
    send         transactions that only move records are pipelined; those that create are sent one after another, because
                 each must know its numbers (numbers.py)
    on failure   the first refused operation names its group and the reason; the other groups of the transaction are
                 sent again
    follow up    find parents without open children and the action requests of released records, offer locks that are
                 free now to their waiters, write the change signal

After three rounds each group is sent in a transaction of its own, so that its neighbours cannot hold it up.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence

from waybill.record import (
    EXCLUSIVE,
    ActionRequest,
    ClaimLost,
    CommitAnswer,
    CommitGroup,
    CommitResult,
    Conflict,
    RecordExists,
    Ref,
    StoreError,
    StoreUnavailable,
    parse_lock,
)
from waybill.stores.group_validation import validate_groups
from waybill.stores.zookeeper import operations, paths
from waybill.stores.zookeeper.children import ZookeeperChildren
from waybill.stores.zookeeper.commit_planner import (
    MAX_FAILURES,
    REQUEST_MARGIN,
    CommitReads,
    GroupAttempt,
    GroupPlanner,
    GroupTransaction,
)
from waybill.stores.zookeeper.connection import MAX_REQUEST, PendingTransaction
from waybill.stores.zookeeper.numbers import NumberAllocator
from waybill.stores.zookeeper.operations import NO_NODE, NODE_EXISTS, NOT_EMPTY, Operation, OperationFailure
from waybill.stores.zookeeper.operator_controls import ZookeeperActionRequests, ZookeeperHolds
from waybill.stores.zookeeper.parked_notes import ParkedNotes
from waybill.stores.zookeeper.record_changes import ChangeResult
from waybill.stores.zookeeper.write_plan import ZookeeperTree

# more gain little, and a group that is refused costs its neighbours a second round trip
GROUPS_PER_TRANSACTION = 25
MAX_ROUNDS = 300  # after so many, others keep taking the next number first: the commit is refused as unavailable


class ZookeeperCommitter:
    """Writes groups of changes, each all or nothing, and answers each."""

    def __init__(
        self,
        tree: ZookeeperTree,
        children: ZookeeperChildren,
        holds: ZookeeperHolds,
        parked_notes: ParkedNotes,
        action_requests: ZookeeperActionRequests,
    ) -> None:
        self._tree = tree
        self._connection = tree.connection
        self._children = children
        self._parked_notes = parked_notes
        self._action_requests = action_requests
        self._planner = GroupPlanner(tree, parked_notes)
        self._reads = CommitReads(tree, children, holds, action_requests, self._planner)

    def commit(self, groups: Sequence[CommitGroup]) -> list[CommitAnswer]:
        attempts = [GroupAttempt(group) for group in groups]
        for attempt, refusal in zip(attempts, validate_groups(groups), strict=True):
            attempt.answer = refusal or _find_unsupported_lock(attempt.group)
        numbers = NumberAllocator(self._connection, self._tree.max_names, self._tree.queue_positions)
        rounds = 0
        while waiting := [attempt for attempt in attempts if attempt.answer is None]:
            rounds += 1
            if rounds > MAX_ROUNDS:
                for attempt in waiting:
                    attempt.answer = StoreUnavailable(
                        "Too many others create records at the same time; nothing of this was written. Try again."
                    )
                break
            try:
                self._reads.read_groups(waiting)
                self._send(
                    [attempt for attempt in waiting if attempt.answer is None],
                    numbers,
                    GROUPS_PER_TRANSACTION if rounds <= 3 else 1,
                )
            except StoreUnavailable as error:
                if rounds == 1 and all(attempt.answer is None for attempt in attempts):
                    raise
                for attempt in attempts:
                    attempt.answer = attempt.answer or error
        self._run_followups(attempts)
        return [attempt.answer for attempt in attempts if attempt.answer is not None]

    # --- send

    def _send(self, attempts: Sequence[GroupAttempt], numbers: NumberAllocator, max_groups: int) -> None:
        sent: list[tuple[GroupTransaction, PendingTransaction]] = []
        try:
            self._send_transactions(attempts, numbers, max_groups, sent)
        finally:  # whatever happened to the others, what was sent is answered with its outcome
            for transaction, pending in sent:
                self._finish(transaction, pending, numbers)

    def _send_transactions(
        self,
        attempts: Sequence[GroupAttempt],
        numbers: NumberAllocator,
        max_groups: int,
        sent: list[tuple[GroupTransaction, PendingTransaction]],
    ) -> None:
        transaction = GroupTransaction()
        for attempt in attempts:
            if len(transaction.attempts) >= max_groups:
                self._submit(transaction, numbers, sent)
                transaction = GroupTransaction()
            self._planner.prepare_numbers(attempt, numbers)
            saved_numbers = numbers.save() if attempt.takes_numbers else None
            if not self._planner.plan_group(attempt, numbers) or attempt.plan is None:
                continue
            if transaction.attempts and transaction.size + attempt.size > MAX_REQUEST - REQUEST_MARGIN:
                if saved_numbers is not None:
                    numbers.restore(saved_numbers)  # the groups sent first must not leave a gap before it
                self._submit(transaction, numbers, sent)
                transaction = GroupTransaction()
                if not self._planner.plan_group(attempt, numbers):
                    continue
            transaction.attempts.append(attempt)
            transaction.size += attempt.size
            transaction.takes_numbers = transaction.takes_numbers or attempt.takes_numbers
            transaction.sessions.update(dict.fromkeys(attempt.sessions))
        if transaction.attempts:
            self._submit(transaction, numbers, sent)

    def _submit(
        self,
        transaction: GroupTransaction,
        numbers: NumberAllocator,
        sent: list[tuple[GroupTransaction, PendingTransaction]],
    ) -> None:
        self._find_folders(transaction)
        created_folders: set[str] = set()
        transaction.ops = [operations.check(paths.session_path_of(name), "session") for name in transaction.sessions]
        transaction.op_attempts = [None] * len(transaction.ops)
        for attempt in transaction.attempts:
            assert attempt.plan is not None
            for op in attempt.plan.ops:
                if op.purpose == "folder":
                    if op.path in self._tree.known_folders or op.path in created_folders:
                        continue
                    created_folders.add(op.path)
                transaction.ops.append(op)
                transaction.op_attempts.append(attempt)
        if transaction.takes_numbers:
            seq_ops = numbers.build_seq_ops()
            transaction.ops += seq_ops
            transaction.op_attempts += [None] * len(seq_ops)
        if not transaction.ops:
            for attempt in transaction.attempts:
                attempt.answer = CommitResult(())
            return
        pending = self._connection.submit(transaction.ops)
        if transaction.takes_numbers:
            self._finish(transaction, pending, numbers)
        else:
            sent.append((transaction, pending))

    def _find_folders(self, transaction: GroupTransaction) -> None:
        """Read which of the folders that are not known yet exist: that costs less than a transaction that is refused
        because they do.
        """
        known = self._tree.known_folders
        unknown_folders = {
            op.path
            for attempt in transaction.attempts
            if attempt.plan
            for op in attempt.plan.ops
            if op.purpose == "folder" and op.path not in known
        }
        if unknown_folders:
            folders = sorted(unknown_folders)
            for path, node in zip(folders, self._connection.read_nodes(folders), strict=True):
                if node is not None:
                    self._tree.remember_folder(path)

    def _finish(self, transaction: GroupTransaction, pending: PendingTransaction, numbers: NumberAllocator) -> None:
        outcome = pending.get()
        if isinstance(outcome, OperationFailure):
            self._handle_failure(transaction, outcome, numbers)
            return
        if isinstance(outcome, StoreError):
            numbers.invalidate()
            for attempt in transaction.attempts:
                attempt.answer = outcome
                for change in attempt.group.changes:
                    self._tree.claimed_snapshots.pop(change.ref, None)
            return
        self._tree.learn_folders(transaction.ops)
        for attempt in transaction.attempts:
            for change, result in zip(attempt.group.changes, attempt.results, strict=True):
                if change.before is None:
                    continue
                if result.snapshot is not None and change.ref in self._tree.claimed_snapshots:
                    self._tree.claimed_snapshots[change.ref] = result.snapshot
                else:
                    self._tree.claimed_snapshots.pop(change.ref, None)
            attempt.answer = CommitResult(tuple(result.record for result in attempt.results))

    # --- on failure

    def _handle_failure(
        self, transaction: GroupTransaction, failure: OperationFailure, numbers: NumberAllocator
    ) -> None:
        op, code = transaction.ops[failure.position], failure.code
        attempt = transaction.op_attempts[failure.position]
        if transaction.takes_numbers:
            numbers.invalidate()
        if op.purpose == "session":
            name = op.path.rpartition("/")[2]
            for other in transaction.attempts:
                if name in other.sessions:
                    other.answer = ClaimLost(f"The session {name} has ended, and all its claims with it.")
            return
        if op.purpose == "folder" and code == NODE_EXISTS:
            self._tree.remember_folder(op.path)
            return
        if attempt is None or op.purpose in ("minted", "seq"):
            return  # somebody else took the number first: all groups are planned again
        attempt.failures += 1
        attempt.reads_existing = True
        if code == NO_NODE:
            self._tree.forget_folders_above(op.path)
        attempt.answer = self._refusal_of(attempt, op, code)

    def _refusal_of(self, attempt: GroupAttempt, op: Operation, code: int) -> StoreError | None:
        """Return what a refused operation means for its group. None: read again, which finds the reason, and plan again
        from the nodes that exist.
        """
        name = ", ".join(str(change.ref) for change in attempt.group.changes[:3]) or "The wake"
        # If the record was created with the same idempotency key, the next read answers with it; if it was not, the
        # same operation is refused again.
        if op.purpose == "named" and code == NODE_EXISTS and attempt.failures > 1:
            return RecordExists(f"{op.path.rpartition('/')[2]} exists already.")
        if op.purpose == "uuid" and code == NODE_EXISTS and attempt.failures > 1:
            return RecordExists(f"A batch with the batchID {op.path.rpartition('/')[2]} exists already.")
        if op.purpose == "children" and code == NOT_EMPTY:
            return Conflict(f"{name} still has an open child; it cannot be closed.")
        if op.purpose == "jobs" and code == NOT_EMPTY:
            return Conflict(f"{name} still has jobs in Merritt's tree; remove those first.")
        if op.purpose == "folder" and code == NO_NODE and attempt.failures > 1 and op.path.startswith("/batches/"):
            return Conflict(f"The batch {op.path.split('/')[2]} is gone; {name} cannot be its child.")
        if attempt.failures > MAX_FAILURES and op.purpose != "wake":
            return Conflict(f"{name} could not be written: others keep changing {op.path} ({op.purpose}). Try again.")
        return None

    # --- follow up

    def _release_lost_claims(self, attempts: Sequence[GroupAttempt]) -> None:
        """Delete the lock nodes of our claims that another service overwrote, or the records would stay claimed as long
        as the session lives.
        """
        for attempt in attempts:
            for change in attempt.group.changes if isinstance(attempt.answer, ClaimLost) else ():
                self._tree.claimed_snapshots.pop(change.ref, None)  # the next listing offers it again
                snapshot = attempt.snapshots.get(change.ref)
                if (
                    snapshot is not None
                    and change.before is not None
                    and snapshot.has_foreign_write
                    and snapshot.session == change.before.session
                ):
                    home = snapshot.layout.home_path_of(change.ref.id)
                    # Refused, which does no harm, if the status was written again or the lock node is gone.
                    self._connection.write(
                        [
                            operations.check(f"{home}/status", "status", snapshot.status_version),
                            operations.delete(f"{home}/lock", "lock"),
                        ]
                    )
                    self._tree.signal_change()

    def _run_followups(self, attempts: Sequence[GroupAttempt]) -> None:
        done = [
            attempt for attempt in attempts if isinstance(attempt.answer, CommitResult) and attempt.plan is not None
        ]
        results = [result for attempt in done for result in attempt.results]
        if any(result.is_claimable for result in results) or any(attempt.group.wake for attempt in done):
            self._tree.signal_change()
        try:
            self._release_lost_claims(attempts)
            closed = list(dict.fromkeys(result.closed_parent for result in results if result.closed_parent is not None))
            idle = set(self._children.find_idle(closed))
            released = [result.record.ref for result in results if result.is_released and result.record is not None]
            action_requests = (
                {request.ref: request for request in self._action_requests.read_for(released)} if released else {}
            )
            free_locks = dict.fromkeys(
                lock for result in results for lock in (*result.dropped_locks, *result.passed_locks)
            )
            if free_locks and self._parked_notes.offer_locks(free_locks):
                self._tree.signal_change()
            self._parked_notes.wake_records(
                [ref for attempt in done if attempt.failures > MAX_FAILURES // 2 for ref in attempt.group.wake]
            )
        except StoreUnavailable:
            return  # all is written; maintenance finds the idle parents, action requests and waiters
        for attempt in done:
            if isinstance(attempt.answer, CommitResult) and (idle or action_requests):
                attempt.answer = CommitResult(
                    attempt.answer.records,
                    _idle_parents_of(attempt.results, idle),
                    _action_requests_of(attempt.results, action_requests),
                )


def _idle_parents_of(results: Iterable[ChangeResult], idle: Collection[Ref]) -> tuple[Ref, ...]:
    return tuple(
        dict.fromkeys(
            result.closed_parent
            for result in results
            if result.closed_parent is not None and result.closed_parent in idle
        )
    )


def _action_requests_of(
    results: Iterable[ChangeResult], action_requests: dict[Ref, ActionRequest]
) -> tuple[ActionRequest, ...]:
    return tuple(
        action_requests[result.record.ref]
        for result in results
        if result.is_released and result.record is not None and result.record.ref in action_requests
    )


def _find_unsupported_lock(group: CommitGroup) -> StoreError | None:
    for change in group.changes:
        for request in map(parse_lock, change.after.locks if change.after is not None else ()):
            if request.sort != EXCLUSIVE:
                return StoreError(
                    f"{change.ref}: {request.name} is asked for {request.sort}; on ZooKeeper all locks are exclusive."
                )
    return None
