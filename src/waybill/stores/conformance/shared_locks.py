"""Locks that several records own together: shared ones, any number beside each other and nobody exclusively beside them, and
counted ones, at most so many at a time. They wait, are handed on and survive as exclusive ones do.
"""

from __future__ import annotations

import pytest

from waybill.record import (
    MAX_UNBLOCKED_WAITERS,
    Change,
    CommitGroup,
    CommitResult,
    LockUnavailable,
    Record,
    Store,
    StoreError,
)
from waybill.stores.conformance.fixtures import StoreTestBase
from waybill.stores.conformance.tester import StoreTester, commit_groups, list_owned, make_change


def shared(name: str) -> str:
    return f"shared {name}"


def counted(limit: int, name: str) -> str:
    return f"at most {limit} of {name}"


class SharedLockTests(StoreTestBase):
    def test_many_share_a_lock_and_nobody_owns_it_exclusively(self, tester: StoreTester) -> None:
        lock = tester.lock_name_of("a")
        readers = tester.make_parcels(3, locks=(shared(lock),), priority=1)
        writer = tester.make_parcel(locks=(lock,), priority=2)
        session = tester.open_session()
        mine = tester.claim_records(tester.store, session)
        assert sorted(tester.ids_of(mine)) == sorted(tester.ids_of(readers))
        assert tester.get(writer).blocked_by == f"lock {lock}"
        (owned,) = tester.store.list_locks()
        assert (owned.name, owned.sort, owned.owner_count, owned.limit) == (lock, "shared", 3, None)
        assert set(owned.owners) == {reader.ref for reader in readers}
        for reader in mine[:2]:
            tester.release(reader, state=tester.harness.rest_state, locks=())
            assert tester.get(writer).blocked_by == f"lock {lock}", "one still reads"
        tester.release(mine[2], state=tester.harness.rest_state, locks=())
        (mine_now,) = tester.claim_records(tester.store, session)
        assert mine_now.id == writer.id
        assert [(owned.sort, owned.owners) for owned in tester.store.list_locks()] == [("exclusive", (writer.ref,))]

    def test_an_exclusive_owner_blocks_all_who_would_share_and_then_frees_them_all(self, tester: StoreTester) -> None:
        lock = tester.lock_name_of("a")
        tester.make_parcel(locks=(lock,), priority=1)
        readers = tester.make_parcels(3, locks=(shared(lock),), priority=2)
        session = tester.open_session()
        (writer,) = tester.claim_records(tester.store, session)
        assert {tester.get(reader).blocked_by for reader in readers} == {f"lock {lock}"}
        tester.release(writer, state=tester.harness.rest_state, locks=())
        assert sorted(tester.ids_of(tester.claim(tester.store, session))) == sorted(tester.ids_of(readers))

    def test_a_stream_of_readers_does_not_starve_a_writer(self, tester: StoreTester) -> None:
        """Readers that come after a waiting writer wait behind it, though they could share the lock with its owners."""
        lock = tester.lock_name_of("a")
        tester.make_parcels(2, locks=(shared(lock),))
        session = tester.open_session()
        reading = tester.claim_records(tester.store, session)
        assert len(reading) == 2
        writer = tester.make_parcel(locks=(lock,))
        assert tester.claim(tester.store, session) == []
        for _ in range(3):
            late = tester.make_parcel(locks=(shared(lock),))
            assert tester.claim(tester.store, session) == []
            assert tester.get(late).blocked_by == f"lock {lock}"
        urgent = tester.make_parcel(locks=(shared(lock),), priority=1)
        assert tester.ids_of(tester.claim(tester.store, session)) == [urgent.id], "priority goes before age"
        for each in (*reading, tester.get(urgent)):
            tester.remove(each)
        assert tester.ids_of(tester.claim(tester.store, session)) == [writer.id]
        tester.remove(tester.get(writer))
        assert len(tester.claim(tester.store, session)) == 3

    def test_a_waiting_writer_that_leaves_lets_the_readers_behind_it_pass(self, tester: StoreTester) -> None:
        lock = tester.lock_name_of("a")
        tester.make_parcel(locks=(shared(lock),))
        session = tester.open_session()
        (reading,) = tester.claim_records(tester.store, session)
        for move in ("acted on", "removed"):
            writer = tester.make_parcel(locks=(lock,))
            assert tester.claim(tester.store, session) == []
            late = tester.make_parcels(2, locks=(shared(lock),))
            assert tester.claim(tester.store, session) == []
            if move == "acted on":
                tester.update(tester.get(writer), state=tester.harness.rest_state)
            else:
                tester.remove(tester.get(writer))
            assert sorted(tester.ids_of(tester.claim(tester.store, session))) == sorted(tester.ids_of(late)), move
        assert tester.get(reading).session == session

    def test_a_shared_lock_survives_a_wait_and_the_workers_death(self, tester: StoreTester) -> None:
        lock = tester.lock_name_of("a")
        reader = tester.make_parcel(locks=(shared(lock),))
        dead = tester.harness.open()
        dying = tester.open_session(dead, ttl=tester.harness.ttl)
        (mine,) = tester.claim_records(dead, dying)
        waiting = tester.release(mine, store=dead, blocked_by="wait", delay=1)
        writer = tester.make_parcel(locks=(lock,))
        session = tester.open_session()
        assert tester.claim(tester.store, session) == []
        assert list_owned(tester.store) == [(lock, reader.ref)]
        tester.harness.tick(2)
        tester.store.release_due_waits()
        assert tester.ids_of(tester.claim(dead, dying)) == [waiting.id]
        tester.harness.expire_session(dead, dying)
        (mine,) = tester.claim_records(tester.store, tester.open_session())
        assert (mine.id, tester.get(writer).blocked_by) == (reader.id, f"lock {lock}")
        assert list_owned(tester.store) == [(lock, reader.ref)]

    def test_one_record_cannot_ask_for_a_lock_in_two_sorts(self, tester: StoreTester) -> None:
        lock = tester.lock_name_of("a")
        for locks in ((lock, shared(lock)), (shared(lock), counted(2, lock)), (counted(2, lock), counted(3, lock))):
            (answer,) = commit_groups(tester.store, CommitGroup((tester.draft_parcel(locks=locks),)))
            assert type(answer) is StoreError
            assert "in two sorts at once" in str(answer)
        (answer,) = commit_groups(tester.store, CommitGroup((tester.draft_parcel(locks=(f"at most 0 of {lock}",)),)))
        assert "is no lock" in str(answer)
        assert tester.store.find(tester.harness.kind).records == []

    def test_from_shared_to_exclusive(self, tester: StoreTester) -> None:
        """Alone it goes on; beside others it gives up what it shares and waits, so that two who want the same do not wait for
        each other.
        """
        h, lock = tester.harness, tester.lock_name_of("a")
        tester.make_parcels(2, locks=(shared(lock),))
        session = tester.open_session()
        first, second = tester.claim_records(tester.store, session)
        first = tester.update(first, cause="done", state=h.states[1], locks=(lock,))
        assert (first.session, first.locks) == (None, (lock,))
        assert list_owned(tester.store) == [(lock, second.ref)]
        second = tester.update(second, cause="done", state=h.states[1], locks=(lock,))
        assert (second.session, second.locks) == (session, (lock,)), "it is alone, and nobody was waiting yet"
        assert [(o.sort, o.owners) for o in tester.store.list_locks()] == [("exclusive", (second.ref,))]
        assert tester.claim(tester.store, session, state=h.states[1]) == []
        second = tester.update(second, cause="done", state=h.states[2], locks=(shared(lock),))
        assert second.session is None, "the one that waits for it exclusively comes first"
        assert tester.ids_of(tester.claim(tester.store, session, state=h.states[1])) == [first.id]
        assert tester.claim(tester.store, session, state=h.states[2]) == []
        assert list_owned(tester.store) == [(lock, first.ref)]
        tester.remove(tester.get(first))
        assert tester.ids_of(tester.claim(tester.store, session, state=h.states[2])) == [second.id]
        assert [(o.sort, o.owners) for o in tester.store.list_locks()] == [("shared", (second.ref,))]

    def test_a_released_record_gives_up_the_sort_that_it_no_longer_asks_for(self, tester: StoreTester) -> None:
        lock = tester.lock_name_of("a")
        for before, after in ((shared(lock), lock), (lock, shared(lock)), (lock, counted(2, lock))):
            tester.make_parcel(locks=(before,))
            (mine,) = tester.claim_records(tester.store, tester.open_session())
            freed = tester.release(mine, locks=(after,), state=tester.harness.rest_state)
            assert tester.store.list_locks() == [], (before, after)
            tester.remove(freed)

    def test_a_save_shares_a_lock_or_is_refused(self, tester: StoreTester) -> None:
        lock = tester.lock_name_of("a")
        tester.make_parcels(4)
        session = tester.open_session()
        first, second, third, fourth = tester.claim_records(tester.store, session)
        tester.save(first, locks=(shared(lock),))
        second = tester.save(second, locks=(shared(lock),))
        (answer,) = commit_groups(tester.store, CommitGroup((make_change(third, cause="", locks=(lock,)),)))
        assert (type(answer), answer.lock) == (LockUnavailable, lock)
        (answer,) = commit_groups(tester.store, CommitGroup((make_change(second, cause="", locks=(lock,)),)))
        assert type(answer) is LockUnavailable
        assert {owner for _, owner in list_owned(tester.store)} == {first.ref, second.ref}, "it keeps what it shares"
        tester.release(third, locks=(lock,))
        assert tester.claim(tester.store, session) == []
        late = make_change(fourth, cause="", locks=(shared(lock),))
        (answer,) = commit_groups(tester.store, CommitGroup((late,)))
        assert type(answer) is LockUnavailable, "a writer waits since before it"

    def test_a_shared_lock_may_have_any_name(self, tester: StoreTester) -> None:
        for name in ("shared ark/x", "at most 3 of ark/x", "a/b", "..", "a b", "\U0001f4da", "s", "c"):
            lock = tester.lock_name_of(name)
            for sort in (shared(lock), counted(1, lock), lock):
                made = tester.make_parcels(2, locks=(sort,))
                session = tester.open_session()
                taken = tester.claim_records(tester.store, session)
                assert len(taken) == (2 if sort == shared(lock) else 1)
                assert {owned for owned, _ in list_owned(tester.store)} == {lock}
                for record in made:
                    tester.remove(tester.get(record))
                tester.store.close_session(session)
        assert tester.store.list_locks() == []

    def test_many_waiters_of_a_shared_lock_all_get_it(self, tester: StoreTester) -> None:
        lock = tester.lock_name_of("a")
        tester.make_parcel(locks=(lock,), priority=1)
        session = tester.open_session()
        (writer,) = tester.claim_records(tester.store, session)
        readers = tester.make_parcels(MAX_UNBLOCKED_WAITERS + 20, locks=(shared(lock),))
        assert tester.claim(tester.store, session, 1000) == []
        tester.remove(writer)
        taken: set[str] = set()
        while mine := tester.claim_records(tester.store, session, 1000):
            taken.update(tester.ids_of(mine))
            for each in mine:
                tester.remove(each)
        assert taken == set(tester.ids_of(readers))


class CountedLockTests(StoreTestBase):
    def test_at_most_n_records_own_a_counted_lock(self, tester: StoreTester) -> None:
        lock = tester.lock_name_of("lane")
        made = tester.make_parcels(6, locks=(counted(3, lock),))
        session = tester.open_session()
        mine = tester.claim_records(tester.store, session, 10)
        assert sorted(tester.ids_of(mine)) == sorted(tester.ids_of(made[:3]))
        (owned,) = tester.store.list_locks()
        assert (owned.sort, owned.owner_count, owned.limit) == ("counted", 3, 3)
        assert {tester.get(each).blocked_by for each in made[3:]} == {f"lock {lock}"}
        tester.remove(mine[0])
        assert tester.ids_of(tester.claim(tester.store, session, 10)) == [made[3].id]
        tester.release(mine[1], blocked_by="wait", delay=60)
        assert tester.claim(tester.store, session, 10) == [], "a lock is kept through a wait"

    @pytest.mark.parametrize(("before", "after", "running"), [(1, 4, 4), (4, 2, 4)])
    def test_a_changed_limit_holds_for_those_who_wait(
        self, tester: StoreTester, before: int, after: int, running: int
    ) -> None:
        lock = tester.lock_name_of("lane")
        tester.make_parcels(6, locks=(counted(before, lock),))
        session = tester.open_session()
        mine = tester.claim_records(tester.store, session, 10)
        assert len(mine) == before
        tester.make_parcel(locks=(counted(after, lock),))
        mine += tester.claim_records(tester.store, session, 10)
        assert len(mine) == running
        assert [owned.limit for owned in tester.store.list_locks()] == [after]
        tester.remove(mine.pop())
        mine += tester.claim_records(tester.store, session, 10)
        assert len(mine) == (4 if after == 4 else 3), "the next goes on when there is room under the new limit"
        while mine:
            tester.remove(mine.pop())
            mine += tester.claim_records(tester.store, session, 10)
            assert len(mine) <= max(after, 3)
        assert tester.store.find(tester.harness.kind).records == []

    def test_a_limit_changed_by_an_act_or_a_save_counts_too(self, tester: StoreTester) -> None:
        lock = tester.lock_name_of("lane")
        made = tester.make_parcels(3, locks=(counted(1, lock),))
        session = tester.open_session()
        (mine,) = tester.claim_records(tester.store, session, 10)
        tester.update(tester.get(made[1]), locks=(counted(2, lock),))
        assert len(tester.claim_records(tester.store, session, 10)) == 1
        tester.save(mine, locks=(counted(3, lock),))
        assert len(tester.claim_records(tester.store, session, 10)) == 1
        assert len(list_owned(tester.store)) == 3

    def test_a_counted_lock_and_the_other_sorts_exclude_each_other(self, tester: StoreTester) -> None:
        lock = tester.lock_name_of("a")
        session = tester.open_session()
        for first, second in (
            (counted(5, lock), lock), (lock, counted(5, lock)), (counted(5, lock), shared(lock)), (shared(lock), counted(5, lock)),
        ):  # fmt: skip
            owner, waiter = tester.make_parcel(locks=(first,)), tester.make_parcel(locks=(second,))
            (mine,) = tester.claim_records(tester.store, session)
            assert (mine.id, tester.get(waiter).blocked_by) == (owner.id, f"lock {lock}")
            behind = tester.make_parcel(locks=(first,))
            assert tester.claim(tester.store, session) == [], "it comes after the one who waits"
            tester.remove(mine)
            (mine,) = tester.claim_records(tester.store, session)
            assert mine.id == waiter.id
            tester.remove(mine)
            (mine,) = tester.claim_records(tester.store, session)
            assert mine.id == behind.id
            tester.remove(mine)

    def test_all_locks_or_none_of_any_sort(self, tester: StoreTester) -> None:
        a, b, c = (tester.lock_name_of(letter) for letter in "abc")
        tester.make_parcel(locks=(c,), priority=1)
        wants = tester.make_parcel(locks=(shared(a), counted(1, b), c), priority=2)
        session = tester.open_session()
        (owner,) = tester.claim_records(tester.store, session)
        assert tester.get(wants).blocked_by == f"lock {c}"
        assert list_owned(tester.store) == [(c, owner.ref)]
        tester.make_parcel(locks=(a, b), priority=3)
        assert len(tester.claim(tester.store, session)) == 1


class SharedLockRaceTests(StoreTestBase):
    """Two connections at the same time."""

    def test_a_writer_and_readers_race(self, tester: StoreTester) -> None:
        h = tester.harness
        a, b = h.open(), h.open()
        mine, theirs = tester.open_session(a), tester.open_session(b)
        for i in range(h.rounds):
            lock = tester.lock_name_of(f"race-{i}")
            tester.make_parcels(2, locks=(shared(lock),), state=h.states[0])
            tester.make_parcel(locks=(lock,), state=h.states[1])
            h.race(lambda: tester.claim_records(a, mine), lambda: tester.claim_records(b, theirs, state=h.states[1]))
            (owned,) = tester.store.list_locks()
            assert (owned.sort, owned.owner_count) in (("exclusive", 1), ("shared", 1), ("shared", 2))
            done = 0
            while done < 3:  # nobody waits for a free lock: all of them have their turn
                taken = [r for r in tester.store.find(h.kind).records if r.session is not None]
                sorts = {len(r.locks) and r.locks[0].startswith("shared ") for r in taken}
                assert len(sorts) == 1, "exclusive beside shared, or nobody has it"
                for record in taken:
                    tester.remove(tester.get(record), store=a if record.session == mine else b)
                done += len(taken)
                tester.claim_records(a, mine)
                tester.claim_records(b, theirs, state=h.states[1])

    def test_never_more_than_the_limit_under_a_race(self, tester: StoreTester) -> None:
        h = tester.harness
        a, b = h.open(), h.open()
        mine, theirs = tester.open_session(a), tester.open_session(b)
        for i in range(h.rounds):
            lock = tester.lock_name_of(f"lane-{i}")
            made = tester.make_parcels(6, locks=(counted(2, lock),))
            left = len(made)
            while left:
                h.race(lambda: tester.claim_records(a, mine, 4), lambda: tester.claim_records(b, theirs, 4))
                taken = [r for r in tester.store.find(h.kind).records if r.session is not None]
                assert 1 <= len(taken) <= 2
                assert [(owned.name, owned.owner_count) for owned in tester.store.list_locks()] == [(lock, len(taken))]
                for record in taken:
                    drop(a if record.session == mine else b, tester.get(record))
                left -= len(taken)

    def test_two_saves_race_for_the_last_place(self, tester: StoreTester) -> None:
        h = tester.harness
        a, b = h.open(), h.open()
        mine, theirs = tester.open_session(a), tester.open_session(b)
        for i in range(h.rounds):
            tester.make_parcels(2)
            (first,), (second,) = tester.claim_records(a, mine, 1), tester.claim_records(b, theirs, 1)
            locks = (counted(1, tester.lock_name_of(f"race-{i}")),)
            answers = h.race(
                lambda: commit_groups(a, CommitGroup((make_change(first, cause="", locks=locks),)))[0],  # noqa: B023
                lambda: commit_groups(b, CommitGroup((make_change(second, cause="", locks=locks),)))[0],  # noqa: B023
            )
            assert sorted(type(answer).__name__ for answer in answers) == ["CommitResult", "LockUnavailable"]
            assert len(list_owned(tester.store)) == i + 1

    def test_block_against_the_last_reader_a10(self, tester: StoreTester) -> None:
        """A writer is about to be blocked by a shared lock that its last two owners drop: it must not stay blocked."""
        h = tester.harness
        a, b, c = h.open(), h.open(), h.open()
        mine, yours, theirs = tester.open_session(a), tester.open_session(b), tester.open_session(c)
        for i in range(h.rounds):
            lock = tester.lock_name_of(f"last-{i}")
            tester.make_parcels(2, locks=(shared(lock),))
            (first,), (second,) = tester.claim_records(a, mine, 1), tester.claim_records(b, yours, 1)
            writer = tester.make_parcel(locks=(lock,))
            *_, claimed = h.race(
                lambda: drop(a, first),  # noqa: B023
                lambda: drop(b, second),  # noqa: B023
                lambda: tester.claim_records(c, theirs),
            )
            claimed = claimed or tester.claim_records(c, theirs)
            assert tester.ids_of(claimed) == [writer.id]
            tester.remove(claimed[0], store=c)
            assert tester.store.list_locks() == []

    def test_two_readers_that_both_go_on_to_write(self, tester: StoreTester) -> None:
        h = tester.harness
        a, b = h.open(), h.open()
        mine, theirs = tester.open_session(a), tester.open_session(b)
        for i in range(h.rounds):
            lock = tester.lock_name_of(f"both-{i}")
            tester.make_parcels(2, locks=(shared(lock),))
            (first,), (second,) = tester.claim_records(a, mine, 1), tester.claim_records(b, theirs, 1)
            h.race(
                lambda: write_on(a, first, h.states[1], lock),  # noqa: B023
                lambda: write_on(b, second, h.states[1], lock),  # noqa: B023
            )
            for _ in range(2):
                tester.claim_records(a, mine, state=h.states[1])
                (writing,) = [r for r in tester.store.find(h.kind).records if r.session is not None]
                assert [(o.sort, o.owners) for o in tester.store.list_locks()] == [("exclusive", (writing.ref,))]
                tester.remove(tester.get(writing), store=a if writing.session == mine else b)
            assert tester.store.find(h.kind).records == []


def drop(store: Store, record: Record) -> None:
    (answer,) = commit_groups(store, CommitGroup((Change(record, None, cause="remove", who="suite"),)))
    assert isinstance(answer, CommitResult), answer


def write_on(store: Store, record: Record, state: str, lock: str) -> None:
    (answer,) = commit_groups(store, CommitGroup((make_change(record, cause="done", state=state, locks=(lock,)),)))
    assert isinstance(answer, CommitResult), answer
