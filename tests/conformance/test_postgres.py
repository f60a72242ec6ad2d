"""The PostgreSQL driver passes the suite, on a real server with several connections."""

from collections.abc import Iterator

import pytest

from tests.stores.postgres.harness import PostgresHarness
from waybill.stores.conformance import StoreSuite


class TestPostgres(StoreSuite):
    @pytest.fixture
    def harness(self, fast_postgres_url: str) -> Iterator[PostgresHarness]:
        harness = PostgresHarness(fast_postgres_url)
        yield harness
        harness.close()
