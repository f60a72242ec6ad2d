"""A site of lots in a test: a project, arrivals, steps, and a clock that the test moves."""

from __future__ import annotations

from collections.abc import Iterable
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

from waybill.apps.lots.application import APPLICATION
from waybill.apps.lots.arrival_service import find_boundary
from waybill.apps.lots.arrivals import ArrivalCounts, ReportedArrival, report_arrivals
from waybill.apps.lots.catalogue import LotRow, RunRow
from waybill.apps.lots.declaration.changes import DeclarationChange, apply_changes, read_applied
from waybill.apps.lots.declaration.project_file import dataset_id_of, parse_project
from waybill.apps.lots.lot_manifests import LotManifest, decode_manifest, iter_entries
from waybill.apps.lots.machine import BOUNDARY, RUN, run_id_of
from waybill.apps.lots.reports import LotReports
from waybill.apps.lots.units import Lot
from waybill.record import Record, Ref
from waybill.testing import StepTester

SHOP = """
name = "shop"
[datasets.orders]
path = "orders/"
[datasets.counts]
path = "counts/"
[boundaries.orders-in]
dataset = "orders"
unit = "PT5M"
[arcs.count]
sources = { main = "orders" }
sinks = { main = "counts" }
function = "tests.apps.lots.workloads:count"
parts = "partition"
"""
STEP = 0.01


class LotsSite:
    """`tester` has an application lots with these settings; the clock begins at the start of a lot of five minutes."""

    def __init__(
        self,
        folder: Path,
        project: str = SHOP,
        *,
        store: str = "",
        settings: dict[str, Any] | None = None,
        app: dict[str, Any] | None = None,
    ) -> None:
        begin = datetime(2026, 3, 1, 12, 0, tzinfo=UTC).timestamp()
        self.tester = StepTester(APPLICATION, folder, store=store, settings=settings, app=app, time=begin)
        if project:
            self.apply(project)

    def close(self) -> None:
        self.tester.close()

    @property
    def now(self) -> datetime:
        return datetime.fromtimestamp(self.tester.now(), UTC)

    @property
    def resources(self) -> Any:
        return self.tester.resources

    def apply(self, project: str) -> list[DeclarationChange]:
        applied = read_applied(self.tester.store)
        declared = parse_project(project.encode(), "project.toml", known_units=applied.units)
        return apply_changes(self.tester.engine, declared, who="test", now=self.tester.now())

    def put(self, name: str, body: bytes = b"x\n") -> str:
        """Put an object below the path of orders; returns its name."""
        self.tester.environment.objects.put(f"orders/{name}", body)
        return f"orders/{name}"

    def arrive(self, *names: str, dataset: str = "orders", at: datetime | None = None) -> ArrivalCounts:
        applied = read_applied(self.tester.store)
        declared = applied.datasets[dataset_id_of(dataset)]
        boundary = find_boundary(declared, applied)
        with self.resources.open_catalogue() as tables:
            counts = report_arrivals(
                tables, self.resources.locations, declared, boundary,
                (ReportedArrival(name, at=at.isoformat() if at else None) for name in names), now=self.now,
            )  # fmt: skip
        self.tester.engine.wake([Ref(BOUNDARY.name, boundary.id)])
        return counts

    def lot(self, minutes: int = 0, unit: str = "PT5M") -> Lot:
        """The lot of so many minutes after the beginning of the test."""
        from waybill.apps.lots.units import find_unit

        return Lot.at(datetime(2026, 3, 1, 12, 0, tzinfo=UTC) + timedelta(minutes=minutes), find_unit(unit))

    def pass_minutes(self, minutes: float) -> None:
        """Let time pass, a minute at a time, and all that is due happen."""
        end = self.tester.now() + minutes * 60
        while self.tester.now() < end:
            self.tester.advance(min(60.0, end - self.tester.now()))
            self.settle()

    def settle(self) -> None:
        self.tester.store.release_due_waits()
        self.tester.run_until_idle()

    def find_lot(self, dataset: str, lot: Lot, generation: int | None = None) -> LotRow | None:
        with self.resources.open_catalogue() as tables:
            found: LotRow | None = tables.find_lot(dataset_id_of(dataset), lot, generation)
        return found

    def find_run(self, arc: str, lot: Lot, generation: int | None = None) -> RunRow | None:
        with self.resources.open_catalogue() as tables:
            found: RunRow | None = tables.find_run(f"shop:{arc}", lot, generation)
        return found

    def run_record(self, arc: str, lot: Lot, generation: int = 1) -> Record:
        return self.tester.store.get(RUN.name, run_id_of(f"shop:{arc}", lot, generation))

    def manifest(self, name: str) -> LotManifest:
        with self.tester.environment.objects.get(name) as body:
            return decode_manifest(body.read(), name)

    def uris(self, name: str) -> list[str]:
        """The names, below the object store, of the entries of a manifest."""
        base = self.resources.locations.base + "/"
        return [entry.uri.removeprefix(base) for entry in iter_entries(self.tester.environment.objects, name)]

    def names(self, prefix: str) -> list[str]:
        return [info.name for info in self.tester.environment.objects.list(prefix)]

    def states(self, arc: str, lot: Lot) -> list[str]:
        """The names under which an arc's state is published."""
        return [name.rpartition("/")[2] for name in self.names(f"arcs/project=shop/version=1/arc={arc}/lot={lot}")]

    def reports(self, tables: Any) -> LotReports:
        return LotReports.read(self.tester.store, tables, self.now)

    def classes(self, name: str, first: Lot, count: int) -> list[str]:
        with self.resources.open_catalogue() as tables:
            reports = self.reports(tables)
            runs = reports.iter_runs(reports.find(name), first, first.shift(count))
            return [run.name for run in runs for _ in run.iter_lots()]

    def counts_of(self, counts: Iterable[str]) -> dict[str, int]:
        found: dict[str, int] = {}
        for each in counts:
            found[each] = found.get(each, 0) + 1
        return found
