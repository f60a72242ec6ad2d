"""The rules that Merritt's own orphan test asks of its tree, one class each."""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence

from waybill.record import Ref
from waybill.stores.zookeeper import notes, places, wire
from waybill.stores.zookeeper.faults import Fault, Judge
from waybill.stores.zookeeper.layout import BATCH, BUCKETS, JOB, MERRITT, NO_JOBS_YET, Layout
from waybill.stores.zookeeper.seen import look, session_name
from waybill.stores.zookeeper.side import decode as decode_side
from waybill.stores.zookeeper.status import decode, encode
from waybill.stores.zookeeper.wire import Op, data, names


class UuidNamesABatch:
    name = "a uuid names a batch"

    def __init__(self, judge: Judge) -> None:
        self._judge = judge

    def subjects(self) -> Iterator[str]:
        yield from (f"/batch-uuids/{name}" for name in sorted(self._judge.link.names("/batch-uuids")))

    def faults(self, subjects: Sequence[str]) -> Iterator[Fault]:
        nodes = self._judge.link.nodes(subjects)
        batches = [node.data.decode(errors="replace") if node is not None else "" for node in nodes]
        homes = self._judge.link.nodes([f"/batches/{batch or '-'}" for batch in batches])
        for path, node, batch, home in zip(subjects, nodes, batches, homes, strict=True):
            if node is not None and home is None:
                problem = f"names {batch or 'no batch'}, which is not there"
                ops = [wire.delete(path, "", node.version)]
                yield self._judge.fault(self.name, path, problem, "remove the name", ops, since=node.mtime / 1000)


class BatchHasItsUuid:
    name = "a batch is found by its batchID"

    def __init__(self, judge: Judge) -> None:
        self._judge = judge

    def subjects(self) -> Iterator[str]:
        yield from (BATCH.home(name) for name in sorted(self._judge.link.names(BATCH.homes)) if BATCH.id_of(name))

    def faults(self, subjects: Sequence[str]) -> Iterator[Fault]:
        nodes = self._judge.link.nodes([f"{home}/submission" for home in subjects])
        named = [
            (home, node, uuid)
            for home, node in zip(subjects, nodes, strict=True)
            if node and (uuid := notes.batch_uuid(node.data))
        ]
        found = self._judge.link.nodes([f"/batch-uuids/{uuid}" for _, _, uuid in named]) if named else []
        for (home, node, uuid), there in zip(named, found, strict=True):
            id = home.rpartition("/")[2]
            if there is None:
                ops = [wire.check(home), wire.create(f"/batch-uuids/{uuid}", id.encode())]
                problem, remedy = f"its batchID {uuid} is not in /batch-uuids", "put it there"
            elif there.data != id.encode():
                ops, remedy = [], "remove one of the two batches"
                problem = f"its batchID {uuid} belongs to {there.data.decode(errors='replace')}"
            else:
                continue
            yield self._judge.fault(
                self.name, home, problem, remedy, ops, since=node.mtime / 1000, ref=Ref("batch", id)
            )


class BatchListsItsJobs:
    name = "a batch lists jobs that are its own, each once"

    def __init__(self, judge: Judge) -> None:
        self._judge = judge

    def subjects(self) -> Iterator[str]:
        link = self._judge.link
        for batch in sorted(link.names(BATCH.homes)):
            base = f"{BATCH.homes}/{batch}/states"
            for bucket, listed in zip(
                BUCKETS, link.read([names(f"{base}/{bucket}") for bucket in BUCKETS]), strict=True
            ):
                yield from (f"{base}/{bucket}/{job}" for job in sorted(listed or ()))

    def faults(self, subjects: Sequence[str]) -> Iterator[Fault]:
        jobs = [path.rpartition("/")[2] for path in subjects]
        asks: list[wire.Ask] = []
        for path, job in zip(subjects, jobs, strict=True):
            asks += (data(path), data(f"{JOB.home(job)}/bid"), data(f"{JOB.home(job)}/status"))
        found = self._judge.link.read(asks)
        for path, job, entry, bid, status in zip(subjects, jobs, found[::3], found[1::3], found[2::3], strict=True):
            if entry is None:
                continue
            _, _, batch, _, bucket, _ = path.split("/")
            body = decode(status.data) if status is not None else None
            if bid is None and status is None:
                problem = f"lists {job}, which is not there"
            elif bid is not None and bid.data != batch.encode():
                problem = f"lists {job}, which belongs to {bid.data.decode(errors='replace')}"
            elif body is not None and JOB.bucket(body.status) != bucket:
                problem = f"lists {job}, which is {body.status}"
            else:
                continue
            guard = [wire.check(f"{JOB.home(job)}/status", "", status.version)] if status is not None else []
            yield self._judge.fault(
                self.name, path, problem, "take it off the list", [*guard, wire.delete(path)], since=entry.ctime / 1000
            )


class JobIsListed:
    name = "a job is listed by its batch, in the folder of its state"

    def __init__(self, judge: Judge) -> None:
        self._judge = judge

    def subjects(self) -> Iterator[str]:
        yield from (JOB.home(name) for name in sorted(self._judge.link.names(JOB.homes)) if JOB.id_of(name))

    def faults(self, subjects: Sequence[str]) -> Iterator[Fault]:
        link = self._judge.link
        seen = [
            each
            for each in look(link, [Ref("job", home.rpartition("/")[2]) for home in subjects])
            if each is not None and each.parent
        ]
        folders = [f"/batches/{each.parent.id}/states/{JOB.bucket(each.state)}" for each in seen if each.parent]
        asks = [data(f"{folder}/{each.ref.id}") for each, folder in zip(seen, folders, strict=True)]
        asks += [data(f"/batches/{each.parent.id}") for each in seen if each.parent]
        found = link.read(asks) if asks else []
        for each, folder, entry, batch in zip(seen, folders, found[: len(seen)], found[len(seen) :], strict=True):
            if entry is None and batch is not None:
                home = JOB.home(each.ref.id)
                guard = wire.check(f"{home}/status", "", each.version)
                ops = [guard, *_folders(self._judge, folder), wire.create(f"{folder}/{each.ref.id}")]
                problem = f"is {each.state} and not in {folder}"
                yield self._judge.fault(
                    self.name, home, problem, "list it there", ops, since=each.touched, ref=each.ref
                )


class JobHasABatch:
    name = "a job has its batch"

    def __init__(self, judge: Judge) -> None:
        self._judge = judge

    subjects = JobIsListed.subjects

    def faults(self, subjects: Sequence[str]) -> Iterator[Fault]:
        link = self._judge.link
        bids = link.nodes([f"{home}/bid" for home in subjects])
        yield from self._of_nobody([home for home, node in zip(subjects, bids, strict=True) if node is None])
        named = [
            (home, node, node.data.decode(errors="replace"))
            for home, node in zip(subjects, bids, strict=True)
            if node is not None
        ]
        homes = link.nodes([f"/batches/{bid or '-'}" for _, _, bid in named]) if named else []
        for (home, node, bid), batch in zip(named, homes, strict=True):
            if batch is None:
                ops = _made_again(bid) if BATCH.id_of(bid) else []
                problem = f"names {bid or 'no batch'} as its batch, which is not there"
                remedy = "make the batch again, as failed, so that its jobs can be seen and removed with it"
                ref = Ref("job", home.rpartition("/")[2])
                yield self._judge.fault(self.name, home, problem, remedy, ops, since=node.mtime / 1000, ref=ref)

    def _of_nobody(self, homes: Sequence[str]) -> Iterator[Fault]:
        """With a status and without a `bid`: whoever was removing it died. What had ended is removed; the rest is
        for a person.
        """
        link = self._judge.link
        found = link.read([ask for home in homes for ask in (data(f"{home}/status"), names(home))])
        for home, status, children in zip(homes, found[::2], found[1::2], strict=True):
            body = decode(status.data) if status is not None else None
            if status is None or body is None:
                continue  # see HasAStatus
            id = home.rpartition("/")[2]
            ops: list[Op] = []
            if body.status in ("Completed", "Deleted"):
                folder = JOB.folder(body.status)
                entries = [f"{folder}/{name}" for name in link.names(folder) if name.endswith(f"-{id}")]
                nodes = [f"{home}/{name}" for name in sorted(children or ()) if name != "status"]
                ops = [
                    wire.delete(f"{home}/status", "", status.version),
                    *(wire.delete(path) for path in (*nodes, *entries, home)),
                ]
            problem = f"is {body.status} and does not say to which batch it belongs"
            yield self._judge.fault(
                self.name, home, problem, "remove it", ops, since=status.mtime / 1000, ref=Ref("job", id)
            )


class HasAStatus:
    name = "a record has a status"

    def __init__(self, judge: Judge) -> None:
        self._judge = judge

    def subjects(self) -> Iterator[str]:
        for layout in MERRITT.values():
            yield from (
                layout.home(name) for name in sorted(self._judge.link.names(layout.homes)) if layout.id_of(name)
            )

    def faults(self, subjects: Sequence[str]) -> Iterator[Fault]:
        link = self._judge.link
        found = link.read([ask for home in subjects for ask in (data(home), data(f"{home}/status"), names(home))])
        for path, home, status, children in zip(subjects, found[::3], found[1::3], found[2::3], strict=True):
            if home is None or (status is not None and decode(status.data) is not None):
                continue
            layout, id = _layout_at(path), path.rpartition("/")[2]
            problem = "has no status" if status is None else f"has a status that says no state: {status.data[:60]!r}"
            ops, remedy = self._mending(layout, path, status is not None, set(children or ()))
            yield self._judge.fault(
                self.name, path, problem, remedy, ops, since=home.ctime / 1000, ref=Ref(layout.kind, id)
            )

    def _mending(self, layout: Layout, home: str, there: bool, children: set[str]) -> tuple[list[Op], str]:
        known = "bid" in children if layout.native else bool(layout.documents & children)
        if not known:
            nodes = [wire.delete(f"{home}/{name}") for name in sorted(children)]
            return [*nodes, wire.delete(home)], "remove it: its maker died before it said whose it is"
        side = self._judge.link.node(layout.side(home.rpartition("/")[2]))
        noted = decode_side(side.data) if side is not None else None
        if noted is not None and noted.state in ("Completed", "Deleted", "Failed"):
            state = noted.state  # as Waybill last saw it: what had ended must not begin again
        else:
            state = (
                self._queued(home.rpartition("/")[2])
                if layout.native
                else "Processing"
                if "states" in children
                else "Pending"
            )
        message = "Its status was lost; the state was found again by Waybill."
        last = noted.last_done if noted is not None else None
        body = encode(state, last, 0, message, self._judge.tree.now(), layout.brief)
        ops = [wire.put(f"{home}/status", body) if there else wire.create(f"{home}/status", body)]
        needed = {**layout.fillers, **({"priority": b"5"} if layout.native else {})}
        ops += [wire.create(f"{home}/{name}", filler) for name, filler in needed.items() if name not in children]
        return ops, f"write one that says {state}"

    def _queued(self, id: str) -> str:
        """The state in whose queue a job is; Failed, for a person to look at, when it is in none."""
        listed = self._judge.link.read([names(JOB.folder(state)) for state in JOB.states])
        return next(
            (s for s, found in zip(JOB.states, listed, strict=True) if any(n.endswith(f"-{id}") for n in found or ())),
            "Failed",
        )


class StatesHasChildren:
    name = "a batch's states has folders in it"

    def __init__(self, judge: Judge) -> None:
        self._judge = judge

    subjects = BatchHasItsUuid.subjects

    def faults(self, subjects: Sequence[str]) -> Iterator[Fault]:
        found = self._judge.link.read(
            [ask for home in subjects for ask in (data(f"{home}/states"), data(f"{home}/status"))]
        )
        for home, states, status in zip(subjects, found[::2], found[1::2], strict=True):
            if states is None or states.children:
                continue
            body = decode(status.data) if status is not None else None
            pending = body is not None and body.status == "Pending"
            folder = "batch-completed" if body is not None and body.status in NO_JOBS_YET else "batch-processing"
            op = wire.delete(f"{home}/states") if pending else wire.create(f"{home}/states/{folder}")
            problem = "has an empty node states, so that no service takes it up"
            remedy = "remove the node" if pending else f"make {folder}"
            ref = Ref("batch", home.rpartition("/")[2])
            yield self._judge.fault(self.name, home, problem, remedy, [op], since=states.ctime / 1000, ref=ref)


class LocksAreShort:
    name = "a lock is not held for long"

    def __init__(self, judge: Judge) -> None:
        self._judge = judge

    subjects = HasAStatus.subjects

    def faults(self, subjects: Sequence[str]) -> Iterator[Fault]:
        link = self._judge.link
        locks = link.nodes([f"{home}/lock" for home in subjects])
        ours = set(link.names(places.SESSIONS))
        for home, lock in zip(subjects, locks, strict=True):
            # a session of Waybill that lives may hold its claims as long as it likes
            if lock is None or session_name(lock.owner) in ours:
                continue
            age = time.time() - lock.ctime / 1000
            if age >= self._judge.ages.lock:
                ref = Ref(_layout_at(home).kind, home.rpartition("/")[2])
                problem = f"is locked by session {session_name(lock.owner)} for {age:.0f} s (FAIL)"
                ops = [wire.delete(f"{home}/lock", "", lock.version)]
                yield self._judge.fault(self.name, home, problem, "remove the lock", ops, ref=ref)


def _made_again(bid: str) -> list[Op]:
    home, now = BATCH.home(bid), time.time()
    status = encode(
        "Failed", None, 0, "Its nodes were lost; made again by Waybill for the jobs that name it.", now, True
    )
    return [
        wire.create(home),
        wire.create(f"{home}/submission", b"{}"),
        wire.create(f"{home}/status", status),
        wire.create(f"{home}/states"),
        wire.create(f"{home}/states/batch-processing"),
    ]


def _folders(judge: Judge, folder: str) -> list[Op]:
    states = folder.rpartition("/")[0]
    judge.tree.folders.difference_update((states, folder))  # whether they are there is not known
    return [wire.create(path, b"", "folder") for path in (states, folder)]


def _layout_at(home: str) -> Layout:
    folder = home.rpartition("/")[0]
    return next(layout for layout in MERRITT.values() if layout.homes == folder)
