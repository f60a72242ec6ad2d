"""The hot statements use their indexes and sort nothing, whatever the store holds."""

import re

import pytest

from waybill.stores.sqlite import SqliteStore
from waybill.stores.sqlite.reading import NEWEST
from waybill.stores.sqlite.rows import SQL

SEARCHES = {
    "get": "record_name (kind=? AND id=?)",
    "requested": "record_request (kind=? AND request=?)",
    "find": "record_kind (kind=? AND rowid>?)",
    "find_state": "record_state (kind=? AND state=? AND rowid>?)",
    "find_owner": "record_owner (kind=? AND owner=? AND rowid>?)",
    "find_parent": "record_parent (kind=? AND parent_kind=? AND parent_id=? AND rowid>?)",
    "tally": "PRIMARY KEY (kind=? AND parent_kind=? AND parent_id=?)",
    "urgent": "record_claim (kind=? AND state=? AND host=?)",
    "oldest": "record_age (kind=? AND state=? AND host=?)",
    "claim": "INTEGER PRIMARY KEY (rowid=?)",
    "keep": "INTEGER PRIMARY KEY (rowid=?)",
    "let_go": "INTEGER PRIMARY KEY (rowid=?)",
    "remove": "INTEGER PRIMARY KEY (rowid=?)",
    "nudge": "record_name (kind=? AND id=?)",
    "last_turn": "record_parent (kind=? AND parent_kind=? AND parent_id=?)",
    "has_open_child": "record_open (parent_kind=? AND parent_id=?)",
    "is_idle": "record_open (parent_kind=? AND parent_id=?)",
    "idle_parents": "record_parked (parked=? AND wake_at=? AND (priority,turn)>(?,?))",
    "pass_turn": "record_parked (parked=? AND wake_at=?)",
    "due": "record_parked (parked=? AND wake_at<?)",
    "next_due": "record_parked (parked=?)",
    "unpark": "record_parked (parked=?)",
    "free": "record_held (session=?)",
    "asked_of": "INTEGER PRIMARY KEY (rowid=?)",
    "asks": "INTEGER PRIMARY KEY (rowid=?)",
    "history": "PRIMARY KEY (record=?)",
    "documents_of": "PRIMARY KEY (record=?)",
    "waited_keys": "record_parked (parked>? AND parked<?)",
}


def plan(store: SqliteStore, statement: str) -> str:
    bindings = [None] * max((int(n) for n in re.findall(r"\?(\d+)", statement)), default=0)
    return "\n".join(row[3] for row in store._db.execute(f"explain query plan {statement}", bindings).fetchall())


@pytest.fixture(scope="module")
def store() -> SqliteStore:
    return SqliteStore("sqlite://")


@pytest.mark.parametrize("name", SEARCHES)
def test_the_statement_searches_its_index_and_sorts_nothing(store: SqliteStore, name: str) -> None:
    found = plan(store, SQL[name])
    assert SEARCHES[name] in found
    assert "SCAN record" not in found
    assert "TEMP B-TREE" not in found


@pytest.mark.parametrize("name", [name for name in SEARCHES if name.startswith("find")])
def test_pages_from_the_newest_do_so_too(store: SqliteStore, name: str) -> None:
    found = plan(store, NEWEST[name])
    assert SEARCHES[name].replace("rowid>?", "rowid<?") in found
    assert "TEMP B-TREE" not in found


def test_the_plans_are_the_same_with_statistics(store: SqliteStore) -> None:
    """ANALYZE, run by somebody's shell over an odd moment of the data, must not turn a claim into a scan."""
    before = {name: plan(store, SQL[name]) for name in ("urgent", "oldest", "find_state", "pass_turn", "due")}
    store._db.execute("analyze").fetchall()
    assert {name: plan(store, SQL[name]) for name in before} == before
