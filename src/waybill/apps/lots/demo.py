"""A small demonstration of lots: a shop's orders, gathered every minute, counted by one arc and copied by another. Loaded
only with `--demo`.

    orders    two lots of the last minutes, and a gap between them: nobody was there to say that nothing came. From then on silent
              minutes are empty lots
    totals    one part of the second lot fails, on purpose: there is a partial lot to look at, and what waits for it
    archive   a copy of the totals

Loading it twice creates nothing twice: a project that is applied stays as it is, and what has arrived has arrived.
"""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, cast

from waybill.apps.lots.arrivals import ReportedArrival, report_arrivals
from waybill.apps.lots.declaration.changes import apply_changes, read_applied
from waybill.apps.lots.declaration.project_file import parse_project
from waybill.apps.lots.machine import BOUNDARY
from waybill.apps.lots.resources import LotsResources
from waybill.apps.lots.units import UNITS, Lot, format_instant
from waybill.engine import Engine
from waybill.record import Ref

if TYPE_CHECKING:
    from waybill.environment import Environment

DEMO_USER = "demo"
PROJECT = """
name = "demo"
[datasets.demo-orders]
path = "demo/orders/"
begins = "{begin}"
[datasets.demo-totals]
path = "demo/totals/"
begins = "{begin}"
[datasets.demo-archive]
path = "demo/archive/"
begins = "{begin}"
[boundaries.orders-in]
dataset = "demo-orders"
unit = "PT1M"
time = "key"
pattern = '(?P<year>\\d{{4}})-(?P<month>\\d\\d)-(?P<day>\\d\\d)T(?P<hour>\\d\\d)(?P<minute>\\d\\d)'
[arcs.total]
sources = {{ main = "demo-orders" }}
sinks = {{ main = "demo-totals" }}
parts = "partition"
from = "{begin}"
function = "waybill.apps.lots.demo:sum_orders"
[arcs.archive]
sources = {{ main = "demo-totals" }}
sinks = {{ main = "demo-archive" }}
copy = true
from = "{begin}"
"""
ORDERS = {
    (0, "north"): "apples,3\npears,4\n",
    (0, "south"): "plums,5\n",
    (2, "north"): "apples,2\n",
    (2, "south"): "apples,two\n",  # not a number: this part fails
}


def load_demo(environment: Environment, engine: Engine) -> None:
    resources = cast(LotsResources, environment.resources_of("lots"))
    applied = read_applied(engine.store)
    if "demo-orders:1" in applied.datasets:
        return
    now = datetime.fromtimestamp(engine.store.now(), UTC)
    first = Lot.at(now - timedelta(minutes=4), UNITS["PT1M"])
    names = []
    for (minutes, shop), text in ORDERS.items():
        name = f"demo/orders/shop={shop}/{first.shift(minutes).start:%Y-%m-%dT%H%M}.csv"
        environment.objects.put(name, text.encode())
        names.append(ReportedArrival(name))
    project = parse_project(PROJECT.format(begin=format_instant(first.start)).encode(), "the demonstration")
    apply_changes(engine, project, who=DEMO_USER, now=engine.store.now())
    applied = read_applied(engine.store)
    boundary = applied.boundaries["demo:orders-in"]
    with resources.open_catalogue() as tables:
        report_arrivals(tables, resources.locations, applied.datasets["demo-orders:1"], boundary, names, now=now)
    engine.wake([Ref(BOUNDARY.name, boundary.id)])


def sum_orders(part: object) -> None:
    """The workload of the demonstration: the sum of the second column."""
    from waybill.apps.lots.workloads import PartWork, WorkloadFailed

    assert isinstance(part, PartWork)
    total = 0
    for path in part.files():
        for number, line in enumerate(path.read_text().splitlines(), 1):
            count = line.partition(",")[2]
            if not count.isdecimal():
                raise WorkloadFailed(
                    f"Line {number} of {path.name} says {count!r}, which is no number. This is "
                    "the demonstration's failure."
                )
            total += int(count)
    folder = part.sink() / part.partition if part.partition else part.sink()
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "total.txt").write_text(f"{total}\n")
