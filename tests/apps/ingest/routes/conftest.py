"""One server for all tests of a module; each test makes batches of its own."""

from collections.abc import Iterator

import pytest

from tests.apps.ingest.ingest_fixture import IngestFixture
from tests.apps.ingest.routes.ingest_server import IngestServer


@pytest.fixture(scope="module")
def ingest_server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[IngestServer]:
    with (
        IngestFixture(tmp_path_factory.mktemp("ingest_server")) as ingest,
        IngestServer(ingest).open() as ingest_server,
    ):
        yield ingest_server
