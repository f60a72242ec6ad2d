"""A tree that both sides share: Waybill's with trivial steps, and services of Merritt's in either dialect."""

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import pytest
from kazoo.client import KazooClient

from tests.interop.merritt.client import Client
from tests.interop.ours import Ours


@pytest.fixture
def make_ours(zookeeper_url: str, tmp_path: Path) -> Iterator[Callable[..., Ours]]:
    made: list[Ours] = []

    def make(**more: Any) -> Ours:
        made.append(Ours(zookeeper_url, tmp_path, **more))
        return made[-1]

    yield make
    for each in made:
        each.close()


@pytest.fixture
def ours(make_ours: Callable[..., Ours]) -> Ours:
    return make_ours()


@pytest.fixture
def theirs(zookeeper_url: str) -> Iterator[Callable[..., Client]]:
    """A connection of a service of Merritt's: theirs(ruby=True, dies_after=3)."""
    parts = urlsplit(zookeeper_url)
    made: list[Client] = []

    def make(**more: Any) -> Client:
        made.append(Client(parts.netloc + parts.path, **more))
        return made[-1]

    yield make
    for each in made:
        each.close()


@pytest.fixture
def zk(ours: Ours, theirs: Callable[..., Client]) -> KazooClient:
    """A plain client in the same tree."""
    return theirs().zk
