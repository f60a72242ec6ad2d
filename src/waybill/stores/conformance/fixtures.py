"""The fixtures that all parts of the suite share."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from waybill.record import Store
from waybill.stores.conformance.harness import StoreHarness
from waybill.stores.conformance.tester import StoreTester


class StoreTestBase:
    @pytest.fixture
    def harness(self) -> Iterator[StoreHarness]:
        raise NotImplementedError("Define a fixture `harness` in the class that inherits StoreSuite.")

    @pytest.fixture
    def tester(self, harness: StoreHarness) -> Iterator[StoreTester]:
        """A fresh store with one connection; after the test, the store's own check must find nothing."""
        yield StoreTester(harness)
        checker = harness.open()
        found = list(checker.check())
        assert found == [], "the store's own consistency was violated"

    @pytest.fixture
    def store(self, tester: StoreTester) -> Store:
        return tester.store
