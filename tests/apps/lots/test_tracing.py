"""`waybill trace` of lots: from what arrived, through the run, to the lot that it published."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.apps.lots import workloads
from tests.apps.lots.lots_site import LotsSite
from waybill.apps.lots.catalogue.lot_tables import Arrival
from waybill.errors import NotFound
from waybill.tracing import TraceGraph, open_tracers, trace_thing


@pytest.fixture
def site(tmp_path: Path) -> Iterator[LotsSite]:
    workloads.FAILING.clear()
    workloads.RUNS.clear()
    found = LotsSite(tmp_path)
    yield found
    found.close()


def trace(site: LotsSite, text: str) -> TraceGraph:
    return trace_thing(open_tracers(site.tester.environment, site.tester.store), text)


def test_a_lot_is_traced_through_its_run_from_every_end(site: LotsSite) -> None:
    site.arrive(site.put("day=1/a"))
    site.pass_minutes(6)
    lot = site.lot()
    run = site.run_record("count", lot).id
    graphs = [trace(site, text) for text in (f"orders/{lot}", f"counts/1/{lot}", run, str(lot))]
    for graph in graphs:
        assert {(node.type, node.label, node.state) for node in graph.nodes} == {
            ("lot", f"orders/1 {lot}", "complete"),
            ("run", f"shop/count {lot}", "complete"),
            ("lot", f"counts/1 {lot}", "complete"),
        }
        assert {edge.label for edge in graph.edges} == {"read by", "published"}
    assert len(graphs[3].starts) == 2, "a lot's name alone is that lot of every dataset"

    site.arrive(site.put("late"), at=lot.start)
    site.pass_minutes(2)
    assert {node.state for node in trace(site, run).nodes if node.type == "lot"} == {"complete, generation 2"}
    for nothing in (f"orders/{site.lot(500)}", "20260230PT5M000", "orders/x", f"shop:none:{lot}:g1"):
        with pytest.raises(NotFound):
            trace(site, nothing)


def test_a_thing_of_another_application_is_in_the_lots_in_which_it_arrived(site: LotsSite) -> None:
    with site.resources.open_catalogue() as tables:
        tables.enter_origins("orders:1", ["file:///a"], "ark:/99999/fk4a")
        tables.enter_arrivals("orders:1", site.lot(), [Arrival("file:///a")], at="2026-03-01T12:00:00Z")
        assert not list(open_tracers(site.tester.environment, site.tester.store)[0].list_edges("ark:/99999/other"))
    (edge,) = open_tracers(site.tester.environment, site.tester.store)[0].list_edges("ark:/99999/fk4a")
    assert (edge.source, edge.target) == ("ark:/99999/fk4a", f"waybill:lots/lot/orders/1/{site.lot()}")
