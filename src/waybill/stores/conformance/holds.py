"""Holds: records on hold are blocked and out of the queue until the hold is cleared."""

from __future__ import annotations

from waybill.stores.conformance.fixtures import StoreTestBase
from waybill.stores.conformance.tester import ODD_NAMES, StoreTester


class HoldTests(StoreTestBase):
    def test_a_hold_blocks_its_records_until_it_is_cleared_a10(self, tester: StoreTester) -> None:
        hold, other = tester.hold_name_of("closed"), tester.hold_name_of("other")
        on_hold, free = tester.make_parcel(hold_names=(other, hold)), tester.make_parcel(hold_names=(other,))
        tester.store.set_hold(hold, who="ann", why="no room")
        session = tester.open_session()
        assert tester.ids_of(tester.claim(tester.store, session)) == [free.id]
        blocked = tester.get(on_hold)
        assert (blocked.blocked_by, blocked.session, blocked.version) == (f"hold {hold}", None, on_hold.version)
        assert tester.store.list_holds() == {hold: "ann: no room"}
        assert tester.claim(tester.store, session) == []
        tester.store.clear_hold(hold)
        assert tester.store.list_holds() == {}
        assert tester.get(on_hold).blocked_by is None
        assert tester.ids_of(tester.claim(tester.store, session)) == [on_hold.id]

    def test_a_hold_without_a_reason_names_only_who_set_it(self, tester: StoreTester) -> None:
        hold = tester.hold_name_of("closed")
        tester.store.set_hold(hold, who="ann")
        assert tester.store.list_holds() == {hold: "ann"}

    def test_a_hold_can_be_set_and_cleared_repeatedly(self, tester: StoreTester) -> None:
        hold = tester.hold_name_of("closed")
        for on in (True, True, False, False):
            if on:
                tester.store.set_hold(hold, who="ann")
            else:
                tester.store.clear_hold(hold)
            assert list(tester.harness.open().list_holds()) == [hold] * on

    def test_a_hold_may_have_any_name(self, tester: StoreTester) -> None:
        """A store must encode names that it cannot store as they are: a collection may have any name."""
        session = tester.open_session()
        for hold in map(tester.hold_name_of, (*ODD_NAMES, "a/b", "../..")):
            on_hold = tester.make_parcel(hold_names=(hold,))
            for _ in range(2):
                tester.store.set_hold(hold, who="ann", why="full")
                assert list(tester.harness.open().list_holds()) == [hold]
            assert tester.claim(tester.store, session) == [], hold
            assert tester.get(on_hold).blocked_by == f"hold {hold}"
            tester.store.clear_hold(hold)
            tester.store.clear_hold(hold)
            assert tester.store.list_holds() == {}
            (mine,) = tester.claim_records(tester.store, session)
            assert mine.id == on_hold.id
            tester.remove(mine)
        holds = sorted(map(tester.hold_name_of, ODD_NAMES))
        for hold in holds:
            tester.store.set_hold(hold)
        assert sorted(tester.store.list_holds()) == holds, "no two names are the same hold"

    def test_a_queue_that_claims_on_hold_gets_the_records_on_hold(self, tester: StoreTester) -> None:
        hold = tester.hold_name_of("closed")
        made = tester.make_parcel(hold_names=(hold,))
        tester.store.set_hold(hold)
        session = tester.open_session()
        (mine,) = tester.claim(tester.store, session, claims_on_hold=True)
        assert (mine.record.id, mine.hold) == (made.id, hold)
        tester.release(mine.record, cause="hold", state=tester.harness.rest_state)
        tester.make_parcel()
        (mine,) = tester.claim(tester.store, session, claims_on_hold=True)
        assert mine.hold is None

    def test_many_records_on_hold_hide_nothing_a10(self, tester: StoreTester) -> None:
        hold = tester.hold_name_of("closed")
        tester.make_parcels(60, hold_names=(hold,), priority=1)
        free = tester.make_parcels(3, priority=8)
        tester.store.set_hold(hold)
        session = tester.open_session()
        assert sorted(tester.ids_of(tester.claim(tester.store, session, 3))) == sorted(tester.ids_of(free))
        tester.store.clear_hold(hold)
        assert len(tester.claim(tester.store, session, 100)) == 60

    def test_a_change_never_writes_a_block_on_a_hold_a10(self, tester: StoreTester) -> None:
        """Read while it was blocked, written after the hold was cleared: it would be blocked for ever."""
        hold = tester.hold_name_of("closed")
        tester.make_parcel(hold_names=(hold,))
        tester.store.set_hold(hold)
        session = tester.open_session()
        assert tester.claim(tester.store, session) == []
        (blocked,) = tester.store.find(tester.harness.kind).records
        tester.store.clear_hold(hold)
        moved = tester.update(blocked, priority=3)
        assert moved.blocked_by is None
        assert tester.ids_of(tester.claim(tester.store, session)) == [blocked.id]
