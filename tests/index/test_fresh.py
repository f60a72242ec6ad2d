"""A new file of the index that two processes open at the same moment."""

from contextlib import closing
from pathlib import Path
from typing import Any

import apsw
import pytest

from waybill.config import sqlite_url
from waybill.index import open_index
from waybill.index.sqlite import SqliteIndex


def test_one_waits_while_the_other_turns_the_log_on(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """SQLite answers Busy to it at once, whatever time-out it was given."""
    refusals = [apsw.BusyError("database is locked"), apsw.BusyError("database is locked")]

    class Connection(apsw.Connection):
        def execute(self, statement: str, *values: Any) -> Any:  # type: ignore[override]
            if "journal_mode" in statement and refusals:
                raise refusals.pop()
            return super().execute(statement, *values)

    monkeypatch.setattr(apsw, "Connection", Connection)
    with closing(open_index(sqlite_url(tmp_path / "index.db"))) as index:
        assert isinstance(index, SqliteIndex)
        assert refusals == []


def test_one_in_memory_leaves_no_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """As a simulation has it."""
    monkeypatch.chdir(tmp_path)
    with closing(open_index("sqlite:///:memory:")):
        assert list(tmp_path.iterdir()) == []
