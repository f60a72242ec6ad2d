"""A store in Merritt's layout with a clock that stands still, and a plain client in the same tree."""

from collections.abc import Iterator

import pytest
from kazoo.client import KazooClient

from tests.stores.zookeeper.harness import MerrittHarness
from waybill.stores.zookeeper import ZookeeperStore


@pytest.fixture
def merritt(zookeeper_url: str) -> Iterator[MerrittHarness]:
    harness = MerrittHarness(zookeeper_url)
    yield harness
    harness.close()


@pytest.fixture
def store(merritt: MerrittHarness) -> ZookeeperStore:
    return merritt.open()


@pytest.fixture
def zk(merritt: MerrittHarness, store: ZookeeperStore) -> KazooClient:
    """A plain client in the store's tree, after the store was set up."""
    return merritt.foreign_client()
