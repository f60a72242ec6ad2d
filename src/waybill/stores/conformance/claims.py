"""claim and claim_one: exclusive, most urgent first, fair, and bound to hosts."""

from __future__ import annotations

import pytest

from waybill.record import BadStore, Conflict, RecordNotFound, SessionLost, WorkQueue
from waybill.stores.conformance.fixtures import StoreTestBase
from waybill.stores.conformance.tester import StoreTester


class ClaimTests(StoreTestBase):
    def test_a_claim_is_exclusive_and_moves_the_version(self, tester: StoreTester) -> None:
        made = tester.make_parcel(documents={tester.harness.document_names[0]: b"1"})
        other = tester.harness.open()
        session, others = tester.open_session(), tester.open_session(other)
        (mine,) = tester.claim(tester.store, session)
        assert (mine.record.id, mine.record.session, mine.hold, mine.action_request) == (made.id, session, None, None)
        assert mine.record.version == made.version + 1
        assert mine.record == tester.get(made)
        assert tester.claim(other, others) == []
        assert tester.claim(tester.store, session) == []

    def test_most_urgent_first_then_by_queue_position(self, tester: StoreTester) -> None:
        made = [tester.make_parcel(priority=priority) for priority in (5, 9, 1, 5, 1)]
        other = tester.harness.open()
        taken = tester.claim_records(tester.store, tester.open_session(), 3) + tester.claim_records(
            other, tester.open_session(other), 5
        )
        assert tester.ids_of(taken) == [made[i].id for i in (2, 4, 0, 3, 1)]

    def test_the_limit_is_kept(self, tester: StoreTester) -> None:
        tester.make_parcels(30)
        session = tester.open_session()
        assert len(tester.claim(tester.store, session, 1)) == 1
        assert len(tester.claim(tester.store, session, 7)) == 7
        assert len(tester.claim(tester.store, session, 20)) == 20
        assert len(tester.claim(tester.store, session, 20)) == 2

    def test_only_the_states_of_the_queues_are_claimed(self, tester: StoreTester) -> None:
        h = tester.harness
        first, second, _ = (
            tester.make_parcel(),
            tester.make_parcel(state=h.states[1]),
            tester.make_parcel(state=h.rest_state),
        )
        crate = tester.make_crate()
        session = tester.open_session()
        assert tester.ids_of(tester.claim(tester.store, session, state=h.states[1])) == [second.id]
        queues = [
            WorkQueue(h.kind, h.states[0]),
            WorkQueue(h.kind, h.states[1]),
            WorkQueue(h.parent_kind, h.parent_states[1]),
        ]
        assert tester.ids_of(tester.store.claim(queues, session, 5)) == [first.id]
        assert crate.id in tester.ids_of(tester.store.claim([WorkQueue(h.parent_kind, h.parent_states[0])], session, 5))
        assert tester.store.claim([], session, 5) == []

    def test_several_queues_share_one_limit_and_one_order_b3(self, tester: StoreTester) -> None:
        h = tester.harness
        for i in range(8):
            tester.make_parcel(state=h.states[i % 3], priority=10 + i)
        tester.make_parcel(state=h.states[2], priority=3)
        queues = [WorkQueue(h.kind, state) for state in h.states]
        taken = [each.record for each in tester.store.claim(queues, tester.open_session(), 6)]
        assert [record.priority for record in taken] == [3, 10, 11, 12, 13, 14]

    def test_two_workers_share_what_there_is_b3(self, tester: StoreTester) -> None:
        """Neither may lock, hide or use up more than the ten that it takes."""
        h = tester.harness
        tester.make_parcels(10)
        tester.make_parcels(10, state=h.states[1])
        queues = [WorkQueue(h.kind, state) for state in h.states]
        a, b = tester.store, tester.harness.open()
        mine, theirs = tester.open_session(a), tester.open_session(b)
        first, second = tester.harness.race(lambda: a.claim(queues, mine, 10), lambda: b.claim(queues, theirs, 10))
        first += a.claim(queues, mine, 10 - len(first))
        second += b.claim(queues, theirs, 10 - len(second))
        assert (len(first), len(second)) == (10, 10)
        assert len(set(tester.ids_of(first + second))) == 20

    # --- fairness

    def test_one_in_ten_is_taken_by_age_b4(self, tester: StoreTester) -> None:
        old = tester.make_parcel(priority=90)
        tester.make_parcels(30, priority=1)
        page = tester.ids_of(tester.claim(tester.store, tester.open_session(), 10))
        assert old.id in page
        assert len(page) == 10

    def test_one_in_ten_is_taken_by_age_with_small_limits_too_b4(self, tester: StoreTester) -> None:
        """An endless stream of urgent work starves nobody."""
        old = tester.make_parcel(priority=90)
        session = tester.open_session()
        for _ in range(21):
            tester.make_parcels(2, priority=1)
            if old.id in tester.ids_of(tester.claim(tester.store, session, 1)):
                break
        else:
            pytest.fail("the old record was never claimed")

    def test_children_of_two_parents_alternate_b4(self, tester: StoreTester) -> None:
        h = tester.harness
        session = tester.open_session()
        large, small = tester.make_crate(), tester.make_crate()
        many = tester.make_parcels(40, parent=large)
        assert len(tester.claim(tester.store, session, 9)) == 9
        tester.store.renew_session(session)  # by now at the latest the store has the highest queue position
        few = tester.make_parcels(5, parent=small)
        if not h.has_queue_positions:
            taken = tester.ids_of(tester.claim(tester.store, session, 9))
            assert set(taken) <= set(tester.ids_of(many))
            return
        taken = tester.ids_of(tester.claim(tester.store, session, 5))
        assert len(set(taken) & set(tester.ids_of(few))) >= 2, "the small one does not wait for all of the large one"
        assert len(set(taken) & set(tester.ids_of(many))) >= 2, "and the large one does not wait for every newcomer"
        taken += tester.ids_of(tester.claim(tester.store, session, 7))
        assert len(set(taken) & set(tester.ids_of(few))) >= 4

    def test_records_without_a_parent_take_turns_with_the_children_of_parents_b4(self, tester: StoreTester) -> None:
        """A hundred children are queued; a record without a parent does not wait for all of them, nor they for a
        hundred such records.
        """
        if not tester.harness.has_queue_positions:
            return  # a kind of another service is claimed in that service's order
        session = tester.open_session()
        children = tester.make_parcels(100, parent=tester.make_crate())
        assert len(tester.claim(tester.store, session, 9)) == 9
        tester.store.renew_session(session)  # by now at the latest the store has the highest queue position
        alone = tester.make_parcels(100)
        taken = tester.ids_of(tester.claim(tester.store, session, 10))
        assert len(set(taken) & set(tester.ids_of(alone))) >= 3
        assert len(set(taken) & set(tester.ids_of(children))) >= 3

    def test_kinds_take_turns_b4(self, tester: StoreTester) -> None:
        """Whatever their queue positions: behind a hundred records of one kind the first of another is claimed next."""
        h = tester.harness
        queues = [WorkQueue(h.kind, h.states[0]), WorkQueue(h.parent_kind, h.parent_states[0])]
        session = tester.open_session()
        for _ in range(30):
            tester.make_crate()
        assert len(tester.store.claim(queues[1:], session, 30)) == 30  # later crates are far behind in position
        tester.make_parcels(50)
        crates = {tester.make_crate().id for _ in range(3)}
        taken = [id for _ in range(3) for id in tester.ids_of(tester.store.claim(queues, session, 8))]
        assert crates <= set(taken)
        assert len(taken) == 24

    def test_kinds_take_turns_when_one_record_is_claimed_at_a_time_b4(self, tester: StoreTester) -> None:
        h = tester.harness
        queues = [WorkQueue(h.kind, h.states[0]), WorkQueue(h.parent_kind, h.parent_states[0])]
        session = tester.open_session()
        crates = [tester.make_crate() for _ in range(20)]
        parcels = tester.make_parcels(20)
        taken = [tester.ids_of(tester.store.claim(queues, session, 1))[0] for _ in range(10)]
        assert len(set(taken) & {crate.id for crate in crates}) >= 4
        assert len(set(taken) & set(tester.ids_of(parcels))) >= 4

    def test_children_of_one_group_get_consecutive_positions_b4(self, tester: StoreTester) -> None:
        crate = tester.make_crate()
        children = tester.make_parcels(4, parent=crate) + tester.make_parcels(3, parent=crate)
        positions = [child.queue_position or 0 for child in children]
        if tester.harness.has_queue_positions:
            assert positions == list(range(positions[0], positions[0] + 7))
        assert tester.ids_of(tester.claim(tester.store, tester.open_session(), 7)) == tester.ids_of(children)

    def test_a_given_queue_position_is_kept_b4(self, tester: StoreTester) -> None:
        if not tester.harness.has_queue_positions:
            assert tester.ids_of(
                [tester.make_parcel(queue_position=9), tester.make_parcel(queue_position=3)]
            ) == tester.ids_of(tester.claim(tester.store, tester.open_session()))
            return
        late, early = tester.make_parcel(queue_position=900), tester.make_parcel(queue_position=300)
        assert (late.queue_position, early.queue_position) == (900, 300)
        assert tester.update(late).queue_position == 900
        assert tester.ids_of(tester.claim(tester.store, tester.open_session())) == [early.id, late.id]

    # --- hosts

    def test_only_records_of_no_host_or_the_sessions_own_are_claimed(self, tester: StoreTester) -> None:
        anywhere, here, there = tester.make_parcel(), tester.make_parcel(host="here"), tester.make_parcel(host="there")
        assert here.host == "here"
        assert sorted(tester.ids_of(tester.claim(tester.store, tester.open_session(host="here")))) == sorted(
            [anywhere.id, here.id]
        )
        other = tester.harness.open()
        if tester.harness.allows_many_hosts:
            assert tester.ids_of(tester.claim(other, tester.open_session(other, host="there"))) == [there.id]
        else:
            with pytest.raises(BadStore):
                tester.open_session(other, host="there")
        assert tester.get(there).blocked_by is None

    def test_a_host_is_given_and_taken_by_commits(self, tester: StoreTester) -> None:
        tester.make_parcel()
        session = tester.open_session(host="here")
        (mine,) = tester.claim_records(tester.store, session)
        bound = tester.release(mine, host="there")
        assert tester.claim(tester.store, session) == []
        tester.update(bound, host="")
        assert tester.ids_of(tester.claim(tester.store, session)) == [mine.id]

    def test_urgent_work_of_a_host_comes_before_less_urgent_work_of_any(self, tester: StoreTester) -> None:
        made = [
            tester.make_parcel(priority=3, host="here"),
            tester.make_parcel(priority=2),
            tester.make_parcel(priority=1, host="here"),
            tester.make_parcel(priority=4),
        ]
        assert tester.ids_of(tester.claim(tester.store, tester.open_session(host="here"), 3)) == [
            made[i].id for i in (2, 1, 0)
        ]

    # --- sessions

    def test_a_claim_needs_a_session_that_lives_a3(self, tester: StoreTester) -> None:
        made = tester.make_parcel()
        session = tester.open_session()
        tester.store.close_session(session)
        with pytest.raises(SessionLost):
            tester.claim(tester.store, session)
        with pytest.raises(SessionLost):
            tester.store.claim_one(made.kind, made.id, session)
        assert tester.get(made).session is None

    # --- continuing

    def test_continuing_keeps_the_claim_and_raises_the_version_b14(self, tester: StoreTester) -> None:
        h = tester.harness
        tester.make_parcel()
        other = tester.harness.open()
        session, others = tester.open_session(), tester.open_session(other)
        (mine,) = tester.claim_records(tester.store, session)
        on = tester.update(mine, cause="done", state=h.states[1])
        assert (on.session, on.state, on.version) == (session, h.states[1], mine.version + 1)
        assert tester.get(on) == on
        assert tester.claim(other, others, state=h.states[1]) == []
        tester.release(on, state=h.states[2])
        assert tester.ids_of(tester.claim(other, others, state=h.states[2])) == [on.id]

    def test_continuing_ends_at_a_hold_b14(self, tester: StoreTester) -> None:
        h = tester.harness
        hold = tester.hold_name_of("full")
        tester.make_parcel()
        session = tester.open_session()
        (mine,) = tester.claim_records(tester.store, session)
        tester.store.set_hold(hold)
        on = tester.update(mine, cause="done", state=h.states[1], hold_names=(tester.hold_name_of("other"), hold))
        assert (on.session, on.state, on.blocked_by) == (None, h.states[1], None)
        assert tester.get(on) == on
        assert [entry.cause for entry in tester.store.history(on.kind, on.id)] == ["create", "done"]
        ((again),) = tester.claim(tester.store, session, state=h.states[1], claims_on_hold=True)
        assert (again.record.id, again.hold) == (on.id, hold)

    def test_a_save_stays_under_the_claim_whatever_is_on_hold_b14(self, tester: StoreTester) -> None:
        hold = tester.hold_name_of("full")
        tester.make_parcel(hold_names=(hold,))
        (mine,) = tester.claim_records(tester.store, tester.open_session())
        tester.store.set_hold(hold)
        assert tester.save(mine, message="half way").session == mine.session

    # --- claim_one

    def test_claim_one_claims_a_record_wherever_it_is_in_the_queue(self, tester: StoreTester) -> None:
        made = tester.make_parcels(4)
        last = tester.make_parcel(
            priority=99, state=tester.harness.rest_state, documents={tester.harness.document_names[0]: b"1"}
        )
        session = tester.open_session()
        mine = tester.store.claim_one(last.kind, last.id, session)
        assert mine.record == tester.get(last)
        assert (mine.record.session, mine.record.version) == (session, last.version + 1)
        assert mine.record.documents[tester.harness.document_names[0]] == 1
        assert tester.ids_of(tester.claim(tester.store, session)) == tester.ids_of(made)

    def test_claim_one_refuses_with_the_reason(self, tester: StoreTester) -> None:
        h = tester.harness
        hold, lock = tester.hold_name_of("closed"), tester.lock_name_of("k")
        tester.store.set_hold(hold)
        claimed, on_hold, waits = (
            tester.make_parcel(locks=(lock,)),
            tester.make_parcel(hold_names=(hold,)),
            tester.make_parcel(),
        )
        waits = tester.update(waits, blocked_by="wait", delay=60)
        joins, elsewhere, second = (
            tester.make_parcel(blocked_by="children"),
            tester.make_parcel(host="there"),
            tester.make_parcel(locks=(lock,)),
        )
        session = tester.open_session(host="here")
        tester.store.claim_one(claimed.kind, claimed.id, session)
        for record in (claimed, on_hold, waits, joins, elsewhere, second):
            with pytest.raises(Conflict) as refusal:
                tester.store.claim_one(record.kind, record.id, session)
            assert str(refusal.value).endswith("."), "a sentence"
        with pytest.raises(RecordNotFound):
            tester.store.claim_one(h.kind, f"{h.id_prefix}9999999999", session)
        h.tick(61)
        tester.store.clear_hold(hold)
        assert tester.store.claim_one(waits.kind, waits.id, session).record.blocked_by is None
        assert tester.store.claim_one(on_hold.kind, on_hold.id, session).record.session == session
