"""Parked records, waits that come due, nudges that are never lost, and the watch for something to do."""

from __future__ import annotations

import threading

import msgspec
import pytest

from waybill.record import Committed, Due, Group, Ref
from waybill.stores.conformance.suite import Suite
from waybill.stores.conformance.yard import HOUR, SLACK, Yard, bare, change, commit, present


def told(due: Due) -> tuple[int, int | None]:
    """In hours: some stores' clocks run while the test does, and a machine may stand still for seconds."""
    return due.woken, None if due.next is None else round(due.next / HOUR)


class Waits(Suite):
    def test_a_wait_is_out_of_the_queue_until_it_is_due_and_woken_a10_b9(self, yard: Yard) -> None:
        yard.one()
        session = yard.session()
        (mine,) = yard.claimed(yard.store, session)
        waits = yard.release(mine, parked="wait", delay=3 * HOUR, message="no room yet")
        assert (waits.parked, waits.session) == ("wait", None)
        assert waits.wake_at - yard.store.now() == pytest.approx(3 * HOUR, abs=SLACK)
        assert yard.get(mine) == waits
        assert yard.claim(yard.store, session) == []
        assert told(yard.store.wake()) == (0, 3)
        yard.harness.tick(3 * HOUR + 1)
        assert told(yard.store.wake()) == (1, None)
        awake = yard.get(mine)
        assert (awake.parked, awake.wake_at, awake.version) == (None, 0, waits.version)
        assert yard.ids(yard.claim(yard.store, session)) == [mine.id]

    def test_wake_goes_in_portions_and_tells_what_is_next(self, yard: Yard) -> None:
        made = yard.make(5)
        yard.write(
            *[
                change(record, parked="wait", delay=hours * HOUR)
                for record, hours in zip(made, (2, 4, 4, 4, 20), strict=True)
            ]
        )
        yard.harness.tick(3 * HOUR)
        assert told(yard.store.wake()) == (1, 1)
        yard.harness.tick(2 * HOUR)
        assert told(yard.store.wake(limit=2)) == (2, 0)
        assert told(yard.store.wake(limit=2)) == (1, 15)
        assert len(yard.claim(yard.store, yard.session(), 9)) == 4

    def test_a_record_is_made_waiting(self, yard: Yard) -> None:
        (made,) = present(yard.write(msgspec.structs.replace(yard.draft(parked="wait"), delay=HOUR)))
        assert made.parked == "wait"
        assert made.wake_at - yard.store.now() == pytest.approx(HOUR, abs=SLACK)
        session = yard.session()
        assert yard.claim(yard.store, session) == []
        yard.harness.tick(HOUR + 1)
        assert yard.store.wake().woken == 1
        assert yard.ids(yard.claim(yard.store, session)) == [made.id]

    def test_a_record_parked_on_children_is_out_of_the_queue(self, yard: Yard) -> None:
        made = yard.one(parked="children")
        session = yard.session()
        assert yard.claim(yard.store, session) == []
        assert (made.parked, made.wake_at) == ("children", 0)
        yard.harness.tick(100)
        assert yard.store.wake().woken == 0
        yard.update(made, parked=None)
        assert yard.ids(yard.claim(yard.store, session)) == [made.id]

    # --- nudges

    def test_a_nudge_unparks_and_never_moves_the_version_a5(self, yard: Yard) -> None:
        joins, waits, plain = yard.one(parked="children"), yard.one(), yard.one()
        waits = yard.update(waits, parked="wait", delay=1000)
        yard.write(nudges=(joins.ref, waits.ref, plain.ref))
        for record in (joins, waits, plain):
            read = yard.get(record)
            assert (read.nudges, read.parked, read.wake_at, read.version) == (
                record.nudges + 1,
                None,
                0,
                record.version,
            )
        assert yard.store.wake().next is None
        assert len(yard.claim(yard.store, yard.session())) == 3

    def test_a_nudge_leaves_parks_on_marks_and_keys_alone_a5(self, yard: Yard) -> None:
        gate = yard.gate("closed")
        stopped = yard.one(gates=(gate,))
        yard.store.mark(gate, True)
        assert yard.claim(yard.store, yard.session()) == []
        yard.write(nudges=(stopped.ref,))
        assert yard.get(stopped).parked == f"mark {gate}"

    def test_a_nudge_is_never_a_conflict_a5(self, yard: Yard) -> None:
        crate = yard.crate()
        children = yard.make(3, parent=crate)
        groups = [Group((change(child, state=yard.harness.states[1]),), nudges=(crate.ref,)) for child in children]
        gone = Ref(yard.harness.parent_kind, f"{yard.harness.parent_prefix}9999999999")
        answers = commit(yard.store, *groups, Group((), nudges=(gone,)), Group((change(crate, message="moved too"),)))
        assert all(isinstance(answer, Committed) for answer in answers)
        assert (yard.get(crate).nudges, yard.get(crate).message) == (3, "moved too")

    def test_a_refused_group_nudges_nobody(self, yard: Yard) -> None:
        crate = yard.crate()
        made = yard.one()
        yard.update(made)
        commit(yard.store, Group((change(made),), nudges=(crate.ref,)))
        assert yard.get(crate).nudges == 0

    @pytest.mark.parametrize("parked", ["wait", "children"])
    @pytest.mark.parametrize("between", ["at once", "after a save", "before a save", "before going on"])
    def test_a_nudge_that_comes_while_a_wait_is_being_committed_is_not_lost_a5(
        self, yard: Yard, parked: str, between: str
    ) -> None:
        h = yard.harness
        yard.one()
        other = yard.harness.open()
        session = yard.session()
        (mine,) = yard.claimed(yard.store, session)
        state = h.states[0]
        if between == "after a save":
            mine = yard.save(mine, message="half way")
        yard.write(nudges=(mine.ref,), store=other)
        if between == "before a save":
            mine = yard.save(mine, message="half way")
        elif between == "before going on":
            state = h.states[1]
            mine = yard.update(mine, event="done", state=state)
        freed = yard.release(mine, parked=parked, delay=60.0 if parked == "wait" else 0.0)
        assert (freed.parked, freed.wake_at, freed.session) == (None, 0, None)
        assert bare(yard.get(mine)).parked is None
        (mine,) = yard.claimed(yard.store, session, state=state)
        assert yard.release(mine, parked=parked, delay=60).parked == parked, "one nudge, one more look"

    def test_an_action_does_not_lose_a_nudge_either_a5(self, yard: Yard) -> None:
        made = yard.one(parked="children")
        yard.write(nudges=(made.ref,))
        moved = yard.update(made, priority=1)
        assert moved.parked is None
        assert yard.ids(yard.claim(yard.store, yard.session())) == [made.id]

    def test_idle_parents_are_found_when_their_nudge_was_lost(self, yard: Yard) -> None:
        h = yard.harness
        waits, busy, other = yard.crate(), yard.crate(), yard.crate()
        (child,) = yard.make(1, parent=waits)
        yard.make(1, parent=busy)
        yard.update(waits, parked="children")
        yard.update(busy, parked="children")
        yard.update(other, parked="wait", delay=5)
        assert yard.store.idle_parents().refs == []
        yard.write(change(child, state=h.end, open=False))
        assert yard.store.idle_parents().refs == [waits.ref]
        yard.write(nudges=(waits.ref,))
        assert yard.store.idle_parents().refs == []

    def test_idle_parents_are_looked_for_in_portions(self, yard: Yard) -> None:
        """However many wait: a call looks at no more than it was asked to, and the next one goes on where it ended."""
        h = yard.harness
        crates = [yard.crate(priority=number % 3) for number in range(7)]
        for crate in crates:
            yard.make(1, parent=crate)
            yard.update(crate, parked="children")
        idle = {crates[number].ref for number in (1, 4, 6)}
        for number in (1, 4, 6):
            (child,) = yard.store.find(h.kind, parent=crates[number].ref).records
            yard.write(change(child, state=h.end, open=False))
        found: list[Ref] = []
        after: str | None = ""
        portions = 0
        while after is not None:
            portion = yard.store.idle_parents(after=after, limit=2)
            assert len(portion.refs) <= 2
            found += portion.refs
            after, portions = portion.after, portions + 1
        assert (set(found), len(found)) == (idle, 3), "each once"
        assert portions in (4, 5)
        yard.write(nudges=tuple(found))

    # --- watch

    def test_watch_hears_of_work_that_another_connection_made_b7_d5(self, yard: Yard) -> None:
        other = yard.harness.open()
        other.watch(0)
        heard: list[bool] = []
        watcher = threading.Thread(target=lambda: heard.append(other.watch(120)), daemon=True)
        watcher.start()
        yard.one()
        watcher.join(60)
        assert heard == [True]

    def test_watch_hears_of_work_made_between_two_watches_b7(self, yard: Yard) -> None:
        other = yard.harness.open()
        other.watch(0)
        yard.one()
        assert other.watch(60) is True

    def test_watch_comes_back_when_nothing_happens_b7(self, yard: Yard) -> None:
        other = yard.harness.open()
        assert False in [other.watch(0.02) for _ in range(20)]

    def test_interrupt_ends_a_watch_b7(self, yard: Yard) -> None:
        other = yard.harness.open()
        while other.watch(0):
            pass
        watcher = threading.Thread(target=lambda: other.watch(120), daemon=True)
        watcher.start()
        other.interrupt()
        watcher.join(60)
        assert not watcher.is_alive()
