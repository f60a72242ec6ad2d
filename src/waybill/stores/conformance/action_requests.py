"""Action requests: to the worker that has claimed a record; returned by the next renewal, claim or release, until a
change answers them.
"""

from __future__ import annotations

import pytest

from waybill.record import ActionRequest, Conflict, RecordNotFound, Ref
from waybill.stores.conformance.fixtures import StoreTestBase
from waybill.stores.conformance.tester import StoreTester, make_change


class ActionRequestTests(StoreTestBase):
    def test_no_action_is_requested_of_an_unclaimed_record_b11(self, tester: StoreTester) -> None:
        made = tester.make_parcel()
        assert tester.store.request_action(ActionRequest(made.ref, "cancel", "ann", "")) is False
        assert tester.store.list_action_requests() == []
        with pytest.raises(RecordNotFound):
            tester.store.request_action(
                ActionRequest(Ref(made.kind, f"{tester.harness.id_prefix}9999999999"), "cancel", "ann", "")
            )

    def test_the_worker_gets_the_request_with_renew_session_b11(self, tester: StoreTester) -> None:
        made = tester.make_parcel()
        session = tester.open_session()
        (mine,) = tester.claim_records(tester.store, session)
        other = tester.harness.open()
        request = ActionRequest(made.ref, "cancel", "ann", "too big", b'{"hard":true}')
        assert other.request_action(request) is True
        assert tester.store.renew_session(session).action_requests == (request,)
        assert tester.store.renew_session(session).action_requests == (request,), "until it is answered"
        assert tester.get(made) == mine, "not versioned"
        with pytest.raises(Conflict):
            other.request_action(ActionRequest(made.ref, "pause", "bob", ""))
        assert tester.store.list_action_requests() == [], "a worker has claimed it"

    def test_only_the_worker_that_claimed_it_gets_the_request_b11(self, tester: StoreTester) -> None:
        tester.make_parcels(2)
        other = tester.harness.open()
        session, others = tester.open_session(), tester.open_session(other)
        (mine,), (theirs,) = tester.claim_records(tester.store, session, 1), tester.claim_records(other, others, 1)
        assert tester.store.request_action(ActionRequest(theirs.ref, "cancel", "ann", "")) is True
        assert tester.store.renew_session(session).action_requests == ()
        assert [request.ref for request in other.renew_session(others).action_requests] == [theirs.ref]
        assert mine.id != theirs.id

    @pytest.mark.parametrize("kind", ["save", "continue", "release"])
    def test_a_change_that_answers_clears_it_b11(self, tester: StoreTester, kind: str) -> None:
        h = tester.harness
        tester.make_parcel()
        session = tester.open_session()
        (mine,) = tester.claim_records(tester.store, session)
        tester.store.request_action(ActionRequest(mine.ref, "cancel", "ann", ""))
        answering = {
            "save": make_change(mine, cause="", answers_request=True),
            "continue": make_change(mine, cause="cancel", state=h.states[1], answers_request=True),
            "release": make_change(mine, cause="cancel", state=h.rest_state, session=None, answers_request=True),
        }
        committed = tester.write(answering[kind])
        assert committed.action_requests == ()
        assert tester.store.renew_session(session).action_requests == ()
        assert tester.store.list_action_requests() == []

    def test_a_release_returns_what_was_requested_meanwhile_b11(self, tester: StoreTester) -> None:
        tester.make_parcel()
        session = tester.open_session()
        (mine,) = tester.claim_records(tester.store, session)
        request = ActionRequest(mine.ref, "cancel", "ann", "now")
        tester.store.request_action(request)
        on = tester.write(make_change(mine, cause="done", state=tester.harness.states[1]))
        assert on.action_requests == (), "it is not released"
        assert on.records[0] is not None
        committed = tester.write(
            make_change(on.records[0], cause="done", state=tester.harness.rest_state, session=None)
        )
        assert committed.action_requests == (request,)
        assert tester.store.list_action_requests() == [request], "no worker has claimed it any more"
        assert committed.records[0] is not None
        tester.write(make_change(committed.records[0], cause="cancel", answers_request=True))
        assert tester.store.list_action_requests() == []

    def test_a_claim_carries_an_earlier_request_b11(self, tester: StoreTester) -> None:
        made = tester.make_parcel()
        session = tester.open_session()
        (mine,) = tester.claim_records(tester.store, session)
        request = ActionRequest(made.ref, "cancel", "ann", "now")
        tester.store.request_action(request)
        tester.store.close_session(session)
        assert tester.harness.open().list_action_requests() == [request]
        session = tester.open_session()
        (again,) = tester.claim(tester.store, session)
        assert again.action_request == request
        assert tester.store.list_action_requests() == []
        tester.release(again.record)
        assert tester.store.claim_one(made.kind, made.id, session).action_request == request
        assert mine.version < again.record.version

    def test_a_removed_record_takes_its_request_along_b11(self, tester: StoreTester) -> None:
        tester.make_parcel()
        session = tester.open_session()
        (mine,) = tester.claim_records(tester.store, session)
        tester.store.request_action(ActionRequest(mine.ref, "cancel", "ann", ""))
        assert tester.remove(mine).action_requests == ()
        assert tester.store.list_action_requests() == []
        assert tester.store.renew_session(session).action_requests == ()

    def test_requests_are_listed_in_pages_b11(self, tester: StoreTester) -> None:
        tester.make_parcels(4)
        session = tester.open_session()
        for record in tester.claim_records(tester.store, session):
            tester.store.request_action(ActionRequest(record.ref, "cancel", "ann", ""))
        tester.store.close_session(session)
        assert len(tester.store.list_action_requests(limit=3)) == 3
        assert len(tester.store.list_action_requests()) == 4
