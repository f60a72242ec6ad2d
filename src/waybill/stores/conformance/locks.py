"""Locks: names that at most one record owns, from the claim or checkpoint that takes one to the commit that drops it,
through waits and the death of its worker.
"""

from __future__ import annotations

import pytest

from waybill.record import Change, ClaimLost, CommitGroup, CommitResult, Conflict, LockUnavailable
from waybill.stores.conformance.fixtures import StoreTestBase
from waybill.stores.conformance.tester import ODD_NAMES, StoreTester, commit_groups, list_owned, make_change


class LockTests(StoreTestBase):
    def test_an_owned_lock_blocks_the_next_record_a9(self, tester: StoreTester) -> None:
        lock = tester.lock_name_of("a")
        first, second = tester.make_parcels(2, locks=(lock,))
        other = tester.make_parcel(locks=(tester.lock_name_of("b"),))
        session = tester.open_session()
        taken = tester.ids_of(tester.claim(tester.store, session))
        assert taken == [first.id, other.id]
        waiting = tester.get(second)
        assert (waiting.blocked_by, waiting.session, waiting.locks) == (f"lock {lock}", None, (lock,))

    def test_owned_locks_are_listed_with_their_owners(self, tester: StoreTester) -> None:
        a, b, c = (tester.lock_name_of(letter) for letter in "abc")
        first, second = tester.make_parcel(locks=(a, b)), tester.make_parcel(locks=(c,))
        assert tester.store.list_locks() == [], "asked for is not owned"
        session = tester.open_session()
        mine = tester.claim_records(tester.store, session)
        assert list_owned(tester.store) == [(a, first.ref), (b, first.ref), (c, second.ref)]
        assert list_owned(tester.store, limit=2) == [(a, first.ref), (b, first.ref)]
        assert list_owned(tester.store, after=b) == [(c, second.ref)]
        assert tester.store.list_locks(after=c) == []
        for record in mine:
            tester.release(record, state=tester.harness.rest_state, locks=())
        assert tester.store.list_locks() == []

    @pytest.mark.parametrize("name", [*ODD_NAMES, "a/b", "../.."], ids=ascii)
    def test_a_lock_may_have_any_name_a9(self, tester: StoreTester, name: str) -> None:
        """A store must encode names that it cannot store as they are: depositors may choose any name for an object."""
        lock = tester.lock_name_of(name)
        first, second = tester.make_parcels(2, locks=(lock,))
        other = tester.make_parcel(locks=(tester.lock_name_of("other"),))
        session = tester.open_session()
        mine, theirs = tester.claim_records(tester.store, session)
        assert (mine.id, theirs.id, tester.get(second).blocked_by) == (first.id, other.id, f"lock {lock}")
        assert sorted(list_owned(tester.store)) == sorted(
            [(lock, first.ref), (tester.lock_name_of("other"), other.ref)]
        )
        names = [each.name for each in tester.store.list_locks()]
        assert [each.name for each in tester.store.list_locks(after=names[0])] == names[1:]
        with pytest.raises(Conflict, match="is owned by"):
            tester.store.remove_foreign_lock(lock)
        tester.release(mine, state=tester.harness.rest_state, locks=())
        assert tester.ids_of(tester.claim(tester.store, session)) == [second.id]

    def test_locks_of_odd_names_are_not_taken_for_each_other_a9(self, tester: StoreTester) -> None:
        made = [
            tester.make_parcel(locks=(tester.lock_name_of(name),))
            for name in (".", "..", "a b", "a.b", "\U0001f4da", "\U0001f4db")
        ]
        assert sorted(tester.ids_of(tester.claim(tester.store, tester.open_session(), 10))) == sorted(
            tester.ids_of(made)
        )

    def test_a_lock_is_not_taken_from_a_record(self, tester: StoreTester) -> None:
        lock = tester.lock_name_of("a")
        tester.make_parcel(locks=(lock,))
        tester.claim(tester.store, tester.open_session())
        with pytest.raises(Conflict, match="is owned by"):
            tester.store.remove_foreign_lock(lock)
        assert tester.store.remove_foreign_lock(tester.lock_name_of("b")) is False
        assert len(tester.store.list_locks()) == 1

    def test_a_lock_that_is_only_asked_for_blocks_nobody_a9(self, tester: StoreTester) -> None:
        lock = tester.lock_name_of("a")
        tester.make_parcel(locks=(lock,), state=tester.harness.rest_state)
        second = tester.make_parcel(locks=(lock,))
        assert tester.ids_of(tester.claim(tester.store, tester.open_session())) == [second.id]

    def test_dropping_a_lock_unblocks_the_first_waiter_a10(self, tester: StoreTester) -> None:
        lock = tester.lock_name_of("a")
        owner = tester.make_parcel(locks=(lock,), priority=1)
        later, urgent = tester.make_parcel(locks=(lock,), priority=5), tester.make_parcel(locks=(lock,), priority=2)
        session = tester.open_session()
        (mine,) = tester.claim_records(tester.store, session)
        assert mine.id == owner.id
        tester.release(mine, state=tester.harness.rest_state, locks=())
        assert (tester.get(urgent).blocked_by, tester.get(later).blocked_by) == (None, f"lock {lock}")
        (mine,) = tester.claim_records(tester.store, session)
        assert mine.id == urgent.id
        tester.remove(mine)
        (mine,) = tester.claim_records(tester.store, session)
        assert mine.id == later.id

    def test_a_lock_survives_a_wait_a9(self, tester: StoreTester) -> None:
        """Between two polls of an upload nobody else may touch what it uploads."""
        lock = tester.lock_name_of("a")
        owner, second = tester.make_parcels(2, locks=(lock,))
        session = tester.open_session()
        (mine,) = tester.claim_records(tester.store, session)
        assert mine.id == owner.id
        tester.release(mine, blocked_by="wait", delay=60)
        assert tester.claim(tester.store, session) == []
        assert tester.get(second).blocked_by == f"lock {lock}"
        tester.harness.tick(61)
        assert tester.store.release_due_waits().released_count == 1
        assert tester.ids_of(tester.claim(tester.store, session)) == [owner.id]

    def test_a_lock_survives_the_workers_death_a9(self, tester: StoreTester) -> None:
        lock = tester.lock_name_of("a")
        owner, second = tester.make_parcels(2, locks=(lock,))
        dead = tester.harness.open()
        dying = tester.open_session(dead, ttl=tester.harness.ttl)
        assert tester.ids_of(tester.claim(dead, dying, 1)) == [owner.id]
        tester.harness.expire_session(dead, dying)
        session = tester.open_session()
        assert tester.ids_of(tester.claim(tester.store, session)) == [owner.id]
        assert tester.get(second).blocked_by == f"lock {lock}"

    def test_a_page_keeps_one_record_of_a_lock_a9(self, tester: StoreTester) -> None:
        """Two records with one lock in a page of candidates: the first takes it, the second is blocked, and the claim does
        not fail.
        """
        locks = [tester.lock_name_of(str(i % 3)) for i in range(12)]
        made = [tester.make_parcel(locks=(lock,)) for lock in locks]
        taken = tester.claim_records(tester.store, tester.open_session(), 12)
        assert sorted(record.locks for record in taken) == [(tester.lock_name_of(str(i)),) for i in range(3)]
        assert sorted(
            tester.get(record).blocked_by or "" for record in made if record.id not in tester.ids_of(taken)
        ) == sorted([f"lock {tester.lock_name_of(str(i))}" for i in range(3)] * 3)

    def test_all_locks_or_none_a9(self, tester: StoreTester) -> None:
        """A record that must wait for its second lock does not own its first."""
        a, b = tester.lock_name_of("a"), tester.lock_name_of("b")
        owner = tester.make_parcel(locks=(b,), priority=1)
        both = tester.make_parcel(locks=(a, b), priority=2)
        only = tester.make_parcel(locks=(a,), priority=3)
        taken = tester.ids_of(tester.claim(tester.store, tester.open_session()))
        assert taken == [owner.id, only.id]
        assert tester.get(both).blocked_by == f"lock {b}"

    def test_a_save_takes_locks_at_once_or_is_refused_a9(self, tester: StoreTester) -> None:
        lock, other = tester.lock_name_of("a"), tester.lock_name_of("b")
        first, second = tester.make_parcels(2)
        session = tester.open_session()
        mine, theirs = tester.claim_records(tester.store, session)
        mine = tester.save(mine, locks=(lock,))
        assert (mine.id, mine.locks, theirs.id) == (first.id, (lock,), second.id)
        (answer,) = commit_groups(
            tester.store, CommitGroup((make_change(theirs, cause="", locks=(other, lock), message="x"),))
        )
        assert type(answer) is LockUnavailable
        assert answer.lock == lock
        assert tester.get(second) == theirs
        third = tester.make_parcel(locks=(lock,))
        assert tester.claim(tester.store, session) == []
        fourth = tester.make_parcel(locks=(other,))
        assert tester.ids_of(tester.claim(tester.store, session)) == [fourth.id], "the refused save took no lock"
        assert tester.get(third).blocked_by == f"lock {lock}"
        mine = tester.save(mine, locks=())
        assert tester.ids_of(tester.claim(tester.store, session)) == [third.id], "a save drops locks too"

    def test_two_saves_of_one_call_cannot_both_take_a_lock_a9(self, tester: StoreTester) -> None:
        tester.make_parcels(2)
        mine, theirs = tester.claim_records(tester.store, tester.open_session())
        lock = tester.lock_name_of("a")
        answers = commit_groups(
            tester.store,
            CommitGroup((make_change(mine, cause="", locks=(lock,)),)),
            CommitGroup((make_change(theirs, cause="", locks=(lock,)),)),
        )
        assert [type(answer) for answer in answers] == [CommitResult, LockUnavailable]

    def test_a_released_record_keeps_its_locks_and_merely_asks_for_more_a9(self, tester: StoreTester) -> None:
        a, b = tester.lock_name_of("a"), tester.lock_name_of("b")
        tester.make_parcel(locks=(a,))
        session = tester.open_session()
        (mine,) = tester.claim_records(tester.store, session)
        freed = tester.release(mine, locks=(a, b), state=tester.harness.rest_state)
        assert freed.locks == (a, b)
        asks_b, asks_a = tester.make_parcel(locks=(b,)), tester.make_parcel(locks=(a,))
        assert tester.ids_of(tester.claim(tester.store, session)) == [asks_b.id]
        assert tester.get(asks_a).blocked_by == f"lock {a}"
        tester.update(freed, locks=(b,))
        assert tester.ids_of(tester.claim(tester.store, session)) == [asks_a.id]

    def test_continuing_takes_new_locks_b14(self, tester: StoreTester) -> None:
        h = tester.harness
        lock = tester.lock_name_of("a")
        tester.make_parcel()
        session = tester.open_session()
        (mine,) = tester.claim_records(tester.store, session)
        on = tester.update(mine, cause="done", state=h.states[1], locks=(lock,))
        assert (on.session, on.locks) == (session, (lock,))
        second = tester.make_parcel(locks=(lock,))
        assert tester.claim(tester.store, session) == []
        assert tester.get(second).blocked_by == f"lock {lock}"

    def test_continuing_ends_at_an_unavailable_lock_b14(self, tester: StoreTester) -> None:
        h = tester.harness
        free, lock = tester.lock_name_of("a"), tester.lock_name_of("b")
        owner, made = tester.make_parcel(locks=(lock,)), tester.make_parcel()
        session = tester.open_session()
        first, mine = tester.claim_records(tester.store, session)
        assert (first.id, mine.id) == (owner.id, made.id)
        on = tester.update(mine, cause="done", state=h.states[1], locks=(free, lock))
        assert (on.session, on.state, on.locks, on.blocked_by) == (None, h.states[1], (free, lock), None)
        assert tester.get(on) == on
        takes_free = tester.make_parcel(locks=(free,))
        assert tester.ids_of(tester.claim(tester.store, session)) == [takes_free.id], "it took none of the new locks"

    def test_a_waiter_that_moves_unblocks_the_next_a10(self, tester: StoreTester) -> None:
        lock = tester.lock_name_of("a")
        for move in ("acted on", "removed", "blocked by a hold", "claimed on hold"):
            hold = tester.hold_name_of("closed")
            owner = tester.make_parcel(locks=(lock,), priority=1)
            first = tester.make_parcel(locks=(lock,), priority=2, hold_names=(hold,))
            second = tester.make_parcel(locks=(lock,), priority=3)
            session = tester.open_session()
            (mine,) = tester.claim_records(tester.store, session)
            assert mine.id == owner.id
            tester.remove(mine)
            first = tester.get(first)
            assert (first.blocked_by, tester.get(second).blocked_by) == (None, f"lock {lock}")
            if move == "acted on":
                tester.update(first, state=tester.harness.rest_state)
            elif move == "removed":
                tester.remove(first)
            else:
                tester.store.set_hold(hold)
            if move == "claimed on hold":
                assert first.id in tester.ids_of(tester.claim(tester.store, session, 1, claims_on_hold=True))
            assert tester.ids_of(tester.claim(tester.store, session)) == [second.id], move
            tester.store.clear_hold(hold)
            tester.store.close_session(session)
            for record in tester.store.find(tester.harness.kind).records:
                tester.remove(record)

    def test_maintain_indexes_unblocks_waiters_of_a_free_lock_a10(self, tester: StoreTester) -> None:
        """The first waiter is unblocked and no worker serves it: the others must not wait for it for ever."""
        h = tester.harness
        lock = tester.lock_name_of("a")
        owner = tester.make_parcel(locks=(lock,), priority=1)
        unserved = tester.make_parcel(locks=(lock,), priority=2, state=h.states[1])
        second = tester.make_parcel(locks=(lock,), priority=3)
        session = tester.open_session()
        (mine,) = tester.claim_records(tester.store, session)
        assert mine.id == owner.id
        assert tester.claim(tester.store, session, state=h.states[1]) == []
        assert (tester.get(unserved).blocked_by, tester.get(second).blocked_by) == (f"lock {lock}",) * 2
        tester.release(mine, state=h.rest_state, locks=())
        assert tester.get(unserved).blocked_by is None
        tester.store.maintain_indexes()
        assert tester.get(second).blocked_by is None
        assert tester.ids_of(tester.claim(tester.store, session)) == [second.id]

    def test_a_change_never_writes_a_block_on_a_lock_a10(self, tester: StoreTester) -> None:
        """Read while it was blocked, written after the lock was free: it would be blocked for ever."""
        lock = tester.lock_name_of("a")
        owner, second = tester.make_parcels(2, locks=(lock,))
        session = tester.open_session()
        (mine,) = tester.claim_records(tester.store, session)
        assert mine.id == owner.id
        blocked = tester.get(second)
        assert blocked.blocked_by == f"lock {lock}"
        tester.release(mine, state=tester.harness.rest_state, locks=())
        fresh = tester.get(second)
        moved = tester.update(make_change(fresh, priority=3).after or fresh, blocked_by=blocked.blocked_by)
        assert moved.blocked_by is None
        assert tester.ids_of(tester.claim(tester.store, session)) == [second.id]

    def test_a_record_claimed_on_hold_takes_no_lock_a9(self, tester: StoreTester) -> None:
        """It only moves to its hold state: it must neither wait for the lock nor keep others from it."""
        lock, hold = tester.lock_name_of("a"), tester.hold_name_of("closed")
        owner, on_hold = tester.make_parcel(locks=(lock,)), tester.make_parcel(locks=(lock,), hold_names=(hold,))
        session = tester.open_session()
        tester.store.set_hold(hold)
        taken = tester.claim(tester.store, session, claims_on_hold=True)
        assert [(each.record.id, each.hold) for each in taken] == [(owner.id, None), (on_hold.id, hold)]
        tester.release(taken[1].record, cause="hold", state=tester.harness.rest_state)
        tester.release(taken[0].record, state=tester.harness.rest_state, locks=())
        third = tester.make_parcel(locks=(lock,))
        assert tester.ids_of(tester.claim(tester.store, session)) == [third.id]

    def test_many_waiters_of_a_lock_hide_nothing_a10(self, tester: StoreTester) -> None:
        lock = tester.lock_name_of("a")
        tester.make_parcels(60, locks=(lock,), priority=1)
        free = tester.make_parcel(priority=8)
        session = tester.open_session()
        taken = tester.claim_records(tester.store, session, 3)
        assert len(taken) == 2
        assert free.id in tester.ids_of(taken)


class ForeignLockTests(StoreTestBase):
    """Records that another program has locked: nobody acts on them, claims them, or removes that lock."""

    def test_action_against_a_foreign_lock_a2(self, tester: StoreTester) -> None:
        h = tester.harness
        assert h.has_foreign_locks
        made = tester.make_parcel()
        h.take_foreign_lock(made.ref)
        for late in (make_change(made, message="act"), Change(made, None, cause="remove")):
            (answer,) = commit_groups(tester.store, CommitGroup((late,)))
            assert isinstance(answer, Conflict)
        assert tester.get(made).message == ""
        h.release_foreign_lock(made.ref)
        assert tester.update(tester.get(made), message="act").message == "act"

    def test_claim_against_a_foreign_lock_a1(self, tester: StoreTester) -> None:
        h = tester.harness
        locked, free = tester.make_parcels(2)
        h.take_foreign_lock(locked.ref)
        session = tester.open_session()
        assert tester.ids_of(tester.claim(tester.store, session)) == [free.id]
        h.release_foreign_lock(locked.ref)
        assert tester.ids_of(tester.claim(tester.store, session)) == [locked.id]

    def test_a_late_commit_leaves_a_foreign_lock_alone_a1(self, tester: StoreTester) -> None:
        h = tester.harness
        made = tester.make_parcel()
        late = h.open()
        dying = tester.open_session(late, ttl=h.ttl)
        (mine,) = tester.claim_records(late, dying)
        h.expire_session(late, dying)
        h.take_foreign_lock(made.ref)
        (answer,) = commit_groups(late, CommitGroup((make_change(mine, session=None, state=h.states[1]),)))
        assert type(answer) is ClaimLost
        assert tester.claim(tester.store, tester.open_session()) == [], "the other program still has it"
        assert tester.get(made).state == h.states[0]
