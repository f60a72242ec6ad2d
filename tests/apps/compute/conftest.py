"""Servers of compute: one on SQLite and one on PostgreSQL for all tests that only use them."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.apps.compute.compute_server import ComputeServer
from tests.servers.postgres import PostgresServer


@pytest.fixture(scope="session")
def sqlite_compute(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ComputeServer]:
    with ComputeServer(tmp_path_factory.mktemp("compute")) as server:
        yield server


@pytest.fixture(scope="session")
def postgres_compute(
    tmp_path_factory: pytest.TempPathFactory, fast_postgres_server: PostgresServer
) -> Iterator[ComputeServer]:
    url = fast_postgres_server.create_database()
    with ComputeServer(tmp_path_factory.mktemp("compute"), store=url) as server:
        yield server
    fast_postgres_server.drop_database(url)


@pytest.fixture(params=["sqlite", "postgres"])
def server(request: pytest.FixtureRequest) -> ComputeServer:
    found: ComputeServer = request.getfixturevalue(f"{request.param}_compute")
    return found


@pytest.fixture
def home(server: ComputeServer, tmp_path: Path) -> str:
    """A directory of this test alone."""
    path = f"/alice/stor/{tmp_path.name}"
    assert server.make_directory(path).status == 204
    return path
