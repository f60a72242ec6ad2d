"""A site with one profile and its collection, on the embedded default."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.apps.ingest.service.desk import Desk
from tests.apps.ingest.site import Site


@pytest.fixture
def site(tmp_path: Path) -> Iterator[Site]:
    with Site(tmp_path) as site:
        yield site


@pytest.fixture
def desk(site: Site) -> Iterator[Desk]:
    with Desk.at(site) as desk:
        desk.furnish()
        yield desk
