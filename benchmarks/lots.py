"""What lots cost.

lots.gaps       the gap report of one dataset over 2015 to 2024 in lots of five minutes, 1 % of them missing
lots.calendar   the heat map of the same, as SVG
lots.runs       lots of one object each through one arc whose function does nothing, on SQLite and a directory

The peer of lots.runs is a bare loop that makes the same durable object writes, one after the other in four threads, as
the worker has: manifests of source and sink under two names each, the manifest of the part, and the names of the arc's state.
"""

from __future__ import annotations

import tempfile
import threading
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from datetime import UTC, datetime
from pathlib import Path

from benchmarks.effort import Effort
from benchmarks.figure import Figure
from waybill import config
from waybill.apps.lots.application import APPLICATION
from waybill.apps.lots.catalogue import Arrival, LotCatalogue, calendar
from waybill.apps.lots.declaration.changes import apply_changes
from waybill.apps.lots.declaration.checks import AppliedDeclarations
from waybill.apps.lots.declaration.documents import DatasetDeclaration
from waybill.apps.lots.declaration.project_file import parse_project
from waybill.apps.lots.gaps import iter_runs
from waybill.apps.lots.heat_map import render_svg
from waybill.apps.lots.reports import LotReports
from waybill.apps.lots.subjects import DatasetSubject
from waybill.apps.lots.units import MINUTES_OF_DAY, UNITS, Lot
from waybill.environment import Environment
from waybill.index import open_index
from waybill.objects import DirectoryObjects
from waybill.worker import Worker

ROUNDS = 5
THREADS = 4
PROJECT = """
name = "bench"
[datasets.orders]
path = "orders/"
[datasets.done]
path = "done/"
[boundaries.in]
dataset = "orders"
unit = "PT1M"
time = "key"
pattern = '(?P<year>\\d{4})(?P<month>\\d\\d)(?P<day>\\d\\d)T(?P<hour>\\d\\d)(?P<minute>\\d\\d)'
[arcs.nothing]
sources = { main = "orders" }
sinks = { main = "done" }
function = "benchmarks.lots:do_nothing"
from = "20200101PT1M0000"
limit = 100
"""


def do_nothing(part: object) -> None:
    """The workload."""


def gaps(effort: Effort) -> Iterator[Figure]:
    first, after = Lot.parse("20150101PT5M000"), Lot.parse("20250101PT5M000")
    if effort.quick:
        after = Lot.parse("20150201PT5M000")
    dataset = DatasetDeclaration("bench", "orders", "1", "orders/", "PT5M", "boundary bench:in")
    with (
        tempfile.TemporaryDirectory(prefix="waybill-bench-") as name,
        closing(open_index(f"sqlite:///{name}/index.db")) as index,
    ):
        tables = index.open_catalogue(LotCatalogue())
        letters = "".join("." if n % 100 == 17 else "c" for n in range(288 * 25))
        rows = [
            ("dataset orders:1", day, letters[day % 25 * 288 : day % 25 * 288 + 288])
            for day in range(first.minute // MINUTES_OF_DAY, after.minute // MINUTES_OF_DAY)
        ]
        tables.load("lots_day", ("subject", "day", "classes"), rows)
        from waybill.apps.lots.catalogue import LotTables

        lots = LotTables(tables)
        applied = AppliedDeclarations(datasets={dataset.id: dataset})
        subject = DatasetSubject(dataset, applied, lots)
        reports = LotReports(applied, {}, lots, datetime.now(UTC))
        report_times, map_times, runs = [], [], 0
        for _ in range(ROUNDS):
            began = time.perf_counter()
            runs = sum(1 for _ in iter_runs(subject, first, after))
            report_times.append(time.perf_counter() - began)
            began = time.perf_counter()
            render_svg(reports.list_days(subject, first, after), title="orders")
            map_times.append(time.perf_counter() - began)
        assert calendar.find_letter(tables, "dataset orders:1", first) == "c"
    note = f"{first.count_to(after):,} lots, {runs:,} runs of equal lots"
    yield Figure(
        "lots.gaps", min(report_times) * 1000, "ms", goal=None if effort.quick else 1000, sense="at most", note=note
    )
    yield Figure("lots.calendar", min(map_times) * 1000, "ms", goal=None if effort.quick else 200, sense="at most")


def runs(effort: Effort) -> Iterator[Figure]:
    count = effort.pick(10_000, 20)
    with tempfile.TemporaryDirectory(prefix="waybill-bench-") as name:
        ours = _run_lots(Path(name) / "ours", count)
        loop = _run_bare_loop(Path(name) / "loop", count)
    goal = None if effort.quick else 0.5
    yield Figure(
        "lots.runs", count / ours, "lots/s", count / loop, goal=goal, note=f"{count:,} lots, {THREADS} threads"
    )


def _run_lots(folder: Path, count: int) -> float:
    settings = config.load(env={}, overrides={"data": folder})
    environment = Environment.from_config(settings, [APPLICATION], demo=False)
    resources = environment.resources_of("lots")
    unit = UNITS["PT1M"]
    first = Lot.parse("20200601PT1M0000")
    with closing(environment.open_store()) as store, resources.open_catalogue() as tables:
        apply_changes(
            environment.make_engine(store), parse_project(PROJECT.encode(), "bench"), who="bench", now=time.time()
        )
        for n in range(count):
            lot = Lot(unit, first.minute + n)
            uri = f"s3://bucket/orders/{lot.start:%Y%m%dT%H%M}.csv"
            tables.enter_arrivals("orders:1", lot, [Arrival(uri, 1000)], at="2020-06-01T00:00:00Z")
        worker = Worker(
            environment.open_store, environment.machines, host="bench", work_root=folder / "work", objects=environment.objects,
            threads=THREADS, resources_of=environment.resources_of_kind,
            queues=["boundary", "arc-run", "arc-part"],
        )  # fmt: skip
        last = Lot(unit, first.minute + count - 1)
        is_done = threading.Event()

        def watch() -> None:
            with resources.open_catalogue() as mine, closing(environment.open_store()) as counting:
                while not is_done.wait(0.1):
                    row = mine.find_run("bench:nothing", last)
                    ended = counting.count_by_state("arc-run").get("Complete", 0) if row is not None else 0
                    if ended >= count:
                        is_done.set()
            worker.stop()

        watcher = threading.Thread(target=watch, daemon=True)
        began = time.perf_counter()
        watcher.start()
        worker.run()
        elapsed = time.perf_counter() - began
        watcher.join()
    environment.close()
    return elapsed


def _run_bare_loop(folder: Path, count: int) -> float:
    """The same object writes, and nothing else."""
    manifest, state = b"x" * 330, b"x" * 90
    with DirectoryObjects(folder) as objects:

        def write(n: int) -> None:
            lot = f"lot=20200601PT1M{n:05}"
            for dataset in ("orders", "done"):
                objects.put(
                    f"datasets/name={dataset}/version=1/{lot}/generation=1/state=complete/manifest.json",
                    manifest,
                    if_absent=True,
                )
                objects.put(f"datasets/name={dataset}/version=1/{lot}/state=complete/manifest.json", manifest)
            objects.put(f"lots/parts/{n}/00000/main/manifest.json", manifest)
            objects.put(f"arcs/project=bench/version=1/arc=nothing/{lot}/running.arc", state)
            objects.put(f"arcs/project=bench/version=1/arc=nothing/{lot}/complete.arc", state)
            objects.delete(f"arcs/project=bench/version=1/arc=nothing/{lot}/running.arc")

        began = time.perf_counter()
        with ThreadPoolExecutor(THREADS) as pool:
            list(pool.map(write, range(count)))
        return time.perf_counter() - began


PARTS = {"lots.gaps": gaps, "lots.runs": runs}
