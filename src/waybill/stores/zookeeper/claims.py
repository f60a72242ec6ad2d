"""Claims: a claim creates the ephemeral lock node and rewrites the status with the same bytes, in one transaction under
the session.

    list      the queues (claim_queues.py)
    read      a page of candidates with their documents, in one request
    decide    claim | block by a hold or a lock | pass over (claimed, bound to another host, moved)
    send      25 claims in a transaction; the first refused operation names a candidate that somebody else has changed,
              and the others are sent again
    block     what cannot be claimed, if the reason still holds in the same transaction
"""

from __future__ import annotations

import random
from collections.abc import Collection, Sequence

from msgspec.structs import replace

from waybill.record import (
    ClaimedRecord,
    Conflict,
    RecordNotFound,
    Ref,
    SessionLost,
    StoreError,
    StoreUnavailable,
    WorkQueue,
)
from waybill.stores.zookeeper import operations, paths, write_plan
from waybill.stores.zookeeper.claim_queues import ListedQueue, ListedQueues, ZookeeperClaimCandidate, build_blocking_ops
from waybill.stores.zookeeper.connection import PendingTransaction
from waybill.stores.zookeeper.foreign_records import ForeignRecords
from waybill.stores.zookeeper.operations import Operation, OperationFailure
from waybill.stores.zookeeper.operator_controls import ZookeeperActionRequests, ZookeeperHolds
from waybill.stores.zookeeper.parked_notes import ParkedNotes
from waybill.stores.zookeeper.paths import QueueEntry, lock_path_of
from waybill.stores.zookeeper.record_nodes import encode_engine_node
from waybill.stores.zookeeper.record_snapshot import (
    RecordSnapshot,
    read_snapshot,
    read_snapshots,
    reconcile_engine_node,
)
from waybill.stores.zookeeper.sessions import ZookeeperSession
from waybill.stores.zookeeper.write_plan import WritePlan, ZookeeperTree

CLAIMS_PER_TRANSACTION = 25
MAX_FRUITLESS_READS = 1000  # candidates that a call may read without claiming them
OLDEST_SHARE = 10  # one in so many is claimed by age, not by priority


class ZookeeperClaims:
    """Claims records for the sessions of this connection."""

    def __init__(
        self,
        tree: ZookeeperTree,
        queues: ListedQueues,
        holds: ZookeeperHolds,
        parked_notes: ParkedNotes,
        action_requests: ZookeeperActionRequests,
        foreign_records: ForeignRecords,
    ) -> None:
        self._tree = tree
        self._queues = queues
        self._holds = holds
        self._parked_notes = parked_notes
        self._action_requests = action_requests
        self._foreign_records = foreign_records
        self._claimed_count = 0
        self._has_contention = False  # others claim the same entries: the next page starts elsewhere in the queue
        self._random = random.Random()

    def claim(self, work_queues: Sequence[WorkQueue], session: ZookeeperSession, limit: int) -> list[ClaimedRecord]:
        claims_on_hold = {(queue.kind, queue.state): queue.claims_on_hold for queue in work_queues}
        self._foreign_records.adopt_new({queue.kind for queue in work_queues})
        queues, holds = self._queues.list_queues(work_queues)
        claimed: list[ZookeeperClaimCandidate] = []
        fruitless_reads = 0
        while len(claimed) < limit and fruitless_reads < MAX_FRUITLESS_READS:
            try:
                picked = self._pick(queues, limit - len(claimed))
                candidates = self._read_candidates(picked, session, claims_on_hold, holds)
                new_claims = self._send(candidates, session)
                claimed += new_claims
                self._claimed_count += len(new_claims)
                fruitless_reads += len(picked) - len(new_claims)
                if self._block_and_offer(candidates, new_claims, session):
                    queues, holds = self._queues.list_queues(work_queues, refresh=True)
                elif not picked:
                    break
            except StoreUnavailable:
                if not claimed:
                    raise
                break  # what was claimed must be returned, or nobody would work on it as long as the session lives
        return self._to_claimed(claimed)

    def _block_and_offer(
        self,
        candidates: Sequence[ZookeeperClaimCandidate],
        new_claims: Sequence[ZookeeperClaimCandidate],
        session: ZookeeperSession,
    ) -> int:
        """Block what cannot be claimed. Returns how many records were unblocked by locks that these do not take."""
        offered = self._block([candidate for candidate in candidates if candidate.blocked_by is not None], session)
        offered_locks = [
            lock
            for candidate in new_claims
            if candidate.hold is not None and candidate.snapshot.engine_node
            for lock in candidate.snapshot.engine_node.locks
        ]
        offered_locks += [lock for candidate in new_claims for lock in candidate.dropped_locks]
        return offered + (self._parked_notes.offer_locks(offered_locks) if offered_locks else 0)

    def claim_one(self, ref: Ref, session: ZookeeperSession) -> ClaimedRecord:
        holds = self._holds.read_active()
        for _ in range(10):
            snapshot = read_snapshot(self._tree.connection, ref, documents=True)
            if snapshot is None:
                raise RecordNotFound(f"There is no {ref}.")
            if problem := self._refusal_of(snapshot, session):
                raise Conflict(f"{ref} {problem}.")
            candidate = ZookeeperClaimCandidate(snapshot)
            self._decide(candidate, False, holds, self._read_lock_owners([candidate]), set())
            if candidate.blocked_by is not None:
                raise Conflict(f"{ref} is blocked by {candidate.blocked_by}.")
            if self._send([candidate], session):
                return self._to_claimed([candidate])[0]
        raise Conflict(f"{ref} could not be claimed: others keep changing it. Try again.")

    def _refusal_of(self, snapshot: RecordSnapshot, session: ZookeeperSession) -> str | None:
        engine_node = snapshot.engine_node
        if snapshot.session is not None:
            return f"is claimed by {snapshot.session}"
        if engine_node is not None and engine_node.host not in ("", session.node.host):
            return f"can only be claimed on {engine_node.host}, where its files are"
        if snapshot.blocked_by == "children":
            return "waits for its children"
        if snapshot.blocked_by == "wait" and engine_node is not None and engine_node.wake_at > self._tree.now():
            return f"waits another {engine_node.wake_at - self._tree.now():.0f} s"
        return None

    # --- reading and deciding

    def _pick(self, queues: Sequence[ListedQueue], want: int) -> list[tuple[ListedQueue, QueueEntry]]:
        oldest = (self._claimed_count + want) // OLDEST_SHARE - self._claimed_count // OLDEST_SHARE
        if not self._has_contention:
            return self._queues.pick(queues, want - oldest, oldest, self._claimed_count)
        self._has_contention = False
        picked = self._queues.pick(queues, 4 * want - oldest, oldest, self._claimed_count)
        start = self._random.randrange(max(1, len(picked) - want + 1))
        return picked[start : start + want]

    def _read_candidates(
        self,
        picked: Sequence[tuple[ListedQueue, QueueEntry]],
        session: ZookeeperSession,
        claims_on_hold: dict[tuple[str, str], bool],
        active_holds: Collection[str],
    ) -> list[ZookeeperClaimCandidate]:
        refs = [Ref(queue.kind, entry.id) for queue, entry in picked]
        candidates: list[ZookeeperClaimCandidate] = []
        misfiled: list[tuple[RecordSnapshot, str]] = []
        for (queue, entry), snapshot in zip(
            picked, read_snapshots(self._tree.connection, refs, documents=True) if refs else (), strict=True
        ):
            queue.exclude(entry)
            if snapshot is None:
                continue
            if snapshot.state != queue.state:
                misfiled.append((snapshot, f"{snapshot.layout.folder_of(queue.state)}/{entry.name}"))
                continue
            engine_node = snapshot.engine_node
            if (
                snapshot.session is None
                and snapshot.blocked_by is None
                and (engine_node is None or engine_node.host in ("", session.node.host))
            ):
                snapshot.listed_entry = entry.name
                candidates.append(ZookeeperClaimCandidate(snapshot, queue, entry))
        self._foreign_records.refile(misfiled)
        lock_owners = self._read_lock_owners(candidates)
        reserved_paths: set[str] = set()
        for candidate in candidates:
            self._decide(
                candidate,
                claims_on_hold[candidate.snapshot.ref.kind, candidate.snapshot.state],
                active_holds,
                lock_owners,
                reserved_paths,
            )
        return candidates

    def _read_lock_owners(self, candidates: Sequence[ZookeeperClaimCandidate]) -> dict[str, bytes]:
        """Return the data of the lock nodes that these candidates need, or owned before another service moved them."""
        engine_nodes = [
            candidate.snapshot.engine_node for candidate in candidates if candidate.snapshot.engine_node is not None
        ]
        lock_paths = {
            lock_path_of(lock): None
            for engine_node in engine_nodes
            for lock in engine_node.locks
            if lock not in engine_node.owned_locks
        }
        lock_paths |= {lock_path_of(lock): None for candidate in candidates for lock in candidate.snapshot.void_locks}
        nodes = self._tree.connection.read_nodes(list(lock_paths)) if lock_paths else []
        return {path: node.data for path, node in zip(lock_paths, nodes, strict=True) if node is not None}

    def _decide(
        self,
        candidate: ZookeeperClaimCandidate,
        claims_on_hold: bool,
        active_holds: Collection[str],
        lock_owners: dict[str, bytes],
        reserved_paths: set[str],
    ) -> None:
        """Decide whether to claim or to block a candidate.

        Holds come first: a record that is held takes no lock. Then it takes all its locks, or none.
        """
        engine_node = candidate.snapshot.engine_node
        # the engine computes what it needs in its state after the claim
        if engine_node is None or candidate.snapshot.has_foreign_move:
            own_data = str(candidate.snapshot.ref).encode()
            candidate.dropped_locks = [
                lock for lock in candidate.snapshot.void_locks if lock_owners.get(lock_path_of(lock)) == own_data
            ]
            return
        hold = next((hold_name for hold_name in engine_node.hold_names if hold_name in active_holds), None)
        if hold is not None:
            if claims_on_hold:
                candidate.hold = hold
            else:
                candidate.blocked_by = f"hold {hold}"
            return
        own_data = str(candidate.snapshot.ref).encode()
        for lock in engine_node.locks:
            if lock in engine_node.owned_locks:
                continue
            path = lock_path_of(lock)
            if path in reserved_paths or lock_owners.get(path, own_data) != own_data:
                candidate.blocked_by = f"lock {lock}"
                candidate.new_locks = []
                return
            candidate.new_locks.append(lock)
        reserved_paths.update(lock_path_of(lock) for lock in candidate.new_locks)
        candidate.new_locks = [lock for lock in candidate.new_locks if lock_path_of(lock) not in lock_owners]

    # --- sending

    def _send(
        self, candidates: Sequence[ZookeeperClaimCandidate], session: ZookeeperSession
    ) -> list[ZookeeperClaimCandidate]:
        waiting = [candidate for candidate in candidates if candidate.blocked_by is None]
        new_claims: list[ZookeeperClaimCandidate] = []
        rounds = 0
        while waiting:
            rounds += 1
            per_transaction = CLAIMS_PER_TRANSACTION if rounds <= 3 else 1
            sent: list[
                tuple[
                    list[ZookeeperClaimCandidate],
                    list[Operation],
                    list[ZookeeperClaimCandidate | None],
                    PendingTransaction,
                ]
            ] = []
            for start in range(0, len(waiting), per_transaction):
                part = waiting[start : start + per_transaction]
                ops: list[Operation] = [operations.check(paths.session_path_of(session.name), "session")]
                op_candidates: list[ZookeeperClaimCandidate | None] = [None]
                for candidate in part:
                    candidate_ops = self._build_ops(candidate)
                    ops += candidate_ops
                    op_candidates += [candidate] * len(candidate_ops)
                sent.append((part, ops, op_candidates, session.connection.submit(ops)))
            waiting = []
            lost: StoreError | None = None
            for part, ops, op_candidates, pending in sent:
                outcome = pending.get()
                if isinstance(outcome, StoreError):
                    lost = outcome
                elif not isinstance(outcome, OperationFailure):
                    new_claims += part
                    for candidate in part:
                        self._remember_claim(candidate, session)
                elif ops[outcome.position].purpose == "session":
                    lost = SessionLost(f"The session {session.name} has ended. Open a new one.")
                else:
                    refused = op_candidates[outcome.position]
                    self._has_contention = True
                    self._return_to_queue(refused, ops[outcome.position])
                    waiting += [candidate for candidate in part if candidate is not refused]
            if lost is not None and (not new_claims or not isinstance(lost, StoreUnavailable)):
                raise lost
            if lost is not None:
                break
        order = {id(candidate): position for position, candidate in enumerate(candidates)}
        return sorted(new_claims, key=lambda candidate: order[id(candidate)])

    def _build_ops(self, candidate: ZookeeperClaimCandidate) -> list[Operation]:
        snapshot, ref = candidate.snapshot, candidate.snapshot.ref
        home, engine_path, old = (
            snapshot.layout.home_path_of(ref.id),
            snapshot.layout.engine_path_of(ref.id),
            snapshot.engine_node,
        )
        ops = [
            operations.create(f"{home}/lock", b"", "lock", ephemeral=True),
            operations.put(f"{home}/status", snapshot.status_bytes, "status", snapshot.status_version),
        ]
        candidate.engine_node = None
        if (
            old is None
            or snapshot.has_foreign_write
            or snapshot.has_lost_worker
            or candidate.new_locks
            or old.blocked_by is not None
        ):
            plan = WritePlan(self._tree.known_folders)
            engine_node = reconcile_engine_node(snapshot)
            candidate.engine_node = engine_node = replace(
                engine_node, owned_locks=(*engine_node.owned_locks, *candidate.new_locks)
            )
            write_plan.plan_parked_notes(plan, ref, old, candidate.engine_node)
            ops += plan.ops
            body = encode_engine_node(candidate.engine_node)
            ops.append(
                operations.create(engine_path, body, "engine")
                if old is None
                else operations.put(engine_path, body, "engine", snapshot.engine_version)
            )
            ops += [
                operations.create(path, str(ref).encode(), "owned-lock")
                for path in dict.fromkeys(map(lock_path_of, candidate.new_locks))
            ]
            ops += [
                operations.delete(path, "owned-lock")
                for path in dict.fromkeys(map(lock_path_of, candidate.dropped_locks))
            ]
        else:
            ops.append(operations.check(engine_path, "engine", snapshot.engine_version))
        return ops

    def _remember_claim(self, candidate: ZookeeperClaimCandidate, session: ZookeeperSession) -> None:
        """Remember the nodes of a claimed record as they are now."""
        snapshot = candidate.snapshot
        version_offset = snapshot.version_offset
        snapshot.session = session.name
        snapshot.status_version += 1
        if candidate.engine_node is not None:
            snapshot.engine_node, snapshot.engine_version = candidate.engine_node, snapshot.engine_version + 1
        assert snapshot.version_offset == version_offset
        self._tree.claimed_snapshots[snapshot.ref] = snapshot

    def _return_to_queue(self, candidate: ZookeeperClaimCandidate | None, op: Operation) -> None:
        """Offer a candidate again in this call if it failed on a lock or a note. If the record itself was changed, the
        next listing offers it.
        """
        if (
            candidate is not None
            and candidate.queue is not None
            and candidate.entry is not None
            and op.purpose in ("owned-lock", "engine", "note")
        ):
            candidate.queue.restore(candidate.entry)

    def _to_claimed(self, candidates: Sequence[ZookeeperClaimCandidate]) -> list[ClaimedRecord]:
        if not candidates:
            return []
        try:
            requests = {
                request.ref: request
                for request in self._action_requests.read_for(candidate.snapshot.ref for candidate in candidates)
            }
        except StoreUnavailable:
            requests = {}  # the next renewal of the session returns them
        claimed = []
        for candidate in candidates:
            snapshot = candidate.snapshot
            if not snapshot.layout.has_merritt_entries:
                kind = snapshot.ref.kind
                self._tree.queue_positions[kind] = max(self._tree.queue_positions.get(kind, 0), snapshot.queue_position)
            claimed.append(
                ClaimedRecord(
                    snapshot.to_record(), candidate.hold, requests.get(snapshot.ref), snapshot.needs_recompute
                )
            )
            snapshot.documents = None  # the step has them; the remembered snapshot does not need them
        return claimed

    # --- blocking

    def _block(self, candidates: Sequence[ZookeeperClaimCandidate], session: ZookeeperSession) -> int:
        """Block these, if the reasons still hold. Returns how many others were unblocked because these do not take
        their locks.
        """
        if not candidates:
            return 0
        for start in range(0, len(candidates), CLAIMS_PER_TRANSACTION):
            part = candidates[start : start + CLAIMS_PER_TRANSACTION]
            if self._try_block(part, session):
                continue
            # One by one: all are blocked then but those that have moved or whose reason is gone.
            for candidate in part:
                if (
                    not self._try_block([candidate], session)
                    and candidate.queue is not None
                    and candidate.entry is not None
                ):
                    candidate.queue.restore(candidate.entry)
        unowned_locks = [
            lock
            for candidate in candidates
            if candidate.snapshot.engine_node
            for lock in candidate.snapshot.engine_node.locks
            if lock not in candidate.snapshot.engine_node.owned_locks
        ]
        return self._parked_notes.offer_locks(unowned_locks) if unowned_locks else 0

    def _try_block(self, candidates: Sequence[ZookeeperClaimCandidate], session: ZookeeperSession) -> bool:
        return self._tree.write(build_blocking_ops(candidates, session.name, self._tree.known_folders)) is None
