"""A site on the embedded default, new for each test."""

from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest
from starlette.testclient import TestClient

from tests.http.yard import Site, depot_at
from waybill.depot import Depot


@pytest.fixture
def depot(tmp_path: Path) -> Depot:
    return depot_at(tmp_path / "data")


@pytest.fixture
def site(depot: Depot) -> Iterator[Site]:
    with closing(Site(depot)) as site:
        yield site


@pytest.fixture
def anyone(site: Site) -> Iterator[TestClient]:
    with site.client() as client:
        yield client


@pytest.fixture
def reader(site: Site) -> Iterator[TestClient]:
    with site.client("reader") as client:
        yield client


@pytest.fixture
def submitter(site: Site) -> Iterator[TestClient]:
    with site.client("submitter") as client:
        yield client


@pytest.fixture
def operator(site: Site) -> Iterator[TestClient]:
    with site.client("operator") as client:
        yield client


@pytest.fixture
def admin(site: Site) -> Iterator[TestClient]:
    with site.client("admin") as client:
        yield client
