"""Claim queues: the entries in a state's folder, and the candidates that a claim takes from them.

A folder is listed at most every `listing_ttl` seconds, and its names serve claims until they are used up. The names sort
in claim order: priority, then queue position. Blocked records are left out by their parked notes, so that many records
that cannot be claimed cost no reads beyond their names.
"""

from __future__ import annotations

import heapq
import time
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from itertools import islice
from typing import NamedTuple

from msgspec.structs import replace

from waybill.record import WorkQueue
from waybill.stores.turns import take_turns
from waybill.stores.zookeeper import operations, paths, write_plan
from waybill.stores.zookeeper.operations import Operation, list_names
from waybill.stores.zookeeper.operator_controls import ZookeeperHolds
from waybill.stores.zookeeper.paths import QueueEntry, layout_of, lock_path_of, quote_name
from waybill.stores.zookeeper.record_nodes import EngineNode, encode_engine_node
from waybill.stores.zookeeper.record_snapshot import RecordSnapshot, reconcile_engine_node
from waybill.stores.zookeeper.write_plan import WritePlan, ZookeeperTree


class ListedQueue:
    """One queue as it was listed."""

    def __init__(
        self, work_queue: WorkQueue, names: Sequence[str], parked_notes: Sequence[str], claimed_ids: Iterable[str]
    ) -> None:
        self.kind, self.state = work_queue.kind, work_queue.state
        self._layout = layout_of(work_queue.kind)
        self._names = sorted(names)
        self._by_age: list[str] | None = None
        # left out: what is blocked, and what this connection has claimed already
        self._excluded_ids = {note.partition("~")[2] for note in parked_notes} | set(map(quote_name, claimed_ids))
        self._used_names: set[str] = set()
        self._next_positions = [0, 0]  # how far the order by priority and that by age are used up
        self._listed_at = time.monotonic()

    @property
    def age(self) -> float:
        return time.monotonic() - self._listed_at

    def exclude(self, entry: QueueEntry) -> None:
        """Leave out an entry that was claimed, or cannot be."""
        self._used_names.add(entry.name)

    def restore(self, entry: QueueEntry) -> None:
        """Offer an excluded entry again."""
        self._used_names.discard(entry.name)
        self._next_positions = [0, 0]

    @property
    def is_empty(self) -> bool:
        return next(self.iter_entries(False), None) is None

    def iter_entries(self, by_age: bool) -> Iterator[QueueEntry]:
        """Yield the entries that are left, the most urgent or the oldest first."""
        if by_age and self._by_age is None:
            self._by_age = sorted(self._names, key=lambda name: name[3:])
        order = self._by_age if by_age and self._by_age is not None else self._names
        for index in range(self._next_positions[by_age], len(order)):
            name = order[index]
            if name in self._used_names:
                if index == self._next_positions[by_age]:
                    self._next_positions[by_age] = index + 1
                continue
            entry = self._layout.parse_entry(name)
            if entry is None or quote_name(entry.id) in self._excluded_ids:
                self._used_names.add(name)
                continue
            yield entry


class ListedQueues:
    """All queues that this connection has listed."""

    def __init__(self, tree: ZookeeperTree, listing_ttl: float) -> None:
        self._tree = tree
        self._listing_ttl = listing_ttl  # seconds for which a listing serves claims
        self._queues: dict[tuple[str, str], ListedQueue] = {}

    def list_queues(
        self, work_queues: Sequence[WorkQueue], refresh: bool = False
    ) -> tuple[list[ListedQueue], set[str]]:
        """Return these queues, listed again where they are used up or too old, and the holds that are set."""
        wanted = []
        for work_queue in work_queues:
            queue = self._queues.get((work_queue.kind, work_queue.state))
            if queue is None or refresh or queue.age >= self._listing_ttl or queue.is_empty:
                wanted.append(work_queue)
        reads = [
            read
            for work_queue in wanted
            for read in (
                list_names(layout_of(work_queue.kind).folder_of(work_queue.state)),
                list_names(paths.parked_folder_of(work_queue.kind, work_queue.state)),
            )
        ]
        found = self._tree.connection.read([*reads, *ZookeeperHolds.build_reads()])
        claimed_refs = list(self._tree.claimed_snapshots) if wanted else []
        for index, work_queue in enumerate(wanted):
            claimed_ids = [ref.id for ref in claimed_refs if ref.kind == work_queue.kind]
            self._queues[work_queue.kind, work_queue.state] = ListedQueue(
                work_queue, found[2 * index] or (), found[2 * index + 1] or (), claimed_ids
            )
        return [
            self._queues[work_queue.kind, work_queue.state] for work_queue in work_queues
        ], ZookeeperHolds.parse_names(found[len(reads) :])

    @staticmethod
    def pick(
        queues: Sequence[ListedQueue], urgent: int, oldest: int, first_turn: int
    ) -> list[tuple[ListedQueue, QueueEntry]]:
        """Pick the `oldest` oldest entries of all queues, and the `urgent` most urgent, kinds taking turns."""
        by_age = heapq.merge(*(_iter_pairs(queue, oldest, by_age=True) for queue in queues), key=_age_of)
        picked = {(queue.kind, entry.name): (queue, entry) for queue, entry in islice(by_age, max(oldest, 0))}
        by_urgency = (pair for queue in queues for pair in _iter_pairs(queue, urgent + oldest, by_age=False))
        for queue, entry in take_turns(by_urgency, _turn_of, first_turn):
            if len(picked) >= urgent + oldest:
                break
            picked.setdefault((queue.kind, entry.name), (queue, entry))
        return take_turns(picked.values(), _turn_of, first_turn)


class QueueTurn(NamedTuple):
    """What decides when an entry is claimed."""

    kind: str
    priority: int
    queue_position: int
    seq: int


def _turn_of(pair: tuple[ListedQueue, QueueEntry]) -> QueueTurn:
    queue, entry = pair
    return QueueTurn(queue.kind, entry.priority, entry.queue_position, entry.seq)


def _age_of(pair: tuple[ListedQueue, QueueEntry]) -> int:
    return pair[1].seq


def _iter_pairs(queue: ListedQueue, limit: int, *, by_age: bool) -> Iterator[tuple[ListedQueue, QueueEntry]]:
    return ((queue, entry) for entry in islice(queue.iter_entries(by_age), max(limit, 0)))


@dataclass(slots=True)
class ZookeeperClaimCandidate:
    """A record that a claim has read, and what was decided about it."""

    snapshot: RecordSnapshot
    queue: ListedQueue | None = None
    entry: QueueEntry | None = None
    hold: str | None = None  # the hold on which the queue claims it
    new_locks: list[str] = field(default_factory=list)  # to be taken
    dropped_locks: list[str] = field(default_factory=list)  # owned in the state from which another service moved it
    blocked_by: str | None = None  # why it cannot be claimed
    engine_node: EngineNode | None = None  # the new one, if the claim writes it


def build_blocking_ops(
    candidates: Sequence[ZookeeperClaimCandidate], session: str, known_folders: set[str]
) -> list[Operation]:
    """Return the operations that block these candidates, if the reasons still hold in that transaction."""
    ops: dict[Operation, None] = {operations.check(paths.session_path_of(session), "session"): None}
    for candidate in candidates:
        snapshot, reason = candidate.snapshot, candidate.blocked_by
        assert snapshot.engine_node is not None
        assert reason is not None
        ref, home = snapshot.ref, snapshot.layout.home_path_of(snapshot.ref.id)
        waiting_name = (
            paths.waiting_name_of(snapshot.priority, snapshot.queue_position, snapshot.seq, ref)
            if reason.startswith("lock ")
            else ""
        )
        blocked = replace(
            reconcile_engine_node(snapshot) if snapshot.has_foreign_write else snapshot.engine_node,
            blocked_by=reason,
            wake_at=0.0,
            waiting_name=waiting_name,
        )
        plan = WritePlan(known_folders)
        write_plan.plan_parked_notes(plan, ref, snapshot.engine_node, blocked)
        if reason.startswith("lock "):
            # the lock is still owned; otherwise the record would wait for a free lock for ever
            ops[operations.check(lock_path_of(reason[5:]), "owned-lock")] = None
        ops[operations.check(f"{home}/status", "status", snapshot.status_version)] = None
        ops.update(dict.fromkeys(plan.ops))
        ops[
            operations.put(
                snapshot.layout.engine_path_of(ref.id), encode_engine_node(blocked), "engine", snapshot.engine_version
            )
        ] = None
    return list(ops)
