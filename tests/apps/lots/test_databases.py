"""A whole project on SQLite and on PostgreSQL, with real workers, one of which is killed again and again."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import closing
from datetime import UTC, datetime
from functools import partial
from pathlib import Path

import pytest

from tests.servers.process import wait_until
from waybill import config
from waybill.apps.lots.application import APPLICATION
from waybill.apps.lots.arrivals import ReportedArrival, report_arrivals
from waybill.apps.lots.declaration.changes import apply_changes, read_applied
from waybill.apps.lots.declaration.project_file import parse_project
from waybill.apps.lots.lot_manifests import iter_entries
from waybill.apps.lots.machine import BOUNDARY, RUN
from waybill.apps.lots.units import UNITS, Lot
from waybill.environment import Environment
from waybill.record import Ref

PROJECT = """
name = "shop"
[datasets.orders]
path = "orders/"
[datasets.counts]
path = "counts/"
[datasets.copies]
path = "copies/"
[boundaries.orders-in]
dataset = "orders"
unit = "PT5M"
time = "key"
pattern = '(?P<year>\\d{4})-(?P<month>\\d\\d)-(?P<day>\\d\\d)T(?P<hour>\\d\\d)(?P<minute>\\d\\d)'
[arcs.count]
sources = { main = "orders" }
sinks = { main = "counts" }
parts = "partition"
limit = 4
from = "20260101PT5M000"
command = "wc -c $(find $WAYBILL_SOURCE -type f) > $WAYBILL_SINK/count.txt"
[arcs.copy]
sources = { main = "counts" }
sinks = { main = "copies" }
copy = true
from = "20260101PT5M000"
"""
LOTS = 3


@pytest.fixture(params=["sqlite", "postgres"])
def environment(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Environment]:
    store = (
        request.getfixturevalue("postgres_url")
        if request.param == "postgres"
        else f"sqlite:///{tmp_path}/data/waybill.db"
    )
    found = Environment.from_config(
        config.load(env={}, overrides={"data": tmp_path / "data", "store": store}), [APPLICATION], demo=False
    )
    with closing(found.open_store()):
        yield found
    found.close()


def start_worker(environment: Environment) -> subprocess.Popen[bytes]:
    config = environment.config
    command = [sys.executable, "-m", "waybill", "work", "--data", str(config.data), "--store", config.store]
    env = {**os.environ, "WAYBILL_APPLICATIONS": "lots", "WAYBILL_DEMO": "no", "WAYBILL_WORK_TTL": "2"}
    return subprocess.Popen(command, env=env, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)


def test_workers_that_are_killed_lose_nothing_and_repeat_nothing(environment: Environment) -> None:
    resources = environment.resources_of("lots")
    lots = [Lot.at(datetime(2026, 1, 2, 3, 5 * n, tzinfo=UTC), UNITS["PT5M"]) for n in range(LOTS)]
    with closing(environment.open_store()) as store, resources.open_catalogue() as tables:
        engine = environment.make_engine(store)
        apply_changes(engine, parse_project(PROJECT.encode(), "project"), who="test", now=time.time())
        names = []
        for lot in lots:
            for shop in ("north", "south"):
                name = f"orders/shop={shop}/{lot.start:%Y-%m-%dT%H%M}.csv"
                environment.objects.put(name, b"x" * 10)
                names.append(ReportedArrival(name))
        applied = read_applied(store)
        boundary = applied.boundaries["shop:orders-in"]
        report_arrivals(
            tables, resources.locations, applied.datasets["orders:1"], boundary, names, now=datetime.now(UTC)
        )
        engine.wake([Ref(BOUNDARY.name, boundary.id)])

        def count_done() -> int:
            return sum(tables.find_lot("copies:1", lot) is not None for lot in lots)

        def has_more_than(count: int) -> bool:
            return count_done() > count or count_done() == LOTS

        seen = -1
        while seen < LOTS:  # a worker is killed at whatever it does once there is something new
            worker = start_worker(environment)
            try:
                wait_until(partial(has_more_than, max(seen, 0)), "a lot to be copied", seconds=60)
            finally:
                worker.send_signal(signal.SIGKILL)
                worker.wait()
            seen = count_done()
        worker = start_worker(environment)
        try:
            wait_until(
                lambda: all(run.state in ("Complete", "Superseded") for run in store.each(RUN.name)),
                "all runs to end",
                seconds=60,
            )
        finally:
            worker.terminate()
            worker.wait()
        for dataset in ("counts:1", "copies:1"):
            for lot in lots:
                row = tables.find_lot(dataset, lot)
                assert row is not None
                assert (row.generation, row.state, row.count) == (1, "complete", 2)
                for entry in iter_entries(environment.objects, row.manifest):
                    assert resources.locations.head(entry.uri) is not None
        published = {
            resources.locations.find(entry.uri).name
            for lot in lots
            for entry in iter_entries(environment.objects, tables.find_lot("counts:1", lot).manifest)  # type: ignore[union-attr]
        }
        assert {info.name for info in environment.objects.list("counts")} == published, "no attempt left anything"
