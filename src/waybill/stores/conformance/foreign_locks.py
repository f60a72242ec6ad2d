"""Records that somebody who is not Waybill holds: nobody acts on them, claims them, or takes their lock away."""

from __future__ import annotations

from waybill.record import Change, ClaimLost, Conflict, Group
from waybill.stores.conformance.suite import Suite
from waybill.stores.conformance.yard import Yard, change, commit


class ForeignLocks(Suite):
    def test_action_against_a_foreign_lock_a2(self, yard: Yard) -> None:
        h = yard.harness
        assert h.has_foreign_locks
        made = yard.one()
        h.foreign_lock(made.ref)
        for late in (change(made, message="act"), Change(made, None, event="remove")):
            (answer,) = commit(yard.store, Group((late,)))
            assert isinstance(answer, Conflict)
        assert yard.get(made).message == ""
        h.foreign_unlock(made.ref)
        assert yard.update(yard.get(made), message="act").message == "act"

    def test_claim_against_a_foreign_lock_a1(self, yard: Yard) -> None:
        h = yard.harness
        held, free = yard.make(2)
        h.foreign_lock(held.ref)
        session = yard.session()
        assert yard.ids(yard.claim(yard.store, session)) == [free.id]
        h.foreign_unlock(held.ref)
        assert yard.ids(yard.claim(yard.store, session)) == [held.id]

    def test_a_late_commit_leaves_a_foreign_lock_alone_a1(self, yard: Yard) -> None:
        h = yard.harness
        made = yard.one()
        late = h.open()
        doomed = yard.session(late, ttl=h.ttl)
        (mine,) = yard.claimed(late, doomed)
        h.expire(late, doomed)
        h.foreign_lock(made.ref)
        (answer,) = commit(late, Group((change(mine, session=None, state=h.states[1]),)))
        assert type(answer) is ClaimLost
        assert yard.claim(yard.store, yard.session()) == [], "the foreigner still holds it"
        assert yard.get(made).state == h.states[0]
