"""The model store passes the suite that the drivers pass."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import pytest
from msgspec.structs import replace

from waybill.record import CommitOutcomeUnknown, Ref, Store
from waybill.stores.conformance import StoreHarness, StoreSuite
from waybill.stores.model import ModelDatabase, ModelStore


class ModelHarness(StoreHarness):
    def __init__(self) -> None:
        self.now = 1_000.0
        self.database = ModelDatabase(lambda: self.now)

    def open(self) -> Store:
        return ModelStore(self.database)

    def tick(self, seconds: float) -> None:
        self.now += seconds

    simulate_outage = tick

    def expire_session(self, store: Store, session: str) -> None:
        reaper = self.open()
        while session not in reaper.reap_sessions():
            self.tick(self.ttl / 2)

    @contextmanager
    def lose_answer(self, store: Store) -> Iterator[None]:
        def lost(groups: Any) -> Any:
            del store.commit
            store.commit(groups)
            raise CommitOutcomeUnknown

        store.commit = lost  # type: ignore[method-assign]
        yield

    def block_record(self, ref: Ref, blocked_by: str) -> bool:
        records = self.database.contents.records
        records[ref] = replace(records[ref], blocked_by=blocked_by)
        return True

    def race(self, *calls: Callable[[], Any]) -> list[Any]:
        return [call() for call in calls]  # the model's calls are atomic, and it is not made for threads


class TestModel(StoreSuite):
    @pytest.fixture
    def harness(self) -> StoreHarness:
        return ModelHarness()
