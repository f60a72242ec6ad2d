"""The model store passes the suite that the drivers pass."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import pytest
from msgspec.structs import replace

from waybill.record import Ref, Store, Unknown
from waybill.stores.conformance import Harness, StoreSuite
from waybill.stores.model import ModelStore, World


class ModelHarness(Harness):
    def __init__(self) -> None:
        self.now = 1_000.0
        self.world = World(lambda: self.now)

    def open(self) -> Store:
        return ModelStore(self.world)

    def tick(self, seconds: float) -> None:
        self.now += seconds

    outage = tick

    def expire(self, store: Store, session: str) -> None:
        reaper = self.open()
        while session not in reaper.reap():
            self.tick(self.ttl / 2)

    @contextmanager
    def lose_answer(self, store: Store) -> Iterator[None]:
        def lost(groups: Any) -> Any:
            del store.commit
            store.commit(groups)
            raise Unknown

        store.commit = lost  # type: ignore[method-assign]
        yield

    def strand(self, ref: Ref, reason: str) -> bool:
        records = self.world.shelf.records
        records[ref] = replace(records[ref], parked=reason)
        return True

    def race(self, *calls: Callable[[], Any]) -> list[Any]:
        return [call() for call in calls]  # the model's calls are atomic, and it is not made for threads


class TestModel(StoreSuite):
    @pytest.fixture
    def harness(self) -> Harness:
        return ModelHarness()
