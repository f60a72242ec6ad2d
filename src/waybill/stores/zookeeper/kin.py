"""Parents and their children: who is whose child, and whether a parent still waits for one.

A job is its batch's child by its `bid` node, which never changes; Merritt's services delete and make again its entry in
the batch's folders with every move, so one empty reading of those proves nothing. The members of a batch are therefore
the jobs whose `bid` names it, kept in memory and filled from the names in /jobs. A batch has no open job when none of
its members is at work and none in /jobs is still without its `bid`; the closing transaction then asserts that
batch-processing is empty, by deleting it and making it again.

All other children lie in /waybill/kin, written by Waybill alone.
"""

from __future__ import annotations

import time
from collections import Counter, defaultdict
from collections.abc import Collection, Iterable, Mapping, Sequence

from waybill.record import Ref
from waybill.stores.zookeeper import places, wire
from waybill.stores.zookeeper.layout import BUCKETS, JOB, NO_JOBS_YET, layout_of
from waybill.stores.zookeeper.link import Link
from waybill.stores.zookeeper.plan import Plan, chain
from waybill.stores.zookeeper.seen import Seen
from waybill.stores.zookeeper.status import decode
from waybill.stores.zookeeper.wire import data, names

HUSK = 60.0  # seconds after which a job without a `bid` is not being made any more: its maker died


class Members:
    """Which job belongs to which batch."""

    def __init__(self, link: Link) -> None:
        self._link = link
        self._batch_of: dict[str, str] = {}
        self._jobs_of: dict[str, set[str]] = defaultdict(set)
        self._as_of = -1  # the transaction that last changed the names in /jobs

    def refresh(self) -> bool:
        """Learn of new jobs. True when a job is being made whose batch is not known yet."""
        link = self._link
        folder = link.node(JOB.homes)
        if folder is None or folder.pzxid == self._as_of:
            return False
        here = {name for name in link.names(JOB.homes) if JOB.id_of(name)}
        for gone in self._batch_of.keys() - here:
            self._jobs_of[self._batch_of.pop(gone)].discard(gone)
        new = sorted(here - self._batch_of.keys())
        found = link.read([ask for id in new for ask in (data(f"{JOB.home(id)}/bid"), data(JOB.home(id)))])
        unborn = False
        for id, bid, home in zip(new, found[::2], found[1::2], strict=True):
            if bid is not None and bid.data:
                batch = bid.data.decode(errors="replace")
                self._batch_of[id] = batch
                self._jobs_of[batch].add(id)
            elif home is not None and time.time() - home.ctime / 1000 < HUSK:
                unborn = True
        # The node was read before the names: what came between is looked for again next time.
        self._as_of = -1 if unborn else folder.pzxid
        return unborn

    def of(self, batch: str) -> list[str]:
        return sorted(self._jobs_of.get(batch, ()))


class Kin:
    def __init__(self, link: Link) -> None:
        self._link = link
        self.members = Members(link)

    def open_parents(self, refs: Iterable[Ref], settled: Collection[Ref] = ()) -> set[Ref]:
        """Which of these have an open child, those in `settled` left out: the same group settles them."""
        wanted = list(dict.fromkeys(refs))
        found = self._link.read(
            [ask for ref in wanted for ask in (data(f"{places.kin(ref)}/open"), data(_processing(ref)))]
        )
        still, batches = set(), []
        for ref, open, processing in zip(wanted, found[::2], found[1::2], strict=True):
            many = any(folder is not None and folder.children > len(settled) for folder in (open, processing))
            if many or (open is not None and open.children and any(child not in settled for child in self._open(ref))):
                still.add(ref)
            elif ref.kind == JOB.parent:
                batches.append(ref)
        if batches:
            unborn = self.members.refresh()
            still.update(ref for ref in batches if unborn or self._working(ref, settled))
        return still

    def _open(self, parent: Ref) -> list[Ref]:
        children = map(places.parse_child, self._link.names(f"{places.kin(parent)}/open"))
        return [Ref(child.kind, child.id) for child in children]

    def _working(self, batch: Ref, settled: Collection[Ref]) -> bool:
        jobs = [id for id in self.members.of(batch.id) if Ref(JOB.kind, id) not in settled]
        nodes = self._link.nodes([f"{JOB.home(id)}/status" for id in jobs])
        found = [decode(node.data) for node in nodes if node is not None]
        if any(status is None or status.status not in JOB.settled for status in found):
            return True
        # Without a status it is being made, or taken away, or its maker died.
        husks = [JOB.home(id) for id, node in zip(jobs, nodes, strict=True) if node is None]
        return any(
            home is not None and time.time() - home.ctime / 1000 < HUSK
            for home in (self._link.nodes(husks) if husks else ())
        )

    def idle(self, parents: Sequence[Ref]) -> list[Ref]:
        """Which of these exist and seem to have no open child left. A hint: whoever acts on it looks again."""
        if not parents:
            return []
        self._link.sync()  # of two children that settle at once on two servers, one of the two looks must see both
        asks = [
            (data(layout_of(ref.kind).home(ref.id)), data(f"{places.kin(ref)}/open"), data(_processing(ref)))
            for ref in parents
        ]
        found = self._link.read([ask for each in asks for ask in each])
        idle = []
        for ref, home, open, processing in zip(parents, found[::3], found[1::3], found[2::3], strict=True):
            busy = (open is not None and open.children) or (processing is not None and processing.children)
            if home is not None and not busy:
                idle.append(ref)
        return idle

    def children(self, kind: str, parent: Ref) -> list[tuple[int, str]]:
        """The (seq, id) of all children of a kind, in the order of their creation."""
        if kind == JOB.kind and parent.kind == JOB.parent:
            self.members.refresh()
            return [(JOB.number(id), id) for id in self.members.of(parent.id)]
        return sorted((child.seq, child.id) for child in self._listed(parent) if child.kind == kind)

    def tally(self, kind: str, parent: Ref) -> Mapping[str, int]:
        if kind != JOB.kind or parent.kind != JOB.parent:
            return Counter(child.state for child in self._listed(parent) if child.kind == kind)
        jobs = self.children(kind, parent)
        nodes = self._link.nodes([f"{JOB.home(id)}/status" for _, id in jobs])
        return Counter(
            status.status for node in nodes if node is not None and (status := decode(node.data)) is not None
        )

    def _listed(self, parent: Ref) -> list[places.Child]:
        base = places.kin(parent)
        found = self._link.read([names(f"{base}/open"), names(f"{base}/shut")])
        children = [places.parse_child(name) for listed in found for name in listed or ()]
        return list({(child.kind, child.id): child for child in children}.values())


def _processing(ref: Ref) -> str:
    """The folder of a batch's jobs at work; for other kinds a node that is never there."""
    return f"/batches/{ref.id}/states/batch-processing" if ref.kind == JOB.parent else "/waybill/none"


def assert_settled(plan: Plan, seen: Seen, state: str | None) -> None:
    """No child is open when the transaction is written. `state`: what the parent becomes; None: it is removed."""
    base = places.kin(seen.ref)
    plan.touched += [base, f"{base}/open", f"{base}/shut"]
    real = plan.real or {}
    if real.get(f"{base}/open") is not None:
        if state is not None:
            plan.last += (wire.delete(f"{base}/open", "children"), wire.create(f"{base}/open", b"", "children"))
    elif plan.real is not None:
        plan.folder(*chain(base))
        plan.last.append(wire.create(f"{base}/open", b"", "children"))
        if state is None:
            plan.last.append(wire.delete(f"{base}/open", "children"))
    if seen.ref.kind != JOB.parent or state is None:
        return
    states = f"{seen.layout.home(seen.ref.id)}/states"
    processing = f"{states}/batch-processing"
    plan.touched += [processing, *(f"{states}/{bucket}" for bucket in BUCKETS)]
    # the plan makes it, as it leaves Pending
    made = state not in (seen.state, "Pending", *NO_JOBS_YET) and "states" not in seen.nodes
    if made or real.get(processing) is not None:
        plan.last += (wire.delete(processing, "children"), wire.create(processing, b"", "children"))
    elif "states" in seen.nodes:
        plan.last.append(wire.create(processing, b"", "children"))
    else:
        plan.last += wire.absent(processing if state in NO_JOBS_YET and state != seen.state else states, "children")


def forget(plan: Plan, ref: Ref) -> None:
    """The parent is removed: its empty folders go with it, those with children stay."""
    base = places.kin(ref)
    folders = [f"{base}/open", f"{base}/shut"]
    plan.touched += [base, *folders]
    real = plan.real or {}
    if real.get(base) is None or any(node is not None and node.children for node in map(real.get, folders)):
        return
    plan.last += [wire.delete(path, "children") for path in [*folders, base] if real.get(path) is not None]
