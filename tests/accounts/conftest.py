"""An engine on each of the three stores, with the machines that every process has."""

from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest

from waybill import config
from waybill.engine import Engine
from waybill.environment import Environment


@pytest.fixture(params=["sqlite", "postgres", "zookeeper"])
def engine(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Engine]:
    urls = {"sqlite": None, "postgres": "fast_postgres_url", "zookeeper": "zookeeper_url"}
    fixture = urls[request.param]
    store = request.getfixturevalue(fixture) if fixture is not None else None
    environment = Environment.from_config(
        config.load(env={}, overrides={"data": tmp_path / "data", "store": store}), []
    )
    with closing(environment.open_store()) as opened:
        yield environment.make_engine(opened)
