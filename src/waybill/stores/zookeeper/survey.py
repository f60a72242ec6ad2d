"""The survey before a plan: the records that groups change, call or close, in as few readings as possible.

What we hold is remembered from its claim and not read at all. A careful survey also finds out what is really there of
everything that a group would touch: for what needs to know (removals, closings, answers), and after a refusal that was
not about the record itself.
"""

from __future__ import annotations

from collections.abc import Sequence

from waybill.record import Change, Committed, Conflict, Ref
from waybill.stores.zookeeper import places, wire
from waybill.stores.zookeeper.kin import Kin
from waybill.stores.zookeeper.layout import JOB
from waybill.stores.zookeeper.marks import Marks
from waybill.stores.zookeeper.plan import Plan
from waybill.stores.zookeeper.planner import UNWRITABLE, Planner
from waybill.stores.zookeeper.seen import Seen, look, look_one
from waybill.stores.zookeeper.tree import Tree
from waybill.stores.zookeeper.tries import Try
from waybill.stores.zookeeper.wire import Node, data, names

_HERE = Node(b"", *(0,) * 11)  # stands for a node that a listing named


class Survey:
    def __init__(self, tree: Tree, family: Kin, marks: Marks, planner: Planner) -> None:
        self._tree = tree
        self._link = tree.link
        self._kin = family
        self._marks = marks
        self._planner = planner

    def look(self, tries: Sequence[Try]) -> None:
        wanted: dict[Ref, bool] = {}
        requests: list[tuple[Try, str, str]] = []
        for each in tries:
            each.seen, each.real = {}, None
            for change in each.group.changes:
                if change.before is None:
                    if change.after is not None and change.after.request is not None:
                        requests.append((each, change.ref.kind, change.after.request))
                    continue
                if known := None if each.careful else self._remembered(change):
                    each.seen[change.ref] = known
                    continue
                each.careful = each.careful or _needs_care(change)
                wanted[change.ref] = wanted.get(change.ref, False) or _needs_documents(change)
            wanted.update((ref, wanted.get(ref, False)) for ref in each.group.nudges)
        found = self._read(wanted)
        for each in tries:
            for ref in [*(c.ref for c in each.group.changes if c.before is not None), *each.group.nudges]:
                each.seen.setdefault(ref, found.get(ref))
            # Which of the keys that it held are still its own must be seen: whoever moved it may have taken them away.
            each.careful = each.careful or any(seen is not None and seen.forfeits for seen in each.seen.values())
        self._answer_known_requests(requests)
        if any(c.goes_on and c.after and c.after.gates for each in tries for c in each.group.changes):
            marks = self._marks.in_force()
            for each in tries:
                each.marks = marks
        self._refuse_parents([each for each in tries if each.answer is None])
        self._survey([each for each in tries if each.careful and each.answer is None])

    def _remembered(self, change: Change) -> Seen | None:
        """What we know of a record that we hold, if that is enough to move it."""
        before, after = change.before, change.after
        seen = self._tree.held.get(change.ref)
        if seen is None or before is None or after is None or change.closes or change.answers:
            return None
        if seen.holder != before.session or seen.record_version != before.version:
            return None
        if change.ref.kind == JOB.parent and (after.state != before.state or "submission" in change.docs):
            return None  # its node `states` may have come meanwhile
        return seen

    def _read(self, wanted: dict[Ref, bool]) -> dict[Ref, Seen | None]:
        found: dict[Ref, Seen | None] = {}
        for docs in (False, True):
            refs = [ref for ref, with_docs in wanted.items() if with_docs is docs]
            found.update(zip(refs, look(self._link, refs, docs), strict=True) if refs else ())
        return found

    def _answer_known_requests(self, requests: Sequence[tuple[Try, str, str]]) -> None:
        """What was asked for before and made then is answered with what was made."""
        nodes = self._link.nodes([places.request(kind, request) for _, kind, request in requests]) if requests else []
        for (each, kind, request), node in zip(requests, nodes, strict=True):
            if node is None or each.answer is not None:
                continue
            seen = look_one(self._link, Ref(kind, node.data.decode()), docs=True)
            if seen is not None:
                asked = [
                    c.before is None and c.after is not None and c.after.request == request for c in each.group.changes
                ]
                each.plan = None
                each.answer = Committed(tuple(seen.record() if this else None for this in asked))

    def _refuse_parents(self, tries: Sequence[Try]) -> None:
        """A parent that closes while a child is open is refused before anything is sent."""
        for each in tries:
            closing = [c.ref for c in each.group.changes if c.closes]
            if not closing:
                continue
            self._link.sync()  # a job that another server knows of already counts
            settled = [
                c.ref for c in each.group.changes if c.before is not None and (c.after is None or not c.after.open)
            ]
            if still := self._kin.open_parents(closing, settled):
                each.answer = Conflict(f"{min(still)} still has an open child; it cannot be closed.")

    def _survey(self, tries: Sequence[Try]) -> None:
        """Find out what is really there of all that these groups would touch."""
        asks: list[list[wire.Ask]] = []
        for each in tries:
            scratch = Plan(self._tree.folders)
            folders: dict[str, None] = {}
            for change in each.group.changes:
                seen = each.seen.get(change.ref)
                if change.before is None or seen is None:
                    continue
                try:
                    self._planner.change(each, scratch, change, None)
                except UNWRITABLE:
                    continue  # the plan itself will say so
                if seen.layout.native and each.failures:  # somebody left its entry in any of the queues
                    folders |= {seen.layout.folder(state): None for state in seen.layout.states}
            asks.append([data(path) for path in dict.fromkeys(scratch.touched)] + [names(path) for path in folders])
        found = self._link.read([ask for each in asks for ask in each])
        place = 0
        for each, part in zip(tries, asks, strict=True):
            real: dict[str, Node | None] = {}
            for (_, path), node in zip(part, found[place : place + len(part)], strict=True):
                if isinstance(node, list):
                    real.update((f"{path}/{name}", _HERE) for name in node if f"{path}/{name}" not in real)
                else:
                    real[path] = node
            each.real = real
            place += len(part)


def _needs_care(change: Change) -> bool:
    """Whether more must be known than the record itself: what was asked, the children, all that goes with it."""
    pends = change.ref.kind == JOB.parent and change.after is not None and change.after.state in ("Pending", "Deleted")
    return change.after is None or change.answers or change.closes or pends or "submission" in change.docs


def _needs_documents(change: Change) -> bool:
    return change.ref.kind == JOB.parent and (change.after is None or "submission" in change.docs)
