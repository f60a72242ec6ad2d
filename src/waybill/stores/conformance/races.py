"""Two connections at once: the interleavings that lost or doubled records in a first design, by name.

Each runs the harness's `rounds` times with both calls started together; what is asserted holds whichever comes first.
"""

from __future__ import annotations

import random
from collections import Counter
from typing import Any

import pytest

from waybill.record import Change, Claimed, ClaimLost, Committed, Conflict, Group, Role, SessionLost, Store, Unknown
from waybill.stores.conformance.suite import Suite
from waybill.stores.conformance.yard import Yard, change, commit, present


class Races(Suite):
    def test_last_two_children_a5(self, yard: Yard) -> None:
        """Each closes one of the last two; at least one must be told that the parent has no open child left."""
        h = yard.harness
        a, b = h.open(), h.open()
        for _ in range(h.rounds):
            crate = yard.crate()
            first, second = yard.make(2, parent=crate)
            closing: dict[str, Any] = {"state": h.end, "open": False, "event": "done"}
            answers = h.race(
                lambda: commit(a, Group((change(first, **closing),))),  # noqa: B023
                lambda: commit(b, Group((change(second, **closing),))),  # noqa: B023
            )
            assert all(isinstance(answer, Committed) for (answer,) in answers)
            assert crate.ref in {ref for (answer,) in answers for ref in answer.idle}

    def test_a_closing_parent_against_a_new_child_a6(self, yard: Yard) -> None:
        """A parent never ends as closed with an open child that was there when it closed."""
        h = yard.harness
        a, b = h.open(), h.open()
        for _ in range(h.rounds):
            crate = yard.crate()
            closing = change(crate, state=h.parent_end, open=False, closes=True)
            spawning = (change(crate, message="one more"), yard.draft(parent=crate))
            (closed,), (spawned,) = h.race(lambda: commit(a, Group((closing,))), lambda: commit(b, Group(spawning)))  # noqa: B023
            assert [isinstance(closed, Committed), isinstance(spawned, Committed)].count(True) == 1

    def test_reaper_against_claim_a3(self, yard: Yard) -> None:
        """A worker claims on while its session dies: never a record that is held by a session which is gone."""
        h = yard.harness
        for _ in range(max(2, h.rounds // 4)):
            made = yard.make(20)
            store = h.open()
            doomed = yard.session(store, ttl=h.ttl)

            def claim_on(store: Store = store, doomed: str = doomed) -> int:
                for n in range(500):
                    try:
                        store.claim([Role(h.kind, h.states[0])], doomed, 1)
                    except SessionLost:
                        return n
                return 500

            h.race(claim_on, lambda: h.expire(store, doomed))  # noqa: B023
            left = [yard.get(record) for record in made]
            assert {record.session for record in left} == {None}
            for record in left:
                yard.remove(record)

    def test_revived_session_a1(self, yard: Yard) -> None:
        """The late worker commits while the next one claims: one commit at most, and the next one's claim stands."""
        h = yard.harness
        for _ in range(max(2, h.rounds // 4)):
            made = yard.one()
            late, fresh = h.open(), h.open()
            doomed = yard.session(late, ttl=h.ttl)
            (mine,) = yard.claimed(late, doomed)
            h.expire(late, doomed)
            session = yard.session(fresh)
            (answer,), claimed = h.race(
                lambda: commit(late, Group((change(mine, session=None, state=h.end),))),  # noqa: B023
                lambda: yard.claimed(fresh, session),  # noqa: B023
            )
            assert type(answer) is ClaimLost
            assert yard.ids(claimed) == [made.id]
            assert yard.get(made) == claimed[0]
            yard.remove(claimed[0], store=fresh)

    def test_late_creator_against_pages_b6(self, yard: Yard) -> None:
        """Whoever pages from the last seq seen misses nobody, however the creators overlap."""
        h = yard.harness
        creators = [h.open() for _ in range(3)]
        pager = h.open()
        seen: list[str] = []
        made: list[str] = []
        after: list[int | None] = [None]

        def create(store: Store, n: int) -> list[str]:
            return yard.ids(
                [present(answer)[0] for answer in commit(store, *[Group((yard.draft(),)) for _ in range(n)])]
            )

        def page() -> None:
            for _ in range(6):
                records = pager.find(h.kind, after=after[0], limit=1000).records
                seen.extend(yard.ids(records))
                if records:
                    after[0] = records[-1].seq

        yard.one()  # what a common parent costs is spent
        for _ in range(h.rounds):
            *answers, _ = h.race(*[lambda s=store, n=n: create(s, n) for n, store in enumerate(creators, 1)], page)
            made += [name for answer in answers for name in answer]
        page()
        assert Counter(made) - Counter(seen) == Counter()
        assert len(seen) == len(set(seen))

    def test_park_against_mark_off_a10(self, yard: Yard) -> None:
        """One is about to be parked on a mark that is being cleared: after a sweep at the latest it can be claimed."""
        h = yard.harness
        a, b = h.open(), h.open()
        session = yard.session(b)
        gate = yard.gate("closed")
        for _ in range(h.rounds):
            made = yard.one(gates=(gate,))
            a.mark(gate, True)
            _, claimed = h.race(lambda: a.mark(gate, False), lambda: yard.claimed(b, session))
            a.sweep()
            claimed = claimed or yard.claimed(b, session)
            assert yard.ids(claimed) == [made.id]
            yard.remove(claimed[0], store=b)

    def test_nudge_against_wait_a5(self, yard: Yard) -> None:
        """The parent's step answers "wait for children" while the last child calls: it looks again."""
        h = yard.harness
        a, b = h.open(), h.open()
        session = yard.session(a)
        for _ in range(h.rounds):
            yard.one()
            (mine,) = yard.claimed(a, session)
            (waits,), (nudged,) = h.race(
                lambda: commit(a, Group((change(mine, session=None, parked="children"),))),  # noqa: B023
                lambda: commit(b, Group((), nudges=(mine.ref,))),  # noqa: B023
            )
            assert isinstance(waits, Committed)
            assert isinstance(nudged, Committed)
            read = yard.get(mine)
            assert (read.parked, read.nudges) == (None, 1)
            yard.remove(read)

    def test_siblings_nudge_at_once_a5(self, yard: Yard) -> None:
        h = yard.harness
        stores = [h.open() for _ in range(4)]
        crate = yard.crate(parked="children")
        for _ in range(h.rounds):
            answers = h.race(*[lambda s=store: commit(s, Group((), nudges=(crate.ref,))) for store in stores])
            assert all(isinstance(answer, Committed) for (answer,) in answers)
        assert yard.get(crate).nudges == 4 * h.rounds

    def test_two_requests_at_once_make_one_record_a11(self, yard: Yard) -> None:
        h = yard.harness
        a, b = h.open(), h.open()
        yard.one()  # what a common parent costs is spent
        for i in range(h.rounds):
            answers = h.race(*[lambda s=s: commit(s, Group((yard.draft(request=f"r-{i}"),)))[0] for s in (a, b)])  # noqa: B023
            first, second = (present(answer)[0] for answer in answers)
            assert first.id == second.id
        assert yard.store.tally(h.kind) == {h.states[0]: h.rounds + 1}

    def test_two_writers_of_one_record_a2(self, yard: Yard) -> None:
        h = yard.harness
        a, b = h.open(), h.open()
        made = yard.one()
        for _ in range(h.rounds):
            answers = h.race(*[lambda s=s: commit(s, Group((change(made, message="x"),)))[0] for s in (a, b)])  # noqa: B023
            assert sorted(type(answer).__name__ for answer in answers) == ["Committed", "Conflict"]
            made = yard.get(made)

    def test_groups_in_opposite_order_do_not_lock_each_other_b1(self, yard: Yard) -> None:
        h = yard.harness
        a, b = h.open(), h.open()
        records = yard.make(6)
        for _ in range(h.rounds):
            twos = zip(records[::2], records[1::2], strict=True)
            groups = [Group((change(first, message="x"), change(second, message="y"))) for first, second in twos]
            answers = h.race(
                lambda: commit(a, *groups),  # noqa: B023
                lambda: commit(b, *[Group(g.changes[::-1]) for g in reversed(groups)]),  # noqa: B023
            )
            assert all(isinstance(answer, (Committed, Conflict)) for each in answers for answer in each)
            won = [[isinstance(answer, Committed) for answer in each] for each in (answers[0], answers[1][::-1])]
            assert [sum(each) for each in zip(*won, strict=True)] == [1, 1, 1], (
                "each pair is written by one of the two, and whole"
            )
            records = [yard.get(record) for record in records]

    def test_unknown_outcome_a11(self, yard: Yard) -> None:
        """The answer is lost and the groups are written: Unknown, the truth is in the store, and creating again
        makes no second record.
        """
        h = yard.harness
        store = h.open()
        made = yard.one()
        groups = [Group((change(made, message="written"),)), Group((yard.draft(request="r-1"),))]
        with h.lose_answer(store):
            answers = commit(store, *groups)
        assert [type(answer) for answer in answers] == [Unknown, Unknown]
        assert yard.get(made).message == "written"
        again = h.open()
        (answer,) = commit(again, Group((yard.draft(request="r-1"),)))
        assert isinstance(answer, Committed)
        assert yard.store.tally(h.kind) == {h.states[0]: 2}
        assert [type(answer) for answer in commit(store, Group((change(made, message="again"),)))] == [Conflict]
        assert store.tally(h.kind) == {h.states[0]: 2}

    def test_many_workers_move_every_record_once_through_every_state(self, yard: Yard) -> None:
        """Four workers, forty records, five keys: no transition is lost or doubled, and no two hold one key."""
        h = yard.harness
        names = [yard.key(str(i)) for i in range(5)]
        made = [record for i in range(8) for record in yard.make(5, keys=(names[i % 5],))]
        arrows = dict(zip(h.states, [*h.states[1:], h.end], strict=True))
        holding: Counter[str] = Counter()
        clashes: list[str] = []

        def work(store: Store, limit: int) -> int:
            session, moved, empty = yard.session(store), 0, 0
            while empty < 50:
                claimed = store.claim([Role(h.kind, state) for state in h.states], session, limit)
                for each in claimed:
                    holding.update(each.record.keys)
                    clashes.extend(key for key in each.record.keys if holding[key] != 1)
                for each in claimed:
                    holding.subtract(each.record.keys)
                answers = commit(store, *[Group((step(each),)) for each in claimed])
                moved += sum(isinstance(answer, Committed) for answer in answers)
                empty = 0 if claimed else empty + 1
                if store.tally(h.kind).get(h.end, 0) == len(made):
                    break
            return moved

        def step(claimed: Claimed) -> Change:
            state = arrows[claimed.record.state]
            after: dict[str, Any] = {"keys": (), "open": False} if state == h.end else {}
            return change(claimed.record, event="done", session=None, state=state, **after)

        stores = [h.open() for _ in range(4)]
        moved = h.race(*[lambda s=store, n=n: work(s, n) for n, store in enumerate(stores, 2)])
        assert clashes == []
        assert yard.store.tally(h.kind) == {h.end: len(made)}
        assert sum(moved) == 3 * len(made)
        for record in made:
            assert [line.after for line in yard.store.history(record.kind, record.id)] == [*h.states, h.end]

    @pytest.mark.parametrize("seed", range(3))
    def test_random_writers_at_once_leave_unbroken_histories(self, yard: Yard, seed: int) -> None:
        """Whoever wins, each record's lines are one chain, every answered transition is in it, and the counters
        agree.
        """
        h = yard.harness
        states = [*h.states, h.rest]
        records = yard.make(6)
        stores = [h.open() for _ in range(3)]

        def write(place: int) -> Counter[str]:
            rng, store, written = random.Random(seed * 10 + place), stores[place], Counter[str]()
            for _ in range(25):
                some = rng.sample(records, rng.choice([1, 1, 2]))
                changes = [change(yard.get(each, store), state=rng.choice(states), event="move") for each in some]
                if any(each.before and each.before.session for each in changes):
                    continue
                (answer,) = commit(store, Group(tuple(changes), nudges=(rng.choice(records).ref,)))
                if isinstance(answer, Committed):
                    written.update(yard.ids(present(answer)))
            return written

        answers = h.race(*[lambda n=n: write(n) for n in range(3)])
        moves = sum(answers, Counter[str]())
        left = [yard.get(record) for record in records]
        for record in left:
            lines = yard.store.history(record.kind, record.id)
            assert [line.before for line in lines] == [None, *[line.after for line in lines[:-1]]]
            assert lines[-1].after == record.state
            assert [line.version for line in lines] == sorted({line.version for line in lines})
            assert len(lines) == 1 + moves[record.id]
        assert yard.store.tally(h.kind) == Counter(record.state for record in left)
        assert sum(moves.values()) > 0
