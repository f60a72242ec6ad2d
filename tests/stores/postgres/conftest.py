"""A store of its own for each test of the PostgreSQL driver."""

from collections.abc import Iterator

import pytest

from tests.servers.postgres import PostgresServer
from tests.stores.postgres.commit_barrier import CommitBarrier
from tests.stores.postgres.harness import PostgresHarness
from waybill.stores.conformance import StoreTester
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
def tester(harness: PostgresHarness) -> StoreTester:
    return StoreTester(harness)


@pytest.fixture
def store(harness: PostgresHarness) -> PostgresStore:
    return harness.open()


@pytest.fixture
def barrier(harness: PostgresHarness) -> Iterator[CommitBarrier]:
    barrier = CommitBarrier(harness)
    yield barrier
    barrier.close()
