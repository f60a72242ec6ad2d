"""The rules for notes (places.py): there is one for all that a record's side node says, and none for what it does
not say.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from waybill.record import Ref
from waybill.stores.zookeeper import notes, places, wire
from waybill.stores.zookeeper.faults import Fault, Judge
from waybill.stores.zookeeper.names import plain
from waybill.stores.zookeeper.plan import parent_of
from waybill.stores.zookeeper.rules_own import Records, looked, missing_folders
from waybill.stores.zookeeper.seen import Seen
from waybill.stores.zookeeper.wire import names


class NotesAreThere(Records):
    name = "a record has the notes that its side node asks for"

    def faults(self, subjects: Sequence[str]) -> Iterator[Fault]:
        wanted = [(each, path) for each in self.seen(subjects) for path in _notes_of(each)]
        nodes = self._judge.link.nodes([path for _, path in wanted]) if wanted else []
        for (each, path), node in zip(wanted, nodes, strict=True):
            if node is None:
                body = each.ref.id.encode() if path.startswith("/waybill/requests/") else b""
                ops = [*self.guard(each), *missing_folders(self._judge, parent_of(path)), wire.create(path, body)]
                home = each.layout.home(each.ref.id)
                yield self._judge.fault(
                    self.name, home, f"{path} is not there", "make it", ops, since=each.touched, ref=each.ref
                )


class NotesAreTrue:
    name = "a note says what its record's side node says"

    def __init__(self, judge: Judge) -> None:
        self._judge = judge

    def subjects(self) -> Iterator[str]:
        link = self._judge.link
        for base in (places.PARKED, "/waybill/owners", places.KIN):
            for outer in sorted(link.names(base)):
                for inner in sorted(link.names(f"{base}/{outer}")):
                    folder = f"{base}/{outer}/{inner}"
                    inside = [f"{folder}/{side}" for side in ("open", "shut")] if base == places.KIN else [folder]
                    for place, listed in zip(inside, link.read([names(path) for path in inside]), strict=True):
                        yield from (f"{place}/{name}" for name in sorted(listed or ()))
        for base in (places.WAITING, "/waybill/requests"):
            for outer in sorted(link.names(base)):
                yield from (f"{base}/{outer}/{name}" for name in sorted(link.names(f"{base}/{outer}")))

    def faults(self, subjects: Sequence[str]) -> Iterator[Fault]:
        link = self._judge.link
        nodes = link.nodes(subjects)
        refs = [
            _noted(path, node.data if node is not None else b"") for path, node in zip(subjects, nodes, strict=True)
        ]
        for path, node, ref, seen, damaged in zip(subjects, nodes, refs, *looked(self._judge, refs), strict=True):
            # what is said of its old state goes when the move is noted
            if node is None or damaged or (seen is not None and seen.foreign):
                continue
            if seen is None or path not in _notes_of(seen):
                ops = [*(Records.guard(seen) if seen is not None else ()), wire.delete(path, "", node.version)]
                problem = f"is not true of {ref}" if seen is not None else f"is about {ref}, which is not there"
                yield self._judge.fault(self.name, path, problem, "take it away", ops, since=node.ctime / 1000, ref=ref)


def _notes_of(seen: Seen) -> list[str]:
    """The notes that there must be about a record."""
    side, ref = seen.side, seen.ref
    if side is None:
        return []
    found = [notes.child_path(seen.layout, ref, side, side.open)]
    if not seen.foreign:
        found += (notes.parked_path(ref, side), notes.waiting_path(side))
    if side.owner:
        found.append(places.owner(side.owner, ref.kind, side.seq, ref.id))
    if side.request is not None:
        found.append(places.request(ref.kind, side.request))
    return [path for path in found if path is not None]


def _noted(path: str, body: bytes) -> Ref:
    """The record that a note is about."""
    parts = path.split("/")
    if parts[2] == "requests":
        return Ref(plain(parts[3]), body.decode(errors="replace") or "-")
    if parts[2] == "owners":
        return Ref(plain(parts[4]), plain(parts[5].partition("~")[2]))
    if parts[2] == "parked":
        return Ref(plain(parts[3]), places.parse_parked(parts[5]).id)
    if parts[2] == "kin":
        child = places.parse_child(parts[6])
        return Ref(child.kind, child.id)
    return places.ref_of(parts[-1])
