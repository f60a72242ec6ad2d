"""No search and no page of the inventory looks at more rows than it answers: SQLite says how it would find them."""

from contextlib import closing
from pathlib import Path

import pytest

from waybill.apps.ingest.inventory import Inventory
from waybill.config import sqlite_url
from waybill.index import open_index
from waybill.sql_statements import load_statements

VALUES = {
    "ark": "a",
    "owner": "o",
    "localid": "l",
    "collection": "c",
    "after": "",
    "row_limit": 10,
    "number": 1,
    "path": "p",
    "place": "p",
    "before": "2026",
    "after_ark": "",
    "after_place": "",
    "word1": "a",
    "word2": "",
    "word3": "",
    "word4": "",
}
HOT = [
    "version",
    "versions",
    "object",
    "files",
    "file",
    "localid",
    "localids",
    "members",
    "search",
    "search_owner",
    "search_localid",
    "search_collection",
    "search_word",
    "list_due_audits",
    "list_damaged",
    "list_damaged_of",
    "paths_of",
    "forget_files",
    "forget_replacements",
    "forget_contents",
    "forget_members",
    "forget_words",
    "forget_localids",
]


@pytest.mark.parametrize("name", HOT)
def test_the_plan_is_a_look_into_an_index(tmp_path: Path, name: str) -> None:
    statement = load_statements("waybill.apps.ingest.inventory", "statements.sql")[name]
    with closing(open_index(sqlite_url(tmp_path / "index.db"))) as index:
        connection = Inventory(index).tables._connection  # type: ignore[attr-defined]
        values = {key: value for key, value in VALUES.items() if f":{key}" in statement}
        if name == "versions":
            values["after"] = 0
        rows, _ = connection.run(f"explain query plan {statement}", values, 100)
    plan = [row["detail"] for row in rows]
    assert plan
    assert not [step for step in plan if step.startswith("SCAN")], plan
    if name != "paths_of":  # the few files that have the same bytes are sorted
        assert not [step for step in plan if "TEMP B-TREE" in step], plan
