"""ask: a request to whoever holds a record, heard with the next heartbeat, the next claim or the release, until a
change answers it.
"""

from __future__ import annotations

import pytest

from waybill.record import Ask, Conflict, NotFound, Ref
from waybill.stores.conformance.suite import Suite
from waybill.stores.conformance.yard import Yard, change


class Asks(Suite):
    def test_a_free_record_is_not_asked_b11(self, yard: Yard) -> None:
        made = yard.one()
        assert yard.store.ask(Ask(made.ref, "cancel", "ann", "")) is False
        assert yard.store.asks() == []
        with pytest.raises(NotFound):
            yard.store.ask(Ask(Ref(made.kind, f"{yard.harness.prefix}9999999999"), "cancel", "ann", ""))

    def test_the_holder_hears_it_with_renew_b11(self, yard: Yard) -> None:
        made = yard.one()
        session = yard.session()
        (mine,) = yard.claimed(yard.store, session)
        other = yard.harness.open()
        ask = Ask(made.ref, "cancel", "ann", "too big", b'{"hard":true}')
        assert other.ask(ask) is True
        assert yard.store.renew(session).asked == (ask,)
        assert yard.store.renew(session).asked == (ask,), "until it is answered"
        assert yard.get(made) == mine, "not versioned"
        with pytest.raises(Conflict):
            other.ask(Ask(made.ref, "pause", "bob", ""))
        assert yard.store.asks() == [], "somebody holds it"

    def test_only_the_holder_hears_it_b11(self, yard: Yard) -> None:
        yard.make(2)
        other = yard.harness.open()
        session, others = yard.session(), yard.session(other)
        (mine,), (theirs,) = yard.claimed(yard.store, session, 1), yard.claimed(other, others, 1)
        assert yard.store.ask(Ask(theirs.ref, "cancel", "ann", "")) is True
        assert yard.store.renew(session).asked == ()
        assert [ask.ref for ask in other.renew(others).asked] == [theirs.ref]
        assert mine.id != theirs.id

    @pytest.mark.parametrize("kind", ["save", "go on", "release"])
    def test_a_change_that_answers_clears_it_b11(self, yard: Yard, kind: str) -> None:
        h = yard.harness
        yard.one()
        session = yard.session()
        (mine,) = yard.claimed(yard.store, session)
        yard.store.ask(Ask(mine.ref, "cancel", "ann", ""))
        answering = {
            "save": change(mine, event="", answers=True),
            "go on": change(mine, event="cancel", state=h.states[1], answers=True),
            "release": change(mine, event="cancel", state=h.rest, session=None, answers=True),
        }
        committed = yard.write(answering[kind])
        assert committed.asked == ()
        assert yard.store.renew(session).asked == ()
        assert yard.store.asks() == []

    def test_a_release_is_told_what_was_asked_meanwhile_b11(self, yard: Yard) -> None:
        yard.one()
        session = yard.session()
        (mine,) = yard.claimed(yard.store, session)
        ask = Ask(mine.ref, "cancel", "ann", "now")
        yard.store.ask(ask)
        on = yard.write(change(mine, event="done", state=yard.harness.states[1]))
        assert on.asked == (), "it is not released"
        assert on.records[0] is not None
        committed = yard.write(change(on.records[0], event="done", state=yard.harness.rest, session=None))
        assert committed.asked == (ask,)
        assert yard.store.asks() == [ask], "nobody holds it any more"
        assert committed.records[0] is not None
        yard.write(change(committed.records[0], event="cancel", answers=True))
        assert yard.store.asks() == []

    def test_a_claim_carries_what_was_asked_before_b11(self, yard: Yard) -> None:
        made = yard.one()
        session = yard.session()
        (mine,) = yard.claimed(yard.store, session)
        ask = Ask(made.ref, "cancel", "ann", "now")
        yard.store.ask(ask)
        yard.store.close_session(session)
        assert yard.harness.open().asks() == [ask]
        session = yard.session()
        (again,) = yard.claim(yard.store, session)
        assert again.ask == ask
        assert yard.store.asks() == []
        yard.release(again.record)
        assert yard.store.take(made.kind, made.id, session).ask == ask
        assert mine.version < again.record.version

    def test_a_removed_record_takes_its_request_along_b11(self, yard: Yard) -> None:
        yard.one()
        session = yard.session()
        (mine,) = yard.claimed(yard.store, session)
        yard.store.ask(Ask(mine.ref, "cancel", "ann", ""))
        assert yard.remove(mine).asked == ()
        assert yard.store.asks() == []
        assert yard.store.renew(session).asked == ()

    def test_asks_are_told_in_portions_b11(self, yard: Yard) -> None:
        yard.make(4)
        session = yard.session()
        for record in yard.claimed(yard.store, session):
            yard.store.ask(Ask(record.ref, "cancel", "ann", ""))
        yard.store.close_session(session)
        assert len(yard.store.asks(limit=3)) == 3
        assert len(yard.store.asks()) == 4
