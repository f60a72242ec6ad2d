"""A crash at every call of every step: nothing is lost, run twice, or left where nobody knows of it."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.apps.lots import workloads
from tests.apps.lots.lots_site import SHOP, LotsSite
from waybill.apps.lots.machine import ARC, BOUNDARY, DATASET, RUN
from waybill.record import Ref
from waybill.step import StepStopped

COPY = SHOP.replace('function = "tests.apps.lots.workloads:count"', "copy = true")


@pytest.fixture(autouse=True)
def nothing_fails() -> None:
    workloads.FAILING.clear()
    workloads.RUNS.clear()


def check_published(site: LotsSite, point: str, objects: int = 2) -> None:
    """One lot, of one generation, of which every object is there, and none besides."""
    lot = site.lot()
    row = site.find_lot("counts", lot)
    assert row is not None, point
    assert (row.generation, row.state, row.count) == (1, "complete", objects), point
    public = f"datasets/name=counts/version=1/lot={lot}/state=complete/manifest.json"
    assert sorted(site.uris(public)) == sorted(site.uris(row.manifest)) == sorted(site.names("counts")), point
    assert site.states("count", lot) == ["complete.arc"], point
    assert site.classes("shop/count", lot, 1) == ["complete"], point


@pytest.mark.parametrize("project", [SHOP, COPY], ids=["function", "copy"])
def test_a_run_wherever_it_crashes(tmp_path: Path, project: str) -> None:
    site = LotsSite(tmp_path, project)
    site.arrive(site.put("day=1/a"), site.put("day=2/b"))
    site.tester.advance(302)
    site.tester.store.release_due_waits()
    site.tester.step(Ref(BOUNDARY.name, "shop:orders-in"))
    run = site.run_record("count", site.lot())
    for point in site.tester.crash_at_every_call(run, "Complete"):
        check_published(site, point)


def test_a_boundary_wherever_it_crashes(tmp_path: Path) -> None:
    site = LotsSite(tmp_path)
    site.settle()
    site.arrive(site.put("day=1/a"), site.put("day=2/b"))
    site.tester.advance(602)
    site.tester.store.release_due_waits()
    boundary = site.tester.get(Ref(BOUNDARY.name, "shop:orders-in"))
    for point in site.tester.crash_at_every_call(boundary):
        site.tester.engine.wake([boundary.ref])
        site.settle()
        check_published(site, point)
        row = site.find_lot("orders", site.lot(5))
        assert row is not None, point
        assert (row.generation, row.state) == (1, "empty"), point
        assert [run.state for run in site.tester.find_all(RUN.name)] == ["Complete", "Complete"], point


def test_late_data_wherever_the_boundary_crashes(tmp_path: Path) -> None:
    site = LotsSite(tmp_path)
    site.arrive(site.put("day=1/a"))
    site.pass_minutes(6)
    site.arrive(site.put("day=2/b"), at=site.lot().start)
    boundary = site.tester.get(Ref(BOUNDARY.name, "shop:orders-in"))
    for point in site.tester.crash_at_every_call(boundary):
        site.tester.engine.wake([boundary.ref])
        site.settle()
        row, sink = site.find_lot("orders", site.lot()), site.find_lot("counts", site.lot())
        for found in (row, sink):
            assert found is not None, point
            assert (found.generation, found.count) == (2, 2), point


@pytest.mark.parametrize("on_failure", ["keep", "remove"])
def test_a_retry_wherever_it_crashes(tmp_path: Path, on_failure: str) -> None:
    site = LotsSite(tmp_path, SHOP + f'on_failure = "{on_failure}"\n')
    workloads.FAILING.add("day=2")
    site.arrive(site.put("day=1/a"), site.put("day=2/b"))
    site.pass_minutes(6)
    run = site.run_record("count", site.lot())
    assert run.state == "Partial"
    workloads.FAILING.clear()
    site.tester.act(run, "retry")
    for point in site.tester.crash_at_every_call(run, "Complete"):
        check_published(site, point)


def test_cleaning_wherever_it_crashes(tmp_path: Path) -> None:
    site = LotsSite(tmp_path, SHOP + 'on_failure = "keep"\n')
    workloads.FAILING.add("day=2")
    site.arrive(site.put("day=1/a"), site.put("day=2/b"))
    site.pass_minutes(6)
    run = site.run_record("count", site.lot())
    site.tester.act(run, "clean")
    for point in site.tester.crash_at_every_call(run, "Missing"):
        assert site.names("counts") == [], point
        assert site.states("count", site.lot()) == ["missing.arc"], point
        folder = f"datasets/name=counts/version=1/lot={site.lot()}"
        assert site.names(f"{folder}/state=partial") == [], point
        assert len(site.names(f"{folder}/state=removed")) == 2, point


def test_an_attempt_whose_process_died_is_listed_and_removed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The copy is stopped behind its first object, as by a lost claim; the next attempt removes what is there."""
    site = LotsSite(tmp_path, COPY.replace('parts = "partition"', ""))
    site.arrive(site.put("a"), site.put("b"))
    from waybill.apps.lots.workloads import copying

    copy_one, copied = copying._copy_one, list[str]()

    def stop_after_first(*args: object) -> object:
        found = copy_one(*args)  # type: ignore[arg-type]
        copied.append(found.uri)
        if len(copied) == 1:
            raise StepStopped("lost")
        return found

    monkeypatch.setattr(copying, "_copy_one", stop_after_first)
    site.pass_minutes(5.2)
    site.tester.run_until(site.run_record("count", site.lot()), "Complete")
    check_published(site, "")
    folder = f"datasets/name=counts/version=1/lot={site.lot()}"
    (removed,) = site.names(f"{folder}/state=removed")
    assert [uri.rpartition("/")[2] for uri in site.uris(removed)] == ["a"]


def test_applying_is_one_commit_and_may_be_repeated(tmp_path: Path) -> None:
    site = LotsSite(tmp_path)
    assert site.apply(SHOP) == []
    assert [
        site.tester.get(Ref(kind, id)).version for kind, id in ((DATASET.name, "orders:1"), (ARC.name, "shop:count"))
    ]
