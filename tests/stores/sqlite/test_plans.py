"""The hot statements use their indexes and sort nothing, whatever the store holds."""

import re

import pytest

from waybill.stores.sqlite import SqliteStore
from waybill.stores.sqlite.queries import NEWEST_FIRST
from waybill.stores.sqlite.rows import SQL

SEARCHES = {
    "get": "record_by_id (kind=? AND id=?)",
    "get_by_idempotency_key": "record_by_idempotency_key (kind=? AND idempotency_key=?)",
    "find": "record_by_kind (kind=? AND rowid>?)",
    "find_by_state": "record_by_state (kind=? AND state=? AND rowid>?)",
    "find_by_owner": "record_by_owner (kind=? AND owner=? AND rowid>?)",
    "find_by_parent": "record_by_parent (kind=? AND parent_kind=? AND parent_id=? AND rowid>?)",
    "find_seen_of_owner": "record_by_owner (kind=? AND owner=? AND rowid>?)",
    "find_seen_of_scope": "record_by_scope (kind=? AND scope=? AND rowid>?)",
    "find_seen_by_state": "record_by_state (kind=? AND state=? AND rowid>?)",
    "find_seen_by_owner": "record_by_owner (kind=? AND owner=? AND rowid>?)",
    "find_seen_by_parent": "record_by_parent (kind=? AND parent_kind=? AND parent_id=? AND rowid>?)",
    "count_by_state": "PRIMARY KEY (kind=? AND parent_kind=? AND parent_id=?)",
    "find_most_urgent": "record_by_urgency (kind=? AND state=? AND host=?)",
    "find_oldest": "record_by_age (kind=? AND state=? AND host=?)",
    "claim_record": "INTEGER PRIMARY KEY (rowid=?)",
    "update_claimed": "INTEGER PRIMARY KEY (rowid=?)",
    "update_released": "INTEGER PRIMARY KEY (rowid=?)",
    "remove_record": "INTEGER PRIMARY KEY (rowid=?)",
    "wake_record": "record_by_id (kind=? AND id=?)",
    "get_last_child_position": "record_by_parent (kind=? AND parent_kind=? AND parent_id=?)",
    "has_open_child": "record_open_child (parent_kind=? AND parent_id=?)",
    "is_idle_parent": "record_open_child (parent_kind=? AND parent_id=?)",
    "find_idle_parents": "record_blocked (blocked_by=? AND wake_at=? AND priority=? AND rowid>?)",
    "list_lock_waiters": "record_blocked (blocked_by=? AND wake_at=?)",
    "release_due_waits": "record_blocked (blocked_by=? AND wake_at<?)",
    "get_next_due": "record_blocked (blocked_by=?)",
    "unblock_records": "record_blocked (blocked_by=?)",
    "release_claims": "record_by_session (session=?)",
    "list_session_requests": "INTEGER PRIMARY KEY (rowid=?)",
    "list_action_requests": "INTEGER PRIMARY KEY (rowid=?)",
    "get_history": "PRIMARY KEY (record=?)",
    "get_documents": "PRIMARY KEY (record=?)",
    "list_awaited_locks": "record_blocked (blocked_by>? AND blocked_by<?)",
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
    found = plan(store, NEWEST_FIRST[name])
    assert SEARCHES[name].replace("rowid>?", "rowid<?") in found
    assert "TEMP B-TREE" not in found


def test_the_plans_are_the_same_with_statistics(store: SqliteStore) -> None:
    """ANALYZE, run by somebody's shell over an odd moment of the data, must not turn a claim into a scan."""
    before = {
        name: plan(store, SQL[name])
        for name in ("find_most_urgent", "find_oldest", "find_by_state", "list_lock_waiters", "release_due_waits")
    }
    store._db.execute("analyze").fetchall()
    assert {name: plan(store, SQL[name]) for name in before} == before
