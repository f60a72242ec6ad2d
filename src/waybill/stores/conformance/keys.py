"""Keys: names that at most one record holds, from the claim or save that takes one to the commit that drops it,
through wait and death.
"""

from __future__ import annotations

import pytest

from waybill.record import Committed, Conflict, Group, Taken
from waybill.stores.conformance.suite import Suite
from waybill.stores.conformance.yard import ODD_NAMES, Yard, change, commit


class Keys(Suite):
    def test_a_taken_key_parks_the_next_one_a9(self, yard: Yard) -> None:
        key = yard.key("a")
        first, second = yard.make(2, keys=(key,))
        other = yard.one(keys=(yard.key("b"),))
        session = yard.session()
        taken = yard.ids(yard.claim(yard.store, session))
        assert taken == [first.id, other.id]
        waiting = yard.get(second)
        assert (waiting.parked, waiting.session, waiting.keys) == (f"key {key}", None, (key,))

    def test_the_keys_that_are_held_are_listed_with_their_holders(self, yard: Yard) -> None:
        a, b, c = (yard.key(letter) for letter in "abc")
        first, second = yard.one(keys=(a, b)), yard.one(keys=(c,))
        assert yard.store.held_keys() == [], "asked for is not held"
        session = yard.session()
        mine = yard.claimed(yard.store, session)
        assert yard.store.held_keys() == [(a, first.ref), (b, first.ref), (c, second.ref)]
        assert yard.store.held_keys(limit=2) == [(a, first.ref), (b, first.ref)]
        assert yard.store.held_keys(after=b) == [(c, second.ref)]
        assert yard.store.held_keys(after=c) == []
        for record in mine:
            yard.release(record, state=yard.harness.rest, keys=())
        assert yard.store.held_keys() == []

    @pytest.mark.parametrize("name", [*ODD_NAMES, "a/b", "../.."], ids=ascii)
    def test_a_key_may_have_any_name_a9(self, yard: Yard, name: str) -> None:
        """A store that has no place for such a name finds one: nobody can foresee what a depositor calls his object."""
        key = yard.key(name)
        first, second = yard.make(2, keys=(key,))
        other = yard.one(keys=(yard.key("other"),))
        session = yard.session()
        mine, theirs = yard.claimed(yard.store, session)
        assert (mine.id, theirs.id, yard.get(second).parked) == (first.id, other.id, f"key {key}")
        assert sorted(yard.store.held_keys()) == sorted([(key, first.ref), (yard.key("other"), other.ref)])
        held = [each.name for each in yard.store.held_keys()]
        assert [each.name for each in yard.store.held_keys(after=held[0])] == held[1:]
        with pytest.raises(Conflict, match="is held by"):
            yard.store.free_key(key)
        yard.release(mine, state=yard.harness.rest, keys=())
        assert yard.ids(yard.claim(yard.store, session)) == [second.id]

    def test_keys_of_odd_names_are_not_taken_for_each_other_a9(self, yard: Yard) -> None:
        made = [yard.one(keys=(yard.key(name),)) for name in (".", "..", "a b", "a.b", "\U0001f4da", "\U0001f4db")]
        assert sorted(yard.ids(yard.claim(yard.store, yard.session(), 10))) == sorted(yard.ids(made))

    def test_a_key_is_not_taken_from_a_record(self, yard: Yard) -> None:
        key = yard.key("a")
        yard.one(keys=(key,))
        yard.claim(yard.store, yard.session())
        with pytest.raises(Conflict, match="is held by"):
            yard.store.free_key(key)
        assert yard.store.free_key(yard.key("b")) is False
        assert len(yard.store.held_keys()) == 1

    def test_a_key_that_is_only_asked_for_stops_nobody_a9(self, yard: Yard) -> None:
        key = yard.key("a")
        yard.one(keys=(key,), state=yard.harness.rest)
        second = yard.one(keys=(key,))
        assert yard.ids(yard.claim(yard.store, yard.session())) == [second.id]

    def test_dropping_a_key_hands_it_to_the_first_waiter_a10(self, yard: Yard) -> None:
        key = yard.key("a")
        holder = yard.one(keys=(key,), priority=1)
        later, urgent = yard.one(keys=(key,), priority=5), yard.one(keys=(key,), priority=2)
        session = yard.session()
        (mine,) = yard.claimed(yard.store, session)
        assert mine.id == holder.id
        yard.release(mine, state=yard.harness.rest, keys=())
        assert (yard.get(urgent).parked, yard.get(later).parked) == (None, f"key {key}")
        (mine,) = yard.claimed(yard.store, session)
        assert mine.id == urgent.id
        yard.remove(mine)
        (mine,) = yard.claimed(yard.store, session)
        assert mine.id == later.id

    def test_a_key_survives_a_wait_a9(self, yard: Yard) -> None:
        """Between two polls of an upload nobody else may touch what it uploads."""
        key = yard.key("a")
        holder, second = yard.make(2, keys=(key,))
        session = yard.session()
        (mine,) = yard.claimed(yard.store, session)
        assert mine.id == holder.id
        yard.release(mine, parked="wait", delay=60)
        assert yard.claim(yard.store, session) == []
        assert yard.get(second).parked == f"key {key}"
        yard.harness.tick(61)
        assert yard.store.wake().woken == 1
        assert yard.ids(yard.claim(yard.store, session)) == [holder.id]

    def test_a_key_survives_the_workers_death_a9(self, yard: Yard) -> None:
        key = yard.key("a")
        holder, second = yard.make(2, keys=(key,))
        dead = yard.harness.open()
        doomed = yard.session(dead, ttl=yard.harness.ttl)
        assert yard.ids(yard.claim(dead, doomed, 1)) == [holder.id]
        yard.harness.expire(dead, doomed)
        session = yard.session()
        assert yard.ids(yard.claim(yard.store, session)) == [holder.id]
        assert yard.get(second).parked == f"key {key}"

    def test_a_portion_keeps_one_record_of_a_key_a9(self, yard: Yard) -> None:
        """Two equal keys in a portion: the first gets it, the second is parked, and the portion does not fail."""
        keys = [yard.key(str(i % 3)) for i in range(12)]
        made = [yard.one(keys=(key,)) for key in keys]
        taken = yard.claimed(yard.store, yard.session(), 12)
        assert sorted(record.keys for record in taken) == [(yard.key(str(i)),) for i in range(3)]
        assert sorted(yard.get(record).parked or "" for record in made if record.id not in yard.ids(taken)) == sorted(
            [f"key {yard.key(str(i))}" for i in range(3)] * 3
        )

    def test_all_keys_or_none_a9(self, yard: Yard) -> None:
        """A record that must wait for its second key does not sit on its first."""
        a, b = yard.key("a"), yard.key("b")
        holder = yard.one(keys=(b,), priority=1)
        both = yard.one(keys=(a, b), priority=2)
        only = yard.one(keys=(a,), priority=3)
        taken = yard.ids(yard.claim(yard.store, yard.session()))
        assert taken == [holder.id, only.id]
        assert yard.get(both).parked == f"key {b}"

    def test_a_save_takes_keys_at_once_or_is_refused_a9(self, yard: Yard) -> None:
        key, other = yard.key("a"), yard.key("b")
        first, second = yard.make(2)
        session = yard.session()
        mine, theirs = yard.claimed(yard.store, session)
        mine = yard.save(mine, keys=(key,))
        assert (mine.id, mine.keys, theirs.id) == (first.id, (key,), second.id)
        (answer,) = commit(yard.store, Group((change(theirs, event="", keys=(other, key), message="x"),)))
        assert type(answer) is Taken
        assert answer.key == key
        assert yard.get(second) == theirs
        third = yard.one(keys=(key,))
        assert yard.claim(yard.store, session) == []
        fourth = yard.one(keys=(other,))
        assert yard.ids(yard.claim(yard.store, session)) == [fourth.id], "the refused save took no key"
        assert yard.get(third).parked == f"key {key}"
        mine = yard.save(mine, keys=())
        assert yard.ids(yard.claim(yard.store, session)) == [third.id], "a save drops keys too"

    def test_two_saves_of_one_call_cannot_both_take_a_key_a9(self, yard: Yard) -> None:
        yard.make(2)
        mine, theirs = yard.claimed(yard.store, yard.session())
        key = yard.key("a")
        answers = commit(
            yard.store, Group((change(mine, event="", keys=(key,)),)), Group((change(theirs, event="", keys=(key,)),))
        )
        assert [type(answer) for answer in answers] == [Committed, Taken]

    def test_a_released_record_keeps_what_it_held_and_merely_asks_for_more_a9(self, yard: Yard) -> None:
        a, b = yard.key("a"), yard.key("b")
        yard.one(keys=(a,))
        session = yard.session()
        (mine,) = yard.claimed(yard.store, session)
        freed = yard.release(mine, keys=(a, b), state=yard.harness.rest)
        assert freed.keys == (a, b)
        asks_b, asks_a = yard.one(keys=(b,)), yard.one(keys=(a,))
        assert yard.ids(yard.claim(yard.store, session)) == [asks_b.id]
        assert yard.get(asks_a).parked == f"key {a}"
        yard.update(freed, keys=(b,))
        assert yard.ids(yard.claim(yard.store, session)) == [asks_a.id]

    def test_going_on_takes_new_keys_b14(self, yard: Yard) -> None:
        h = yard.harness
        key = yard.key("a")
        yard.one()
        session = yard.session()
        (mine,) = yard.claimed(yard.store, session)
        on = yard.update(mine, event="done", state=h.states[1], keys=(key,))
        assert (on.session, on.keys) == (session, (key,))
        second = yard.one(keys=(key,))
        assert yard.claim(yard.store, session) == []
        assert yard.get(second).parked == f"key {key}"

    def test_going_on_ends_at_a_taken_key_b14(self, yard: Yard) -> None:
        h = yard.harness
        free, key = yard.key("a"), yard.key("b")
        holder, made = yard.one(keys=(key,)), yard.one()
        session = yard.session()
        held, mine = yard.claimed(yard.store, session)
        assert (held.id, mine.id) == (holder.id, made.id)
        on = yard.update(mine, event="done", state=h.states[1], keys=(free, key))
        assert (on.session, on.state, on.keys, on.parked) == (None, h.states[1], (free, key), None)
        assert yard.get(on) == on
        takes_free = yard.one(keys=(free,))
        assert yard.ids(yard.claim(yard.store, session)) == [takes_free.id], "it took none of the new keys"

    def test_a_waiter_that_moves_passes_its_turn_a10(self, yard: Yard) -> None:
        key = yard.key("a")
        for move in ("acted on", "removed", "stopped by a mark", "handed out with a mark"):
            gate = yard.gate("closed")
            holder = yard.one(keys=(key,), priority=1)
            first = yard.one(keys=(key,), priority=2, gates=(gate,))
            second = yard.one(keys=(key,), priority=3)
            session = yard.session()
            (mine,) = yard.claimed(yard.store, session)
            assert mine.id == holder.id
            yard.remove(mine)
            first = yard.get(first)
            assert (first.parked, yard.get(second).parked) == (None, f"key {key}")
            if move == "acted on":
                yard.update(first, state=yard.harness.rest)
            elif move == "removed":
                yard.remove(first)
            else:
                yard.store.mark(gate, True)
            if move == "handed out with a mark":
                assert first.id in yard.ids(yard.claim(yard.store, session, 1, holds=True))
            assert yard.ids(yard.claim(yard.store, session)) == [second.id], move
            yard.store.mark(gate, False)
            yard.store.close_session(session)
            for record in yard.store.find(yard.harness.kind).records:
                yard.remove(record)

    def test_sweep_finds_waiters_of_a_free_key_a10(self, yard: Yard) -> None:
        """The first waiter is unparked and nobody serves it: the others must not wait for it for ever."""
        h = yard.harness
        key = yard.key("a")
        holder = yard.one(keys=(key,), priority=1)
        unserved = yard.one(keys=(key,), priority=2, state=h.states[1])
        second = yard.one(keys=(key,), priority=3)
        session = yard.session()
        (mine,) = yard.claimed(yard.store, session)
        assert mine.id == holder.id
        assert yard.claim(yard.store, session, state=h.states[1]) == []
        assert (yard.get(unserved).parked, yard.get(second).parked) == (f"key {key}",) * 2
        yard.release(mine, state=h.rest, keys=())
        assert yard.get(unserved).parked is None
        yard.store.sweep()
        assert yard.get(second).parked is None
        assert yard.ids(yard.claim(yard.store, session)) == [second.id]

    def test_a_change_never_writes_a_park_on_a_key_a10(self, yard: Yard) -> None:
        """Read while it was parked, written after the key was free: it would be parked for ever."""
        key = yard.key("a")
        holder, second = yard.make(2, keys=(key,))
        session = yard.session()
        (mine,) = yard.claimed(yard.store, session)
        assert mine.id == holder.id
        parked = yard.get(second)
        assert parked.parked == f"key {key}"
        yard.release(mine, state=yard.harness.rest, keys=())
        fresh = yard.get(second)
        moved = yard.update(change(fresh, priority=3).after or fresh, parked=parked.parked)
        assert moved.parked is None
        assert yard.ids(yard.claim(yard.store, session)) == [second.id]

    def test_a_record_that_yields_to_a_mark_takes_no_key_a9(self, yard: Yard) -> None:
        """It only moves to rest: neither may it wait for the key, nor keep others from it."""
        key, gate = yard.key("a"), yard.gate("closed")
        holder, stopped = yard.one(keys=(key,)), yard.one(keys=(key,), gates=(gate,))
        session = yard.session()
        yard.store.mark(gate, True)
        taken = yard.claim(yard.store, session, holds=True)
        assert [(each.record.id, each.mark) for each in taken] == [(holder.id, None), (stopped.id, gate)]
        yard.release(taken[1].record, event="hold", state=yard.harness.rest)
        yard.release(taken[0].record, state=yard.harness.rest, keys=())
        third = yard.one(keys=(key,))
        assert yard.ids(yard.claim(yard.store, session)) == [third.id]

    def test_much_that_waits_for_a_key_hides_nothing_a10(self, yard: Yard) -> None:
        key = yard.key("a")
        yard.make(60, keys=(key,), priority=1)
        free = yard.one(priority=8)
        session = yard.session()
        taken = yard.claimed(yard.store, session, 3)
        assert len(taken) == 2
        assert free.id in yard.ids(taken)
