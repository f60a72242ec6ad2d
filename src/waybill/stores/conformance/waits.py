"""Blocked records: waits that come due, wakes that are never lost, the watch for changes, and the check of what is
blocked.
"""

from __future__ import annotations

import threading

import msgspec
import pytest

from waybill.record import CommitGroup, CommitResult, DueWaits, Record, Ref
from waybill.stores.conformance.fixtures import StoreTestBase
from waybill.stores.conformance.tester import (
    HOUR,
    SLACK,
    StoreTester,
    commit_groups,
    make_change,
    records_of,
    without_documents,
)

LOCK_WAITER_RULE = "lock waiters wait for an owned lock"
HOLD_RULE = "holds block only while they are set"


def due_in_hours(due: DueWaits) -> tuple[int, int | None]:
    """In hours: some stores' clocks run while the test does, and a machine may stand still for seconds."""
    return due.released_count, None if due.seconds_to_next is None else round(due.seconds_to_next / HOUR)


class WaitTests(StoreTestBase):
    def test_a_wait_is_out_of_the_queue_until_it_is_due_and_woken_a10_b9(self, tester: StoreTester) -> None:
        tester.make_parcel()
        session = tester.open_session()
        (mine,) = tester.claim_records(tester.store, session)
        waits = tester.release(mine, blocked_by="wait", delay=3 * HOUR, message="no room yet")
        assert (waits.blocked_by, waits.session) == ("wait", None)
        assert waits.wake_at - tester.store.now() == pytest.approx(3 * HOUR, abs=SLACK)
        assert tester.get(mine) == waits
        assert tester.claim(tester.store, session) == []
        assert due_in_hours(tester.store.release_due_waits()) == (0, 3)
        tester.harness.tick(3 * HOUR + 1)
        assert due_in_hours(tester.store.release_due_waits()) == (1, None)
        awake = tester.get(mine)
        assert (awake.blocked_by, awake.wake_at, awake.version) == (None, 0, waits.version)
        assert tester.ids_of(tester.claim(tester.store, session)) == [mine.id]

    def test_release_due_waits_works_in_pages_and_says_when_the_next_is_due(self, tester: StoreTester) -> None:
        made = tester.make_parcels(5)
        tester.write(
            *[
                make_change(record, blocked_by="wait", delay=hours * HOUR)
                for record, hours in zip(made, (2, 4, 4, 4, 20), strict=True)
            ]
        )
        tester.harness.tick(3 * HOUR)
        assert due_in_hours(tester.store.release_due_waits()) == (1, 1)
        tester.harness.tick(2 * HOUR)
        assert due_in_hours(tester.store.release_due_waits(limit=2)) == (2, 0)
        assert due_in_hours(tester.store.release_due_waits(limit=2)) == (1, 15)
        assert len(tester.claim(tester.store, tester.open_session(), 9)) == 4

    def test_a_record_is_made_waiting(self, tester: StoreTester) -> None:
        (made,) = records_of(tester.write(msgspec.structs.replace(tester.draft_parcel(blocked_by="wait"), delay=HOUR)))
        assert made.blocked_by == "wait"
        assert made.wake_at - tester.store.now() == pytest.approx(HOUR, abs=SLACK)
        session = tester.open_session()
        assert tester.claim(tester.store, session) == []
        tester.harness.tick(HOUR + 1)
        assert tester.store.release_due_waits().released_count == 1
        assert tester.ids_of(tester.claim(tester.store, session)) == [made.id]

    def test_a_record_blocked_on_children_is_out_of_the_queue(self, tester: StoreTester) -> None:
        made = tester.make_parcel(blocked_by="children")
        session = tester.open_session()
        assert tester.claim(tester.store, session) == []
        assert (made.blocked_by, made.wake_at) == ("children", 0)
        tester.harness.tick(100)
        assert tester.store.release_due_waits().released_count == 0
        tester.update(made, blocked_by=None)
        assert tester.ids_of(tester.claim(tester.store, session)) == [made.id]

    # --- wakes

    def test_a_wake_unblocks_and_never_moves_the_version_a5(self, tester: StoreTester) -> None:
        joins, waits, plain = tester.make_parcel(blocked_by="children"), tester.make_parcel(), tester.make_parcel()
        waits = tester.update(waits, blocked_by="wait", delay=1000)
        tester.write(wake=(joins.ref, waits.ref, plain.ref))
        for record in (joins, waits, plain):
            read = tester.get(record)
            assert (read.wake_count, read.blocked_by, read.wake_at, read.version) == (
                record.wake_count + 1,
                None,
                0,
                record.version,
            )
        assert tester.store.release_due_waits().seconds_to_next is None
        assert len(tester.claim(tester.store, tester.open_session())) == 3

    def test_a_wake_does_not_unblock_from_holds_and_locks_a5(self, tester: StoreTester) -> None:
        hold = tester.hold_name_of("closed")
        on_hold = tester.make_parcel(hold_names=(hold,))
        tester.store.set_hold(hold)
        assert tester.claim(tester.store, tester.open_session()) == []
        tester.write(wake=(on_hold.ref,))
        assert tester.get(on_hold).blocked_by == f"hold {hold}"

    def test_a_wake_is_never_a_conflict_a5(self, tester: StoreTester) -> None:
        crate = tester.make_crate()
        children = tester.make_parcels(3, parent=crate)
        groups = [
            CommitGroup((make_change(child, state=tester.harness.states[1]),), wake=(crate.ref,)) for child in children
        ]
        gone = Ref(tester.harness.parent_kind, f"{tester.harness.parent_id_prefix}9999999999")
        answers = commit_groups(
            tester.store,
            *groups,
            CommitGroup((), wake=(gone,)),
            CommitGroup((make_change(crate, message="moved too"),)),
        )
        assert all(isinstance(answer, CommitResult) for answer in answers)
        assert (tester.get(crate).wake_count, tester.get(crate).message) == (3, "moved too")

    def test_a_refused_group_wakes_nobody(self, tester: StoreTester) -> None:
        crate = tester.make_crate()
        made = tester.make_parcel()
        tester.update(made)
        commit_groups(tester.store, CommitGroup((make_change(made),), wake=(crate.ref,)))
        assert tester.get(crate).wake_count == 0

    @pytest.mark.parametrize("blocked_by", ["wait", "children"])
    @pytest.mark.parametrize("between", ["at once", "after a save", "before a save", "before continuing"])
    def test_a_wake_that_comes_while_a_wait_is_being_committed_is_not_lost_a5(
        self, tester: StoreTester, blocked_by: str, between: str
    ) -> None:
        h = tester.harness
        tester.make_parcel()
        other = tester.harness.open()
        session = tester.open_session()
        (mine,) = tester.claim_records(tester.store, session)
        state = h.states[0]
        if between == "after a save":
            mine = tester.save(mine, message="half way")
        tester.write(wake=(mine.ref,), store=other)
        if between == "before a save":
            mine = tester.save(mine, message="half way")
        elif between == "before continuing":
            state = h.states[1]
            mine = tester.update(mine, cause="done", state=state)
        freed = tester.release(mine, blocked_by=blocked_by, delay=60.0 if blocked_by == "wait" else 0.0)
        assert (freed.blocked_by, freed.wake_at, freed.session) == (None, 0, None)
        assert without_documents(tester.get(mine)).blocked_by is None
        (mine,) = tester.claim_records(tester.store, session, state=state)
        assert tester.release(mine, blocked_by=blocked_by, delay=60).blocked_by == blocked_by, "one wake, one more run"

    def test_an_action_does_not_lose_a_wake_either_a5(self, tester: StoreTester) -> None:
        made = tester.make_parcel(blocked_by="children")
        tester.write(wake=(made.ref,))
        moved = tester.update(made, priority=1)
        assert moved.blocked_by is None
        assert tester.ids_of(tester.claim(tester.store, tester.open_session())) == [made.id]

    def test_idle_parents_are_found_when_their_wake_was_lost(self, tester: StoreTester) -> None:
        h = tester.harness
        waits, busy, other = tester.make_crate(), tester.make_crate(), tester.make_crate()
        (child,) = tester.make_parcels(1, parent=waits)
        tester.make_parcels(1, parent=busy)
        tester.update(waits, blocked_by="children")
        tester.update(busy, blocked_by="children")
        tester.update(other, blocked_by="wait", delay=5)
        assert tester.store.find_idle_parents().refs == []
        tester.write(make_change(child, state=h.end_state, open=False))
        assert tester.store.find_idle_parents().refs == [waits.ref]
        tester.write(wake=(waits.ref,))
        assert tester.store.find_idle_parents().refs == []

    def test_idle_parents_are_searched_in_pages(self, tester: StoreTester) -> None:
        """A call reads no more parents than its limit, and the next one continues where it ended."""
        h = tester.harness
        crates = [tester.make_crate(priority=number % 3) for number in range(7)]
        for crate in crates:
            tester.make_parcels(1, parent=crate)
            tester.update(crate, blocked_by="children")
        idle = {crates[number].ref for number in (1, 4, 6)}
        for number in (1, 4, 6):
            (child,) = tester.store.find(h.kind, parent=crates[number].ref).records
            tester.write(make_change(child, state=h.end_state, open=False))
        found: list[Ref] = []
        after: str | None = ""
        page_count = 0
        while after is not None:
            page = tester.store.find_idle_parents(after=after, limit=2)
            assert len(page.refs) <= 2
            found += page.refs
            after, page_count = page.after, page_count + 1
        assert (set(found), len(found)) == (idle, 3), "each once"
        assert page_count in (4, 5)
        tester.write(wake=tuple(found))

    # --- watch

    def test_watch_sees_work_that_another_connection_created_b7_d5(self, tester: StoreTester) -> None:
        other = tester.harness.open()
        other.watch(0)
        heard: list[bool] = []
        watcher = threading.Thread(target=lambda: heard.append(other.watch(120)), daemon=True)
        watcher.start()
        tester.make_parcel()
        watcher.join(60)
        assert heard == [True]

    def test_watch_sees_work_created_between_two_watches_b7(self, tester: StoreTester) -> None:
        other = tester.harness.open()
        other.watch(0)
        tester.make_parcel()
        assert other.watch(60) is True

    def test_watch_returns_when_nothing_happens_b7(self, tester: StoreTester) -> None:
        other = tester.harness.open()
        assert False in [other.watch(0.02) for _ in range(20)]

    def test_interrupt_ends_a_watch_b7(self, tester: StoreTester) -> None:
        other = tester.harness.open()
        while other.watch(0):
            pass
        watcher = threading.Thread(target=lambda: other.watch(120), daemon=True)
        watcher.start()
        other.interrupt_watch()
        watcher.join(60)
        assert not watcher.is_alive()


class CheckTests(StoreTestBase):
    """check names violations alike on every store; repair corrects them, and they are not named again."""

    def test_a_waiter_of_a_lock_that_is_free_is_named_and_repaired_a10(self, tester: StoreTester) -> None:
        made = tester.make_parcel(locks=(tester.lock_name_of("a"),))
        self._assert_found_and_repaired(tester, made, f"lock {tester.lock_name_of('a')}", LOCK_WAITER_RULE)

    def test_a_record_blocked_by_a_cleared_hold_is_named_and_repaired_a10(self, tester: StoreTester) -> None:
        made = tester.make_parcel(hold_names=(tester.hold_name_of("a"),))
        self._assert_found_and_repaired(tester, made, f"hold {tester.hold_name_of('a')}", HOLD_RULE)

    def _assert_found_and_repaired(self, tester: StoreTester, made: Record, reason: str, rule: str) -> None:
        assert list(tester.store.check()) == []
        if not tester.harness.block_record(made.ref, reason):
            return
        assert tester.get(made).blocked_by == reason
        session = tester.open_session()
        assert tester.claim(tester.store, session) == []
        found = list(tester.store.check())
        if tester.harness.check_finds_stale_blocks:
            assert [(finding.rule, finding.ref, finding.repairable) for finding in found] == [(rule, made.ref, True)]
            assert tester.store.repair(found[0]) is True
            assert tester.store.repair(found[0]) is False, "it is not so any more"
            assert list(tester.store.check()) == []
        else:
            assert found == []
            assert tester.store.maintain_indexes() == 1
        assert tester.ids_of(tester.claim(tester.store, session)) == [made.id]

    def test_a_waiter_is_not_named_while_another_is_about_to_take_the_lock_a10(self, tester: StoreTester) -> None:
        lock = tester.lock_name_of("a")
        waits, about_to = (
            tester.make_parcel(locks=(lock,)),
            tester.make_parcel(locks=(lock,), state=tester.harness.states[1]),
        )
        if tester.harness.block_record(waits.ref, f"lock {lock}"):
            assert list(tester.store.check()) == []
            tester.remove(about_to)
            assert tester.get(waits).blocked_by is None, "the record that was about to take it unblocks the next"

    def test_claims_of_an_ended_session_are_released_and_not_named_a3(self, tester: StoreTester) -> None:
        tester.make_parcel(locks=(tester.lock_name_of("a"),))
        other = tester.harness.open()
        session = tester.open_session(other)
        assert len(tester.claim(other, session)) == 1
        assert list(tester.store.check()) == []
        other.close_session(session)
        assert list(tester.store.check()) == []
