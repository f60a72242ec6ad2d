"""commit: groups are written whole or not at all, fenced by version and claim, and answered one by one."""

from __future__ import annotations

import re

import pytest

from waybill.record import (
    MAX_CHANGES,
    Change,
    ClaimLost,
    Committed,
    Conflict,
    Exists,
    Group,
    NotFound,
    Ref,
    Store,
    StoreError,
    TooLarge,
)
from waybill.stores.conformance.suite import Suite
from waybill.stores.conformance.yard import HOUR, SLACK, Yard, change, commit, present


class Commits(Suite):
    def test_what_is_committed_is_read_as_answered(self, yard: Yard) -> None:
        h = yard.harness
        gates, keys, docs = (yard.gate("g"),), (yard.key("k"),), {h.documents[0]: b'{"a":1}'}
        made = yard.one(owner="ann", priority=7, message="hello", gates=gates, keys=keys, docs=docs)
        assert yard.get(made) == made
        assert (made.owner, made.priority, made.message, made.gates, made.keys) == ("ann", 7, "hello", gates, keys)
        assert made.docs.raw[h.documents[0]] == b'{"a":1}'
        assert made.created == made.updated == pytest.approx(yard.store.now(), abs=SLACK)
        moved = yard.update(made, state=h.states[1], last_done=h.states[0], retries=2, tries=3, message="on", open=True)
        assert yard.get(moved) == moved
        assert (moved.state, moved.last_done, moved.retries, moved.tries, moved.message) == (
            h.states[1],
            h.states[0],
            2,
            3,
            "on",
        )

    def test_times_are_the_stores_own(self, yard: Yard) -> None:
        made = yard.one()
        yard.harness.tick(HOUR)
        moved = yard.update(made)
        assert moved.created == made.created
        assert moved.updated - made.updated == pytest.approx(HOUR, abs=SLACK)

    def test_a_minted_id_is_the_prefix_and_ten_digits_never_given_twice(self, yard: Yard) -> None:
        made = yard.make(3) + yard.make(2)
        assert all(re.fullmatch(re.escape(yard.harness.prefix) + r"\d{10}", record.id) for record in made)
        assert len({record.id for record in made}) == 5

    def test_versions_start_from_seq_and_move_with_every_write(self, yard: Yard) -> None:
        first, second = yard.make(2)
        assert first.version == first.seq < second.version == second.seq
        moved = yard.update(first)
        assert moved.version == first.version + 1
        assert moved.seq == first.seq

    def test_a_stale_before_is_a_conflict_and_writes_nothing(self, yard: Yard) -> None:
        made = yard.one()
        moved = yard.update(made, message="first")
        (answer,) = commit(yard.store, Group((change(made, message="second"),)))
        assert type(answer) is Conflict
        assert yard.get(made) == moved

    def test_a_record_that_is_gone_is_a_conflict(self, yard: Yard) -> None:
        made = yard.one()
        yard.remove(made)
        for late in (change(made, message="x"), Change(made, None, event="remove")):
            (answer,) = commit(yard.store, Group((late,)))
            assert type(answer) is Conflict

    def test_all_or_nothing(self, yard: Yard) -> None:
        first, second, third = yard.make(3)
        yard.update(second, message="moved on")
        before = [yard.get(each) for each in (first, second, third)]
        state = yard.harness.states[1]
        changes = (
            change(first, state=state),
            change(second, state=state),
            yard.draft(),
            Change(third, None, event="x"),
        )
        (answer,) = commit(yard.store, Group(changes, nudges=(third.ref,)))
        assert type(answer) is Conflict
        assert [yard.get(each) for each in (first, second, third)] == before
        assert yard.store.tally(yard.harness.kind) == {yard.harness.states[0]: 3}
        assert len(yard.store.history(first.kind, first.id)) == 1

    def test_a_bad_group_never_fails_its_neighbours_b1(self, yard: Yard) -> None:
        """Bad groups of every kind between good ones: stale, too large, misshapen, and texts that some store cannot
        keep.
        """
        h = yard.harness
        records = yard.make(13)
        yard.update(records[1])
        bad = {
            1: change(records[1], state=h.states[1]),
            3: change(records[3], state=h.states[1], message="\ud800"),
            5: change(records[5], state=h.states[1], docs={h.documents[0]: b" " * 600_000}),
            7: change(records[7], state=h.states[1], session="nobody"),
            9: change(records[9], state=h.states[1], why="a\0b"),
            11: change(records[11], state=h.states[1], priority=100),
        }
        answers = commit(
            yard.store, *[Group((bad.get(i) or change(record, state=h.states[1]),)) for i, record in enumerate(records)]
        )
        assert [isinstance(answer, Committed) for answer in answers] == [i not in bad for i in range(13)]
        assert all(isinstance(answers[i], StoreError) for i in bad)
        assert (type(answers[1]), type(answers[5])) == (Conflict, TooLarge)
        assert [yard.get(record).state for record in records] == [h.states[i not in bad] for i in range(13)]
        assert yard.store.tally(h.kind) == {h.states[0]: 6, h.states[1]: 7}

    def test_a_record_in_two_groups_of_a_call_is_refused(self, yard: Yard) -> None:
        made, other = yard.make(2)
        groups = [
            Group((change(made, message="one"),)),
            Group((change(made, message="two"),)),
            Group((change(other, message="three"),)),
        ]
        first, second, third = commit(yard.store, *groups)
        assert isinstance(first, Committed)
        assert isinstance(second, StoreError)
        assert not isinstance(second, Conflict)
        assert isinstance(third, Committed)
        assert yard.get(made).message == "one"

    def test_many_groups_are_answered_in_order(self, yard: Yard) -> None:
        records = yard.make(150)
        answers = commit(yard.store, *[Group((change(record, message=record.id),)) for record in records])
        assert [answer.records[0].id for answer in answers] == [record.id for record in records]
        assert [yard.get(record).message for record in records] == [record.id for record in records]

    def test_a_group_of_many_changes_is_written_whole(self, yard: Yard) -> None:
        records = yard.make(40)
        crate = yard.crate()
        drafts = [yard.draft(parent=crate) for _ in range(40)]
        moves = [change(record, state=yard.harness.states[1]) for record in records]
        committed = yard.write(*moves, *drafts, Change(crate, crate, event="spawn"))
        assert len(committed.records) == 81
        assert yard.store.tally(yard.harness.kind, parent=crate.ref) == {yard.harness.states[0]: 40}
        assert {record.parent for record in present(committed)[40:80]} == {crate.ref}

    def test_limits_are_checked_before_anything_is_sent_a11(self, yard: Yard) -> None:
        h = yard.harness
        made = yard.one()
        too_large = [
            Group((change(made, docs={h.documents[0]: b'"' + b"x" * (512 * 1024) + b'"'}),)),
            Group((change(made, docs=dict.fromkeys(h.documents, b'"' + b"x" * (400 * 1024) + b'"')),)),
            Group(tuple(yard.draft() for _ in range(MAX_CHANGES + 1))),
        ]
        for group in too_large:
            (answer,) = commit(yard.store, group)
            assert type(answer) is TooLarge
        largest = b'"' + b"x" * (512 * 1024 - 2) + b'"'
        assert yard.update(made, docs={h.documents[0]: largest}).docs.raw[h.documents[0]] == largest
        assert yard.get(made).docs.raw[h.documents[0]] == largest

    # --- creating

    def test_an_id_that_exists_is_refused(self, yard: Yard) -> None:
        name = f"{yard.harness.prefix}-own"
        (first,) = commit(yard.store, Group((yard.draft(id=name),)))
        if not yard.harness.own_ids:
            assert isinstance(first, StoreError)
            return
        assert isinstance(first, Committed)
        (second,) = commit(yard.store, Group((yard.draft(id=name, message="second"),)))
        assert type(second) is Exists
        assert yard.get(Ref(yard.harness.kind, name)).message == ""
        assert yard.store.tally(yard.harness.kind) == {yard.harness.states[0]: 1}

    def test_a_request_asked_twice_makes_one_record_a11(self, yard: Yard) -> None:
        first = yard.one(request="r-1", message="first")
        again = yard.write(yard.draft(request="r-1", message="second"), yard.draft(message="rides along"))
        assert again.records == (first, None)
        assert again.idle == ()
        other = yard.one(request="r-2")
        assert other.id != first.id
        assert yard.store.tally(yard.harness.kind) == {yard.harness.states[0]: 2}

    def test_a_request_is_answered_with_the_record_as_it_is_now_a11(self, yard: Yard) -> None:
        moved = yard.update(yard.one(request="r-1"), state=yard.harness.states[1])
        (answer,) = present(yard.write(yard.draft(request="r-1")))
        assert (answer.id, answer.state, answer.version) == (moved.id, moved.state, moved.version)

    def test_a_record_is_found_by_its_request_with_its_documents(self, yard: Yard) -> None:
        h = yard.harness
        made = yard.one(request="r-1", docs={h.documents[0]: b"1"})
        yard.one(request="r-2")
        moved = yard.update(made, state=h.states[1])
        found = yard.store.requested(h.kind, "r-1")
        assert (found.id, found.state, found.version) == (moved.id, moved.state, moved.version)
        assert found.docs.raw[h.documents[0]] == b"1"
        for kind, request in ((h.kind, "r-3"), (h.kind, ""), (h.parent_kind, "r-1")):
            with pytest.raises(NotFound):
                yard.store.requested(kind, request)
        yard.write(Change(found, None, "remove"))
        with pytest.raises(NotFound):
            yard.store.requested(h.kind, "r-1")

    def test_a_request_in_two_groups_of_a_call_makes_one_record_a11(self, yard: Yard) -> None:
        first, second = commit(yard.store, Group((yard.draft(request="r-1"),)), Group((yard.draft(request="r-1"),)))
        assert first.records[0].id == second.records[0].id
        assert yard.store.tally(yard.harness.kind) == {yard.harness.states[0]: 1}

    def test_requests_are_apart_for_each_kind_a11(self, yard: Yard) -> None:
        parcel = yard.one(request="r-1")
        crate = yard.crate(request="r-1")
        assert (parcel.kind, crate.kind) == (yard.harness.kind, yard.harness.parent_kind)

    # --- removing

    def test_a_removed_record_leaves_nothing(self, yard: Yard) -> None:
        h = yard.harness
        crate = yard.crate()
        made = yard.one(parent=crate, owner="ann", request="r-1", docs={h.documents[0]: b"1"}, keys=(yard.key("k"),))
        session = yard.session()
        (mine,) = yard.claimed(yard.store, session)
        committed = yard.remove(mine)
        assert committed.records == (None,)
        with pytest.raises(NotFound):
            yard.get(made)
        assert yard.store.history(made.kind, made.id) == []
        assert yard.store.tally(h.kind) == {}
        assert yard.store.tally(h.kind, parent=crate.ref) == {}
        assert yard.store.find(h.kind, owner="ann").records == []
        assert yard.store.find(h.kind, parent=crate.ref).records == []
        assert yard.store.open_parents([crate.ref]) == set()
        again = yard.one(parent=crate, request="r-1", keys=(yard.key("k"),))
        assert (again.version, dict(again.docs.raw)) == (again.seq, dict(h.required))
        assert yard.ids(yard.claim(yard.store, session)) == [again.id]

    def test_a_recreated_id_never_matches_an_old_version_b10(self, yard: Yard) -> None:
        if not yard.harness.own_ids:
            first = yard.one()
            yard.remove(first)
            assert yard.one().id != first.id
            return
        name = f"{yard.harness.prefix}-again"
        lives = [yard.one(id=name)]
        for _ in range(12):
            lives.append(yard.update(lives[-1]))
        yard.remove(lives[-1])
        now = yard.one(id=name)
        versions = {old.version for old in lives}
        for _ in range(12):
            assert now.version not in versions, "what a step wrote under (id, version) is never taken for another's"
            for old in lives:
                (answer,) = commit(yard.store, Group((change(old, message="from a former life"),)))
                assert isinstance(answer, Conflict)
            now = yard.update(now)
        assert yard.get(now).message == ""

    # --- claims fence commits

    def test_a_change_of_a_free_record_is_refused_while_it_is_held_a2(self, yard: Yard) -> None:
        made = yard.one()
        (mine,) = yard.claimed(yard.store, yard.session())
        (answer,) = commit(yard.store, Group((change(made, message="act"),)))
        assert type(answer) is Conflict
        read = yard.get(made)
        assert read.session == mine.session
        assert yard.get(made).message == ""

    def test_a_claim_that_ended_is_claim_lost(self, yard: Yard) -> None:
        yard.one()
        session = yard.session()
        (mine,) = yard.claimed(yard.store, session)
        yard.release(mine)
        for late in (
            change(mine, event="", message="late"),
            change(mine, session=None),
            Change(mine, None, event="remove"),
        ):
            (answer,) = commit(yard.store, Group((late,)))
            assert type(answer) is ClaimLost

    def test_saves_are_fenced_by_the_version(self, yard: Yard) -> None:
        yard.one()
        (mine,) = yard.claimed(yard.store, yard.session())
        saved = yard.save(mine, message="half way")
        assert (saved.version, saved.session, saved.message) == (mine.version + 1, mine.session, "half way")
        (answer,) = commit(yard.store, Group((change(mine, event="", message="stale"),)))
        assert isinstance(answer, Conflict)
        assert yard.get(mine).message == "half way"

    def test_an_empty_call_and_an_empty_group_are_answered(self, store: Store) -> None:
        assert store.commit([]) == []
        (answer,) = commit(store, Group(()))
        assert answer == Committed(())
