"""Planning: a group's operations from its changes, what was seen of its records, and the numbers that it takes; or
its refusal.
"""

from __future__ import annotations

from waybill.record import Change, StoreError, TooLarge
from waybill.stores.zookeeper import changes, kin, notes, wire
from waybill.stores.zookeeper.changes import Result
from waybill.stores.zookeeper.link import MAX_REQUEST
from waybill.stores.zookeeper.numbers import Numbers
from waybill.stores.zookeeper.parking import Parking
from waybill.stores.zookeeper.plan import Plan
from waybill.stores.zookeeper.side import encode as encode_side
from waybill.stores.zookeeper.tree import Tree
from waybill.stores.zookeeper.tries import Try

MARGIN = 2000  # bytes for what a transaction has besides its groups
PATIENCE = 10  # how often a group may meet a tree that is not as expected before it is told so
UNWRITABLE = (ValueError, TypeError)  # a text that has no bytes, say


class Planner:
    def __init__(self, tree: Tree, parking: Parking) -> None:
        self._tree = tree
        self._link = tree.link
        self._parking = parking

    @staticmethod
    def prepare(each: Try, numbers: Numbers) -> None:
        """Read what the numbers that it takes are made of, if that is not known yet."""
        if each.counts:
            numbers.prepare(c for c in each.group.changes if c.before is None or c.after is None)

    def plan(self, each: Try, numbers: Numbers) -> bool:
        """Make the group's operations; False when it is refused."""
        plan = Plan(self._tree.folders, each.real)
        self.prepare(each, numbers)
        kept = numbers.save() if each.counts else None
        each.results, each.plan = [], None
        for change in each.group.changes:
            try:
                result = self.change(each, plan, change, numbers)
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
        each.size = self._link.size(plan.ops)
        if each.size > MAX_REQUEST - MARGIN:
            each.answer = TooLarge(
                f"One group of {each.size} bytes with all its nodes; ZooKeeper takes {MAX_REQUEST}. Write in portions."
            )
            if kept is not None:
                numbers.restore(kept)
            return False
        each.plan = plan
        return True

    def change(self, each: Try, plan: Plan, change: Change, numbers: Numbers | None) -> Result | StoreError:
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
                # others keep writing it: the call counts all the same, and it is woken when this is written (see
                # _follow)
                continue
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
