"""The change signal after an outage: the watch that could not be set is set as soon as a server answers."""

from collections.abc import Callable, Sequence
from typing import Any, cast

import pytest

from waybill.record import StoreUnavailable
from waybill.stores.zookeeper.connection import ZookeeperChangeSignal, ZookeeperConnection


class FakeServers:
    """The servers as a connection sees them: a watch fires once, and all fire when the connection is lost."""

    def __init__(self) -> None:
        self.are_unavailable = False
        self.watchers: list[Callable[[Any], None]] = []

    def watch(self, path: str, callback: Callable[[Any], None]) -> None:
        self.read_nodes(())
        self.watchers.append(callback)

    def read_nodes(self, paths: Sequence[str]) -> list[None]:
        if self.are_unavailable:
            raise StoreUnavailable("unavailable")
        return [None] * len(paths)

    def fire_watches(self) -> None:
        watchers, self.watchers = self.watchers, []
        for callback in watchers:
            callback(None)


def test_the_change_signal_works_again_after_an_outage() -> None:
    servers = FakeServers()
    signal = ZookeeperChangeSignal(cast(ZookeeperConnection, servers))
    assert not signal.watch(0)
    servers.are_unavailable = True
    servers.fire_watches()
    for _ in range(2):
        with pytest.raises(StoreUnavailable):
            signal.watch(0)
    servers.are_unavailable = False
    signal.watch(0)
    assert len(servers.watchers) == 1
    servers.fire_watches()
    assert signal.watch(0)
