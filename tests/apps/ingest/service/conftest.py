"""A site with one profile and its collection: `desk` on the embedded default, `anywhere` on each store in turn."""

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


@pytest.fixture(params=["sqlite", "postgres", "zookeeper"])
def anywhere(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Desk]:
    fixture = {"postgres": "fast_postgres_url", "zookeeper": "zookeeper_url"}.get(request.param)
    with Site(tmp_path, store=request.getfixturevalue(fixture) if fixture else "") as site, Desk.at(site) as desk:
        desk.furnish()
        yield desk
