"""Parents and their children: who waits for whom is told by `open`, read after the commit, and a parent is stirred
by a call alone.
"""

from __future__ import annotations

from typing import Any

from waybill.record import Change, Conflict, Group, Record, Role
from waybill.stores.conformance.suite import Suite
from waybill.stores.conformance.yard import Yard, change, commit, present


class Parents(Suite):
    def test_open_parents_are_those_with_an_open_child(self, yard: Yard) -> None:
        full, done, empty = yard.crate(), yard.crate(), yard.crate()
        yard.make(2, parent=full)
        yard.one(parent=done, state=yard.harness.end, open=False)
        assert yard.store.open_parents([full.ref, done.ref, empty.ref]) == {full.ref}
        assert yard.store.open_parents([]) == set()

    def test_idle_names_the_parent_whose_last_open_child_closed_a5(self, yard: Yard) -> None:
        h = yard.harness
        crate, other = yard.crate(), yard.crate()
        first, second, third = yard.make(3, parent=crate)
        yard.one(parent=other)
        closing: dict[str, Any] = {"state": h.end, "open": False, "event": "done"}
        assert yard.write(change(first, **closing)).idle == ()
        assert yard.remove(second).idle == ()
        last = yard.write(change(third, **closing))
        assert last.idle == (crate.ref,)
        moved = present(last)[0]
        assert yard.write(change(moved, message="closed already")).idle == ()

    def test_idle_is_told_for_a_removed_child_too_a5(self, yard: Yard) -> None:
        crate = yard.crate()
        (child,) = yard.make(1, parent=crate)
        assert yard.remove(child).idle == (crate.ref,)

    def test_idle_leaves_out_parents_that_are_gone(self, yard: Yard) -> None:
        crate = yard.crate()
        (child,) = yard.make(1, parent=crate)
        yard.remove(crate)
        assert yard.write(change(child, state=yard.harness.end, open=False)).idle == ()

    def test_closes_refuses_while_a_child_is_open(self, yard: Yard) -> None:
        h = yard.harness
        crate = yard.crate()
        first, second = yard.make(2, parent=crate)
        closing = change(crate, state=h.parent_end, open=False, closes=True)
        (answer,) = commit(yard.store, Group((closing,)))
        assert type(answer) is Conflict
        assert yard.get(crate) == crate
        (answer,) = commit(yard.store, Group((Change(crate, None, event="remove", closes=True),)))
        assert type(answer) is Conflict
        yard.write(change(first, state=h.end, open=False), change(second, state=h.end, open=False))
        assert present(yard.write(closing))[0].state == h.parent_end

    def test_closes_sees_children_that_the_same_group_closes(self, yard: Yard) -> None:
        h = yard.harness
        crate = yard.crate()
        (child,) = yard.make(1, parent=crate)
        closing = change(crate, state=h.parent_end, open=False, closes=True)
        assert len(present(yard.write(closing, change(child, state=h.end, open=False)))) == 2

    # --- what a child does is nothing that its parent did

    def test_a_child_that_moves_and_stays_open_does_not_stir_its_parent_a5(self, yard: Yard) -> None:
        crate, child = self._waiting(yard)
        answer = yard.write(change(child, state=yard.harness.states[1]))
        assert answer.idle == ()
        self._still_waits(yard, crate, idle=False)

    def test_the_last_child_that_closes_is_told_of_and_stirs_nobody_before_the_call_a5(self, yard: Yard) -> None:
        crate, child = self._waiting(yard)
        answer = yard.write(change(child, state=yard.harness.end, open=False))
        assert answer.idle == (crate.ref,)
        self._still_waits(yard, crate, idle=True)
        yard.write(nudges=answer.idle)
        assert yard.get(crate).parked is None

    def test_open_changes_without_a_move_of_child_or_parent_a5(self, yard: Yard) -> None:
        """A release may call a state settled that another called open: then `open` alone is written anew."""
        h = yard.harness
        crate, child = self._waiting(yard)
        answer = yard.write(change(child, open=False))
        (closed,) = present(answer)
        assert yard.get(closed).state == child.state
        if not h.keeps_open:
            assert yard.get(child).open
            assert yard.store.open_parents([crate.ref]) == {crate.ref}
            self._still_waits(yard, crate, idle=False)
            return
        assert answer.idle == (crate.ref,)
        self._still_waits(yard, crate, idle=True)
        answer = yard.write(change(closed, open=True))
        assert answer.idle == ()
        assert yard.store.open_parents([crate.ref]) == {crate.ref}
        self._still_waits(yard, crate, idle=False)

    def test_a_child_that_opens_again_keeps_its_parent_from_closing_a5(self, yard: Yard) -> None:
        h = yard.harness
        crate, child = self._waiting(yard)
        (closed,) = present(yard.write(change(child, state=h.end, open=False)))
        assert yard.write(change(closed, state=h.states[0], open=True)).idle == ()
        self._still_waits(yard, crate, idle=False)
        (answer,) = commit(
            yard.store, Group((change(crate, state=h.parent_end, parked=None, open=False, closes=True),))
        )
        assert type(answer) is Conflict
        self._still_waits(yard, crate, idle=False)

    def test_a_parent_that_is_worked_on_keeps_its_claim_when_its_last_child_closes_a5(self, yard: Yard) -> None:
        h = yard.harness
        crate = yard.crate()
        (child,) = yard.make(1, parent=crate)
        other = h.open()
        (mine,) = other.claim([Role(h.parent_kind, h.parent_states[0])], yard.session(other), 5)
        assert yard.write(change(child, state=h.end, open=False)).idle == (crate.ref,)
        assert yard.get(crate).session == mine.record.session
        assert yard.get(crate).version == mine.record.version

    def _waiting(self, yard: Yard) -> tuple[Record, Record]:
        """A parent that waits for its one child, which is open."""
        crate = yard.crate()
        (child,) = yard.make(1, parent=crate)
        return yard.update(crate, parked="children"), child

    def _still_waits(self, yard: Yard, crate: Record, *, idle: bool) -> None:
        """As it was, not to be claimed, and found idle only if it is."""
        h = yard.harness
        now = yard.get(crate)
        assert (now.state, now.parked, now.version, now.nudges, now.open) == (
            crate.state,
            "children",
            crate.version,
            crate.nudges,
            True,
        )
        assert yard.store.idle_parents().refs == ([crate.ref] if idle else [])
        other = h.open()
        session = yard.session(other)
        assert other.claim([Role(h.parent_kind, crate.state)], session, 5) == []
        other.close_session(session)
