"""The inventory is tested on both databases, over a storage on a directory."""

from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest

from tests.apps.ingest.storage.yard import Bytes
from waybill.apps.ingest.inventory import Inventory
from waybill.apps.ingest.storage import OcflStorage
from waybill.config import sqlite_url
from waybill.index import Index, open_index
from waybill.objects import DirectoryObjects


@pytest.fixture(params=["sqlite", "postgres"])
def index(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Index]:
    url = (
        sqlite_url(tmp_path / "index.db") if request.param == "sqlite" else request.getfixturevalue("fast_postgres_url")
    )
    with closing(open_index(url)) as opened:
        yield opened


@pytest.fixture
def inventory(index: Index) -> Inventory:
    return Inventory(index)


@pytest.fixture
def sources() -> Bytes:
    return Bytes()


@pytest.fixture
def objects(tmp_path: Path) -> Iterator[DirectoryObjects]:
    with DirectoryObjects(tmp_path / "objects", fsync=False) as directory:
        yield directory


@pytest.fixture
def storage(objects: DirectoryObjects, sources: Bytes) -> OcflStorage:
    return OcflStorage(objects, "ocfl", sources)
