"""commit: groups of changes as ZooKeeper transactions, 25 groups each.

    look      read the records that are changed, called or closed (those that we hold are remembered from their claim)
    plan      each group's operations, or its refusal
    send      transactions that only move records one behind the other; those that create, one after the other (numbers.py)
    react     the first refused operation names its group and what is the matter; all others of the transaction are sent again
    follow    parents without open children, what was asked meanwhile, waiters of keys that are free now, the bell

After three rounds the groups are sent singly, so that none is kept from its place by its neighbours.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass, field

from waybill.record import Answer, Ask, Change, ClaimLost, Committed, Conflict, Exists, Group, Ref, StoreError, TooLarge, Unavailable
from waybill.stores.groups import vet
from waybill.stores.zookeeper import changes, kin, notes, places, wire
from waybill.stores.zookeeper.asks import Asks
from waybill.stores.zookeeper.changes import Result
from waybill.stores.zookeeper.layout import JOB, layout_of
from waybill.stores.zookeeper.link import MAX_REQUEST, Pending
from waybill.stores.zookeeper.marks import Marks
from waybill.stores.zookeeper.numbers import Numbers
from waybill.stores.zookeeper.parking import Parking
from waybill.stores.zookeeper.plan import Plan, Real
from waybill.stores.zookeeper.seen import Seen, look, look_one
from waybill.stores.zookeeper.side import encode as encode_side
from waybill.stores.zookeeper.tree import Tree
from waybill.stores.zookeeper.wire import NO_NODE, NODE_EXISTS, NOT_EMPTY, Failure, Node, Op, data, names

GROUPS = 25  # in one transaction: more gain little, and one that is refused costs its neighbours a second trip
PATIENCE = 10  # how often a group may meet a tree that is not as expected before it is told so
UNWRITABLE = (ValueError, TypeError)  # a text that has no bytes, say
_HERE = Node(b"", *(0,) * 11)  # stands for a node that a listing named


@dataclass(slots=True)
class Try:
    """A group on its way."""

    place: int
    group: Group
    answer: Answer | None = None
    careful: bool = False  # plan from what is really there
    failures: int = 0
    seen: dict[Ref, Seen | None] = field(default_factory=dict)
    real: Real | None = None
    plan: Plan | None = None
    results: list[Result] = field(default_factory=list)
    marks: Collection[str] = ()

    @property
    def counts(self) -> bool:
        """Whether it takes numbers, so that no other such transaction may be under way."""
        return any(c.before is None or (c.after is None and not layout_of(c.ref.kind).prefix) for c in self.group.changes)

    @property
    def sessions(self) -> set[str]:
        return {c.before.session for c in self.group.changes if c.before is not None and c.before.session is not None}


@dataclass(slots=True)
class Pack:
    """Groups in one transaction."""

    tries: list[Try] = field(default_factory=list)
    sessions: dict[str, None] = field(default_factory=dict)
    ops: list[Op] = field(default_factory=list)
    whose: list[Try | None] = field(default_factory=list)  # the group of each operation
    size: int = 0
    counts: bool = False


class Committer:
    def __init__(self, tree: Tree, family: kin.Kin, marks: Marks, parking: Parking, asks: Asks) -> None:
        self._tree = tree
        self._link = tree.link
        self._kin = family
        self._marks = marks
        self._parking = parking
        self._asks = asks

    def commit(self, groups: Sequence[Group]) -> list[Answer]:
        tries = [Try(place, group) for place, group in enumerate(groups)]
        for each, refusal in zip(tries, vet(groups), strict=True):
            each.answer = refusal
        numbers = Numbers(self._link, self._tree.max_names, self._tree.turns)
        rounds = 0
        while waiting := [each for each in tries if each.answer is None]:
            rounds += 1
            try:
                self._look(waiting)
                self._send([each for each in waiting if each.answer is None], numbers, GROUPS if rounds <= 3 else 1)
            except Unavailable as error:
                if rounds == 1 and all(each.answer is None for each in tries):
                    raise
                for each in tries:
                    each.answer = each.answer or error
        self._follow(tries)
        return [each.answer for each in tries if each.answer is not None]

    # --- look

    def _look(self, tries: Sequence[Try]) -> None:
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
                asked = [c.before is None and c.after is not None and c.after.request == request for c in each.group.changes]
                each.plan = None
                each.answer = Committed(tuple(seen.record() if this else None for this in asked))

    def _refuse_parents(self, tries: Sequence[Try]) -> None:
        """A parent that closes while a child is open is refused before anything is sent."""
        for each in tries:
            closing = [c.ref for c in each.group.changes if c.closes]
            if not closing:
                continue
            settled = [c.ref for c in each.group.changes if c.before is not None and (c.after is None or not c.after.open)]
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
                    self._plan_change(each, scratch, change, None)
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

    # --- plan

    def _plan(self, each: Try, numbers: Numbers) -> bool:
        """Make the group's operations; False when it is refused."""
        plan = Plan(self._tree.folders, each.real)
        kept = None
        if each.counts:
            numbers.prepare(c for c in each.group.changes if c.before is None or c.after is None)
            kept = numbers.save()
        each.results, each.plan = [], None
        for change in each.group.changes:
            try:
                result = self._plan_change(each, plan, change, numbers)
            except UNWRITABLE as error:
                result = StoreError(f"{change.ref} cannot be written: {error}.")
            if isinstance(result, StoreError):
                each.answer = result
                if kept is not None:
                    numbers.restore(kept)
                return False
            each.results.append(result)
        self._call_parents(each, plan)
        if kept is not None:
            numbers.note_turns(plan)
        plan.ops += plan.last
        plan.last = []
        if plan.size > MAX_REQUEST - 2000:
            each.answer = TooLarge(f"One group of {plan.size} bytes with all its nodes; ZooKeeper takes {MAX_REQUEST}. Write in portions.")
            if kept is not None:
                numbers.restore(kept)
            return False
        each.plan = plan
        return True

    def _plan_change(self, each: Try, plan: Plan, change: Change, numbers: Numbers | None) -> Result | StoreError:
        now = self._tree.now()
        if change.before is None:
            assert numbers is not None
            given = numbers.take(change)
            return given if isinstance(given, StoreError) else changes.create(plan, change, *given, now=now)
        seen = each.seen.get(change.ref)
        if refusal := changes.outdated(change, seen):
            return refusal
        assert seen is not None
        if change.closes:
            kin.assert_settled(plan, seen, change.after.state if change.after else None)
        if change.after is not None:
            return changes.move(plan, change, seen, now, each.marks, nudged=change.ref in each.group.nudges)
        kin.forget(plan, change.ref)
        if numbers is not None and not seen.layout.prefix:
            numbers.leave_behind(seen.record_version)
        return changes.remove(plan, change, seen)

    def _call_parents(self, each: Try, plan: Plan) -> None:
        """Nudges: a number that grows, and the end of a wait. Not versioned, and no matter if nobody is there."""
        changed = {change.ref for change in each.group.changes}
        for ref in dict.fromkeys(each.group.nudges):
            seen = each.seen.get(ref)
            if seen is None:
                continue
            plan.last.append(wire.put(seen.layout.home(ref.id), b"", "nudge"))
            if ref in changed:
                continue
            if each.failures > PATIENCE // 2:
                continue  # others keep writing it: the call counts all the same, and it is woken when this is written (see _follow)
            if seen.side is None:
                plan.last += wire.absent(seen.layout.side(ref.id), "nudge")
                continue
            if seen.parked not in ("wait", "children"):  # nor was it parked since it was looked at
                plan.last.append(wire.check(seen.layout.side(ref.id), "nudge", seen.side_version))
                continue
            awake = self._parking.awake(seen.side)
            scratch = Plan(self._tree.folders)
            notes.park(scratch, ref, seen.side, awake)
            plan.last += [op._replace(means="nudge") for op in scratch.ops]
            plan.last.append(wire.put(seen.layout.side(ref.id), encode_side(awake), "nudge", seen.side_version))

    # --- send

    def _send(self, tries: Sequence[Try], numbers: Numbers, most: int) -> None:
        flights: list[tuple[Pack, Pending]] = []
        pack = Pack()
        for each in tries:
            if len(pack.tries) >= most:
                self._launch(pack, numbers, flights)
                pack = Pack()
            kept = numbers.save() if each.counts else None
            if not self._plan(each, numbers) or each.plan is None:
                continue
            if pack.tries and pack.size + each.plan.size > MAX_REQUEST - 2000:
                if kept is not None:
                    numbers.restore(kept)  # those that go first must not leave a hole before it
                self._launch(pack, numbers, flights)
                pack = Pack()
                if not self._plan(each, numbers):
                    continue
            pack.tries.append(each)
            pack.size += each.plan.size
            pack.counts = pack.counts or each.counts
            pack.sessions.update(dict.fromkeys(each.sessions))
        if pack.tries:
            self._launch(pack, numbers, flights)
        for flown, pending in flights:
            self._land(flown, pending, numbers)

    def _launch(self, pack: Pack, numbers: Numbers, flights: list[tuple[Pack, Pending]]) -> None:
        self._find_folders(pack)
        made: set[str] = set()
        pack.ops = [wire.check(places.session(name), "session") for name in pack.sessions]
        pack.whose = [None] * len(pack.ops)
        for each in pack.tries:
            assert each.plan is not None
            for op in each.plan.ops:
                if op.means == "folder":
                    if op.path in self._tree.folders or op.path in made:
                        continue
                    made.add(op.path)
                pack.ops.append(op)
                pack.whose.append(each)
        if pack.counts:
            count = numbers.note_seq()
            pack.ops += count
            pack.whose += [None] * len(count)
        if not pack.ops:
            for each in pack.tries:
                each.answer = Committed(())
            return
        pending = self._link.post(pack.ops)
        if pack.counts:
            self._land(pack, pending, numbers)
        else:
            flights.append((pack, pending))

    def _find_folders(self, pack: Pack) -> None:
        """A look at folders that we have not seen yet costs less than a transaction that is refused because they are there."""
        known = self._tree.folders
        unsure = {op.path for each in pack.tries if each.plan for op in each.plan.ops if op.means == "folder" and op.path not in known}
        if unsure:
            paths = sorted(unsure)
            for path, node in zip(paths, self._link.nodes(paths), strict=True):
                if node is not None:
                    self._tree.know(path)

    def _land(self, pack: Pack, pending: Pending, numbers: Numbers) -> None:
        outcome = pending.get()
        if isinstance(outcome, Failure):
            self._react(pack, outcome, numbers)
            return
        if isinstance(outcome, StoreError):
            numbers.forget()
            for each in pack.tries:
                each.answer = outcome
                for change in each.group.changes:
                    self._tree.held.pop(change.ref, None)
            return
        self._tree.learn(pack.ops)
        for each in pack.tries:
            for change, result in zip(each.group.changes, each.results, strict=True):
                if change.before is None:
                    continue
                if result.seen is not None and change.ref in self._tree.held:
                    self._tree.held[change.ref] = result.seen
                else:
                    self._tree.held.pop(change.ref, None)
            each.answer = Committed(tuple(result.record for result in each.results))

    # --- react

    def _react(self, pack: Pack, failure: Failure, numbers: Numbers) -> None:
        op, code = pack.ops[failure.place], failure.code
        each = pack.whose[failure.place]
        if pack.counts:
            numbers.forget()
        if op.means == "session":
            name = op.path.rpartition("/")[2]
            for one in pack.tries:
                if name in one.sessions:
                    one.answer = ClaimLost(f"The session {name} has ended, and all its claims with it.")
            return
        if op.means == "folder" and code == NODE_EXISTS:
            self._tree.know(op.path)
            return
        if each is None or op.means in ("minted", "count"):
            return  # somebody was faster with a number: all are planned again
        each.failures += 1
        each.careful = True
        if code == NO_NODE:
            self._tree.doubt(op.path)
        each.answer = self._refusal(each, op, code)

    def _refusal(self, each: Try, op: Op, code: int) -> StoreError | None:
        """What a refused operation means for its group. None: look again, which finds the reason, and plan again from what is there."""
        name = ", ".join(str(change.ref) for change in each.group.changes[:3]) or "The call"
        # If it was made by the same request, the next look answers with what was made; if it was not, it comes here again.
        if op.means == "named" and code == NODE_EXISTS and each.failures > 1:
            return Exists(f"{op.path.rpartition('/')[2]} exists already.")
        if op.means == "uuid" and code == NODE_EXISTS and each.failures > 1:
            return Exists(f"A batch with the batchID {op.path.rpartition('/')[2]} exists already.")
        if op.means == "children" and code == NOT_EMPTY:
            return Conflict(f"{name} still has an open child; it cannot be closed.")
        if op.means == "jobs" and code == NOT_EMPTY:
            return Conflict(f"{name} still has jobs in Merritt's tree; remove those first.")
        if op.means == "folder" and code == NO_NODE and each.failures > 1 and op.path.startswith("/batches/"):
            return Conflict(f"The batch {op.path.split('/')[2]} is gone; {name} cannot be its child.")
        if each.failures > PATIENCE and op.means != "nudge":
            return Conflict(f"{name} could not be written: others keep changing {op.path} ({op.means}). Try again.")
        return None

    # --- follow

    def _follow(self, tries: Sequence[Try]) -> None:
        done = [each for each in tries if isinstance(each.answer, Committed) and each.plan is not None]
        results = [result for each in done for result in each.results]
        if any(result.claimable for result in results) or any(each.group.nudges for each in done):
            self._tree.rings()
        try:
            closed = list(dict.fromkeys(result.closed for result in results if result.closed is not None))
            idle = set(self._kin.idle(closed))
            released = [r.record.ref for r in results if r.released and r.record is not None]
            asked = {ask.ref: ask for ask in self._asks.of(released)} if released else {}
            freed = dict.fromkeys(key for result in results for key in (*result.dropped, *result.passed))
            if freed and self._parking.offer(freed):
                self._tree.rings()
            self._parking.rouse([ref for each in done if each.failures > PATIENCE // 2 for ref in each.group.nudges])
        except Unavailable:
            return  # all is written; a duty finds idle parents, requests and waiters whom nobody told
        for each in done:
            if isinstance(each.answer, Committed) and (idle or asked):
                each.answer = Committed(each.answer.records, _idle(each.results, idle), _asked(each.results, asked))


def _idle(results: Iterable[Result], idle: Collection[Ref]) -> tuple[Ref, ...]:
    return tuple(dict.fromkeys(result.closed for result in results if result.closed is not None and result.closed in idle))


def _asked(results: Iterable[Result], asked: dict[Ref, Ask]) -> tuple[Ask, ...]:
    return tuple(asked[r.record.ref] for r in results if r.released and r.record is not None and r.record.ref in asked)


def _needs_care(change: Change) -> bool:
    """Whether more must be known than the record itself: what was asked, the children, all that goes with it."""
    pends = change.ref.kind == JOB.parent and change.after is not None and change.after.state == "Pending"
    return change.after is None or change.answers or change.closes or pends or "submission" in change.docs


def _needs_documents(change: Change) -> bool:
    return change.ref.kind == JOB.parent and (change.after is None or "submission" in change.docs)
