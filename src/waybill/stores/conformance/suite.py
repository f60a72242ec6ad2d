"""The common ground of the suite's parts: the fixtures that a test asks for."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from waybill.record import Store
from waybill.stores.conformance.harness import Harness
from waybill.stores.conformance.yard import Yard


class Suite:
    @pytest.fixture
    def harness(self) -> Iterator[Harness]:
        raise NotImplementedError("Give a fixture `harness` in the class that inherits StoreSuite.")

    @pytest.fixture
    def yard(self, harness: Harness) -> Iterator[Yard]:
        """A fresh store with one connection; whatever the test did, the store's own check finds nothing afterwards."""
        yard = Yard(harness)
        yield yard
        checker = harness.open()
        found = list(checker.check())
        assert found == [], "the store's own consistency was violated"

    @pytest.fixture
    def store(self, yard: Yard) -> Store:
        return yard.store
