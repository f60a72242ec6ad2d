"""The rules for what Waybill itself keeps in the tree, one class each."""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence

from msgspec.structs import replace

from waybill.record import Ref, is_json
from waybill.stores.zookeeper import places, wire
from waybill.stores.zookeeper.faults import Fault, Judge
from waybill.stores.zookeeper.foreign import renumber
from waybill.stores.zookeeper.layout import MERRITT, Layout, layout_of
from waybill.stores.zookeeper.names import key_path, plain
from waybill.stores.zookeeper.plan import chain, parent_of
from waybill.stores.zookeeper.seen import Seen, look
from waybill.stores.zookeeper.side import decode as decode_side
from waybill.stores.zookeeper.side import encode as encode_side
from waybill.stores.zookeeper.status import decode as decode_status
from waybill.stores.zookeeper.wire import Op, data, names

_WHOLE = 50  # records read together with their documents, each of which may have half a megabyte


def kinds(judge: Judge) -> list[Layout]:
    return [layout_of(kind) for kind in sorted({*MERRITT, *map(plain, judge.link.names("/waybill/kinds"))})]


def ref_at(path: str) -> Ref:
    """The record whose home this is."""
    folder, _, node = path.rpartition("/")
    for layout in MERRITT.values():
        if layout.homes == folder:
            return Ref(layout.kind, node)
    return Ref(plain(path.split("/")[3]), plain(node))


def looked(judge: Judge, refs: Sequence[Ref]) -> tuple[list[Seen | None], list[bool]]:
    """The records, and which of them are there and cannot be read: that is for the rules about those alone."""
    homes = judge.link.nodes([layout_of(ref.kind).home(ref.id) for ref in refs]) if refs else []
    seen = look(judge.link, refs)
    return seen, [each is None and home is not None for each, home in zip(seen, homes, strict=True)]


class Records:
    """Rules about records begin with a look at them."""

    def __init__(self, judge: Judge) -> None:
        self._judge = judge

    def subjects(self) -> Iterator[str]:
        for layout in kinds(self._judge):
            yield from (
                f"{layout.homes}/{name}" for name in sorted(self._judge.link.names(layout.homes)) if layout.id_of(name)
            )

    def seen(self, subjects: Sequence[str]) -> list[Seen]:
        return [each for each in look(self._judge.link, [ref_at(path) for path in subjects]) if each is not None]

    @staticmethod
    def guard(seen: Seen) -> list[Op]:
        """It has not moved since it was looked at."""
        ops = [wire.check(f"{seen.layout.home(seen.ref.id)}/status", "", seen.version)]
        return (
            [*ops, wire.check(seen.layout.side(seen.ref.id), "", seen.side_version)] if seen.side is not None else ops
        )


class RecordIsQueued(Records):
    name = "a record is in the queue of its state"

    def faults(self, subjects: Sequence[str]) -> Iterator[Fault]:
        # A batch that another service made and we have not seen yet is queued when it is seen.
        seen = [each for each in self.seen(subjects) if each.layout.native or each.side is not None]
        paths = [f"{each.layout.folder(each.state)}/{each.entry_name}" for each in seen]
        for each, path, node in zip(seen, paths, self._judge.link.nodes(paths) if paths else (), strict=True):
            if node is None:
                folders = [] if each.layout.native else missing_folders(self._judge, parent_of(path))
                ops = [*self.guard(each), *folders, wire.create(path), *renumber(each)]
                home = each.layout.home(each.ref.id)
                yield self._judge.fault(
                    self.name,
                    home,
                    f"is {each.state} and not queued as {path}",
                    "queue it",
                    ops,
                    since=each.touched,
                    ref=each.ref,
                )


class CanBeRead(Records):
    """A record of ours that is damaged is not there for anybody: only this rule names it.

    What was in it nobody knows.
    """

    name = "what is written can be read"
    remedy = "restore a backup, or write the node again"

    def faults(self, subjects: Sequence[str]) -> Iterator[Fault]:
        for start in range(0, len(subjects), _WHOLE):
            yield from self._faults([(path, ref_at(path)) for path in subjects[start : start + _WHOLE]])

    def _faults(self, homes: Sequence[tuple[str, Ref]]) -> Iterator[Fault]:
        link = self._judge.link
        asks = [data(f"{path}/status") for path, _ in homes] + [
            data(layout_of(ref.kind).side(ref.id)) for _, ref in homes
        ]
        found = link.read(asks)
        for (path, ref), status, side in zip(homes, found[: len(homes)], found[len(homes) :], strict=True):
            if ref.kind not in MERRITT and (status is None or decode_status(status.data) is None):
                since = status.mtime / 1000 if status is not None else None
                yield self._judge.fault(
                    self.name, path, "its status says no state", self.remedy, (), since=since, ref=ref
                )
            if side is not None and decode_side(side.data) is None:
                problem = f"{layout_of(ref.kind).side(ref.id)} is no side node"
                yield self._judge.fault(self.name, path, problem, self.remedy, (), since=side.mtime / 1000, ref=ref)
        for (path, ref), each in zip(homes, look(link, [ref for _, ref in homes], docs=True), strict=True):
            for name, body in sorted((each.docs or {}).items()) if each is not None else ():
                if not is_json(body):
                    problem = f"its document {name} is no JSON"
                    yield self._judge.fault(self.name, path, problem, self.remedy, (), ref=ref)


class QueueHoldsRecords:
    name = "a queue holds records of its state, each once"

    def __init__(self, judge: Judge) -> None:
        self._judge = judge

    def subjects(self) -> Iterator[str]:
        link = self._judge.link
        for layout in kinds(self._judge):
            for folder in sorted(link.names(layout.queue)):
                yield from (
                    f"{layout.queue}/{folder}/{name}" for name in sorted(link.names(f"{layout.queue}/{folder}"))
                )

    def faults(self, subjects: Sequence[str]) -> Iterator[Fault]:
        judge, parsed = self._judge, []
        for path in subjects:
            queue, folder, name = path.rsplit("/", 2)
            layout = MERRITT["job"] if queue == MERRITT["job"].queue else layout_of(plain(queue.split("/")[3]))
            parsed.append((path, layout, layout.state_of(folder), layout.parse(name)))
        nodes = judge.link.nodes(subjects)
        refs = [Ref(layout.kind, entry.id if entry else "-") for _, layout, _, entry in parsed]
        for (path, layout, state, entry), node, each, damaged in zip(parsed, nodes, *looked(judge, refs), strict=True):
            if node is None or damaged:
                continue
            if entry is None or each is None:
                problem, guard = "stands for no record", []
            elif each.state != state:
                problem, guard = f"stands for {each.ref}, which is {each.state}", Records.guard(each)
            elif entry.name != each.entry_name:
                problem, guard = f"stands for {each.ref}, whose entry is {each.entry_name}", Records.guard(each)
            else:
                continue
            ops = [*guard, wire.delete(path)]
            ref = Ref(layout.kind, entry.id) if entry is not None else None
            yield judge.fault(
                self.name, path, problem, "take it out of the queue", ops, since=node.ctime / 1000, ref=ref
            )


class SideHasARecord:
    name = "a side node has a record"

    def __init__(self, judge: Judge) -> None:
        self._judge = judge

    def subjects(self) -> Iterator[str]:
        for layout in MERRITT.values():
            yield from (f"{layout.sides}/{name}" for name in sorted(self._judge.link.names(layout.sides)))

    def faults(self, subjects: Sequence[str]) -> Iterator[Fault]:
        link = self._judge.link
        refs = [Ref(path.split("/")[3], path.rpartition("/")[2]) for path in subjects]
        homes = [layout_of(ref.kind).home(ref.id) for ref in refs]
        found = link.read(
            [ask for path, home in zip(subjects, homes, strict=True) for ask in (data(path), data(home), names(path))]
        )
        for path, ref, side, home, far in zip(subjects, refs, found[::3], found[1::3], found[2::3], strict=True):
            if side is not None and home is None:
                ops = [
                    *(wire.delete(f"{path}/{name}") for name in sorted(far or ())),
                    wire.delete(path, "", side.version),
                ]
                kin = [f"{places.kin(ref)}/open", f"{places.kin(ref)}/shut", places.kin(ref)]
                here = [(place, node) for place, node in zip(kin, link.nodes(kin), strict=True) if node is not None]
                if not any(node.children for place, node in here if place != kin[-1]):  # whose children are gone too
                    ops += [wire.delete(place) for place, _ in here]
                yield self._judge.fault(
                    self.name, path, f"{ref} is not there", "take it away", ops, since=side.mtime / 1000, ref=ref
                )


class KeysHaveHolders:
    name = "a key is held by a record that names it"

    def __init__(self, judge: Judge) -> None:
        self._judge = judge

    def subjects(self) -> Iterator[str]:
        for folder in ("/waybill/keys", "/locks/storage", "/locks/inventory", "/locks/localid"):
            yield from (f"{folder}/{name}" for name in sorted(self._judge.link.names(folder)))

    def faults(self, subjects: Sequence[str]) -> Iterator[Fault]:
        link = self._judge.link
        ours = []
        for path, node in zip(subjects, link.nodes(subjects), strict=True):
            kind, _, id = node.data.decode(errors="replace").partition(" ") if node is not None else ("", "", "")
            if node is not None and id:  # one without a name is another service's
                ours.append((path, node, Ref(kind, id)))
        for (path, node, ref), seen, damaged in zip(
            ours, *looked(self._judge, [ref for _, _, ref in ours]), strict=True
        ):
            if damaged:
                continue
            if seen is None or seen.side is None or path not in map(key_path, seen.side.holds):
                ops = [*(Records.guard(seen) if seen is not None else ()), wire.delete(path, "", node.version)]
                problem = f"is held by {ref}, which {'does not have it' if seen is not None else 'is not there'}"
                yield self._judge.fault(self.name, path, problem, "let go of it", ops, since=node.mtime / 1000, ref=ref)


class HoldersHaveKeys(Records):
    name = "a record holds the keys that it says it holds"

    def faults(self, subjects: Sequence[str]) -> Iterator[Fault]:
        wanted = [(each, key) for each in self.seen(subjects) if each.side for key in each.side.holds]
        nodes = self._judge.link.nodes([key_path(key) for _, key in wanted]) if wanted else []
        for (each, key), node in zip(wanted, nodes, strict=True):
            if each.side is not None and (node is None or node.data != str(each.ref).encode()):
                side = replace(each.side, holds=tuple(held for held in each.side.holds if held != key))
                ops = [
                    *self.guard(each),
                    wire.put(each.layout.side(each.ref.id), encode_side(side), "", each.side_version),
                ]
                problem = f"says that it holds {key}, and {'nobody does' if node is None else 'another does'}"
                home = each.layout.home(each.ref.id)
                yield self._judge.fault(
                    self.name, home, problem, "let it ask for the key again", ops, since=each.touched, ref=each.ref
                )


class AsksHaveRecords:
    name = "what is asked is asked of a record"

    def __init__(self, judge: Judge) -> None:
        self._judge = judge

    def subjects(self) -> Iterator[str]:
        yield from (f"{places.ASKS}/{name}" for name in sorted(self._judge.link.names(places.ASKS)))

    def faults(self, subjects: Sequence[str]) -> Iterator[Fault]:
        refs = [places.ref_of(path.rpartition("/")[2]) for path in subjects]
        homes = self._judge.link.nodes([layout_of(ref.kind).home(ref.id) for ref in refs])
        for path, ref, home, node in zip(subjects, refs, homes, self._judge.link.nodes(subjects), strict=True):
            if node is not None and home is None:
                ops = [wire.delete(path, "", node.version)]
                yield self._judge.fault(
                    self.name, path, f"{ref} is not there", "take it away", ops, since=node.mtime / 1000, ref=ref
                )


class WorkersLive:
    name = "a worker that died is told of and forgotten"

    def __init__(self, judge: Judge) -> None:
        self._judge = judge

    def subjects(self) -> Iterator[str]:
        yield from (f"{places.WORKERS}/{name}" for name in sorted(self._judge.link.names(places.WORKERS)))

    def faults(self, subjects: Sequence[str]) -> Iterator[Fault]:
        sessions = [path.rpartition("/")[2] for path in subjects]
        workers = self._judge.link.nodes(subjects)
        living = self._judge.link.nodes([places.session(name) for name in sessions])
        for path, name, worker, session in zip(subjects, sessions, workers, living, strict=True):
            if worker is None or session is not None or time.time() - worker.ctime / 1000 < self._judge.ages.old:
                continue  # reap tells of those who died just now
            ops = [wire.delete(path, "", worker.version)]
            problem = f"the session {name} has ended, and nobody was told"
            yield self._judge.fault(self.name, path, problem, "forget it", ops, since=worker.ctime / 1000)


def missing_folders(judge: Judge, folder: str) -> list[Op]:
    folders = chain(folder)
    judge.tree.folders.difference_update(folders)  # whether they are there is not known
    return [wire.create(path, b"", "folder") for path in folders]
