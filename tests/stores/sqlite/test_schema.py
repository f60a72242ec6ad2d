"""The schema: its steps, what it keeps true by itself, and the check that finds what is not."""

import re
from contextlib import closing
from importlib import resources
from pathlib import Path
from typing import Any

import apsw
import pytest
from msgspec.structs import replace

from waybill.record import BadStore, Change, Finding, Group, Record, Ref, Role
from waybill.statements import load
from waybill.stores.sqlite import SqliteStore, migrations
from waybill.stores.sqlite import store as sqlite
from waybill.stores.sqlite.database import Database


@pytest.fixture
def store(tmp_path: Path) -> SqliteStore:
    store = SqliteStore(f"sqlite:///{tmp_path}/store.db")
    crate = Record("crate", "box", "Filling")
    parcels = [Record("parcel", f"p{i}", "Packing", parent=Ref("crate", "box"), keys=(f"ark/{i}",)) for i in range(3)]
    store.commit(
        [Group(tuple(Change(None, record, event="create", docs={"label": b"1"}) for record in [crate, *parcels]))]
    )
    return store


def break_it(store: SqliteStore, statement: str) -> None:
    """As no driver would, with the file's own guards off."""
    for pragma in ("foreign_keys = off", "ignore_check_constraints = on"):
        store._db.execute(f"pragma {pragma}").fetchall()
    store._db.execute(statement).fetchall()


def test_steps_are_numbered_without_a_gap() -> None:
    names = [entry.name for entry in resources.files("waybill.stores.sqlite").joinpath("migrations").iterdir()]
    assert sorted(names) == [name for _, name in migrations.steps()]
    assert [number for number, _ in migrations.steps()] == list(range(1, len(names) + 1))


def test_each_statement_of_a_step_is_one_statement() -> None:
    """Of two in one call SQLite would run the second only after the first one's rows are read."""
    for _, name in migrations.steps():
        for title, statement in load("waybill.stores.sqlite", f"migrations/{name}").items():
            code = re.sub(r"--.*", "", statement)
            assert ";" not in code, f"{name}: {title}"


def test_a_file_keeps_its_step_and_that_it_is_ours(store: SqliteStore) -> None:
    assert store._db.db.pragma("user_version") == migrations.steps()[-1][0]
    assert store._db.db.pragma("application_id") == migrations.OURS
    assert store._db.db.pragma("journal_mode") == "wal"
    assert store._db.db.pragma("synchronous") == 2
    assert store._db.db.pragma("foreign_keys") == 1


@pytest.mark.parametrize(
    ("statement", "guard"),
    [
        ("update record set priority = 100 where id = 'p0'", "priority between"),
        ("update record set parked = 'soon' where id = 'p0'", "parked in"),
        ("update record set wake_at = 5 where id = 'p0'", "wake_at = 0"),
        ("update record set version = 0 where id = 'p0'", "version >= seq"),
        ("update record set parent_id = null where id = 'p0'", "parent_kind is null"),
        ("update record set session = 'nobody' where id = 'p0'", "FOREIGN KEY"),
        ("update record set state = 5.5 where id = 'p0'", None),
        ("update record set open = 2 where id = 'p0'", "open in"),
        ("insert into record select * from record", "UNIQUE"),
        ("insert into document values (999, 'label', x'31')", "FOREIGN KEY"),
        ("insert into document values (1, 'label', 'text')", "cannot store TEXT"),
        ("insert into history values (1, 999, 1.0, '', '', null, 'Filling', '')", "event"),
        ("update tally set n = -1", "n >= 0"),
        ("insert into counter values (2, 0, 0)", "one = 1"),
    ],
)
def test_the_file_itself_refuses_what_must_never_be(store: SqliteStore, statement: str, guard: str | None) -> None:
    if guard is None:
        store._db.execute(statement)  # a number becomes text: no harm
        assert store.get("parcel", "p0").state == "5.5"
        return
    with pytest.raises(apsw.ConstraintError, match=re.escape(guard)):
        store._db.execute(statement)


def test_a_held_record_cannot_be_parked(store: SqliteStore) -> None:
    session = store.open_session(host="h", ttl=5, about={})
    assert len(store.claim([Role("parcel", "Packing")], session, 1)) == 1
    with pytest.raises(apsw.ConstraintError, match="session is null or parked is null"):
        store._db.execute("update record set parked = 'wait' where session is not null")


def test_minted_ids_are_numbered_by_the_stores_one_counter(store: SqliteStore) -> None:
    answers = store.commit(
        [Group((Change(None, Record(kind, f"{kind[0]}id*", "A"), event="create"),)) for kind in ("job", "batch", "job")]
    )
    records = [answer.records[0] for answer in answers]  # type: ignore[union-attr]
    assert [record.id for record in records if record] == ["jid0000000005", "bid0000000006", "jid0000000007"]
    assert [record.seq for record in records if record] == [5, 6, 7]


def test_a_minted_id_that_somebody_took_is_passed_over(store: SqliteStore) -> None:
    own = Record("job", "jid0000000006", "A")
    minted = Record("job", "jid*", "A")
    answers = store.commit([Group((Change(None, record, event="create"),)) for record in (own, minted)])
    records = [answer.records[0] for answer in answers]  # type: ignore[union-attr]
    assert [(record.id, record.seq) for record in records if record] == [("jid0000000006", 5), ("jid0000000007", 7)]


@pytest.mark.parametrize(
    ("statement", "rule", "problem"),
    [
        ("update tally set n = n + 1 where parent_id = ''", "tally", "4 are counted and there are 3."),
        ("delete from tally where parent_id = 'box'", "tally", "0 are counted and there are 3."),
        (
            "update record set session = 'ghost' where id = 'p1'",
            "held by the living",
            "It is held by ghost, which has ended.",
        ),
        ("insert into key values ('ark/x', 2)", "keys", "It is held by parcel p0, which does not ask for it."),
        (
            "update record set keys = '[\"ark/x\"]', parked = 'key ark/x' where id = 'p1'",
            "waiters wait for what is held",
            "It waits for the key ark/x, which nobody holds and nobody is about to take.",
        ),
        (
            "update record set parked = 'mark owner/x' where id = 'p1'",
            "marks stop while they are in force",
            "It is stopped by the mark owner/x, which is off.",
        ),
        (
            "insert into session values ('s', 'h', 9, 0, 9, x'7b7d', x'7b7d');"
            "update record set keys = '[\"ark/x\"]', session = 's' where id = 'p1'",
            "what is worked on has its keys",
            "It is worked on and does not hold ark/x, which it asks for.",
        ),
        ("update counter set seq = 2", "counter", "2 is counted as the last record and 4 exists."),
        ("delete from record where id = 'p2'", "rows without a record", "It has rows of a record that is gone."),
    ],
)
def test_check_finds_what_does_not_agree_and_mend_mends_it(
    store: SqliteStore, statement: str, rule: str, problem: str
) -> None:
    assert list(store.check()) == []
    break_it(store, statement)
    found = [finding for finding in store.check() if finding.rule == rule]
    assert problem in [finding.problem for finding in found]
    assert all(finding.mendable for finding in found)
    assert store.mend(found[0]) is True
    assert [finding for finding in store.check() if finding.rule == rule] == []
    assert store.mend(found[0]) is False


@pytest.mark.parametrize("text", ["[", '{"a":1}', "[1]"])
def test_a_damaged_list_of_names_is_named_and_said_to_whoever_reads_it(store: SqliteStore, text: str) -> None:
    store._db.execute("update record set keys = ? where id = 'p1'", (text,))
    (found,) = store.check()
    assert (found.rule, found.where, found.problem) == (
        "what is written can be read",
        "parcel p1",
        "Its list of keys is no list of names.",
    )
    assert (found.mendable, store.mend(found)) == (False, False)
    with pytest.raises(BadStore, match="A record's list of keys or marks is damaged"):
        store.find("parcel")


def test_a_document_that_is_no_json_is_named(store: SqliteStore) -> None:
    store._db.execute("insert into document select seq, 'odd', x'7b' from record where id = 'p1'")
    (found,) = store.check()
    assert (found.rule, found.where, found.problem) == (
        "what is written can be read",
        "parcel p1 odd",
        "Its document odd is no JSON.",
    )
    assert (found.mendable, store.mend(found)) == (False, False)


def test_a_waiter_is_told_only_if_nobody_is_about_to_take_the_key(store: SqliteStore) -> None:
    store._db.execute("update record set keys = '[\"ark/x\"]' where id in ('p1', 'p2')")
    store._db.execute("update record set parked = 'key ark/x' where id = 'p1'")
    assert list(store.check()) == []


def test_damage_is_found_and_not_mended(store: SqliteStore) -> None:
    assert store.mend(Finding("file", "x", "damaged", "restore")) is False


def test_a_group_that_cannot_be_stored_is_undone_by_itself(store: SqliteStore, monkeypatch: pytest.MonkeyPatch) -> None:
    """Unforeseen, half way through a group: the row is moved, and then its history line cannot be bound."""
    records = [store.get("parcel", f"p{i}") for i in range(3)]
    moved = [replace(record, state="Weighing", keys=()) for record in records]
    changes = [Change(record, after, event="done") for record, after in zip(records, moved, strict=True)]
    changes[1] = replace(changes[1], event="\ud800")
    # which foresees this one
    monkeypatch.setattr("waybill.stores.sqlite.commits.vet", lambda groups: [None] * len(groups))
    answers = store.commit([Group((change,)) for change in changes])
    assert [type(answer).__name__ for answer in answers] == ["Committed", "StoreError", "Committed"]
    assert "cannot be stored" in str(answers[1])
    assert store.get("parcel", "p1") == records[1]
    assert store.tally("parcel") == {"Packing": 1, "Weighing": 2}
    assert list(store.check()) == []


def test_a_before_that_lies_about_its_state_fails_alone(store: SqliteStore) -> None:
    first, second = store.get("parcel", "p0"), store.get("parcel", "p1")
    lie = replace(first, state="Nowhere")
    pairs = [(lie, replace(first, state="Weighing")), (second, replace(second, state="Weighing")), (lie, None)]
    answers = [store.commit([Group((Change(before, after, event="done"),))])[0] for before, after in pairs]
    assert [type(answer).__name__ for answer in answers] == ["Conflict", "Committed", "Conflict"]
    assert store.tally("parcel") == {"Packing": 2, "Weighing": 1}
    assert list(store.check()) == []


def test_a_claim_parks_at_most_a_thousand_and_a_mark_lets_all_of_them_go(store: SqliteStore) -> None:
    """However many stand at the head of the queue: no transaction is longer than a thousand rows."""
    stopped = Record("job", "jid*", "Packing", gates=("collections/full",), priority=1)
    for _ in range(3):
        store.commit([Group(tuple(Change(None, stopped, event="create") for _ in range(800)))])
    store.commit([Group((Change(None, Record("job", "free", "Packing"), event="create"),))])
    store.mark("collections/full", True)
    session = store.open_session(host="h", ttl=60, about={})
    claims = [[each.record.id for each in store.claim([Role("job", "Packing")], session, 1)] for _ in range(3)]
    assert claims == [[], [], ["free"]]
    assert len(store._db.execute("select 1 from record where parked = 'mark collections/full'").fetchall()) == 2400
    store.mark("collections/full", False)
    assert store._db.execute("select 1 from record where parked is not null").fetchall() == []


def test_a_file_that_another_process_is_just_making_is_ours(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """It looks empty, and a moment later full: both looks must be at the same moment."""
    url = f"sqlite:///{tmp_path}/waybill.db"
    bring_up = migrations.bring_up

    def interrupted(database: Database, *, migrate: bool) -> None:
        monkeypatch.setattr(sqlite, "bring_up", bring_up)
        execute = database.execute

        def other_first(statement: str, *values: Any) -> apsw.Cursor:
            if "from sqlite_schema" in statement:
                database.execute = execute
                SqliteStore(url).close()
            return execute(statement, *values)

        database.execute = other_first
        bring_up(database, migrate=migrate)

    monkeypatch.setattr(sqlite, "bring_up", interrupted)
    with closing(SqliteStore(url)) as store:
        assert store.marks() == {}
