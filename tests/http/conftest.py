"""The API on a SQLite store, new for each test, and a client of each role."""

from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest
from starlette.testclient import TestClient

from tests.http.api_fixture import ApiFixture, make_environment
from waybill.environment import Environment


@pytest.fixture
def environment(tmp_path: Path) -> Environment:
    return make_environment(tmp_path / "data")


@pytest.fixture
def api(environment: Environment) -> Iterator[ApiFixture]:
    with closing(ApiFixture(environment)) as api:
        yield api


@pytest.fixture
def anyone(api: ApiFixture) -> Iterator[TestClient]:
    with api.client() as client:
        yield client


@pytest.fixture
def reader(api: ApiFixture) -> Iterator[TestClient]:
    with api.client("reader") as client:
        yield client


@pytest.fixture
def submitter(api: ApiFixture) -> Iterator[TestClient]:
    with api.client("submitter") as client:
        yield client


@pytest.fixture
def operator(api: ApiFixture) -> Iterator[TestClient]:
    with api.client("operator") as client:
        yield client


@pytest.fixture
def admin(api: ApiFixture) -> Iterator[TestClient]:
    with api.client("admin") as client:
        yield client
