"""Many groups in one call, on PostgreSQL: written together where they are independent, and in order where they are not."""

import random
from typing import Any

import pytest

from tests.stores.postgres.harness import PostgresHarness
from waybill.record import (
    Change,
    CommitGroup,
    CommitResult,
    Conflict,
    LockUnavailable,
    Record,
    RecordExists,
    StoreError,
)
from waybill.stores.conformance import StoreTester
from waybill.stores.conformance.tester import commit_groups, make_change, records_of
from waybill.stores.postgres import PostgresStore
from waybill.stores.postgres.rows import COLUMNS

LONG_NAME = "".join(map(chr, random.Random(1).choices(range(256, 9000), k=4000)))  # too random to be compressed


@pytest.fixture
def calls(tester: StoreTester, monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The statements that the tester's store sends."""
    store: Any = tester.store
    sent: list[str] = []
    run = store._connection.run

    def noted(statement: str, *args: Any, **more: Any) -> Any:
        sent.append(statement)
        return run(statement, *args, **more)

    monkeypatch.setattr(store._connection, "run", noted)
    return sent


class TestTogether:
    def test_a_hundred_groups_are_one_statement_b1(self, tester: StoreTester, calls: list[str]) -> None:
        records = tester.make_parcels(200)
        pairs = zip(records[::2], records[1::2], strict=True)
        groups = [CommitGroup((make_change(a, state="Weighing"), make_change(b, state="Weighing"))) for a, b in pairs]
        tester.update(records[7])
        calls.clear()
        answers = commit_groups(tester.store, *groups)
        assert len(calls) == 1
        assert [type(answer) for answer in answers].count(CommitResult) == 99
        assert type(answers[3]) is Conflict
        assert tester.store.count_by_state("parcel") == {"Weighing": 198, "Packing": 2}

    @pytest.mark.parametrize(
        "poison", [{"state": "a\0b"}, {"owner": LONG_NAME}], ids=["a null character", "a long name"]
    )
    def test_a_poison_group_is_found_and_the_others_are_written_b1(
        self, tester: StoreTester, poison: dict[str, str]
    ) -> None:
        """What only the server finds: a state with a null character, a name too long for an index. The whole statement fails."""
        records = tester.make_parcels(6)
        groups = [
            CommitGroup((make_change(record, **(poison if i == 2 else {"owner": "ann"})),))
            for i, record in enumerate(records)
        ]
        answers = commit_groups(tester.store, *groups)
        assert [isinstance(answer, CommitResult) for answer in answers] == [True, True, False, True, True, True]
        assert "cannot store" in str(answers[2])
        assert [tester.get(record).owner for record in records] == ["ann", "ann", "", "ann", "ann", "ann"]

    @pytest.mark.parametrize(
        ("field", "value"), [("error_count", 2**40), ("state", "\ud800"), ("queue_position", 2**70)]
    )
    def test_a_value_that_has_no_bytes_never_leaves_the_process_b1(
        self, tester: StoreTester, calls: list[str], field: str, value: Any
    ) -> None:
        first, second = tester.make_parcels(2)
        calls.clear()
        answers = commit_groups(
            tester.store,
            CommitGroup((make_change(first, **{field: value}),)),
            CommitGroup((make_change(second, owner="ann"),)),
        )
        assert len(calls) == 1
        assert [type(answer) for answer in answers] == [StoreError, CommitResult]


class TestInOrder:
    """As if each group came in a call of its own."""

    def test_a_lock_that_one_group_drops_is_taken_by_the_next(self, tester: StoreTester) -> None:
        lock = tester.lock_name_of("k")
        tester.make_parcels(1, locks=(lock,))
        tester.make_parcels(1)
        owner, other = tester.claim_records(tester.store, tester.open_session())
        answers = commit_groups(
            tester.store,
            CommitGroup((make_change(other, cause="", locks=(lock,)),)),
            CommitGroup((make_change(owner, cause="", locks=()),)),
        )
        assert [type(answer) for answer in answers] == [LockUnavailable, CommitResult], "asked before it was dropped"
        owner = records_of(answers[1])[0]
        owner = tester.save(owner, locks=(lock,))
        answers = commit_groups(
            tester.store,
            CommitGroup((make_change(owner, cause="", locks=()),)),
            CommitGroup((make_change(other, cause="", locks=(lock,)),)),
        )
        assert [type(answer) for answer in answers] == [CommitResult, CommitResult]

    def test_a_lock_goes_from_one_record_of_a_group_to_another(
        self, tester: StoreTester, harness: PostgresHarness
    ) -> None:
        lock = tester.lock_name_of("k")
        tester.make_parcels(1, locks=(lock,))
        tester.make_parcels(1)
        owner, other = tester.claim_records(tester.store, tester.open_session())
        tester.write(make_change(other, cause="", locks=(lock,)), make_change(owner, cause="", locks=()))
        assert harness.admin.execute("select id from record_lock").fetchall() == [(other.id,)]

    def test_a_parent_closes_after_the_group_that_closed_its_last_child(self, tester: StoreTester) -> None:
        crate = tester.make_crate()
        (child,) = tester.make_parcels(1, parent=crate)
        closing = CommitGroup((make_change(crate, state="Shipped", open=False, requires_children_settled=True),))
        done = CommitGroup((make_change(child, state="Sent", open=False),))
        assert [type(answer) for answer in commit_groups(tester.store, closing, done)] == [Conflict, CommitResult]
        child = tester.update(tester.get(child), state="Packing", open=True)
        done = CommitGroup((make_change(child, state="Sent", open=False),))
        assert [type(answer) for answer in commit_groups(tester.store, done, closing)] == [CommitResult, CommitResult]

    def test_requires_children_settled_sees_a_child_that_the_same_group_creates(self, tester: StoreTester) -> None:
        crate = tester.make_crate()
        closing = make_change(crate, state="Shipped", open=False, requires_children_settled=True)
        (answer,) = commit_groups(tester.store, CommitGroup((closing, tester.draft_parcel(parent=crate))))
        assert type(answer) is Conflict
        assert tester.store.count_by_state("parcel") == {}

    def test_a_wake_before_and_after_the_change_of_a_parent(self, tester: StoreTester) -> None:
        first, second = tester.make_parcels(2)
        wake_first = commit_groups(
            tester.store, CommitGroup((), (first.ref,)), CommitGroup((make_change(first, blocked_by="children"),))
        )
        assert wake_first[1].records[0].blocked_by is None
        wake_last = commit_groups(
            tester.store, CommitGroup((make_change(second, blocked_by="children"),)), CommitGroup((), (second.ref,))
        )
        assert wake_last[0].records[0].blocked_by == "children"
        assert [tester.get(record).blocked_by for record in (first, second)] == [None, None]

    def test_a_group_that_blocks_and_wakes_the_same_record_leaves_it_free(self, tester: StoreTester) -> None:
        made = tester.make_parcel()
        written = tester.write(make_change(made, blocked_by="children"), wake=(made.ref, made.ref))
        assert records_of(written)[0].blocked_by is None
        assert (tester.get(made).blocked_by, tester.get(made).wake_count) == (None, 2)

    def test_groups_of_one_call_are_as_groups_of_many(self, tester: StoreTester) -> None:
        """Random groups that share locks, parents and idempotency keys: one call with all of them against one call for each."""
        rng = random.Random(7)
        other = StoreTester(type(tester.harness)(tester.harness.url))  # type: ignore[attr-defined, call-arg]
        sides = (tester, other)
        made = [side.make_parcels(10) for side in sides]
        sessions = [side.open_session() for side in sides]
        claimed = [side.claim_records(side.store, session, 10) for side, session in zip(sides, sessions, strict=True)]
        for _ in range(12):
            plan = [
                (
                    i,
                    rng.choice(["save", "continue", "create", "wake"]),
                    rng.sample("abc", rng.randrange(3)),
                    rng.choice("xy"),
                )
                for i in range(10)
            ]
            answers: list[list[Any]] = []
            for side, records, first in zip(sides, claimed, made, strict=True):
                groups = []
                for i, what, locks, request in plan:
                    if what == "create":
                        groups.append(CommitGroup((side.draft_parcel(idempotency_key=request),)))
                    elif what == "wake":
                        groups.append(CommitGroup((), (first[i].ref,)))
                    elif records[i].session is not None:
                        groups.append(
                            CommitGroup(
                                (make_change(records[i], cause="" if what == "save" else "done", locks=tuple(locks)),)
                            )
                        )
                answers.append(
                    commit_groups(side.store, *groups)
                    if side is tester
                    else [commit_groups(side.store, group)[0] for group in groups]
                )
                for i, record in enumerate(records):
                    records[i] = side.get(record)
            assert [shape(answer) for answer in answers[0]] == [shape(answer) for answer in answers[1]]
            one_call, many_calls = [shape(CommitResult(tuple(records))) for records in claimed]
            assert one_call == many_calls
        other.harness.close()


def shape(answer: Any) -> Any:
    if not isinstance(answer, CommitResult):
        return type(answer)
    return [
        record and (record.state, record.locks, record.session is None, record.wake_count, record.message)
        for record in answer.records
    ]


class TestNumbers:
    def test_an_id_that_looks_like_a_minted_one_is_not_minted_again_b6(self, tester: StoreTester) -> None:
        seq = tester.make_parcel().seq
        own = [tester.make_parcel(id=f"pcl{seq + n:010d}") for n in (2, 3, 7)]
        made = tester.make_parcels(6)
        ids = tester.ids_of(own + made)
        assert len(set(ids)) == len(ids)
        assert all(record.id == f"pcl{record.seq:010d}" for record in made)

    def test_two_of_one_call_that_come_to_the_same_id_b6(self, tester: StoreTester) -> None:
        seq = tester.make_parcel().seq
        answers = commit_groups(
            tester.store,
            CommitGroup((tester.draft_parcel(id=f"pcl{seq + 2:010d}"),)),
            CommitGroup((tester.draft_parcel(),)),
        )
        assert [type(answer) for answer in answers] in ([CommitResult, CommitResult], [RecordExists, CommitResult])
        assert len(
            {record.id for answer in answers if isinstance(answer, CommitResult) for record in records_of(answer)}
        ) == sum(isinstance(answer, CommitResult) for answer in answers)

    def test_more_than_ten_digits_are_kept_b6(self, tester: StoreTester, harness: PostgresHarness) -> None:
        harness.admin.execute("update counter set last_seq = 12345678901")
        made = tester.make_parcel(documents={"label": b"1"})
        assert made.id == "pcl12345678902"
        assert tester.get(made) == made

    def test_queue_positions_continue_from_those_of_another_process_b4(
        self, tester: StoreTester, harness: PostgresHarness
    ) -> None:
        tester.make_parcels(30, parent=tester.make_crate())
        session = tester.open_session()
        assert len(tester.claim(tester.store, session, 9)) == 9
        other = harness.open()
        (early,) = records_of(commit_groups(other, CommitGroup((tester.draft_parcel(parent=tester.make_crate()),)))[0])
        tester.store.renew_session(session)
        (late,) = records_of(commit_groups(other, CommitGroup((tester.draft_parcel(parent=tester.make_crate()),)))[0])
        assert (early.queue_position, late.queue_position) == (0, 8)
        (own,) = tester.make_parcels(1, parent=tester.make_crate())
        assert own.queue_position == 8, "this process knows what it claimed before it is written"

    def test_children_of_many_parents_in_one_call_b4(self, tester: StoreTester) -> None:
        crates = [tester.make_crate() for _ in range(3)]
        groups = [
            CommitGroup(tuple(tester.draft_parcel(parent=crates[(i + j) % 3]) for j in range(4))) for i in range(6)
        ]
        children = [record for answer in commit_groups(tester.store, *groups) for record in records_of(answer)]
        for crate in crates:
            assert [child.queue_position for child in children if child.parent == crate.ref] == list(range(8))

    def test_a_large_group_of_all_sorts(self, tester: StoreTester) -> None:
        crate = tester.make_crate()
        records = tester.make_parcels(300)
        changes = [make_change(record, state="Weighing", documents={"label": b"2"}) for record in records[:200]]
        changes += [Change(record, None, cause="remove") for record in records[200:]]
        changes += [
            tester.draft_parcel(parent=crate, idempotency_key=f"r{i}", documents={"label": b"3"}) for i in range(600)
        ]
        written = tester.write(*changes)
        assert sum(record is None for record in written.records) == 100
        assert tester.store.count_by_state("parcel") == {"Weighing": 200, "Packing": 600}
        assert tester.store.count_by_state("parcel", parent=crate.ref) == {"Packing": 600}
        again = tester.write(*changes[-3:])
        assert [record and record.id for record in again.records] == [
            record and record.id for record in written.records[-3:]
        ]
        assert list(tester.store.check()) == []


def test_documents_are_bytes_in_the_table_b2(tester: StoreTester, harness: PostgresHarness) -> None:
    body = b'{"b":"\\u0000","a":"\\ud800","b":1.0}'
    made = tester.make_parcel(documents={"label": body})
    assert harness.admin.execute("select body from document where id = %s", [made.id]).fetchall() == [(body,)]
    (kind,) = harness.admin.execute(
        "select data_type from information_schema.columns where table_name = 'document' and column_name = 'body'"
    ).fetchone() or (None,)
    assert kind == "bytea"


def test_a_save_stays_within_its_page(tester: StoreTester, harness: PostgresHarness) -> None:
    """No index knows what a save changes, so no index is written (a heap-only tuple)."""
    tester.make_parcels(1)
    (mine,) = tester.claim_records(tester.store, tester.open_session())
    store = tester.store
    assert isinstance(store, PostgresStore)
    counts = "select n_tup_upd, n_tup_hot_upd from pg_stat_xact_user_tables where relid = 'record'::regclass"
    db = store._connection._ensure_open()
    db.autocommit = False
    before = db.execute(counts).fetchone() or (0, 0)
    for _ in range(3):
        mine = tester.save(mine, message="half way")
    after = db.execute(counts).fetchone() or (0, 0)
    db.commit()
    db.autocommit = True
    assert (after[0] - before[0], after[1] - before[1]) == (3, 3)


def test_records_and_rows_have_the_same_fields() -> None:
    """A field that is added to Record and forgotten here would be lost silently."""
    fields = [name for name in Record.__struct_fields__ if name != "documents"]
    at = fields.index("parent")
    assert list(COLUMNS) == [*fields[:at], "parent_kind", "parent_id", *fields[at + 1 :]]
