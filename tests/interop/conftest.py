"""A tree that both sides share: a trivial ingest of Waybill, and clients of Merritt's library in either dialect."""

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import pytest
from kazoo.client import KazooClient

from tests.interop.merritt.client import Client
from tests.interop.trivial_ingest import TrivialIngest


@pytest.fixture
def make_ingest(zookeeper_url: str, tmp_path: Path) -> Iterator[Callable[..., TrivialIngest]]:
    made: list[TrivialIngest] = []

    def make(**more: Any) -> TrivialIngest:
        made.append(TrivialIngest(zookeeper_url, tmp_path, **more))
        return made[-1]

    yield make
    for each in made:
        each.close()


@pytest.fixture
def ingest(make_ingest: Callable[..., TrivialIngest]) -> TrivialIngest:
    return make_ingest()


@pytest.fixture
def make_client(zookeeper_url: str) -> Iterator[Callable[..., Client]]:
    """A connection of a service of Merritt's: make_client(ruby=True, dies_after=3)."""
    parts = urlsplit(zookeeper_url)
    made: list[Client] = []

    def make(**more: Any) -> Client:
        made.append(Client(parts.netloc + parts.path, **more))
        return made[-1]

    yield make
    for each in made:
        each.close()


@pytest.fixture
def zk(ingest: TrivialIngest, make_client: Callable[..., Client]) -> KazooClient:
    """A plain client in the same tree."""
    return make_client().zk
