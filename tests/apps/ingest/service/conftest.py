"""A ingest with one profile and its collection: `caller` on the embedded default, `anywhere` on each store in turn."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.apps.ingest.ingest_fixture import IngestFixture
from tests.apps.ingest.service.service_caller import ServiceCaller


@pytest.fixture
def ingest(tmp_path: Path) -> Iterator[IngestFixture]:
    with IngestFixture(tmp_path) as ingest:
        yield ingest


@pytest.fixture
def caller(ingest: IngestFixture) -> Iterator[ServiceCaller]:
    with ServiceCaller.at(ingest) as caller:
        caller.furnish()
        yield caller


@pytest.fixture(params=["sqlite", "postgres", "zookeeper"])
def anywhere(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[ServiceCaller]:
    fixture = {"postgres": "fast_postgres_url", "zookeeper": "zookeeper_url"}.get(request.param)
    with (
        IngestFixture(tmp_path, store=request.getfixturevalue(fixture) if fixture else "") as ingest,
        ServiceCaller.at(ingest) as caller,
    ):
        caller.furnish()
        yield caller
