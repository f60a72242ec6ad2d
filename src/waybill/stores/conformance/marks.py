"""Marks: what one of them stops is parked out of the queue, and goes on when it is off."""

from __future__ import annotations

from waybill.stores.conformance.suite import Suite
from waybill.stores.conformance.yard import ODD_NAMES, Yard


class Marks(Suite):
    def test_a_mark_parks_what_it_stops_and_lets_it_go_when_off_a10(self, yard: Yard) -> None:
        gate, other = yard.gate("closed"), yard.gate("other")
        stopped, free = yard.one(gates=(other, gate)), yard.one(gates=(other,))
        yard.store.mark(gate, True, who="ann", why="no room")
        session = yard.session()
        assert yard.ids(yard.claim(yard.store, session)) == [free.id]
        parked = yard.get(stopped)
        assert (parked.parked, parked.session, parked.version) == (f"mark {gate}", None, stopped.version)
        assert yard.store.marks() == {gate: "ann: no room"}
        assert yard.claim(yard.store, session) == []
        yard.store.mark(gate, False)
        assert yard.store.marks() == {}
        assert yard.get(stopped).parked is None
        assert yard.ids(yard.claim(yard.store, session)) == [stopped.id]

    def test_a_mark_without_a_reason_says_only_who_set_it(self, yard: Yard) -> None:
        gate = yard.gate("closed")
        yard.store.mark(gate, True, who="ann")
        assert yard.store.marks() == {gate: "ann"}

    def test_marks_are_set_and_cleared_as_often_as_one_likes(self, yard: Yard) -> None:
        gate = yard.gate("closed")
        for on in (True, True, False, False):
            yard.store.mark(gate, on, who="ann")
            assert list(yard.harness.open().marks()) == [gate] * on

    def test_a_mark_may_have_any_name(self, yard: Yard) -> None:
        """A store that has no place for such a name finds one: nobody can foresee what a collection is called."""
        session = yard.session()
        for gate in map(yard.gate, (*ODD_NAMES, "a/b", "../..")):
            stopped = yard.one(gates=(gate,))
            for _ in range(2):
                yard.store.mark(gate, True, who="ann", why="full")
                assert list(yard.harness.open().marks()) == [gate]
            assert yard.claim(yard.store, session) == [], gate
            assert yard.get(stopped).parked == f"mark {gate}"
            yard.store.mark(gate, False)
            yard.store.mark(gate, False)
            assert yard.store.marks() == {}
            (mine,) = yard.claimed(yard.store, session)
            assert mine.id == stopped.id
            yard.remove(mine)
        gates = sorted(map(yard.gate, ODD_NAMES))
        for gate in gates:
            yard.store.mark(gate, True)
        assert sorted(yard.store.marks()) == gates, "no two of them are one"

    def test_a_role_that_holds_is_handed_what_a_mark_stops(self, yard: Yard) -> None:
        gate = yard.gate("closed")
        made = yard.one(gates=(gate,))
        yard.store.mark(gate, True)
        session = yard.session()
        (mine,) = yard.claim(yard.store, session, holds=True)
        assert (mine.record.id, mine.mark) == (made.id, gate)
        yard.release(mine.record, event="hold", state=yard.harness.rest)
        yard.one()
        (mine,) = yard.claim(yard.store, session, holds=True)
        assert mine.mark is None

    def test_much_that_is_stopped_hides_nothing_a10(self, yard: Yard) -> None:
        gate = yard.gate("closed")
        yard.make(60, gates=(gate,), priority=1)
        free = yard.make(3, priority=8)
        yard.store.mark(gate, True)
        session = yard.session()
        assert sorted(yard.ids(yard.claim(yard.store, session, 3))) == sorted(yard.ids(free))
        yard.store.mark(gate, False)
        assert len(yard.claim(yard.store, session, 100)) == 60

    def test_a_change_never_writes_a_park_on_a_mark_a10(self, yard: Yard) -> None:
        """Read while it was parked, written after the mark was off: it would be parked for ever."""
        gate = yard.gate("closed")
        yard.one(gates=(gate,))
        yard.store.mark(gate, True)
        session = yard.session()
        assert yard.claim(yard.store, session) == []
        (parked,) = yard.store.find(yard.harness.kind).records
        yard.store.mark(gate, False)
        moved = yard.update(parked, priority=3)
        assert moved.parked is None
        assert yard.ids(yard.claim(yard.store, session)) == [parked.id]
