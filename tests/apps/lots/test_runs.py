"""What arcs do with lots: complete, empty, failed and retried, cleaned, made again."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.apps.lots import workloads
from tests.apps.lots.lots_site import SHOP, LotsSite


@pytest.fixture
def site(tmp_path: Path) -> Iterator[LotsSite]:
    workloads.FAILING.clear()
    workloads.RUNS.clear()
    found = LotsSite(tmp_path)
    yield found
    found.close()


def test_what_arrives_goes_through_the_arc(site: LotsSite) -> None:
    site.arrive(site.put("day=1/a", b"1\n2\n"), site.put("day=2/b", b"3\n"))
    assert site.arrive("orders/day=1/a").new == 0
    site.pass_minutes(6)
    lot = site.lot()
    source, sink = site.find_lot("orders", lot), site.find_lot("counts", lot)
    assert source is not None
    assert (source.state, source.count, source.generation) == ("complete", 2, 1)
    assert sink is not None
    assert (sink.state, sink.count) == ("complete", 2)
    public = f"datasets/name=counts/version=1/lot={lot}/state=complete/manifest.json"
    assert [uri.rpartition("attempt=")[2].partition("/")[2] for uri in site.uris(public)] == [
        "day=1/count.txt",
        "day=2/count.txt",
    ]
    assert [child.partition for child in site.manifest(public).children] == ["day=1", "day=2"]
    assert site.states("count", lot) == ["complete.arc"]
    assert site.run_record("count", lot).state == "Complete"


def test_silence_is_an_empty_lot_and_runs_nothing(site: LotsSite) -> None:
    site.pass_minutes(11)
    for minutes in (0, 5):
        row = site.find_lot("counts", site.lot(minutes))
        assert row is not None
        assert row.state == "empty"
    assert workloads.RUNS == []
    assert site.names(f"datasets/name=orders/version=1/lot={site.lot()}/state=empty")


def test_late_data_make_a_new_generation(site: LotsSite) -> None:
    site.arrive(site.put("a"))
    site.pass_minutes(6)
    site.arrive(site.put("b"), at=site.lot().start)
    site.pass_minutes(1)
    lot = site.lot()
    row = site.find_lot("orders", lot)
    assert row is not None
    assert (row.generation, row.count) == (2, 2)
    sink = site.find_lot("counts", lot)
    assert sink is not None
    assert sink.generation == 2
    folder = f"datasets/name=orders/version=1/lot={lot}"
    assert site.uris(f"{folder}/state=complete/manifest.json") == ["orders/a", "orders/b"]
    assert site.uris(f"{folder}/generation=1/state=complete/manifest.json") == ["orders/a"]


def test_late_data_after_an_empty_lot_leave_one_public_name(site: LotsSite) -> None:
    site.pass_minutes(6)
    site.arrive(site.put("b"), at=site.lot().start)
    site.pass_minutes(1)
    names = site.names(f"datasets/name=orders/version=1/lot={site.lot()}")
    assert [name for name in names if "generation=" not in name] == [
        f"datasets/name=orders/version=1/lot={site.lot()}/state=complete/manifest.json"
    ]


def test_only_what_failed_runs_again(site: LotsSite) -> None:
    workloads.FAILING.add("day=2")
    site.arrive(site.put("day=1/a"), site.put("day=2/b"), site.put("day=3/c"))
    site.pass_minutes(6)
    lot = site.lot()
    run = site.run_record("count", lot)
    assert run.state == "Partial"
    assert "1 of 3 parts failed: day=2 fails." in run.message
    assert site.states("count", lot) == ["partial.arc"]
    assert site.find_lot("counts", lot) is None
    folder = f"datasets/name=counts/version=1/lot={lot}"
    (removed,) = list(site.names(f"{folder}/state=removed"))
    assert site.uris(removed) == [], "a failed function has put nothing into the store"
    assert len(site.names("counts")) == 2, "the good parts stand, and nothing of the failed one"
    workloads.FAILING.clear()
    workloads.RUNS.clear()
    site.tester.act(run, "retry")
    site.settle()
    assert [(str(lot), "day=2")] == workloads.RUNS
    assert site.run_record("count", lot).state == "Complete"
    sink = site.find_lot("counts", lot)
    assert sink is not None
    assert sink.count == 3
    assert site.states("count", lot) == ["complete.arc"]


def test_what_a_failed_attempt_wrote_is_kept_for_whoever_looks(tmp_path: Path) -> None:
    site = LotsSite(tmp_path, SHOP + 'on_failure = "keep"\n')
    workloads.FAILING.add("day=2")
    site.arrive(site.put("day=1/a"), site.put("day=2/b"))
    site.pass_minutes(6)
    folder = f"datasets/name=counts/version=1/lot={site.lot()}"
    (partial,) = site.names(f"{folder}/state=partial")
    assert [uri.rpartition("/")[2] for uri in site.uris(partial)] == ["count.txt"]
    assert len(site.names("counts")) == 2
    workloads.FAILING.clear()
    site.tester.act(site.run_record("count", site.lot()), "retry")
    site.settle()
    assert site.run_record("count", site.lot()).state == "Complete"
    assert len(site.names("counts")) == 2, "the remains of the failed attempt are gone before the lot is published"
    assert site.names(f"{folder}/state=partial") == []
    (removed,) = site.names(f"{folder}/state=removed")
    assert [uri.rpartition("/")[2] for uri in site.uris(removed)] == ["count.txt"]


def test_a_failed_run_can_be_cleaned_and_begins_anew(site: LotsSite) -> None:
    workloads.FAILING.add("day=2")
    site.arrive(site.put("day=1/a"), site.put("day=2/b"))
    site.pass_minutes(6)
    lot = site.lot()
    site.tester.act(site.run_record("count", lot), "clean")
    site.settle()
    assert site.run_record("count", lot).state == "Missing"
    assert site.names("counts") == []
    assert site.states("count", lot) == ["missing.arc"]
    states = {
        name.split("/state=")[1].partition("/")[0]
        for name in site.names(f"datasets/name=counts/version=1/lot={lot}")
        if "/state=" in name
    }
    assert states == {"removed"}
    workloads.FAILING.clear()
    workloads.RUNS.clear()
    site.tester.act(site.run_record("count", lot), "retry")
    site.settle()
    assert [(str(lot), "day=1"), (str(lot), "day=2")] == workloads.RUNS
    assert site.states("count", lot) == ["complete.arc"]


def test_a_newer_source_replaces_a_failed_run_and_cleans_it(site: LotsSite) -> None:
    workloads.FAILING.add("day=2")
    site.arrive(site.put("day=1/a"), site.put("day=2/b"))
    site.pass_minutes(6)
    workloads.FAILING.clear()
    site.arrive(site.put("day=3/c"), at=site.lot().start)
    site.pass_minutes(1)
    lot = site.lot()
    assert site.run_record("count", lot, 2).state == "Complete"
    assert site.run_record("count", lot, 1).state == "Missing"
    assert len(site.names("counts")) == 3
    assert site.classes("shop/count", lot, 1) == ["complete"]


def test_a_part_is_tried_again_by_itself(tmp_path: Path) -> None:
    site = LotsSite(tmp_path, SHOP + 'retries = 2\nbackoff = "30s"\n')
    workloads.RUNS.clear()
    workloads.FAILING.add("")
    site.arrive(site.put("a"))
    site.pass_minutes(5.2)
    workloads.FAILING.clear()
    site.pass_minutes(1)
    assert len(workloads.RUNS) == 2
    assert site.run_record("count", site.lot()).state == "Complete"


def test_the_same_event_again_runs_nothing(site: LotsSite) -> None:
    site.arrive(site.put("a"))
    site.pass_minutes(6)
    run = site.run_record("count", site.lot())
    site.tester.engine.remove(run.ref)
    workloads.RUNS.clear()
    from waybill.apps.lots.publishing import find_starts

    with site.resources.open_catalogue() as tables:
        starts = find_starts(site.tester.store.get, tables, "orders:1", [site.lot()], at="2026-03-01T12:10:00Z")
    assert starts.runs == ()


def test_every_class_is_in_the_report(site: LotsSite) -> None:
    site.arrive(site.put("a"))
    site.pass_minutes(11)
    assert site.classes("orders", site.lot(), 3) == ["complete", "empty", "never"]
    assert site.classes("shop/count", site.lot(), 3) == ["complete", "empty", "never"]
