"""The bell after an outage: a worker that could not have itself woken does so as soon as it can."""

from collections.abc import Callable, Sequence
from typing import Any, cast

import pytest

from waybill.record import Unavailable
from waybill.stores.zookeeper.bell import Bell
from waybill.stores.zookeeper.link import Link


class Servers:
    """As a link sees them: a watch is told once, and all are told when the connection goes."""

    def __init__(self) -> None:
        self.are_away = False
        self.watchers: list[Callable[[Any], None]] = []

    def watch(self, path: str, call: Callable[[Any], None]) -> None:
        self.nodes(())
        self.watchers.append(call)

    def nodes(self, paths: Sequence[str]) -> list[None]:
        if self.are_away:
            raise Unavailable("away")
        return [None] * len(paths)

    def tell_watchers(self) -> None:
        watchers, self.watchers = self.watchers, []
        for call in watchers:
            call(None)


def test_it_is_heard_again_after_an_outage() -> None:
    servers = Servers()
    bell = Bell(cast(Link, servers))
    assert not bell.watch(0)
    servers.are_away = True
    servers.tell_watchers()
    for _ in range(2):
        with pytest.raises(Unavailable):
            bell.watch(0)
    servers.are_away = False
    bell.watch(0)
    assert len(servers.watchers) == 1
    servers.tell_watchers()
    assert bell.watch(0)
