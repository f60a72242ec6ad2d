"""Groups that need other records than they change: actions requested of workers, parents that must be open, wakes. All
in one commit, or nothing.
"""

from __future__ import annotations

from typing import Any

import pytest
from msgspec.structs import replace

from waybill.record import (
    ActionRequest,
    Change,
    CommitGroup,
    CommitResult,
    Conflict,
    ParentClosed,
    Record,
    RecordBusy,
    Ref,
    StoreError,
)
from waybill.stores.conformance.fixtures import StoreTestBase
from waybill.stores.conformance.tester import StoreTester, commit_groups, make_change, records_of


def request_stop(record: Record, *, who: str = "ann", action: str = "stop") -> ActionRequest:
    return ActionRequest(record.ref, action, who, "no longer needed", b'{"hard":true}')


def below_open(creation: Change) -> Change:
    """The creation, only if its parent is open."""
    return replace(creation, requires_open_parent=True)


class SharedCommitTests(StoreTestBase):
    # --- reading what a commit needs

    def test_get_many_returns_those_that_exist_with_their_documents(self, tester: StoreTester) -> None:
        h = tester.harness
        first, second = tester.make_parcel(documents={h.document_names[0]: b'{"a":1}'}), tester.make_parcel()
        missing = Ref(h.kind, f"{h.id_prefix}9999999999")
        found = tester.store.get_many([second.ref, missing, first.ref, second.ref])
        assert found == {first.ref: tester.get(first), second.ref: tester.get(second)}
        assert found[first.ref].documents.raw[h.document_names[0]] == b'{"a":1}'
        assert tester.store.get_many([]) == {}

    # --- action requests

    def test_a_request_is_left_in_the_commit_that_makes_it_b11(self, tester: StoreTester) -> None:
        tester.make_parcel()
        session = tester.open_session()
        (mine,) = tester.claim_records(tester.store, session)
        other = tester.make_crate()
        (answer,) = commit_groups(
            tester.harness.open(), CommitGroup((make_change(other, message="on"),), (), (request_stop(mine),))
        )
        assert isinstance(answer, CommitResult)
        assert tester.get(other).message == "on"
        assert tester.store.renew_session(session).action_requests == (request_stop(mine),)
        assert tester.get(mine) == mine, "not versioned"

    @pytest.mark.parametrize("what", ["unclaimed", "gone"])
    def test_a_request_that_no_worker_can_answer_refuses_the_group_b11(self, tester: StoreTester, what: str) -> None:
        made, other = tester.make_parcel(), tester.make_crate()
        if what == "gone":
            tester.remove(made)
        group = CommitGroup((make_change(other, message="on"), tester.draft_parcel()), (), (request_stop(made),))
        before = tester.store.count_by_state(tester.harness.kind)
        (answer,) = commit_groups(tester.store, group)
        assert type(answer) is Conflict
        assert tester.get(other) == other
        assert tester.store.count_by_state(tester.harness.kind) == before
        assert tester.store.list_action_requests() == []

    def test_another_pending_request_refuses_the_group_and_the_same_does_not_b11(self, tester: StoreTester) -> None:
        tester.make_parcel()
        session = tester.open_session()
        (mine,) = tester.claim_records(tester.store, session)
        other = tester.make_crate()
        tester.store.request_action(request_stop(mine))
        for another in (request_stop(mine, action="pause"), request_stop(mine, who="bob")):
            (refused,) = commit_groups(tester.store, CommitGroup((make_change(other, message="on"),), (), (another,)))
            assert type(refused) is RecordBusy
            assert tester.get(other) == other
        (written,) = commit_groups(
            tester.store, CommitGroup((make_change(other, message="on"),), (), (request_stop(mine),))
        )
        assert isinstance(written, CommitResult)
        assert tester.store.renew_session(session).action_requests == (request_stop(mine),), "the first stays"

    def test_a_release_in_the_same_call_sees_the_request_or_refuses_it_b11(self, tester: StoreTester) -> None:
        h = tester.harness
        for is_first in (True, False):
            tester.make_parcel()
            session = tester.open_session()
            (mine,) = tester.claim_records(tester.store, session)
            other = tester.make_crate()
            requesting = CommitGroup((make_change(other, message="on"),), (), (request_stop(mine),))
            releasing = CommitGroup((make_change(mine, cause="done", state=h.rest_state, session=None),))
            if is_first:
                requested, released = commit_groups(tester.store, requesting, releasing)
                assert released.action_requests == (request_stop(mine),)
                assert tester.get(other).message == "on"
            else:
                released, requested = commit_groups(tester.store, releasing, requesting)
                assert type(requested) is Conflict
                assert released.action_requests == ()
                assert tester.get(other) == other
            tester.store.close_session(session)
            tester.remove(tester.get(mine))

    def test_one_group_requests_of_a_record_once_and_does_not_change_it(self, tester: StoreTester) -> None:
        tester.make_parcel()
        session = tester.open_session()
        (mine,) = tester.claim_records(tester.store, session)
        for group in (
            CommitGroup((make_change(mine, cause="", message="on"),), (), (request_stop(mine),)),
            CommitGroup((), (), (request_stop(mine), request_stop(mine, action="pause"))),
            CommitGroup((), (), (request_stop(mine, who="a\0b"),)),
            CommitGroup((), (), (request_stop(mine, who="\ud800"),)),
        ):
            (refused,) = commit_groups(tester.store, group)
            assert type(refused) is StoreError
        assert tester.store.renew_session(session).action_requests == ()
        assert tester.get(mine) == mine

    # --- parents that must be open

    def test_a_child_is_created_only_below_an_open_parent_a6(self, tester: StoreTester) -> None:
        h = tester.harness
        crate = tester.make_crate()
        (child,) = records_of(tester.write(below_open(tester.draft_parcel(parent=crate))))
        assert child.parent == crate.ref
        closed = tester.update(tester.make_crate(), state=h.parent_end_state, open=False)
        gone = tester.make_crate()
        tester.remove(gone)
        before = tester.store.count_by_state(h.kind)
        for parent in (closed, gone):
            (refused,) = commit_groups(
                tester.store,
                CommitGroup((make_change(crate, message="on"), below_open(tester.draft_parcel(parent=parent)))),
            )
            assert type(refused) is ParentClosed
        assert tester.get(crate) == crate
        assert tester.store.count_by_state(h.kind) == before

    def test_the_same_commit_may_close_or_open_the_parent_a6(self, tester: StoreTester) -> None:
        h = tester.harness
        crate = tester.make_crate()
        child = below_open(tester.draft_parcel(parent=crate))
        closing = make_change(crate, state=h.parent_end_state, open=False)
        (refused,) = commit_groups(tester.store, CommitGroup((closing, child)))
        assert type(refused) is ParentClosed
        assert tester.get(crate) == crate
        moving = make_change(crate, state=h.parent_states[1])
        assert isinstance(commit_groups(tester.store, CommitGroup((moving, child)))[0], CommitResult)

    @pytest.mark.parametrize("is_first", [True, False])
    def test_groups_of_one_call_close_a_parent_in_their_order_a6(self, tester: StoreTester, is_first: bool) -> None:
        h = tester.harness
        crate = tester.make_crate()
        child = CommitGroup((below_open(tester.draft_parcel(parent=crate)),))
        closing = CommitGroup((make_change(crate, state=h.parent_end_state, open=False),))
        answers = commit_groups(tester.store, *((child, closing) if is_first else (closing, child)))
        kinds = [type(answer) for answer in answers]
        assert kinds == ([CommitResult, CommitResult] if is_first else [CommitResult, ParentClosed])

    # --- two connections

    def test_a_request_against_a_release_b11(self, tester: StoreTester) -> None:
        """Either the request is refused with all that its group writes, or somebody is told of it."""
        h = tester.harness
        a, b = h.open(), h.open()
        session = tester.open_session(a)
        for _ in range(h.rounds):
            tester.make_parcel()
            (mine,) = tester.claim_records(a, session)
            other = tester.make_crate()
            (released,), (requested,) = h.race(
                lambda: commit_groups(a, CommitGroup((make_change(mine, session=None, state=h.rest_state),))),  # noqa: B023
                lambda: commit_groups(
                    b,
                    CommitGroup((make_change(other, message="on"),), (), (request_stop(mine),)),  # noqa: B023
                ),
            )
            assert isinstance(released, CommitResult)
            left = b.list_action_requests()
            if isinstance(requested, CommitResult):
                assert left == [request_stop(mine)]
                assert released.action_requests == (request_stop(mine),)
                assert tester.get(other).message == "on"
            else:
                assert type(requested) is Conflict
                assert left == []
                assert tester.get(other) == other
            tester.remove(tester.get(mine))

    def test_a_child_below_an_open_parent_against_its_closing_a6(self, tester: StoreTester) -> None:
        """Whoever closes the parent when its children have settled never closes it over the child's head."""
        h = tester.harness
        a, b = h.open(), h.open()
        for _ in range(h.rounds):
            crate = tester.make_crate()
            closing = make_change(crate, state=h.parent_end_state, open=False, requires_children_settled=True)
            (closed,), (created,) = h.race(
                lambda: commit_groups(a, CommitGroup((closing,))),  # noqa: B023
                lambda: commit_groups(b, CommitGroup((below_open(tester.draft_parcel(parent=crate)),))),  # noqa: B023
            )
            outcomes = {type(closed), type(created)}
            assert outcomes in ({CommitResult, ParentClosed}, {CommitResult, Conflict})

    def test_a_record_that_several_change_beside_their_own_is_never_written_over_a1(self, tester: StoreTester) -> None:
        """A quota, for example: each adds one to it in the commit that moves its own record."""
        h = tester.harness
        stores = [h.open() for _ in range(3)]
        quota = tester.make_crate(priority=0)
        own = [tester.make_crate() for _ in stores]
        tries = h.rounds

        def add_one(n: int) -> int:
            written = 0
            for _ in range(tries):
                read: dict[Ref, Any] = stores[n].get_many([quota.ref, own[n].ref])
                current, mine = read[quota.ref], read[own[n].ref]
                (answer,) = commit_groups(
                    stores[n],
                    CommitGroup((make_change(mine, message="on"), make_change(current, priority=current.priority + 1))),
                )
                written += isinstance(answer, CommitResult)
            return written

        written = h.race(*[lambda n=n: add_one(n) for n in range(len(stores))])
        assert tester.get(quota).priority == sum(written)
        assert [tester.get(each).version - each.version for each in own] == written
