"""One server for all tests of a module; each test makes batches of its own."""

from collections.abc import Iterator

import pytest

from tests.apps.ingest.routes.house import House
from tests.apps.ingest.site import Site


@pytest.fixture(scope="module")
def house(tmp_path_factory: pytest.TempPathFactory) -> Iterator[House]:
    with Site(tmp_path_factory.mktemp("house")) as site, House(site).open() as house:
        yield house
