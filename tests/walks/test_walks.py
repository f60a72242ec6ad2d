"""Random walks over every machine: the engine's own, the demonstration's and those of each installed application.

An application is found by its entry point. Its records begin without documents, unless `tests.apps.NAME.walk_documents`
has those that they need: WALK_DOCUMENTS, by kind. Where the requests of the application's own services are needed to reach a
state, it says REACHES_EVERY_STATE = False there, and tests its arrows itself.
"""

from __future__ import annotations

import importlib
from collections.abc import Callable, Mapping
from functools import partial
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import pytest

from tests.budget import Budget
from tests.worker.worker_fixture import build_machines
from waybill import config
from waybill.application import load_applications
from waybill.demo import DEMO
from waybill.environment import Environment
from waybill.machine import Machine
from waybill.record import Store
from waybill.step import New
from waybill.stores import open_store
from waybill.stores.model import ModelStore
from waybill.testing import walk_machines
from waybill.testing.walks import make_walked_database

APPLICATIONS = {application.name: application for application in (DEMO, *load_applications())}
LABELS = {
    "parcel": {"label": {"number": 1, "carrier": "mule", "address": "1 Quay"}}
}  # the required document of the demonstration's parcels


def load_documents(application: str) -> Mapping[str, Any]:
    """The documents of the records of an application, by kind."""
    package = f"tests.apps.{application}"
    if find_spec("tests.apps") is None or find_spec(package) is None or find_spec(f"{package}.walk_documents") is None:
        return LABELS
    return {**LABELS, **importlib.import_module(f"{package}.walk_documents").WALK_DOCUMENTS}


def reaches_every_state(application: str) -> bool:
    package = f"tests.apps.{application}"
    if find_spec("tests.apps") is None or find_spec(package) is None or find_spec(f"{package}.walk_documents") is None:
        return True
    return bool(getattr(importlib.import_module(f"{package}.walk_documents"), "REACHES_EVERY_STATE", True))


def make_opener(request: pytest.FixtureRequest, store: str, folder: Path) -> Callable[[], Store]:
    if store == "model":
        return partial(ModelStore, make_walked_database())
    if store == "sqlite":
        return partial(open_store, f"sqlite:///{folder}/store.db")
    url = request.getfixturevalue("fast_postgres_url" if store == "postgres" else "zookeeper_url")
    return partial(open_store, url)


@pytest.mark.parametrize(
    ("name", "store"),
    [
        (name, store)
        for name, application in APPLICATIONS.items()
        for store in ("model", "sqlite", "postgres", "zookeeper")
        if store != "zookeeper" or not application.sql_only
    ],
)
def test_any_walk_stays_on_the_map(
    name: str, store: str, tmp_path: Path, budget: Budget, request: pytest.FixtureRequest
) -> None:
    settings = config.load(env={}, overrides={"data": tmp_path})
    environment = Environment.from_config(settings, [APPLICATIONS[name]], demo=False)
    documents = load_documents(name)

    def make(machine: Machine) -> New:
        return New(machine.name, documents.get(machine.name, {}))

    walk_machines(
        environment.machines.values(),
        make=make,
        open_store=make_opener(request, store, tmp_path),
        seeds=budget.pick(small=2, long=60),
        moves=budget.pick(small=80, long=300),
        every_state=store == "model" and reaches_every_state(name),  # where a move costs little
    )


def test_a_join_a_wait_and_a_hold_are_walked() -> None:
    walk_machines(build_machines(), every_state=True)
