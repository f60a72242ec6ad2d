"""The index: catalogues that are searched, upgraded and built again, on SQLite and on PostgreSQL."""

import shutil
import sys
import threading
from collections.abc import Iterator
from contextlib import closing
from dataclasses import replace
from functools import partial
from pathlib import Path

import pytest

from tests.index.toy import TOY, Bill, Toy
from tests.servers.process import wait_until
from waybill.demo import PARCEL, SHIPMENT
from waybill.engine import Engine
from waybill.index import CatalogueTables, Index, open_index, rebuild_catalogue
from waybill.index.postgres import PostgresIndex
from waybill.record import BadStore, StoreError, StoreUnavailable
from waybill.rules import Machines
from waybill.step import New
from waybill.stores import open_store

BILLS = [Bill("first", [("a/1", 10), ("a/2", 20), ("b/1", 30)]), Bill("second", [("a/3", 40), ("c", 50)])]


def count(shelf: CatalogueTables) -> int:
    return int(shelf.query("count")[0]["n"])


def test_statements_by_name_find_what_was_entered(index: Index) -> None:
    shelf = index.open_catalogue(TOY)
    for bill in BILLS:
        TOY.enter(shelf, bill)
    assert shelf.query("under", folder="a") == [
        {"path": "a/1", "size": 10},
        {"path": "a/2", "size": 20},
        {"path": "a/3", "size": 40},
    ]
    assert shelf.execute("forget", bill="first") == 3
    assert [row["path"] for row in shelf.query("under", folder="a")] == ["a/3"]


def test_quotes_percent_signs_and_casts_survive_both_dialects(index: Index, index_url: str) -> None:
    shelf = index.open_catalogue(TOY)
    assert shelf.query("odd", n=27) == [{"quoted": ":path", "percent": "100%", "rest": 7, "semicolon": "it's; fine"}]
    assert shelf.query("dialect") == [{"name": "postgres" if index_url.startswith("postgres") else "common"}]


def test_a_transaction_is_all_or_nothing(index: Index) -> None:
    shelf = index.open_catalogue(TOY)

    def second_is_refused() -> None:
        with shelf.transaction():
            shelf.execute("enter", path="x", size=1, bill="b")
            with shelf.transaction():
                shelf.execute("enter", path="y", size=-1, bill="b")

    with pytest.raises(StoreError):
        second_is_refused()
    assert count(shelf) == 0
    with shelf.transaction():
        shelf.execute("enter", path="x", size=1, bill="b")
    assert count(shelf) == 1


def test_many_rows_are_all_or_nothing_too(index: Index) -> None:
    shelf = index.open_catalogue(TOY)
    assert shelf.execute_all("enter", ({"path": f"p{n}", "size": n, "bill": "b"} for n in range(500))) == 500
    with pytest.raises(StoreError):
        shelf.execute_all("enter", [{"path": "new", "size": 1, "bill": "b"}, {"path": "p1", "size": 1, "bill": "b"}])
    assert count(shelf) == 500
    assert shelf.execute_all("enter", []) == 0


def test_it_lives_in_the_stores_own_database_and_disturbs_nothing(index_url: str, tmp_path: Path) -> None:
    (tmp_path / "a folder").mkdir(exist_ok=True)
    with closing(open_store(index_url)) as store, closing(open_index(index_url)) as index:
        shelf = index.open_catalogue(TOY)
        TOY.enter(shelf, BILLS[0])
        engine = Engine(store, Machines.from_machines([SHIPMENT, PARCEL]))
        made = engine.submit(New("shipment", {"order": {"parcels": 1}}))
        assert count(shelf) == 3
        assert list(store.check()) == []
        shelf.drop()
        assert store.get("shipment", made.id).state == "Sorting"
    with closing(open_store(index_url)) as again:
        assert again.count_by_state("shipment") == {"Sorting": 1}


def test_a_query_never_answers_more_rows_than_asked_for(index: Index) -> None:
    shelf = index.open_catalogue(TOY)
    for bill in BILLS:
        TOY.enter(shelf, bill)
    assert len(shelf.query("under", folder="a", max_rows=3)) == 3
    with pytest.raises(StoreError, match="under found more than 2 rows"):
        shelf.query("under", folder="a", max_rows=2)
    with pytest.raises(ValueError, match="1 to 10000"):
        shelf.query("under", folder="a", max_rows=10_001)


def test_an_unknown_statement_names_those_there_are(index: Index) -> None:
    with pytest.raises(LookupError, match="no statement nope; it has clear_some, count"):
        index.open_catalogue(TOY).query("nope")


def test_rebuild_makes_the_same_tables_from_manifests(index: Index) -> None:
    shelf = index.open_catalogue(TOY)
    TOY.enter(shelf, Bill("stale", [(f"gone/{n}", n) for n in range(5)]))
    seen: list[str] = []

    def sources() -> Iterator[Bill]:
        assert count(shelf) == 0, "manifests are listed only when nothing can be removed any more"
        for bill in BILLS:
            seen.append(shelf.get_state())
            yield bill

    assert rebuild_catalogue(shelf, TOY, sources) == 2
    assert (count(shelf), seen, shelf.get_state()) == (5, ["rebuilding", "rebuilding"], "ready")
    assert rebuild_catalogue(shelf, TOY, lambda: BILLS) == 2
    assert count(shelf) == 5


def test_a_rebuild_that_breaks_off_says_so_until_it_is_repeated(index: Index) -> None:
    shelf = index.open_catalogue(TOY)

    def broken() -> Iterator[Bill]:
        yield BILLS[0]
        raise OSError("the disk went away")

    with pytest.raises(OSError, match="went away"):
        rebuild_catalogue(shelf, TOY, broken)
    assert (shelf.get_state(), count(shelf)) == ("rebuilding", 3)
    rebuild_catalogue(shelf, TOY, lambda: BILLS)
    assert (shelf.get_state(), count(shelf)) == ("ready", 5)


def test_opening_again_keeps_what_is_there_and_drop_removes_it(index: Index, index_url: str) -> None:
    shelf = index.open_catalogue(TOY)
    TOY.enter(shelf, BILLS[0])
    with closing(open_index(index_url)) as again:
        assert count(again.open_catalogue(TOY)) == 3
    shelf.drop()
    assert count(index.open_catalogue(TOY)) == 0


@pytest.fixture
def copied(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """The toy's SQL files in a package that a test may change."""
    package = tmp_path / "packages" / "copied_toy"
    shutil.copytree(
        Path(sys.modules["tests.index.toy"].__file__ or "").parent,
        package,
        ignore=shutil.ignore_patterns("__pycache__"),
    )
    monkeypatch.syspath_prepend(str(package.parent))
    yield package
    sys.modules.pop("copied_toy", None)


COPY = replace(TOY, package="copied_toy")


def test_a_later_migration_upgrades_and_an_older_program_refuses(index: Index, copied: Path) -> None:
    old = index.open_catalogue(TOY)
    TOY.enter(old, BILLS[0])
    (copied / "migrations" / "0003_more.sql").write_text(
        "alter table toy_file add column colour text; update toy_file set colour = 'red'"
    )
    (copied / "statements.sql").write_text("-- name: colours\nselect distinct colour from toy_file")
    assert index.open_catalogue(COPY).query("colours") == [{"colour": "red"}]
    with pytest.raises(BadStore, match="version 3, newer than this release knows"):
        index.open_catalogue(TOY)


def test_a_migration_that_was_changed_afterwards_is_refused(index: Index, copied: Path) -> None:
    index.open_catalogue(TOY)
    file = copied / "migrations" / "0001_files.sql"
    file.write_text(file.read_text() + "-- changed")
    with pytest.raises(BadStore, match="Migration 1 of the catalogue toy was changed after it was applied"):
        index.open_catalogue(COPY)


def test_a_migration_that_fails_leaves_nothing_behind(index: Index, copied: Path) -> None:
    index.open_catalogue(TOY)
    bad = copied / "migrations" / "0003_bad.sql"
    bad.write_text("create table toy_third (id integer); create table toy_file (id integer)")
    with pytest.raises(StoreError):
        index.open_catalogue(COPY)
    bad.write_text("create table toy_third (id integer)")
    index.open_catalogue(COPY)


def test_a_catalogue_touches_only_its_own_tables(index: Index, copied: Path) -> None:
    (copied / "migrations" / "0003_foreign.sql").write_text("create table record (id integer)")
    with pytest.raises(BadStore, match="touches the table record; the names of its tables must begin with toy_"):
        index.open_catalogue(COPY)
    (copied / "migrations" / "0003_foreign.sql").write_text("drop table index_state")
    with pytest.raises(BadStore, match="touches the table index_state"):
        index.open_catalogue(COPY)
    with pytest.raises(BadStore, match="no name for a catalogue"):
        index.open_catalogue(Toy(name="a_b"))


@pytest.mark.parametrize(
    ("file", "sentence"),
    [
        ("0004_gap.sql", r"numbered \[1, 2, 4\]; they must be 1, 2, 3 without a gap"),
        ("0001_twice.sql", "two migrations have the number 1"),
        ("notes.sql", "notes.sql is no name for a migration"),
    ],
)
def test_misnamed_migrations_are_refused(index: Index, copied: Path, file: str, sentence: str) -> None:
    (copied / "migrations" / file).write_text("select 1")
    with pytest.raises(BadStore, match=sentence):
        index.open_catalogue(COPY)


def test_two_processes_that_migrate_at_once_both_succeed(index_url: str, index: Index) -> None:
    problems: list[BaseException] = []
    start = threading.Barrier(4)

    def migrate() -> None:
        try:
            start.wait()
            with closing(open_index(index_url)) as own:
                TOY.enter(
                    own.open_catalogue(TOY),
                    Bill(threading.current_thread().name, [(threading.current_thread().name, 1)]),
                )
        except BaseException as error:  # noqa: BLE001 - shown below
            problems.append(error)

    threads = [threading.Thread(target=migrate) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert problems == []
    assert count(index.open_catalogue(TOY)) == 4


def test_bad_urls_and_places_are_sentences(tmp_path: Path) -> None:
    with pytest.raises(BadStore, match="mysql is no database for an index; its URL is sqlite"):
        open_index("mysql://host/db")
    with pytest.raises(BadStore, match="names no file for an index"):
        open_index("sqlite://")
    (tmp_path / "text.db").write_text("this is no database at all, but long enough to be looked at")
    with pytest.raises(BadStore, match="is damaged, or no SQLite database"):
        open_index(f"sqlite:///{tmp_path}/text.db")
    (tmp_path / "file").write_text("")
    with pytest.raises(BadStore, match="cannot be made"):
        open_index(f"sqlite:///{tmp_path}/file/index.db")
    with pytest.raises(StoreUnavailable, match=r"postgresql://me:\*\*\*@127.0.0.1:1/db cannot be reached"):
        open_index("postgresql://me:secret@127.0.0.1:1/db")


TERMINATE = """select pg_terminate_backend(pid) from pg_stat_activity
    where application_name = 'waybill index' and datname = current_database() and pid <> pg_backend_pid()"""


def test_a_connection_lost_inside_a_transaction_writes_nothing(fast_postgres_url: str) -> None:
    with closing(PostgresIndex(fast_postgres_url)) as index, closing(PostgresIndex(fast_postgres_url)) as other:
        shelf = index.open_catalogue(TOY)

        def cut_off() -> None:
            with shelf.transaction():
                shelf.execute("enter", path="x", size=1, bill="b")
                other.run(TERMINATE, {}, 10)
                with pytest.raises(StoreUnavailable, match="cannot be reached"):
                    shelf.execute("enter", path="y", size=1, bill="b")
                shelf.execute("enter", path="z", size=1, bill="b")

        with pytest.raises(StoreUnavailable, match="nothing was written"):
            cut_off()
        assert count(shelf) == 0


def _is_gone(pid: int) -> bool:
    return not Path(f"/proc/{pid}").exists()


def test_a_connection_lost_between_two_calls_costs_none_of_them(fast_postgres_url: str) -> None:
    """After a restart of the server each thread has a dead connection: a job that met three of them would fail, with
    the server up.
    """
    with closing(PostgresIndex(fast_postgres_url)) as index, closing(PostgresIndex(fast_postgres_url)) as other:
        shelf = index.open_catalogue(TOY)
        for lost in range(1, 4):
            ((row,), _) = index.run("select pg_backend_pid() as pid", {}, 1)
            other.run(TERMINATE, {}, 10)
            wait_until(partial(_is_gone, row["pid"]), "the end of the server's process")
            with shelf.transaction():
                shelf.execute("enter", path=str(lost), size=1, bill="b")
            assert count(shelf) == lost
