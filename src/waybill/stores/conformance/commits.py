"""commit: groups are written whole or not at all, fenced by version and claim, and answered one by one."""

from __future__ import annotations

import re

import pytest

from waybill.record import (
    MAX_CHANGES,
    Change,
    ClaimLost,
    CommitGroup,
    CommitResult,
    CommitTooLarge,
    Conflict,
    RecordExists,
    RecordNotFound,
    Ref,
    Store,
    StoreError,
)
from waybill.stores.conformance.fixtures import StoreTestBase
from waybill.stores.conformance.tester import HOUR, SLACK, StoreTester, commit_groups, make_change, records_of


class CommitTests(StoreTestBase):
    def test_what_is_committed_is_read_as_answered(self, tester: StoreTester) -> None:
        h = tester.harness
        holds, locks, documents = (
            (tester.hold_name_of("g"),),
            (tester.lock_name_of("k"),),
            {h.document_names[0]: b'{"a":1}'},
        )
        made = tester.make_parcel(
            owner="ann", priority=7, message="hello", hold_names=holds, locks=locks, documents=documents
        )
        assert tester.get(made) == made
        assert (made.owner, made.priority, made.message, made.hold_names, made.locks) == (
            "ann",
            7,
            "hello",
            holds,
            locks,
        )
        assert made.documents.raw[h.document_names[0]] == b'{"a":1}'
        assert made.created == made.updated == pytest.approx(tester.store.now(), abs=SLACK)
        moved = tester.update(
            made, state=h.states[1], last_done=h.states[0], resume_count=2, error_count=3, message="on", open=True
        )
        assert tester.get(moved) == moved
        assert (moved.state, moved.last_done, moved.resume_count, moved.error_count, moved.message) == (
            h.states[1],
            h.states[0],
            2,
            3,
            "on",
        )

    def test_times_are_the_stores_own(self, tester: StoreTester) -> None:
        made = tester.make_parcel()
        tester.harness.tick(HOUR)
        moved = tester.update(made)
        assert moved.created == made.created
        assert moved.updated - made.updated == pytest.approx(HOUR, abs=SLACK)

    def test_a_minted_id_is_the_prefix_and_ten_digits_never_given_twice(self, tester: StoreTester) -> None:
        made = tester.make_parcels(3) + tester.make_parcels(2)
        assert all(re.fullmatch(re.escape(tester.harness.id_prefix) + r"\d{10}", record.id) for record in made)
        assert len({record.id for record in made}) == 5

    def test_versions_start_from_seq_and_move_with_every_write(self, tester: StoreTester) -> None:
        first, second = tester.make_parcels(2)
        assert first.version == first.seq < second.version == second.seq
        moved = tester.update(first)
        assert moved.version == first.version + 1
        assert moved.seq == first.seq

    def test_a_stale_before_is_a_conflict_and_writes_nothing(self, tester: StoreTester) -> None:
        made = tester.make_parcel()
        moved = tester.update(made, message="first")
        (answer,) = commit_groups(tester.store, CommitGroup((make_change(made, message="second"),)))
        assert type(answer) is Conflict
        assert tester.get(made) == moved

    def test_a_record_that_is_gone_is_a_conflict(self, tester: StoreTester) -> None:
        made = tester.make_parcel()
        tester.remove(made)
        for late in (make_change(made, message="x"), Change(made, None, cause="remove")):
            (answer,) = commit_groups(tester.store, CommitGroup((late,)))
            assert type(answer) is Conflict

    def test_all_or_nothing(self, tester: StoreTester) -> None:
        first, second, third = tester.make_parcels(3)
        tester.update(second, message="moved on")
        before = [tester.get(each) for each in (first, second, third)]
        state = tester.harness.states[1]
        changes = (
            make_change(first, state=state),
            make_change(second, state=state),
            tester.draft_parcel(),
            Change(third, None, cause="x"),
        )
        (answer,) = commit_groups(tester.store, CommitGroup(changes, wake=(third.ref,)))
        assert type(answer) is Conflict
        assert [tester.get(each) for each in (first, second, third)] == before
        assert tester.store.count_by_state(tester.harness.kind) == {tester.harness.states[0]: 3}
        assert len(tester.store.history(first.kind, first.id)) == 1

    def test_a_bad_group_never_fails_its_neighbours_b1(self, tester: StoreTester) -> None:
        """Bad groups of every kind between good ones: stale, too large, misshapen, and texts that some store cannot
        keep.
        """
        h = tester.harness
        records = tester.make_parcels(13)
        tester.update(records[1])
        bad = {
            1: make_change(records[1], state=h.states[1]),
            3: make_change(records[3], state=h.states[1], message="\ud800"),
            5: make_change(records[5], state=h.states[1], documents={h.document_names[0]: b" " * 600_000}),
            7: make_change(records[7], state=h.states[1], session="nobody"),
            9: make_change(records[9], state=h.states[1], why="a\0b"),
            11: make_change(records[11], state=h.states[1], priority=100),
        }
        answers = commit_groups(
            tester.store,
            *[CommitGroup((bad.get(i) or make_change(record, state=h.states[1]),)) for i, record in enumerate(records)],
        )
        assert [isinstance(answer, CommitResult) for answer in answers] == [i not in bad for i in range(13)]
        assert all(isinstance(answers[i], StoreError) for i in bad)
        assert (type(answers[1]), type(answers[5])) == (Conflict, CommitTooLarge)
        assert [tester.get(record).state for record in records] == [h.states[i not in bad] for i in range(13)]
        assert tester.store.count_by_state(h.kind) == {h.states[0]: 6, h.states[1]: 7}

    def test_a_record_in_two_groups_of_a_call_is_refused(self, tester: StoreTester) -> None:
        made, other = tester.make_parcels(2)
        groups = [
            CommitGroup((make_change(made, message="one"),)),
            CommitGroup((make_change(made, message="two"),)),
            CommitGroup((make_change(other, message="three"),)),
        ]
        first, second, third = commit_groups(tester.store, *groups)
        assert isinstance(first, CommitResult)
        assert isinstance(second, StoreError)
        assert not isinstance(second, Conflict)
        assert isinstance(third, CommitResult)
        assert tester.get(made).message == "one"

    def test_many_groups_are_answered_in_order(self, tester: StoreTester) -> None:
        records = tester.make_parcels(150)
        answers = commit_groups(
            tester.store, *[CommitGroup((make_change(record, message=record.id),)) for record in records]
        )
        assert [answer.records[0].id for answer in answers] == [record.id for record in records]
        assert [tester.get(record).message for record in records] == [record.id for record in records]

    def test_a_group_of_many_changes_is_written_whole(self, tester: StoreTester) -> None:
        records = tester.make_parcels(40)
        crate = tester.make_crate()
        drafts = [tester.draft_parcel(parent=crate) for _ in range(40)]
        moves = [make_change(record, state=tester.harness.states[1]) for record in records]
        committed = tester.write(*moves, *drafts, Change(crate, crate, cause="spawn"))
        assert len(committed.records) == 81
        assert tester.store.count_by_state(tester.harness.kind, parent=crate.ref) == {tester.harness.states[0]: 40}
        assert {record.parent for record in records_of(committed)[40:80]} == {crate.ref}

    def test_limits_are_checked_before_anything_is_sent_a11(self, tester: StoreTester) -> None:
        h = tester.harness
        made = tester.make_parcel()
        too_large = [
            CommitGroup((make_change(made, documents={h.document_names[0]: b'"' + b"x" * (512 * 1024) + b'"'}),)),
            CommitGroup(
                (make_change(made, documents=dict.fromkeys(h.document_names, b'"' + b"x" * (400 * 1024) + b'"')),)
            ),
            CommitGroup(tuple(tester.draft_parcel() for _ in range(MAX_CHANGES + 1))),
        ]
        for group in too_large:
            (answer,) = commit_groups(tester.store, group)
            assert type(answer) is CommitTooLarge
        largest = b'"' + b"x" * (512 * 1024 - 2) + b'"'
        assert (
            tester.update(made, documents={h.document_names[0]: largest}).documents.raw[h.document_names[0]] == largest
        )
        assert tester.get(made).documents.raw[h.document_names[0]] == largest

    # --- creating

    def test_an_id_that_exists_is_refused(self, tester: StoreTester) -> None:
        name = f"{tester.harness.id_prefix}-own"
        (first,) = commit_groups(tester.store, CommitGroup((tester.draft_parcel(id=name),)))
        if not tester.harness.accepts_ids:
            assert isinstance(first, StoreError)
            return
        assert isinstance(first, CommitResult)
        (second,) = commit_groups(tester.store, CommitGroup((tester.draft_parcel(id=name, message="second"),)))
        assert type(second) is RecordExists
        assert tester.get(Ref(tester.harness.kind, name)).message == ""
        assert tester.store.count_by_state(tester.harness.kind) == {tester.harness.states[0]: 1}

    def test_an_idempotency_key_used_twice_creates_one_record_a11(self, tester: StoreTester) -> None:
        first = tester.make_parcel(idempotency_key="r-1", message="first")
        again = tester.write(
            tester.draft_parcel(idempotency_key="r-1", message="second"), tester.draft_parcel(message="rides along")
        )
        assert again.records == (first, None)
        assert again.idle_parents == ()
        other = tester.make_parcel(idempotency_key="r-2")
        assert other.id != first.id
        assert tester.store.count_by_state(tester.harness.kind) == {tester.harness.states[0]: 2}

    def test_an_idempotency_key_is_answered_with_the_record_as_it_is_now_a11(self, tester: StoreTester) -> None:
        moved = tester.update(tester.make_parcel(idempotency_key="r-1"), state=tester.harness.states[1])
        (answer,) = records_of(tester.write(tester.draft_parcel(idempotency_key="r-1")))
        assert (answer.id, answer.state, answer.version) == (moved.id, moved.state, moved.version)

    def test_a_record_is_found_by_its_idempotency_key_with_its_documents(self, tester: StoreTester) -> None:
        h = tester.harness
        made = tester.make_parcel(idempotency_key="r-1", documents={h.document_names[0]: b"1"})
        tester.make_parcel(idempotency_key="r-2")
        moved = tester.update(made, state=h.states[1])
        found = tester.store.get_by_idempotency_key(h.kind, "r-1")
        assert (found.id, found.state, found.version) == (moved.id, moved.state, moved.version)
        assert found.documents.raw[h.document_names[0]] == b"1"
        for kind, request in ((h.kind, "r-3"), (h.kind, ""), (h.parent_kind, "r-1")):
            with pytest.raises(RecordNotFound):
                tester.store.get_by_idempotency_key(kind, request)
        tester.write(Change(found, None, "remove"))
        with pytest.raises(RecordNotFound):
            tester.store.get_by_idempotency_key(h.kind, "r-1")

    def test_an_idempotency_key_in_two_groups_of_a_call_creates_one_record_a11(self, tester: StoreTester) -> None:
        first, second = commit_groups(
            tester.store,
            CommitGroup((tester.draft_parcel(idempotency_key="r-1"),)),
            CommitGroup((tester.draft_parcel(idempotency_key="r-1"),)),
        )
        assert first.records[0].id == second.records[0].id
        assert tester.store.count_by_state(tester.harness.kind) == {tester.harness.states[0]: 1}

    def test_idempotency_keys_are_separate_for_each_kind_a11(self, tester: StoreTester) -> None:
        parcel = tester.make_parcel(idempotency_key="r-1")
        crate = tester.make_crate(idempotency_key="r-1")
        assert (parcel.kind, crate.kind) == (tester.harness.kind, tester.harness.parent_kind)

    # --- removing

    def test_a_removed_record_leaves_nothing(self, tester: StoreTester) -> None:
        h = tester.harness
        crate = tester.make_crate()
        made = tester.make_parcel(
            parent=crate,
            owner="ann",
            idempotency_key="r-1",
            documents={h.document_names[0]: b"1"},
            locks=(tester.lock_name_of("k"),),
        )
        session = tester.open_session()
        (mine,) = tester.claim_records(tester.store, session)
        committed = tester.remove(mine)
        assert committed.records == (None,)
        with pytest.raises(RecordNotFound):
            tester.get(made)
        assert tester.store.history(made.kind, made.id) == []
        assert tester.store.count_by_state(h.kind) == {}
        assert tester.store.count_by_state(h.kind, parent=crate.ref) == {}
        assert tester.store.find(h.kind, owner="ann").records == []
        assert tester.store.find(h.kind, parent=crate.ref).records == []
        assert tester.store.parents_with_open_children([crate.ref]) == set()
        again = tester.make_parcel(parent=crate, idempotency_key="r-1", locks=(tester.lock_name_of("k"),))
        assert (again.version, dict(again.documents.raw)) == (again.seq, dict(h.required_documents))
        assert tester.ids_of(tester.claim(tester.store, session)) == [again.id]

    def test_a_recreated_id_never_matches_an_old_version_b10(self, tester: StoreTester) -> None:
        if not tester.harness.accepts_ids:
            first = tester.make_parcel()
            tester.remove(first)
            assert tester.make_parcel().id != first.id
            return
        name = f"{tester.harness.id_prefix}-again"
        lives = [tester.make_parcel(id=name)]
        for _ in range(12):
            lives.append(tester.update(lives[-1]))
        tester.remove(lives[-1])
        now = tester.make_parcel(id=name)
        versions = {old.version for old in lives}
        for _ in range(12):
            assert now.version not in versions, "what a step wrote under (id, version) is never taken for another's"
            for old in lives:
                (answer,) = commit_groups(tester.store, CommitGroup((make_change(old, message="from a former life"),)))
                assert isinstance(answer, Conflict)
            now = tester.update(now)
        assert tester.get(now).message == ""

    # --- claims fence commits

    def test_a_change_of_an_unclaimed_record_is_refused_while_it_is_claimed_a2(self, tester: StoreTester) -> None:
        made = tester.make_parcel()
        (mine,) = tester.claim_records(tester.store, tester.open_session())
        (answer,) = commit_groups(tester.store, CommitGroup((make_change(made, message="act"),)))
        assert type(answer) is Conflict
        read = tester.get(made)
        assert read.session == mine.session
        assert tester.get(made).message == ""

    def test_a_claim_that_ended_is_claim_lost(self, tester: StoreTester) -> None:
        tester.make_parcel()
        session = tester.open_session()
        (mine,) = tester.claim_records(tester.store, session)
        tester.release(mine)
        for late in (
            make_change(mine, cause="", message="late"),
            make_change(mine, session=None),
            Change(mine, None, cause="remove"),
        ):
            (answer,) = commit_groups(tester.store, CommitGroup((late,)))
            assert type(answer) is ClaimLost

    def test_saves_are_fenced_by_the_version(self, tester: StoreTester) -> None:
        tester.make_parcel()
        (mine,) = tester.claim_records(tester.store, tester.open_session())
        saved = tester.save(mine, message="half way")
        assert (saved.version, saved.session, saved.message) == (mine.version + 1, mine.session, "half way")
        (answer,) = commit_groups(tester.store, CommitGroup((make_change(mine, cause="", message="stale"),)))
        assert isinstance(answer, Conflict)
        assert tester.get(mine).message == "half way"

    def test_an_empty_call_and_an_empty_group_are_answered(self, store: Store) -> None:
        assert store.commit([]) == []
        (answer,) = commit_groups(store, CommitGroup(()))
        assert answer == CommitResult(())
