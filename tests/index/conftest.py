"""Every test of the index runs on both databases."""

from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest

from waybill.config import sqlite_url
from waybill.index import Index, open_index


@pytest.fixture(params=["sqlite", "postgres"])
def index_url(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    if request.param == "sqlite":
        return sqlite_url(tmp_path / "a folder" / "index.db")
    url: str = request.getfixturevalue("fast_postgres_url")
    return url


@pytest.fixture
def index(index_url: str) -> Iterator[Index]:
    with closing(open_index(index_url)) as opened:
        yield opened
