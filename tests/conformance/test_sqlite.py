"""The SQLite driver passes the suite, on a file with several connections."""

from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.stores.sqlite.harness import SqliteHarness

from waybill.stores.conformance import StoreSuite


class TestSqlite(StoreSuite):
    @pytest.fixture
    def harness(self, tmp_path: Path) -> Iterator[SqliteHarness]:
        harness = SqliteHarness(tmp_path / "store.db")
        yield harness
        harness.close()
