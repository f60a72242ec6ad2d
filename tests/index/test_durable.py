"""Durable catalogues, bulk loads, triggers, searches in texts and pages, on SQLite and on PostgreSQL."""

from contextlib import closing
from dataclasses import dataclass, field
from typing import Any

import pytest

from tests.index.ledger import LEDGER
from tests.index.toy import TOY
from waybill.index import CatalogueTables, Index, rebuild_catalogue
from waybill.record import BadStore, StoreError


@dataclass(frozen=True)
class FormerLedger:
    """The same tables, as a program has them that takes them for rebuildable ones."""

    name: str = LEDGER.name
    package: str = LEDGER.package
    entered: list[Any] = field(default_factory=list)

    def clear(self, tables: CatalogueTables) -> int:
        return tables.execute("remove", id=1)

    def enter(self, tables: CatalogueTables, source: int) -> None:
        tables.execute("enter", id=source, title="")


def test_a_durable_catalogue_is_neither_dropped_nor_rebuilt(index: Index) -> None:
    tables = index.open_catalogue(LEDGER)
    tables.execute("enter", id=1, title="the truth")
    assert (tables.durable, tables.get_state()) == (True, "durable")
    with pytest.raises(
        StoreError, match="ledger is durable: its rows are the truth, and it cannot be dropped"
    ) as caught:
        tables.drop()
    assert caught.value.code == "durable-catalogue"
    with pytest.raises(StoreError, match="it cannot be rebuilt"):
        rebuild_catalogue(tables, FormerLedger(), lambda: [2])
    with pytest.raises(BadStore, match="is durable here, and this program would drop and rebuild it"):
        index.open_catalogue(FormerLedger())
    assert tables.query("page", after_id=0, row_limit=10) == [{"id": 1, "title": "the truth"}]


def test_a_catalogue_becomes_durable_when_it_is_whole(index: Index) -> None:
    former = index.open_catalogue(FormerLedger())
    former.execute("enter", id=1, title="kept")
    former.set_state("rebuilding")
    with pytest.raises(BadStore, match="lacks rows: a rebuild was interrupted"):
        index.open_catalogue(LEDGER)
    former.set_state("ready")
    assert index.open_catalogue(LEDGER).query("count") == [{"n": 1}]


def test_a_catalogue_says_which_it_is(index: Index) -> None:
    class Undecided:
        name, package = "ledger", "tests.index.ledger"

    class Both(FormerLedger):
        durable = True

    for catalogue, problem in ((Undecided(), "is neither"), (Both(), "is durable and has `clear` and `enter`")):
        with pytest.raises(BadStore, match=problem):
            index.open_catalogue(catalogue)


def test_triggers_keep_counts_and_do_not_count_themselves(index: Index) -> None:
    tables = index.open_catalogue(LEDGER)
    assert tables.execute("enter", id=1, title="one") == 1
    assert tables.execute_all("enter", [{"id": n, "title": "x"} for n in (1, 2, 3)]) == 3
    assert tables.load("ledger_entry", ("id", "title"), [(4, "four"), (5, "five")]) == 2
    assert tables.query("count") == [{"n": 5}]
    assert (tables.execute("remove", id=5), tables.execute("remove", id=5)) == (1, 0)
    assert tables.query("count") == [{"n": 4}]


def test_many_rows_are_loaded_at_once_all_or_none(index: Index) -> None:
    tables = index.open_catalogue(TOY)
    odd = [("tab\there", 1, "b"), ("back\\slash", 2, "b"), ("\\N", 3, "b"), ('new\nline, "quoted"', 2**62, "é")]
    assert tables.load("toy_file", ("path", "size", "bill"), iter(odd)) == 4
    assert tables.load("toy_file", ("path", "size", "bill"), ((f"p{n:05d}", n, "c") for n in range(12_000))) == 12_000
    for repeated in ([("q", 1, "d"), ("p00001", 1, "d")], [("q", 1, "d"), ("r", -1, "d")]):
        with pytest.raises(StoreError):
            tables.load("toy_file", ("path", "size", "bill"), repeated)
    assert tables.query("count") == [{"n": 12_004}]
    assert sorted(row["path"] for row in tables.query("of_bill", bill="b")) == sorted(row[0] for row in odd[:3])

    def broken() -> Any:
        yield ("q", 1, "d")
        raise OSError("the source went away")

    with pytest.raises(OSError, match="went away"):
        tables.load("toy_file", ("path", "size", "bill"), broken())
    assert tables.query("count") == [{"n": 12_004}]
    with pytest.raises(ValueError, match="its tables begin with toy_"):
        tables.load("index_state", ("catalogue", "state"), [])
    with pytest.raises(ValueError, match="no name of a table or column"):
        tables.load("toy_file", ("path) select 1 --",), [])


def test_a_load_belongs_to_the_transaction_around_it(index: Index) -> None:
    tables = index.open_catalogue(TOY)

    def give_up() -> None:
        with tables.transaction():
            tables.load("toy_file", ("path", "size"), [("a", 1)])
            tables.execute("enter", path="b", size=-1, bill="")

    with pytest.raises(StoreError):
        give_up()
    assert tables.query("count") == [{"n": 0}]


def test_a_page_has_up_to_ten_thousand_rows(index: Index) -> None:
    tables = index.open_catalogue(LEDGER)
    tables.load("ledger_entry", ("id", "title"), ((n, "") for n in range(1, 10_002)))
    assert len(tables.query("page", after_id=0, row_limit=10_000, max_rows=10_000)) == 10_000
    with pytest.raises(StoreError, match="found more than 10000 rows"):
        tables.query("page", after_id=0, row_limit=10_001)
    paged = tables.iter_rows("page", keys=("id",), after=(0,), page=3_000)
    assert [row["id"] for row in paged] == list(range(1, 10_002))
    assert [row["id"] for row in tables.iter_rows("page", keys=("id",), after=(10_000,))] == [10_001]
    assert list(tables.iter_rows("page", keys=("id",), after=(10_001,))) == []


def test_texts_are_found_by_their_middle(index: Index, index_url: str) -> None:
    tables = index.open_catalogue(LEDGER)
    titles = ["Sea surface temperature", "SURFACE wind", "100% surf_ace", "Ärger", 'a "quoted" thing']
    tables.load("ledger_entry", ("id", "title"), enumerate(titles, start=1))

    def find(text: str) -> list[int]:
        if index_url.startswith("postgres"):
            return [row["id"] for row in tables.query("find", text=text)]
        quoted = text.replace('"', '""')
        return [row["id"] for row in tables.query("find", phrase=f'"{quoted}"')]

    assert (find("urfac"), find("surface w"), find("0% s"), find("rger"), find('"quo'), find("nothing")) == (
        [1, 2], [2], [3], [4], [5], []
    )  # fmt: skip
    tables.execute("enter", id=1, title="renamed")
    tables.execute("remove", id=2)
    assert (find("urfac"), find("name")) == ([], [1])


def test_the_index_of_trigrams_is_used(fast_postgres_url: str) -> None:
    from waybill.index.postgres import PostgresIndex

    with closing(PostgresIndex(fast_postgres_url)) as index:
        tables = index.open_catalogue(LEDGER)
        tables.load("ledger_entry", ("id", "title"), ((n, f"file number {n}") for n in range(3_000)))
        index.run("analyze ledger_entry", {}, 0)
        plan = index.run("explain select id from ledger_entry where trigrams(title) @> trigrams('r 2718')", {}, 100)[0]
        assert any("ledger_entry_title" in row["QUERY PLAN"] for row in plan), plan


def test_what_a_catalogue_made_is_dropped_with_it(index: Index, index_url: str) -> None:
    former = index.open_catalogue(FormerLedger())
    former.execute("enter", id=1, title="gone")
    former.drop()
    assert index.open_catalogue(FormerLedger()).query("count") == [{"n": 0}]
