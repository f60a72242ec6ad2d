from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.worker.worker_fixture import WorkerFixture
from waybill.record import Store
from waybill.stores import open_store
from waybill.stores.model import ModelDatabase, ModelStore


class LockedModelStore(ModelStore):
    """The model's calls are atomic for a simulator, which makes one at a time; threads need a lock for that."""

    lock = threading.RLock()

    def __getattribute__(self, name: str) -> Any:
        value = super().__getattribute__(name)
        if name.startswith("_") or name in ("watch", "interrupt_watch", "lock") or not callable(value):
            return value

        def call(*args: Any, **options: Any) -> Any:
            with LockedModelStore.lock:
                return value(*args, **options)

        return call


@pytest.fixture(params=["model", "sqlite"])
def opener(request: pytest.FixtureRequest, tmp_path: Path) -> Callable[[], Store]:
    if request.param == "model":
        database = ModelDatabase(time.time)
        return lambda: LockedModelStore(database)
    return lambda: open_store(f"sqlite:///{tmp_path}/store.db")


@pytest.fixture
def system(opener: Callable[[], Store], tmp_path: Path) -> Iterator[WorkerFixture]:
    system = WorkerFixture(opener, tmp_path / "work")
    system.set_steps()
    with system.closing():
        yield system
