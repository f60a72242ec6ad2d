"""Many groups in one call, on PostgreSQL: written together where they have nothing to do with each other, and in
order where they have.
"""

import random
from typing import Any

import pytest

from tests.stores.postgres.harness import PostgresHarness
from waybill.record import Change, Committed, Conflict, Exists, Group, Record, StoreError, Taken
from waybill.stores.conformance import Yard
from waybill.stores.conformance.yard import change, commit, present
from waybill.stores.postgres import PostgresStore
from waybill.stores.postgres.rows import COLUMNS

LONG_NAME = "".join(map(chr, random.Random(1).choices(range(256, 9000), k=4000)))  # and too various to be made shorter


@pytest.fixture
def calls(yard: Yard, monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The statements that the yard's store sends."""
    store: Any = yard.store
    sent: list[str] = []
    run = store._connection.run

    def noted(statement: str, *args: Any, **more: Any) -> Any:
        sent.append(statement)
        return run(statement, *args, **more)

    monkeypatch.setattr(store._connection, "run", noted)
    return sent


class TestTogether:
    def test_a_hundred_groups_are_one_statement_b1(self, yard: Yard, calls: list[str]) -> None:
        records = yard.make(200)
        pairs = zip(records[::2], records[1::2], strict=True)
        groups = [Group((change(a, state="Weighing"), change(b, state="Weighing"))) for a, b in pairs]
        yard.update(records[7])
        calls.clear()
        answers = commit(yard.store, *groups)
        assert len(calls) == 1
        assert [type(answer) for answer in answers].count(Committed) == 99
        assert type(answers[3]) is Conflict
        assert yard.store.tally("parcel") == {"Weighing": 198, "Packing": 2}

    @pytest.mark.parametrize(
        "poison", [{"state": "a\0b"}, {"owner": LONG_NAME}], ids=["a null character", "a long name"]
    )
    def test_a_poison_group_is_found_and_the_others_are_written_b1(self, yard: Yard, poison: dict[str, str]) -> None:
        """What only the server can know: a state with a null character, a name that no index can hold.

        The whole statement fails.
        """
        records = yard.make(6)
        groups = [
            Group((change(record, **(poison if i == 2 else {"owner": "ann"})),)) for i, record in enumerate(records)
        ]
        answers = commit(yard.store, *groups)
        assert [isinstance(answer, Committed) for answer in answers] == [True, True, False, True, True, True]
        assert "cannot keep" in str(answers[2])
        assert [yard.get(record).owner for record in records] == ["ann", "ann", "", "ann", "ann", "ann"]

    @pytest.mark.parametrize(("field", "value"), [("tries", 2**40), ("state", "\ud800"), ("turn", 2**70)])
    def test_a_value_that_has_no_bytes_never_leaves_the_process_b1(
        self, yard: Yard, calls: list[str], field: str, value: Any
    ) -> None:
        first, second = yard.make(2)
        calls.clear()
        answers = commit(yard.store, Group((change(first, **{field: value}),)), Group((change(second, owner="ann"),)))
        assert len(calls) == 1
        assert [type(answer) for answer in answers] == [StoreError, Committed]


class TestInOrder:
    """As if each group came in a call of its own."""

    def test_a_key_that_one_group_drops_is_taken_by_the_next(self, yard: Yard) -> None:
        key = yard.key("k")
        yard.make(1, keys=(key,))
        yard.make(1)
        holder, other = yard.claimed(yard.store, yard.session())
        answers = commit(
            yard.store, Group((change(other, event="", keys=(key,)),)), Group((change(holder, event="", keys=()),))
        )
        assert [type(answer) for answer in answers] == [Taken, Committed], "asked before it was dropped"
        holder = present(answers[1])[0]
        holder = yard.save(holder, keys=(key,))
        answers = commit(
            yard.store, Group((change(holder, event="", keys=()),)), Group((change(other, event="", keys=(key,)),))
        )
        assert [type(answer) for answer in answers] == [Committed, Committed]

    def test_a_key_goes_from_one_record_of_a_group_to_another(self, yard: Yard, harness: PostgresHarness) -> None:
        key = yard.key("k")
        yard.make(1, keys=(key,))
        yard.make(1)
        holder, other = yard.claimed(yard.store, yard.session())
        yard.write(change(other, event="", keys=(key,)), change(holder, event="", keys=()))
        assert harness.admin.execute("select id from key").fetchall() == [(other.id,)]

    def test_a_parent_closes_after_the_group_that_closed_its_last_child(self, yard: Yard) -> None:
        crate = yard.crate()
        (child,) = yard.make(1, parent=crate)
        closing = Group((change(crate, state="Shipped", open=False, closes=True),))
        done = Group((change(child, state="Sent", open=False),))
        assert [type(answer) for answer in commit(yard.store, closing, done)] == [Conflict, Committed]
        child = yard.update(yard.get(child), state="Packing", open=True)
        done = Group((change(child, state="Sent", open=False),))
        assert [type(answer) for answer in commit(yard.store, done, closing)] == [Committed, Committed]

    def test_closes_sees_a_child_that_the_same_group_makes(self, yard: Yard) -> None:
        crate = yard.crate()
        closing = change(crate, state="Shipped", open=False, closes=True)
        (answer,) = commit(yard.store, Group((closing, yard.draft(parent=crate))))
        assert type(answer) is Conflict
        assert yard.store.tally("parcel") == {}

    def test_a_nudge_before_and_after_the_change_of_a_parent(self, yard: Yard) -> None:
        first, second = yard.make(2)
        nudge_first = commit(yard.store, Group((), (first.ref,)), Group((change(first, parked="children"),)))
        assert nudge_first[1].records[0].parked is None
        nudge_last = commit(yard.store, Group((change(second, parked="children"),)), Group((), (second.ref,)))
        assert nudge_last[0].records[0].parked == "children"
        assert [yard.get(record).parked for record in (first, second)] == [None, None]

    def test_a_group_that_parks_and_nudges_the_same_record_leaves_it_free(self, yard: Yard) -> None:
        made = yard.one()
        written = yard.write(change(made, parked="children"), nudges=(made.ref, made.ref))
        assert present(written)[0].parked is None
        assert (yard.get(made).parked, yard.get(made).nudges) == (None, 2)

    def test_groups_of_one_call_are_as_groups_of_many(self, yard: Yard) -> None:
        """Random groups that share keys, parents and requests: one call with all of them against one call for each."""
        rng = random.Random(7)
        other = Yard(type(yard.harness)(yard.harness.url))  # type: ignore[attr-defined, call-arg]
        sides = (yard, other)
        made = [side.make(10) for side in sides]
        sessions = [side.session() for side in sides]
        held = [side.claimed(side.store, session, 10) for side, session in zip(sides, sessions, strict=True)]
        for _ in range(12):
            plan = [
                (
                    i,
                    rng.choice(["save", "go on", "request", "nudge"]),
                    rng.sample("abc", rng.randrange(3)),
                    rng.choice("xy"),
                )
                for i in range(10)
            ]
            answers: list[list[Any]] = []
            for side, records, first in zip(sides, held, made, strict=True):
                groups = []
                for i, what, keys, request in plan:
                    if what == "request":
                        groups.append(Group((side.draft(request=request),)))
                    elif what == "nudge":
                        groups.append(Group((), (first[i].ref,)))
                    elif records[i].session is not None:
                        groups.append(
                            Group((change(records[i], event="" if what == "save" else "done", keys=tuple(keys)),))
                        )
                answers.append(
                    commit(side.store, *groups) if side is yard else [commit(side.store, group)[0] for group in groups]
                )
                for i, record in enumerate(records):
                    records[i] = side.get(record)
            assert [shape(answer) for answer in answers[0]] == [shape(answer) for answer in answers[1]]
            one_call, many_calls = [shape(Committed(tuple(records))) for records in held]
            assert one_call == many_calls
        other.harness.close()


def shape(answer: Any) -> Any:
    if not isinstance(answer, Committed):
        return type(answer)
    return [
        record and (record.state, record.keys, record.session is None, record.nudges, record.message)
        for record in answer.records
    ]


class TestNumbers:
    def test_an_id_that_looks_like_a_minted_one_is_not_minted_again_b6(self, yard: Yard) -> None:
        seq = yard.one().seq
        own = [yard.one(id=f"pcl{seq + n:010d}") for n in (2, 3, 7)]
        made = yard.make(6)
        ids = yard.ids(own + made)
        assert len(set(ids)) == len(ids)
        assert all(record.id == f"pcl{record.seq:010d}" for record in made)

    def test_two_of_one_call_that_come_to_the_same_id_b6(self, yard: Yard) -> None:
        seq = yard.one().seq
        answers = commit(yard.store, Group((yard.draft(id=f"pcl{seq + 2:010d}"),)), Group((yard.draft(),)))
        assert [type(answer) for answer in answers] in ([Committed, Committed], [Exists, Committed])
        assert len(
            {record.id for answer in answers if isinstance(answer, Committed) for record in present(answer)}
        ) == sum(isinstance(answer, Committed) for answer in answers)

    def test_more_than_ten_digits_are_kept_b6(self, yard: Yard, harness: PostgresHarness) -> None:
        harness.admin.execute("update counter set last = 12345678901")
        made = yard.one(docs={"label": b"1"})
        assert made.id == "pcl12345678902"
        assert yard.get(made) == made

    def test_turns_go_on_where_another_process_has_come_to_b4(self, yard: Yard, harness: PostgresHarness) -> None:
        yard.make(30, parent=yard.crate())
        session = yard.session()
        assert len(yard.claim(yard.store, session, 9)) == 9
        other = harness.open()
        (early,) = present(commit(other, Group((yard.draft(parent=yard.crate()),)))[0])
        yard.store.renew(session)
        (late,) = present(commit(other, Group((yard.draft(parent=yard.crate()),)))[0])
        assert (early.turn, late.turn) == (0, 8)
        (own,) = yard.make(1, parent=yard.crate())
        assert own.turn == 8, "what this process handed out it knows before it is written"

    def test_children_of_many_parents_in_one_call_b4(self, yard: Yard) -> None:
        crates = [yard.crate() for _ in range(3)]
        groups = [Group(tuple(yard.draft(parent=crates[(i + j) % 3]) for j in range(4))) for i in range(6)]
        children = [record for answer in commit(yard.store, *groups) for record in present(answer)]
        for crate in crates:
            assert [child.turn for child in children if child.parent == crate.ref] == list(range(8))

    def test_a_large_group_of_all_sorts(self, yard: Yard) -> None:
        crate = yard.crate()
        records = yard.make(300)
        changes = [change(record, state="Weighing", docs={"label": b"2"}) for record in records[:200]]
        changes += [Change(record, None, event="remove") for record in records[200:]]
        changes += [yard.draft(parent=crate, request=f"r{i}", docs={"label": b"3"}) for i in range(600)]
        written = yard.write(*changes)
        assert sum(record is None for record in written.records) == 100
        assert yard.store.tally("parcel") == {"Weighing": 200, "Packing": 600}
        assert yard.store.tally("parcel", parent=crate.ref) == {"Packing": 600}
        again = yard.write(*changes[-3:])
        assert [record and record.id for record in again.records] == [
            record and record.id for record in written.records[-3:]
        ]
        assert list(yard.store.check()) == []


def test_documents_are_bytes_in_the_table_b2(yard: Yard, harness: PostgresHarness) -> None:
    body = b'{"b":"\\u0000","a":"\\ud800","b":1.0}'
    made = yard.one(docs={"label": body})
    assert harness.admin.execute("select body from document where id = %s", [made.id]).fetchall() == [(body,)]
    (kind,) = harness.admin.execute(
        "select data_type from information_schema.columns where table_name = 'document' and column_name = 'body'"
    ).fetchone() or (None,)
    assert kind == "bytea"


def test_a_save_stays_within_its_page(yard: Yard, harness: PostgresHarness) -> None:
    """No index knows what a save changes, so no index is written (a heap-only tuple)."""
    yard.make(1)
    (mine,) = yard.claimed(yard.store, yard.session())
    store = yard.store
    assert isinstance(store, PostgresStore)
    counts = "select n_tup_upd, n_tup_hot_upd from pg_stat_xact_user_tables where relid = 'record'::regclass"
    db = store._connection._ready()
    db.autocommit = False
    before = db.execute(counts).fetchone() or (0, 0)
    for _ in range(3):
        mine = yard.save(mine, message="half way")
    after = db.execute(counts).fetchone() or (0, 0)
    db.commit()
    db.autocommit = True
    assert (after[0] - before[0], after[1] - before[1]) == (3, 3)


def test_records_and_rows_have_the_same_fields() -> None:
    """A field that is added to Record and forgotten here would be lost without a word."""
    fields = [name for name in Record.__struct_fields__ if name != "docs"]
    at = fields.index("parent")
    assert list(COLUMNS) == [*fields[:at], "parent_kind", "parent_id", *fields[at + 1 :]]
