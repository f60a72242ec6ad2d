"""check: what must never be is named alike on every store, mended, and not named again.

What never happens is planted by the harness.
"""

from __future__ import annotations

from waybill.record import Record
from waybill.stores.conformance.suite import Suite
from waybill.stores.conformance.yard import Yard

WAITERS = "waiters wait for what is held"
STOPPED = "marks stop while they are in force"


class Checks(Suite):
    def test_a_waiter_of_a_key_that_is_free_is_named_and_mended_a10(self, yard: Yard) -> None:
        made = yard.one(keys=(yard.key("a"),))
        self._is_named_and_mended(yard, made, f"key {yard.key('a')}", WAITERS)

    def test_what_a_mark_stopped_that_is_off_is_named_and_mended_a10(self, yard: Yard) -> None:
        made = yard.one(gates=(yard.gate("a"),))
        self._is_named_and_mended(yard, made, f"mark {yard.gate('a')}", STOPPED)

    def _is_named_and_mended(self, yard: Yard, made: Record, reason: str, rule: str) -> None:
        assert list(yard.store.check()) == []
        if not yard.harness.strand(made.ref, reason):
            return
        assert yard.get(made).parked == reason
        session = yard.session()
        assert yard.claim(yard.store, session) == []
        found = list(yard.store.check())
        if yard.harness.names_stranded:
            assert [(finding.rule, finding.ref, finding.mendable) for finding in found] == [(rule, made.ref, True)]
            assert yard.store.mend(found[0]) is True
            assert yard.store.mend(found[0]) is False, "it is not so any more"
            assert list(yard.store.check()) == []
        else:
            assert found == []
            assert yard.store.sweep() == 1
        assert yard.ids(yard.claim(yard.store, session)) == [made.id]

    def test_a_waiter_is_not_named_while_another_is_about_to_take_the_key_a10(self, yard: Yard) -> None:
        key = yard.key("a")
        waits, about_to = yard.one(keys=(key,)), yard.one(keys=(key,), state=yard.harness.states[1])
        if yard.harness.strand(waits.ref, f"key {key}"):
            assert list(yard.store.check()) == []
            yard.remove(about_to)
            assert yard.get(waits).parked is None, "whoever was about to take it passes its turn"

    def test_what_is_held_by_a_session_that_ended_is_free_and_not_named_a3(self, yard: Yard) -> None:
        yard.one(keys=(yard.key("a"),))
        other = yard.harness.open()
        session = yard.session(other)
        assert len(yard.claim(other, session)) == 1
        assert list(yard.store.check()) == []
        other.close_session(session)
        assert list(yard.store.check()) == []
