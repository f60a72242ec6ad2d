"""commit: groups of changes as ZooKeeper transactions, 25 groups each.

    look      read the records that are changed, called or closed (survey.py)
    plan      each group's operations, or its refusal (planner.py)
    send      transactions that only move records one behind the other; those that create, one after the other (numbers.py)
    react     the first refused operation names its group and what is the matter; all others of the transaction are sent again
    follow    parents without open children, what was asked meanwhile, waiters of keys that are free now, the bell

After three rounds the groups are sent singly, so that none is kept from its place by its neighbours.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence

from waybill.record import Answer, Ask, ClaimLost, Committed, Conflict, Exists, Group, Ref, StoreError, Unavailable
from waybill.stores.groups import vet
from waybill.stores.zookeeper import places, wire
from waybill.stores.zookeeper.asks import Asks
from waybill.stores.zookeeper.changes import Result
from waybill.stores.zookeeper.kin import Kin
from waybill.stores.zookeeper.link import MAX_REQUEST, Pending
from waybill.stores.zookeeper.marks import Marks
from waybill.stores.zookeeper.numbers import Numbers
from waybill.stores.zookeeper.parking import Parking
from waybill.stores.zookeeper.planner import MARGIN, PATIENCE, Planner
from waybill.stores.zookeeper.survey import Survey
from waybill.stores.zookeeper.tree import Tree
from waybill.stores.zookeeper.tries import Pack, Try
from waybill.stores.zookeeper.wire import NO_NODE, NODE_EXISTS, NOT_EMPTY, Failure, Op

GROUPS = 25  # in one transaction: more gain little, and one that is refused costs its neighbours a second trip
ROUNDS = 300  # somebody else is always faster with the next number: then all give up for a while


class Committer:
    def __init__(self, tree: Tree, family: Kin, marks: Marks, parking: Parking, asks: Asks) -> None:
        self._tree = tree
        self._link = tree.link
        self._kin = family
        self._parking = parking
        self._asks = asks
        self._planner = Planner(tree, parking)
        self._survey = Survey(tree, family, marks, self._planner)

    def commit(self, groups: Sequence[Group]) -> list[Answer]:
        tries = [Try(place, group) for place, group in enumerate(groups)]
        for each, refusal in zip(tries, vet(groups), strict=True):
            each.answer = refusal
        numbers = Numbers(self._link, self._tree.max_names, self._tree.turns)
        rounds = 0
        while waiting := [each for each in tries if each.answer is None]:
            rounds += 1
            if rounds > ROUNDS:
                for each in waiting:
                    each.answer = Unavailable(
                        "Too many create records at the same time; nothing of this was written. Try again."
                    )
                break
            try:
                self._survey.look(waiting)
                self._send([each for each in waiting if each.answer is None], numbers, GROUPS if rounds <= 3 else 1)
            except Unavailable as error:
                if rounds == 1 and all(each.answer is None for each in tries):
                    raise
                for each in tries:
                    each.answer = each.answer or error
        self._follow(tries)
        return [each.answer for each in tries if each.answer is not None]

    # --- send

    def _send(self, tries: Sequence[Try], numbers: Numbers, most: int) -> None:
        flights: list[tuple[Pack, Pending]] = []
        try:
            self._send_packs(tries, numbers, most, flights)
        finally:  # whatever happened to the others: what was sent is answered with what became of it
            for flown, pending in flights:
                self._land(flown, pending, numbers)

    def _send_packs(
        self, tries: Sequence[Try], numbers: Numbers, most: int, flights: list[tuple[Pack, Pending]]
    ) -> None:
        pack = Pack()
        for each in tries:
            if len(pack.tries) >= most:
                self._launch(pack, numbers, flights)
                pack = Pack()
            self._planner.prepare(each, numbers)
            kept = numbers.save() if each.counts else None
            if not self._planner.plan(each, numbers) or each.plan is None:
                continue
            if pack.tries and pack.size + each.size > MAX_REQUEST - MARGIN:
                if kept is not None:
                    numbers.restore(kept)  # those that go first must not leave a hole before it
                self._launch(pack, numbers, flights)
                pack = Pack()
                if not self._planner.plan(each, numbers):
                    continue
            pack.tries.append(each)
            pack.size += each.size
            pack.counts = pack.counts or each.counts
            pack.sessions.update(dict.fromkeys(each.sessions))
        if pack.tries:
            self._launch(pack, numbers, flights)

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
        """A look at folders that we have not seen yet costs less than a transaction that is refused because they are
        there.
        """
        known = self._tree.folders
        unsure = {
            op.path
            for each in pack.tries
            if each.plan
            for op in each.plan.ops
            if op.means == "folder" and op.path not in known
        }
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
        """What a refused operation means for its group. None: look again, which finds the reason, and plan again
        from what is there.
        """
        name = ", ".join(str(change.ref) for change in each.group.changes[:3]) or "The call"
        # If it was made by the same request, the next look answers with what was made; if it was not, it comes here
        # again.
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

    def _let_go(self, tries: Sequence[Try]) -> None:
        """Claims of ours that another service wrote over: their locks go, or the records would be held while the
        session lives.
        """
        for each in tries:
            for change in each.group.changes if isinstance(each.answer, ClaimLost) else ():
                seen = each.seen.get(change.ref)
                if (
                    seen is not None
                    and change.before is not None
                    and seen.foreign
                    and seen.holder == change.before.session
                ):
                    home = seen.layout.home(change.ref.id)
                    # Refused if somebody has written it again, or taken the lock away himself.
                    self._link.write(
                        [wire.check(f"{home}/status", "status", seen.version), wire.delete(f"{home}/lock", "lock")]
                    )
                    self._tree.rings()

    def _follow(self, tries: Sequence[Try]) -> None:
        done = [each for each in tries if isinstance(each.answer, Committed) and each.plan is not None]
        results = [result for each in done for result in each.results]
        if any(result.claimable for result in results) or any(each.group.nudges for each in done):
            self._tree.rings()
        try:
            self._let_go(tries)
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
    return tuple(
        dict.fromkeys(result.closed for result in results if result.closed is not None and result.closed in idle)
    )


def _asked(results: Iterable[Result], asked: dict[Ref, Ask]) -> tuple[Ask, ...]:
    return tuple(asked[r.record.ref] for r in results if r.released and r.record is not None and r.record.ref in asked)
