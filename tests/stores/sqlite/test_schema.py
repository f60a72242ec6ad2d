"""The schema: its version, its constraints, and the check that finds and repairs violations."""

import re
from contextlib import closing
from importlib import resources
from pathlib import Path
from typing import Any

import apsw
import pytest
from msgspec.structs import replace

from waybill.record import BadStore, Change, CommitGroup, Finding, Record, Ref, WorkQueue
from waybill.sql_statements import load_statements
from waybill.stores.sqlite import SqliteStore, schema
from waybill.stores.sqlite import store as sqlite
from waybill.stores.sqlite.database import SqliteDatabase, SqliteRows


@pytest.fixture
def store(tmp_path: Path) -> SqliteStore:
    store = SqliteStore(f"sqlite:///{tmp_path}/store.db")
    crate = Record("crate", "box", "Filling")
    parcels = [Record("parcel", f"p{i}", "Packing", parent=Ref("crate", "box"), locks=(f"ark/{i}",)) for i in range(3)]
    store.commit(
        [
            CommitGroup(
                tuple(Change(None, record, cause="create", documents={"label": b"1"}) for record in [crate, *parcels])
            )
        ]
    )
    return store


def damage(store: SqliteStore, statement: str) -> None:
    """Damage the file as no driver would, with its constraints off."""
    for pragma in ("foreign_keys = off", "ignore_check_constraints = on"):
        store._db.execute(f"pragma {pragma}").fetchall()
    store._db.execute(statement).fetchall()


def test_each_statement_of_the_schema_is_one_statement() -> None:
    """Of two in one call SQLite would run the second only after the first one's rows are read."""
    for name in ["schema.sql", *(f"migrations/{name}" for name in schema.list_migrations().values())]:
        for title, statement in load_statements("waybill.stores.sqlite", name).items():
            code = re.sub(r"--.*", "", statement)
            assert ";" not in code, f"{name}: {title}"


def test_an_older_file_gets_the_migrations_that_it_lacks(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "store.db"
    SqliteStore(f"sqlite:///{path}").close()
    package = tmp_path / "package" / "migrations"
    package.mkdir(parents=True)
    (package / "0002_color.sql").write_text("-- name: color\ncreate table color (name text) strict\n")
    (package / "0003_row.sql").write_text("-- name: row\ninsert into color values ('red')\n")
    monkeypatch.setattr(resources, "files", lambda _: package.parent)
    with pytest.raises(BadStore, match="has schema 1; this Waybill needs 3"):
        SqliteStore(f"sqlite:///{path}", migrate=False)
    for _ in range(2):
        with closing(SqliteStore(f"sqlite:///{path}")) as store:
            assert store._db.db.pragma("user_version") == 3
            assert store._db.execute("select name from color").fetchall() == [("red",)]
    (package / "0003_row.sql").rename(package / "0004_row.sql")
    with pytest.raises(BadStore, match="not numbered from 0002 on without a gap"):
        SqliteStore(f"sqlite:///{path}")


def test_a_file_records_its_schema_version_and_application(store: SqliteStore) -> None:
    assert store._db.db.pragma("user_version") == max(schema.list_migrations(), default=1)
    assert store._db.db.pragma("application_id") == schema.APPLICATION_ID
    assert store._db.db.pragma("journal_mode") == "wal"
    assert store._db.db.pragma("synchronous") == 2
    assert store._db.db.pragma("foreign_keys") == 1


@pytest.mark.parametrize(
    ("statement", "guard"),
    [
        ("update record set priority = 100 where id = 'p0'", "priority between"),
        ("update record set blocked_by = 'soon' where id = 'p0'", "blocked_by in"),
        ("update record set wake_at = 5 where id = 'p0'", "wake_at = 0"),
        ("update record set version = 0 where id = 'p0'", "version >= seq"),
        ("update record set parent_id = null where id = 'p0'", "parent_kind is null"),
        ("update record set session = 'nobody' where id = 'p0'", "FOREIGN KEY"),
        ("update record set state = 5.5 where id = 'p0'", None),
        ("update record set open = 2 where id = 'p0'", "open in"),
        ("insert into record select * from record", "UNIQUE"),
        ("insert into document values (999, 'label', x'31')", "FOREIGN KEY"),
        ("insert into document values (1, 'label', 'text')", "cannot store TEXT"),
        ("insert into history values (1, 999, 1.0, '', '', null, 'Filling', '')", "cause"),
        ("update state_count set n = -1", "n >= 0"),
        ("insert into counter values (2, 0, 0)", "singleton = 1"),
    ],
)
def test_the_file_itself_refuses_what_must_never_be(store: SqliteStore, statement: str, guard: str | None) -> None:
    if guard is None:
        store._db.execute(statement)  # a number becomes text: no harm
        assert store.get("parcel", "p0").state == "5.5"
        return
    with pytest.raises(apsw.ConstraintError, match=re.escape(guard)):
        store._db.execute(statement)


def test_a_claimed_record_cannot_be_blocked(store: SqliteStore) -> None:
    session = store.open_session(host="h", ttl=5, about={})
    assert len(store.claim([WorkQueue("parcel", "Packing")], session, 1)) == 1
    with pytest.raises(apsw.ConstraintError, match="session is null or blocked_by is null"):
        store._db.execute("update record set blocked_by = 'wait' where session is not null")


def test_minted_ids_are_numbered_by_the_stores_one_counter(store: SqliteStore) -> None:
    answers = store.commit(
        [
            CommitGroup((Change(None, Record(kind, f"{kind[0]}id*", "A"), cause="create"),))
            for kind in ("job", "batch", "job")
        ]
    )
    records = [answer.records[0] for answer in answers]  # type: ignore[union-attr]
    assert [record.id for record in records if record] == ["jid0000000005", "bid0000000006", "jid0000000007"]
    assert [record.seq for record in records if record] == [5, 6, 7]


def test_a_minted_id_that_somebody_took_is_passed_over(store: SqliteStore) -> None:
    own = Record("job", "jid0000000006", "A")
    minted = Record("job", "jid*", "A")
    answers = store.commit([CommitGroup((Change(None, record, cause="create"),)) for record in (own, minted)])
    records = [answer.records[0] for answer in answers]  # type: ignore[union-attr]
    assert [(record.id, record.seq) for record in records if record] == [("jid0000000006", 5), ("jid0000000007", 7)]


@pytest.mark.parametrize(
    ("statement", "rule", "problem"),
    [
        (
            "update state_count set n = n + 1 where parent_id = ''",
            "state counts are right",
            "4 are counted and there are 3.",
        ),
        ("delete from state_count where parent_id = 'box'", "state counts are right", "0 are counted and there are 3."),
        (
            "update record set session = 'ghost' where id = 'p1'",
            "claims belong to live sessions",
            "It is claimed by ghost, which has ended.",
        ),
        (
            "insert into record_lock values ('ark/x', 2, 'exclusive')",
            "locks have owners",
            "It is owned by parcel p0, which does not ask for it.",
        ),
        (
            "update record set locks = '[\"ark/x\"]', blocked_by = 'lock ark/x' where id = 'p1'",
            "lock waiters wait for an owned lock",
            "It is blocked by the lock ark/x, which no record owns or is about to take.",
        ),
        (
            "update record set blocked_by = 'hold owner/x' where id = 'p1'",
            "holds block only while they are set",
            "It is blocked by the hold owner/x, which is not set.",
        ),
        (
            "insert into session values ('s', 'h', 9, 0, 9, x'7b7d', x'7b7d');"
            "update record set locks = '[\"ark/x\"]', session = 's' where id = 'p1'",
            "claimed records own their locks",
            "It is claimed and does not own the lock ark/x, which it asks for.",
        ),
        ("update counter set last_seq = 2", "counter", "2 is counted as the last record and 4 exists."),
        ("delete from record where id = 'p2'", "rows without a record", "It has rows of a record that is gone."),
    ],
)
def test_check_finds_violations_and_repair_repairs_them(
    store: SqliteStore, statement: str, rule: str, problem: str
) -> None:
    assert list(store.check()) == []
    damage(store, statement)
    found = [finding for finding in store.check() if finding.rule == rule]
    assert problem in [finding.problem for finding in found]
    assert all(finding.repairable for finding in found)
    assert store.repair(found[0]) is True
    assert [finding for finding in store.check() if finding.rule == rule] == []
    assert store.repair(found[0]) is False


@pytest.mark.parametrize("text", ["[", '{"a":1}', "[1]"])
def test_a_damaged_list_of_names_is_found_and_reported_to_readers(store: SqliteStore, text: str) -> None:
    store._db.execute("update record set locks = ? where id = 'p1'", (text,))
    (found,) = store.check()
    assert (found.rule, found.where, found.problem) == (
        "stored data can be read",
        "parcel p1",
        "Its list of locks is no list of names.",
    )
    assert (found.repairable, store.repair(found)) == (False, False)
    with pytest.raises(BadStore, match="A record's list of locks or holds is damaged"):
        store.find("parcel")


def test_a_document_that_is_no_json_is_named(store: SqliteStore) -> None:
    store._db.execute("insert into document select seq, 'odd', x'7b' from record where id = 'p1'")
    (found,) = store.check()
    assert (found.rule, found.where, found.problem) == (
        "stored data can be read",
        "parcel p1 odd",
        "Its document odd is no JSON.",
    )
    assert (found.repairable, store.repair(found)) == (False, False)


def test_a_waiter_is_found_only_if_nobody_is_about_to_take_the_lock(store: SqliteStore) -> None:
    store._db.execute("update record set locks = '[\"ark/x\"]' where id in ('p1', 'p2')")
    store._db.execute("update record set blocked_by = 'lock ark/x' where id = 'p1'")
    assert list(store.check()) == []


def test_damage_is_found_and_not_repaired(store: SqliteStore) -> None:
    assert store.repair(Finding("file", "x", "damaged", "restore")) is False


def test_a_group_that_cannot_be_stored_is_undone_by_itself(store: SqliteStore, monkeypatch: pytest.MonkeyPatch) -> None:
    """An unexpected error half way through a group: the row is updated, and then its history entry cannot be bound."""
    records = [store.get("parcel", f"p{i}") for i in range(3)]
    moved = [replace(record, state="Weighing", locks=()) for record in records]
    changes = [Change(record, after, cause="done") for record, after in zip(records, moved, strict=True)]
    changes[1] = replace(changes[1], cause="\ud800")
    # which would refuse it
    monkeypatch.setattr("waybill.stores.sqlite.commits.validate_groups", lambda groups: [None] * len(groups))
    answers = store.commit([CommitGroup((change,)) for change in changes])
    assert [type(answer).__name__ for answer in answers] == ["CommitResult", "StoreError", "CommitResult"]
    assert "cannot be stored" in str(answers[1])
    assert store.get("parcel", "p1") == records[1]
    assert store.count_by_state("parcel") == {"Packing": 1, "Weighing": 2}
    assert list(store.check()) == []


def test_a_before_that_lies_about_its_state_fails_alone(store: SqliteStore) -> None:
    first, second = store.get("parcel", "p0"), store.get("parcel", "p1")
    lie = replace(first, state="Nowhere")
    pairs = [(lie, replace(first, state="Weighing")), (second, replace(second, state="Weighing")), (lie, None)]
    answers = [store.commit([CommitGroup((Change(before, after, cause="done"),))])[0] for before, after in pairs]
    assert [type(answer).__name__ for answer in answers] == ["Conflict", "CommitResult", "Conflict"]
    assert store.count_by_state("parcel") == {"Packing": 2, "Weighing": 1}
    assert list(store.check()) == []


def test_a_claim_blocks_at_most_a_thousand_and_clearing_the_hold_unblocks_all(store: SqliteStore) -> None:
    """However many records are at the head of the queue: no transaction writes more than a thousand rows."""
    stopped = Record("job", "jid*", "Packing", hold_names=("collections/full",), priority=1)
    for _ in range(3):
        store.commit([CommitGroup(tuple(Change(None, stopped, cause="create") for _ in range(800)))])
    store.commit([CommitGroup((Change(None, Record("job", "free", "Packing"), cause="create"),))])
    store.set_hold("collections/full")
    session = store.open_session(host="h", ttl=60, about={})
    claims = [[each.record.id for each in store.claim([WorkQueue("job", "Packing")], session, 1)] for _ in range(3)]
    assert claims == [[], [], ["free"]]
    assert len(store._db.execute("select 1 from record where blocked_by = 'hold collections/full'").fetchall()) == 2400
    store.clear_hold("collections/full")
    assert store._db.execute("select 1 from record where blocked_by is not null").fetchall() == []


def test_a_file_that_another_process_is_just_creating_is_accepted(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It is empty, and a moment later it is not: the checks must read one snapshot."""
    url = f"sqlite:///{tmp_path}/waybill.db"
    prepare_schema = schema.prepare_schema

    def interrupted(database: SqliteDatabase, *, migrate: bool) -> None:
        monkeypatch.setattr(sqlite, "prepare_schema", prepare_schema)
        execute = database.execute

        def other_first(statement: str, *values: Any) -> SqliteRows:
            if "from sqlite_schema" in statement:
                database.execute = execute
                SqliteStore(url).close()
            return execute(statement, *values)

        database.execute = other_first
        prepare_schema(database, migrate=migrate)

    monkeypatch.setattr(sqlite, "prepare_schema", interrupted)
    with closing(SqliteStore(url)) as store:
        assert store.list_holds() == {}
