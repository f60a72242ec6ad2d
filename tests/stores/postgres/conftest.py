"""A store of its own for each test of the PostgreSQL driver."""

from collections.abc import Iterator

import pytest

from tests.servers.postgres import PostgresServer
from tests.stores.postgres.harness import PostgresHarness
from tests.stores.postgres.held import Hold
from waybill.stores.conformance import Yard
from waybill.stores.postgres import PostgresStore


@pytest.fixture(scope="package")
def database(fast_postgres_server: PostgresServer) -> Iterator[str]:
    url = fast_postgres_server.create_database()
    yield url
    fast_postgres_server.drop_database(url)


@pytest.fixture
def harness(database: str) -> Iterator[PostgresHarness]:
    harness = PostgresHarness(database)
    yield harness
    harness.close()


@pytest.fixture
def yard(harness: PostgresHarness) -> Yard:
    return Yard(harness)


@pytest.fixture
def store(harness: PostgresHarness) -> PostgresStore:
    return harness.open()


@pytest.fixture
def hold(harness: PostgresHarness) -> Iterator[Hold]:
    hold = Hold(harness)
    yield hold
    hold.close()
