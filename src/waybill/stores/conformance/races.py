"""Two connections at once: the interleavings that lost or doubled records in a first design, by name.

Each runs the harness's `rounds` times with both calls started together; what is asserted holds whichever comes first.
"""

from __future__ import annotations

import random
from collections import Counter
from typing import Any

import pytest

from waybill.record import (
    Change,
    ClaimedRecord,
    ClaimLost,
    CommitGroup,
    CommitOutcomeUnknown,
    CommitResult,
    Conflict,
    SessionLost,
    Store,
    WorkQueue,
)
from waybill.stores.conformance.fixtures import StoreTestBase
from waybill.stores.conformance.tester import StoreTester, commit_groups, make_change, records_of


class RaceTests(StoreTestBase):
    def test_last_two_children_a5(self, tester: StoreTester) -> None:
        """Each closes one of the last two; at least one answer must say that the parent has no open child left."""
        h = tester.harness
        a, b = h.open(), h.open()
        for _ in range(h.rounds):
            crate = tester.make_crate()
            first, second = tester.make_parcels(2, parent=crate)
            closing: dict[str, Any] = {"state": h.end_state, "open": False, "cause": "done"}
            answers = h.race(
                lambda: commit_groups(a, CommitGroup((make_change(first, **closing),))),  # noqa: B023
                lambda: commit_groups(b, CommitGroup((make_change(second, **closing),))),  # noqa: B023
            )
            assert all(isinstance(answer, CommitResult) for (answer,) in answers)
            assert crate.ref in {ref for (answer,) in answers for ref in answer.idle_parents}

    def test_a_closing_parent_against_a_new_child_a6(self, tester: StoreTester) -> None:
        """A parent never ends as closed with an open child that was there when it closed."""
        h = tester.harness
        a, b = h.open(), h.open()
        for _ in range(h.rounds):
            crate = tester.make_crate()
            closing = make_change(crate, state=h.parent_end_state, open=False, requires_children_settled=True)
            spawning = (make_change(crate, message="one more"), tester.draft_parcel(parent=crate))
            (closed,), (spawned,) = h.race(
                lambda: commit_groups(a, CommitGroup((closing,))),  # noqa: B023
                lambda: commit_groups(b, CommitGroup(spawning)),  # noqa: B023
            )
            assert [isinstance(closed, CommitResult), isinstance(spawned, CommitResult)].count(True) == 1

    def test_reaper_against_claim_a3(self, tester: StoreTester) -> None:
        """A worker keeps claiming while its session is reaped: no record is left claimed by a session that is gone."""
        h = tester.harness
        for _ in range(max(2, h.rounds // 4)):
            made = tester.make_parcels(20)
            store = h.open()
            dying = tester.open_session(store, ttl=h.ttl)

            def claim_on(store: Store = store, dying: str = dying) -> int:
                for n in range(500):
                    try:
                        store.claim([WorkQueue(h.kind, h.states[0])], dying, 1)
                    except SessionLost:
                        return n
                return 500

            h.race(claim_on, lambda: h.expire_session(store, dying))  # noqa: B023
            left = [tester.get(record) for record in made]
            assert {record.session for record in left} == {None}
            for record in left:
                tester.remove(record)

    def test_revived_session_a1(self, tester: StoreTester) -> None:
        """The late worker commits while the next one claims: one commit at most, and the next one's claim stands."""
        h = tester.harness
        for _ in range(max(2, h.rounds // 4)):
            made = tester.make_parcel()
            late, fresh = h.open(), h.open()
            dying = tester.open_session(late, ttl=h.ttl)
            (mine,) = tester.claim_records(late, dying)
            h.expire_session(late, dying)
            session = tester.open_session(fresh)
            (answer,), claimed = h.race(
                lambda: commit_groups(late, CommitGroup((make_change(mine, session=None, state=h.end_state),))),  # noqa: B023
                lambda: tester.claim_records(fresh, session),  # noqa: B023
            )
            assert type(answer) is ClaimLost
            assert tester.ids_of(claimed) == [made.id]
            assert tester.get(made) == claimed[0]
            tester.remove(claimed[0], store=fresh)

    def test_late_creator_against_pages_b6(self, tester: StoreTester) -> None:
        """Whoever pages from the last seq seen misses nobody, however the creators overlap."""
        h = tester.harness
        creators = [h.open() for _ in range(3)]
        pager = h.open()
        seen: list[str] = []
        made: list[str] = []
        after: list[int | None] = [None]

        def create(store: Store, n: int) -> list[str]:
            return tester.ids_of(
                [
                    records_of(answer)[0]
                    for answer in commit_groups(store, *[CommitGroup((tester.draft_parcel(),)) for _ in range(n)])
                ]
            )

        def read_pages() -> None:
            for _ in range(6):
                records = pager.find(h.kind, after=after[0], limit=1000).records
                seen.extend(tester.ids_of(records))
                if records:
                    after[0] = records[-1].seq

        tester.make_parcel()  # so that a common parent exists
        for _ in range(h.rounds):
            *answers, _ = h.race(
                *[lambda s=store, n=n: create(s, n) for n, store in enumerate(creators, 1)], read_pages
            )
            made += [name for answer in answers for name in answer]
        read_pages()
        assert Counter(made) - Counter(seen) == Counter()
        assert len(seen) == len(set(seen))

    def test_block_against_clear_hold_a10(self, tester: StoreTester) -> None:
        """A record is about to be blocked by a hold that is being cleared: after maintain_indexes at the latest it can be
        claimed.
        """
        h = tester.harness
        a, b = h.open(), h.open()
        session = tester.open_session(b)
        hold = tester.hold_name_of("closed")
        for _ in range(h.rounds):
            made = tester.make_parcel(hold_names=(hold,))
            a.set_hold(hold)
            _, claimed = h.race(lambda: a.clear_hold(hold), lambda: tester.claim_records(b, session))
            a.maintain_indexes()
            claimed = claimed or tester.claim_records(b, session)
            assert tester.ids_of(claimed) == [made.id]
            tester.remove(claimed[0], store=b)

    def test_wake_against_wait_a5(self, tester: StoreTester) -> None:
        """The parent's step answers "wait for children" while the last child wakes it: it is not blocked."""
        h = tester.harness
        a, b = h.open(), h.open()
        session = tester.open_session(a)
        for _ in range(h.rounds):
            tester.make_parcel()
            (mine,) = tester.claim_records(a, session)
            (waits,), (woken,) = h.race(
                lambda: commit_groups(a, CommitGroup((make_change(mine, session=None, blocked_by="children"),))),  # noqa: B023
                lambda: commit_groups(b, CommitGroup((), wake=(mine.ref,))),  # noqa: B023
            )
            assert isinstance(waits, CommitResult)
            assert isinstance(woken, CommitResult)
            read = tester.get(mine)
            assert (read.blocked_by, read.wake_count) == (None, 1)
            tester.remove(read)

    def test_siblings_wake_at_once_a5(self, tester: StoreTester) -> None:
        h = tester.harness
        stores = [h.open() for _ in range(4)]
        crate = tester.make_crate(blocked_by="children")
        for _ in range(h.rounds):
            answers = h.race(
                *[lambda s=store: commit_groups(s, CommitGroup((), wake=(crate.ref,))) for store in stores]
            )
            assert all(isinstance(answer, CommitResult) for (answer,) in answers)
        assert tester.get(crate).wake_count == 4 * h.rounds

    def test_two_creations_with_one_idempotency_key_at_once_make_one_record_a11(self, tester: StoreTester) -> None:
        h = tester.harness
        a, b = h.open(), h.open()
        tester.make_parcel()  # so that a common parent exists
        for i in range(h.rounds):
            answers = h.race(
                *[
                    lambda s=s: commit_groups(s, CommitGroup((tester.draft_parcel(idempotency_key=f"r-{i}"),)))[0]  # noqa: B023
                    for s in (a, b)
                ]
            )
            first, second = (records_of(answer)[0] for answer in answers)
            assert first.id == second.id
        assert tester.store.count_by_state(h.kind) == {h.states[0]: h.rounds + 1}

    def test_two_writers_of_one_record_a2(self, tester: StoreTester) -> None:
        h = tester.harness
        a, b = h.open(), h.open()
        made = tester.make_parcel()
        for _ in range(h.rounds):
            answers = h.race(
                *[lambda s=s: commit_groups(s, CommitGroup((make_change(made, message="x"),)))[0] for s in (a, b)]  # noqa: B023
            )
            assert sorted(type(answer).__name__ for answer in answers) == ["CommitResult", "Conflict"]
            made = tester.get(made)

    def test_groups_in_opposite_order_do_not_lock_each_other_b1(self, tester: StoreTester) -> None:
        h = tester.harness
        a, b = h.open(), h.open()
        records = tester.make_parcels(6)
        for _ in range(h.rounds):
            twos = zip(records[::2], records[1::2], strict=True)
            groups = [
                CommitGroup((make_change(first, message="x"), make_change(second, message="y")))
                for first, second in twos
            ]
            answers = h.race(
                lambda: commit_groups(a, *groups),  # noqa: B023
                lambda: commit_groups(b, *[CommitGroup(g.changes[::-1]) for g in reversed(groups)]),  # noqa: B023
            )
            assert all(isinstance(answer, (CommitResult, Conflict)) for each in answers for answer in each)
            won = [[isinstance(answer, CommitResult) for answer in each] for each in (answers[0], answers[1][::-1])]
            assert [sum(each) for each in zip(*won, strict=True)] == [1, 1, 1], (
                "each pair is written by one of the two, and whole"
            )
            records = [tester.get(record) for record in records]

    def test_unknown_outcome_a11(self, tester: StoreTester) -> None:
        """The groups are written and the answer is lost: CommitOutcomeUnknown; the store has the result, and creating
        again makes no second record.
        """
        h = tester.harness
        store = h.open()
        made = tester.make_parcel()
        groups = [
            CommitGroup((make_change(made, message="written"),)),
            CommitGroup((tester.draft_parcel(idempotency_key="r-1"),)),
        ]
        with h.lose_answer(store):
            answers = commit_groups(store, *groups)
        assert [type(answer) for answer in answers] == [CommitOutcomeUnknown, CommitOutcomeUnknown]
        assert tester.get(made).message == "written"
        again = h.open()
        (answer,) = commit_groups(again, CommitGroup((tester.draft_parcel(idempotency_key="r-1"),)))
        assert isinstance(answer, CommitResult)
        assert tester.store.count_by_state(h.kind) == {h.states[0]: 2}
        assert [
            type(answer) for answer in commit_groups(store, CommitGroup((make_change(made, message="again"),)))
        ] == [Conflict]
        assert store.count_by_state(h.kind) == {h.states[0]: 2}

    def test_many_workers_move_every_record_once_through_every_state(self, tester: StoreTester) -> None:
        """Four workers, forty records, five locks: no transition is lost or doubled, and no two records own one lock."""
        h = tester.harness
        names = [tester.lock_name_of(str(i)) for i in range(5)]
        made = [record for i in range(8) for record in tester.make_parcels(5, locks=(names[i % 5],))]
        arrows = dict(zip(h.states, [*h.states[1:], h.end_state], strict=True))
        holding: Counter[str] = Counter()
        clashes: list[str] = []

        def work(store: Store, limit: int) -> int:
            session, moved, empty = tester.open_session(store), 0, 0
            while empty < 50:
                claimed = store.claim([WorkQueue(h.kind, state) for state in h.states], session, limit)
                for each in claimed:
                    holding.update(each.record.locks)
                    clashes.extend(lock for lock in each.record.locks if holding[lock] != 1)
                for each in claimed:
                    holding.subtract(each.record.locks)
                answers = commit_groups(store, *[CommitGroup((step(each),)) for each in claimed])
                moved += sum(isinstance(answer, CommitResult) for answer in answers)
                empty = 0 if claimed else empty + 1
                if store.count_by_state(h.kind).get(h.end_state, 0) == len(made):
                    break
            return moved

        def step(claimed: ClaimedRecord) -> Change:
            state = arrows[claimed.record.state]
            after: dict[str, Any] = {"locks": (), "open": False} if state == h.end_state else {}
            return make_change(claimed.record, cause="done", session=None, state=state, **after)

        stores = [h.open() for _ in range(4)]
        moved = h.race(*[lambda s=store, n=n: work(s, n) for n, store in enumerate(stores, 2)])
        assert clashes == []
        assert tester.store.count_by_state(h.kind) == {h.end_state: len(made)}
        assert sum(moved) == 3 * len(made)
        for record in made:
            assert [entry.after for entry in tester.store.history(record.kind, record.id)] == [*h.states, h.end_state]

    @pytest.mark.parametrize("seed", range(3))
    def test_random_writers_at_once_leave_unbroken_histories(self, tester: StoreTester, seed: int) -> None:
        """Whoever wins, the history of each record is one chain, every answered transition is in it, and the counts agree."""
        h = tester.harness
        states = [*h.states, h.rest_state]
        records = tester.make_parcels(6)
        stores = [h.open() for _ in range(3)]

        def write(place: int) -> Counter[str]:
            rng, store, written = random.Random(seed * 10 + place), stores[place], Counter[str]()
            for _ in range(25):
                some = rng.sample(records, rng.choice([1, 1, 2]))
                changes = [
                    make_change(tester.get(each, store), state=rng.choice(states), cause="move") for each in some
                ]
                if any(each.before and each.before.session for each in changes):
                    continue
                (answer,) = commit_groups(store, CommitGroup(tuple(changes), wake=(rng.choice(records).ref,)))
                if isinstance(answer, CommitResult):
                    written.update(tester.ids_of(records_of(answer)))
            return written

        answers = h.race(*[lambda n=n: write(n) for n in range(3)])
        moves = sum(answers, Counter[str]())
        left = [tester.get(record) for record in records]
        for record in left:
            entries = tester.store.history(record.kind, record.id)
            assert [entry.before for entry in entries] == [None, *[entry.after for entry in entries[:-1]]]
            assert entries[-1].after == record.state
            assert [entry.version for entry in entries] == sorted({entry.version for entry in entries})
            assert len(entries) == 1 + moves[record.id]
        assert tester.store.count_by_state(h.kind) == Counter(record.state for record in left)
        assert sum(moves.values()) > 0
