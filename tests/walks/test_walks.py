"""Random walks over every machine of the product, on every store."""

from __future__ import annotations

import time
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.budget import Budget
from tests.worker.worker_fixture import build_machines
from waybill.application import load_applications
from waybill.demo import DEMO
from waybill.machine import Machine
from waybill.record import Store
from waybill.step import New
from waybill.stores import open_store
from waybill.stores.model import ModelDatabase, ModelStore
from waybill.testing import walk_machines

SETS = {
    "demonstration": DEMO.machines,
    "worker fixture": build_machines(),
    **{application.name: application.machines for application in load_applications()},
}


@pytest.fixture(params=["model", "sqlite", "postgres", "zookeeper"])
def opener(request: pytest.FixtureRequest, tmp_path: Path) -> Callable[[], Store]:
    if request.param == "model":
        database = ModelDatabase(time.time)
        return lambda: ModelStore(database)
    if request.param == "sqlite":
        return lambda: open_store(f"sqlite:///{tmp_path}/store.db")
    url = request.getfixturevalue("fast_postgres_url" if request.param == "postgres" else "zookeeper_url")
    return lambda: open_store(url)


LABELS = {"parcel": {"label": {"number": 1, "carrier": "mule"}}}  # the required document of the demonstration's parcels


def make(machine: Machine) -> New:
    return New(machine.name, LABELS.get(machine.name, {}))


@pytest.mark.parametrize("name", SETS)
def test_any_walk_stays_on_the_map(name: str, opener: Callable[[], Store], budget: Budget) -> None:
    walk_machines(
        SETS[name],
        make=make,
        hold_names=("collections/a",),
        open_store=opener,
        seeds=budget.pick(small=3, long=60),
        moves=budget.pick(small=80, long=300),
    )
