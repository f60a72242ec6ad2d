"""Fixtures of archive: on SQLite, or on SQLite and PostgreSQL."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.apps.archive.archive_fixture import ArchiveFixture


@pytest.fixture
def archive(tmp_path: Path) -> Iterator[ArchiveFixture]:
    """On the model store, with the catalogue in SQLite."""
    with ArchiveFixture(tmp_path) as fixture:
        yield fixture


@pytest.fixture(params=["sqlite", "postgres"])
def stored_archive(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[ArchiveFixture]:
    """On each of the stores that archive is for, the catalogue too."""
    url = (
        f"sqlite:///{tmp_path / 'store.db'}"
        if request.param == "sqlite"
        else request.getfixturevalue("fast_postgres_url")
    )
    with ArchiveFixture(tmp_path, store=url) as fixture:
        yield fixture
