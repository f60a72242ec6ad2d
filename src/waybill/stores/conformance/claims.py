"""claim and take: exclusive, most urgent first, fair, and bound to hosts."""

from __future__ import annotations

import pytest

from waybill.record import BadStore, Conflict, NotFound, Role, SessionLost
from waybill.stores.conformance.suite import Suite
from waybill.stores.conformance.yard import Yard


class Claims(Suite):
    def test_a_claim_is_exclusive_and_moves_the_version(self, yard: Yard) -> None:
        made = yard.one(docs={yard.harness.documents[0]: b"1"})
        other = yard.harness.open()
        session, others = yard.session(), yard.session(other)
        (mine,) = yard.claim(yard.store, session)
        assert (mine.record.id, mine.record.session, mine.mark, mine.ask) == (made.id, session, None, None)
        assert mine.record.version == made.version + 1
        assert mine.record == yard.get(made)
        assert yard.claim(other, others) == []
        assert yard.claim(yard.store, session) == []

    def test_most_urgent_first_then_by_turn(self, yard: Yard) -> None:
        made = [yard.one(priority=priority) for priority in (5, 9, 1, 5, 1)]
        other = yard.harness.open()
        taken = yard.claimed(yard.store, yard.session(), 3) + yard.claimed(other, yard.session(other), 5)
        assert yard.ids(taken) == [made[i].id for i in (2, 4, 0, 3, 1)]

    def test_the_limit_is_kept(self, yard: Yard) -> None:
        yard.make(30)
        session = yard.session()
        assert len(yard.claim(yard.store, session, 1)) == 1
        assert len(yard.claim(yard.store, session, 7)) == 7
        assert len(yard.claim(yard.store, session, 20)) == 20
        assert len(yard.claim(yard.store, session, 20)) == 2

    def test_only_the_states_of_the_roles_are_handed_out(self, yard: Yard) -> None:
        h = yard.harness
        first, second, _ = yard.one(), yard.one(state=h.states[1]), yard.one(state=h.rest)
        crate = yard.crate()
        session = yard.session()
        assert yard.ids(yard.claim(yard.store, session, state=h.states[1])) == [second.id]
        roles = [Role(h.kind, h.states[0]), Role(h.kind, h.states[1]), Role(h.parent_kind, h.parent_states[1])]
        assert yard.ids(yard.store.claim(roles, session, 5)) == [first.id]
        assert crate.id in yard.ids(yard.store.claim([Role(h.parent_kind, h.parent_states[0])], session, 5))
        assert yard.store.claim([], session, 5) == []

    def test_several_roles_share_one_limit_and_one_order_b3(self, yard: Yard) -> None:
        h = yard.harness
        for i in range(8):
            yard.one(state=h.states[i % 3], priority=10 + i)
        yard.one(state=h.states[2], priority=3)
        roles = [Role(h.kind, state) for state in h.states]
        taken = [each.record for each in yard.store.claim(roles, yard.session(), 6)]
        assert [record.priority for record in taken] == [3, 10, 11, 12, 13, 14]

    def test_two_workers_share_what_there_is_b3(self, yard: Yard) -> None:
        """Neither may lock, hide or use up more than the ten that it takes."""
        h = yard.harness
        yard.make(10)
        yard.make(10, state=h.states[1])
        roles = [Role(h.kind, state) for state in h.states]
        a, b = yard.store, yard.harness.open()
        mine, theirs = yard.session(a), yard.session(b)
        first, second = yard.harness.race(lambda: a.claim(roles, mine, 10), lambda: b.claim(roles, theirs, 10))
        first += a.claim(roles, mine, 10 - len(first))
        second += b.claim(roles, theirs, 10 - len(second))
        assert (len(first), len(second)) == (10, 10)
        assert len(set(yard.ids(first + second))) == 20

    # --- fairness

    def test_one_in_ten_is_taken_by_age_b4(self, yard: Yard) -> None:
        old = yard.one(priority=90)
        yard.make(30, priority=1)
        portion = yard.ids(yard.claim(yard.store, yard.session(), 10))
        assert old.id in portion
        assert len(portion) == 10

    def test_one_in_ten_is_taken_by_age_with_small_limits_too_b4(self, yard: Yard) -> None:
        """A stream of urgent work that never ends shuts nobody out."""
        old = yard.one(priority=90)
        session = yard.session()
        for _ in range(21):
            yard.make(2, priority=1)
            if old.id in yard.ids(yard.claim(yard.store, session, 1)):
                break
        else:
            pytest.fail("the old record was never handed out")

    def test_children_of_two_parents_take_turns_b4(self, yard: Yard) -> None:
        h = yard.harness
        session = yard.session()
        large, small = yard.crate(), yard.crate()
        many = yard.make(40, parent=large)
        assert len(yard.claim(yard.store, session, 9)) == 9
        yard.store.renew(session)  # here at the latest the store hears how far the turn has come
        few = yard.make(5, parent=small)
        if not h.has_turns:
            taken = yard.ids(yard.claim(yard.store, session, 9))
            assert set(taken) <= set(yard.ids(many))
            return
        taken = yard.ids(yard.claim(yard.store, session, 5))
        assert len(set(taken) & set(yard.ids(few))) >= 2, "the small one does not wait for all of the large one"
        assert len(set(taken) & set(yard.ids(many))) >= 2, "and the large one is not stopped by every newcomer"
        taken += yard.ids(yard.claim(yard.store, session, 7))
        assert len(set(taken) & set(yard.ids(few))) >= 4

    def test_children_of_one_group_get_consecutive_turns_b4(self, yard: Yard) -> None:
        crate = yard.crate()
        children = yard.make(4, parent=crate) + yard.make(3, parent=crate)
        turns = [child.turn or 0 for child in children]
        if yard.harness.has_turns:
            assert turns == list(range(turns[0], turns[0] + 7))
        assert yard.ids(yard.claim(yard.store, yard.session(), 7)) == yard.ids(children)

    def test_a_given_turn_is_kept_b4(self, yard: Yard) -> None:
        if not yard.harness.has_turns:
            assert yard.ids([yard.one(turn=9), yard.one(turn=3)]) == yard.ids(yard.claim(yard.store, yard.session()))
            return
        late, early = yard.one(turn=900), yard.one(turn=300)
        assert (late.turn, early.turn) == (900, 300)
        assert yard.update(late).turn == 900
        assert yard.ids(yard.claim(yard.store, yard.session())) == [early.id, late.id]

    # --- hosts

    def test_only_records_of_no_host_or_the_sessions_own_are_handed_out(self, yard: Yard) -> None:
        anywhere, here, there = yard.one(), yard.one(host="here"), yard.one(host="there")
        assert here.host == "here"
        assert sorted(yard.ids(yard.claim(yard.store, yard.session(host="here")))) == sorted([anywhere.id, here.id])
        other = yard.harness.open()
        if yard.harness.many_hosts:
            assert yard.ids(yard.claim(other, yard.session(other, host="there"))) == [there.id]
        else:
            with pytest.raises(BadStore):
                yard.session(other, host="there")
        assert yard.get(there).parked is None

    def test_a_host_is_given_and_taken_by_commits(self, yard: Yard) -> None:
        yard.one()
        session = yard.session(host="here")
        (mine,) = yard.claimed(yard.store, session)
        bound = yard.release(mine, host="there")
        assert yard.claim(yard.store, session) == []
        yard.update(bound, host="")
        assert yard.ids(yard.claim(yard.store, session)) == [mine.id]

    def test_urgent_work_of_a_host_comes_before_less_urgent_work_of_any(self, yard: Yard) -> None:
        made = [
            yard.one(priority=3, host="here"),
            yard.one(priority=2),
            yard.one(priority=1, host="here"),
            yard.one(priority=4),
        ]
        assert yard.ids(yard.claim(yard.store, yard.session(host="here"), 3)) == [made[i].id for i in (2, 1, 0)]

    # --- sessions

    def test_a_claim_needs_a_session_that_lives_a3(self, yard: Yard) -> None:
        made = yard.one()
        session = yard.session()
        yard.store.close_session(session)
        with pytest.raises(SessionLost):
            yard.claim(yard.store, session)
        with pytest.raises(SessionLost):
            yard.store.take(made.kind, made.id, session)
        assert yard.get(made).session is None

    # --- going on

    def test_going_on_keeps_the_claim_and_is_a_new_attempt_b14(self, yard: Yard) -> None:
        h = yard.harness
        yard.one()
        other = yard.harness.open()
        session, others = yard.session(), yard.session(other)
        (mine,) = yard.claimed(yard.store, session)
        on = yard.update(mine, event="done", state=h.states[1])
        assert (on.session, on.state, on.version) == (session, h.states[1], mine.version + 1)
        assert yard.get(on) == on
        assert yard.claim(other, others, state=h.states[1]) == []
        yard.release(on, state=h.states[2])
        assert yard.ids(yard.claim(other, others, state=h.states[2])) == [on.id]

    def test_going_on_ends_at_a_mark_b14(self, yard: Yard) -> None:
        h = yard.harness
        gate = yard.gate("full")
        yard.one()
        session = yard.session()
        (mine,) = yard.claimed(yard.store, session)
        yard.store.mark(gate, True)
        on = yard.update(mine, event="done", state=h.states[1], gates=(yard.gate("other"), gate))
        assert (on.session, on.state, on.parked) == (None, h.states[1], None)
        assert yard.get(on) == on
        assert [line.event for line in yard.store.history(on.kind, on.id)] == ["create", "done"]
        ((again),) = yard.claim(yard.store, session, state=h.states[1], holds=True)
        assert (again.record.id, again.mark) == (on.id, gate)

    def test_a_save_stays_under_the_claim_whatever_is_marked_b14(self, yard: Yard) -> None:
        gate = yard.gate("full")
        yard.one(gates=(gate,))
        (mine,) = yard.claimed(yard.store, yard.session())
        yard.store.mark(gate, True)
        assert yard.save(mine, message="half way").session == mine.session

    # --- take

    def test_take_claims_one_whatever_its_place(self, yard: Yard) -> None:
        made = yard.make(4)
        last = yard.one(priority=99, state=yard.harness.rest, docs={yard.harness.documents[0]: b"1"})
        session = yard.session()
        mine = yard.store.take(last.kind, last.id, session)
        assert mine.record == yard.get(last)
        assert (mine.record.session, mine.record.version) == (session, last.version + 1)
        assert mine.record.docs[yard.harness.documents[0]] == 1
        assert yard.ids(yard.claim(yard.store, session)) == yard.ids(made)

    def test_take_refuses_with_the_reason(self, yard: Yard) -> None:
        h = yard.harness
        gate, key = yard.gate("closed"), yard.key("k")
        yard.store.mark(gate, True)
        held, stopped, waits = yard.one(keys=(key,)), yard.one(gates=(gate,)), yard.one()
        waits = yard.update(waits, parked="wait", delay=60)
        joins, away, second = yard.one(parked="children"), yard.one(host="there"), yard.one(keys=(key,))
        session = yard.session(host="here")
        yard.store.take(held.kind, held.id, session)
        for record in (held, stopped, waits, joins, away, second):
            with pytest.raises(Conflict) as refusal:
                yard.store.take(record.kind, record.id, session)
            assert str(refusal.value).endswith("."), "a sentence"
        with pytest.raises(NotFound):
            yard.store.take(h.kind, f"{h.prefix}9999999999", session)
        h.tick(61)
        yard.store.mark(gate, False)
        assert yard.store.take(waits.kind, waits.id, session).record.parked is None
        assert yard.store.take(stopped.kind, stopped.id, session).record.session == session
