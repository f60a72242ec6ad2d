"""Two connections that want the same keys: whatever comes first, a key has one holder and nobody waits for one that
is free.
"""

from __future__ import annotations

from waybill.record import Committed, Conflict, Group, Record, Store, Taken
from waybill.stores.conformance.suite import Suite
from waybill.stores.conformance.yard import Yard, change, commit

MANY = 120  # keys of one record


class KeyRaces(Suite):
    def test_a_key_taken_while_others_are_looked_at_a9(self, yard: Yard) -> None:
        """One wants a key, the other the same and many more: while the many are looked at, the first is taken.

        Only one gets it.
        """
        h = yard.harness
        a, b = h.open(), h.open()
        mine, theirs = yard.session(a), yard.session(b)
        keys = tuple(yard.key(f"m{n}") for n in range(MANY))

        def taken(store: Store, session: str, record: Record) -> list[Record]:
            try:
                return [store.take(record.kind, record.id, session).record]
            except Conflict:
                return []

        for _ in range(h.rounds):
            few, many = yard.one(keys=keys[:1]), yard.one(keys=keys)
            got = [
                each
                for answer in h.race(lambda: taken(a, mine, few), lambda: taken(b, theirs, many))  # noqa: B023
                for each in answer
            ]
            assert len(got) == 1
            assert {held.holder for held in yard.store.held_keys() if held.name == keys[0]} == {got[0].ref}
            yard.remove(got[0])
            (other,) = yard.claimed(a, mine)
            yard.remove(other)

    def test_two_equal_keys_in_a_portion_a9(self, yard: Yard) -> None:
        """Two workers, four records, one key: one of them gets one."""
        h = yard.harness
        a, b = h.open(), h.open()
        mine, theirs = yard.session(a), yard.session(b)
        for _ in range(h.rounds):
            made = yard.make(4, keys=(yard.key("a"),))
            taken = [
                record
                for answer in h.race(lambda: yard.claimed(a, mine), lambda: yard.claimed(b, theirs))
                for record in answer
            ]
            assert len(taken) == 1
            for _ in range(4):
                (record,) = taken
                yard.remove(record)
                taken = yard.claimed(a, mine)
            assert taken == []
            assert {yard.store.tally(h.kind).get(h.states[0], 0)} == {0}, made

    def test_two_saves_race_for_a_key_a9(self, yard: Yard) -> None:
        h = yard.harness
        a, b = h.open(), h.open()
        mine, theirs = yard.session(a), yard.session(b)
        for i in range(h.rounds):
            yard.make(2)
            (first,), (second,) = yard.claimed(a, mine, 1), yard.claimed(b, theirs, 1)
            keys = (yard.key(f"race-{i}"),)
            answers = h.race(
                lambda: commit(a, Group((change(first, event="", keys=keys),)))[0],  # noqa: B023
                lambda: commit(b, Group((change(second, event="", keys=keys),)))[0],  # noqa: B023
            )
            assert sorted(type(answer).__name__ for answer in answers) == ["Committed", "Taken"]
            assert all(isinstance(answer, (Committed, Taken)) for answer in answers)

    def test_park_against_release_a10(self, yard: Yard) -> None:
        """One is about to be parked on a key that is being dropped: it must not stay parked on a free key."""
        h = yard.harness
        a, b = h.open(), h.open()
        mine, theirs = yard.session(a), yard.session(b)
        for _ in range(h.rounds):
            key = yard.key("a")
            yard.one(keys=(key,))
            (holder,) = yard.claimed(a, mine)
            waiter = yard.one(keys=(key,))
            (dropped,), claimed = h.race(
                lambda: commit(a, Group((change(holder, session=None, state=h.rest, keys=()),))),  # noqa: B023
                lambda: yard.claimed(b, theirs),
            )
            assert isinstance(dropped, Committed)
            claimed = claimed or yard.claimed(b, theirs)
            assert yard.ids(claimed) == [waiter.id]
            yard.remove(claimed[0], store=b)
