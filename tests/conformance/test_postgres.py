"""The PostgreSQL driver passes the suite, on a real server with several connections."""

from collections.abc import Iterator

import pytest
from tests.servers.postgres import PostgresServer
from tests.stores.postgres.harness import PostgresHarness

from waybill.stores.conformance import StoreSuite


@pytest.fixture(scope="module")
def database(fast_postgres_server: PostgresServer) -> Iterator[str]:
    url = fast_postgres_server.create_database()
    yield url
    fast_postgres_server.drop_database(url)


class TestPostgres(StoreSuite):
    @pytest.fixture
    def harness(self, database: str) -> Iterator[PostgresHarness]:
        harness = PostgresHarness(database)
        yield harness
        harness.close()
