"""Parents and their children: `open`, read after the commit, says whether a parent still waits, and only a wake unblocks a
parent.
"""

from __future__ import annotations

from typing import Any

from waybill.record import Change, CommitGroup, Conflict, Record, WorkQueue
from waybill.stores.conformance.fixtures import StoreTestBase
from waybill.stores.conformance.tester import StoreTester, commit_groups, make_change, records_of


class ParentTests(StoreTestBase):
    def test_parents_with_open_children_are_those_with_an_open_child(self, tester: StoreTester) -> None:
        full, done, empty = tester.make_crate(), tester.make_crate(), tester.make_crate()
        tester.make_parcels(2, parent=full)
        tester.make_parcel(parent=done, state=tester.harness.end_state, open=False)
        assert tester.store.parents_with_open_children([full.ref, done.ref, empty.ref]) == {full.ref}
        assert tester.store.parents_with_open_children([]) == set()

    def test_idle_parents_names_the_parent_whose_last_open_child_closed_a5(self, tester: StoreTester) -> None:
        h = tester.harness
        crate, other = tester.make_crate(), tester.make_crate()
        first, second, third = tester.make_parcels(3, parent=crate)
        tester.make_parcel(parent=other)
        closing: dict[str, Any] = {"state": h.end_state, "open": False, "cause": "done"}
        assert tester.write(make_change(first, **closing)).idle_parents == ()
        assert tester.remove(second).idle_parents == ()
        last = tester.write(make_change(third, **closing))
        assert last.idle_parents == (crate.ref,)
        moved = records_of(last)[0]
        assert tester.write(make_change(moved, message="closed already")).idle_parents == ()

    def test_idle_parents_are_returned_for_a_removed_child_too_a5(self, tester: StoreTester) -> None:
        crate = tester.make_crate()
        (child,) = tester.make_parcels(1, parent=crate)
        assert tester.remove(child).idle_parents == (crate.ref,)

    def test_idle_leaves_out_parents_that_are_gone(self, tester: StoreTester) -> None:
        crate = tester.make_crate()
        (child,) = tester.make_parcels(1, parent=crate)
        tester.remove(crate)
        assert tester.write(make_change(child, state=tester.harness.end_state, open=False)).idle_parents == ()

    def test_requires_children_settled_refuses_while_a_child_is_open(self, tester: StoreTester) -> None:
        h = tester.harness
        crate = tester.make_crate()
        first, second = tester.make_parcels(2, parent=crate)
        closing = make_change(crate, state=h.parent_end_state, open=False, requires_children_settled=True)
        (answer,) = commit_groups(tester.store, CommitGroup((closing,)))
        assert type(answer) is Conflict
        assert tester.get(crate) == crate
        (answer,) = commit_groups(
            tester.store, CommitGroup((Change(crate, None, cause="remove", requires_children_settled=True),))
        )
        assert type(answer) is Conflict
        tester.write(
            make_change(first, state=h.end_state, open=False), make_change(second, state=h.end_state, open=False)
        )
        assert records_of(tester.write(closing))[0].state == h.parent_end_state

    def test_requires_children_settled_sees_children_that_the_same_group_closes(self, tester: StoreTester) -> None:
        h = tester.harness
        crate = tester.make_crate()
        (child,) = tester.make_parcels(1, parent=crate)
        closing = make_change(crate, state=h.parent_end_state, open=False, requires_children_settled=True)
        assert len(records_of(tester.write(closing, make_change(child, state=h.end_state, open=False)))) == 2

    # --- a change of a child does not change its parent

    def test_a_child_that_moves_and_stays_open_does_not_wake_its_parent_a5(self, tester: StoreTester) -> None:
        crate, child = self._make_waiting_parent(tester)
        answer = tester.write(make_change(child, state=tester.harness.states[1]))
        assert answer.idle_parents == ()
        self._assert_still_waits(tester, crate, idle=False)

    def test_the_last_child_that_closes_names_the_parent_and_only_a_wake_unblocks_it_a5(
        self, tester: StoreTester
    ) -> None:
        crate, child = self._make_waiting_parent(tester)
        answer = tester.write(make_change(child, state=tester.harness.end_state, open=False))
        assert answer.idle_parents == (crate.ref,)
        self._assert_still_waits(tester, crate, idle=True)
        tester.write(wake=answer.idle_parents)
        assert tester.get(crate).blocked_by is None

    def test_open_changes_without_a_move_of_child_or_parent_a5(self, tester: StoreTester) -> None:
        """A new release of the program may declare a state settled that was open before: then `open` alone is rewritten."""
        h = tester.harness
        crate, child = self._make_waiting_parent(tester)
        answer = tester.write(make_change(child, open=False))
        (closed,) = records_of(answer)
        assert tester.get(closed).state == child.state
        if not h.stores_open:
            assert tester.get(child).open
            assert tester.store.parents_with_open_children([crate.ref]) == {crate.ref}
            self._assert_still_waits(tester, crate, idle=False)
            return
        assert answer.idle_parents == (crate.ref,)
        self._assert_still_waits(tester, crate, idle=True)
        answer = tester.write(make_change(closed, open=True))
        assert answer.idle_parents == ()
        assert tester.store.parents_with_open_children([crate.ref]) == {crate.ref}
        self._assert_still_waits(tester, crate, idle=False)

    def test_a_child_that_opens_again_keeps_its_parent_from_closing_a5(self, tester: StoreTester) -> None:
        h = tester.harness
        crate, child = self._make_waiting_parent(tester)
        (closed,) = records_of(tester.write(make_change(child, state=h.end_state, open=False)))
        assert tester.write(make_change(closed, state=h.states[0], open=True)).idle_parents == ()
        self._assert_still_waits(tester, crate, idle=False)
        (answer,) = commit_groups(
            tester.store,
            CommitGroup(
                (
                    make_change(
                        crate, state=h.parent_end_state, blocked_by=None, open=False, requires_children_settled=True
                    ),
                )
            ),
        )
        assert type(answer) is Conflict
        self._assert_still_waits(tester, crate, idle=False)

    def test_a_parent_that_is_worked_on_keeps_its_claim_when_its_last_child_closes_a5(
        self, tester: StoreTester
    ) -> None:
        h = tester.harness
        crate = tester.make_crate()
        (child,) = tester.make_parcels(1, parent=crate)
        other = h.open()
        (mine,) = other.claim([WorkQueue(h.parent_kind, h.parent_states[0])], tester.open_session(other), 5)
        assert tester.write(make_change(child, state=h.end_state, open=False)).idle_parents == (crate.ref,)
        assert tester.get(crate).session == mine.record.session
        assert tester.get(crate).version == mine.record.version

    def _make_waiting_parent(self, tester: StoreTester) -> tuple[Record, Record]:
        """A parent that waits for its one child, which is open."""
        crate = tester.make_crate()
        (child,) = tester.make_parcels(1, parent=crate)
        return tester.update(crate, blocked_by="children"), child

    def _assert_still_waits(self, tester: StoreTester, crate: Record, *, idle: bool) -> None:
        """It is unchanged, cannot be claimed, and is found idle only if it is."""
        h = tester.harness
        now = tester.get(crate)
        assert (now.state, now.blocked_by, now.version, now.wake_count, now.open) == (
            crate.state,
            "children",
            crate.version,
            crate.wake_count,
            True,
        )
        assert tester.store.find_idle_parents().refs == ([crate.ref] if idle else [])
        other = h.open()
        session = tester.open_session(other)
        assert other.claim([WorkQueue(h.parent_kind, crate.state)], session, 5) == []
        other.close_session(session)
