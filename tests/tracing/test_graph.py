"""A trace is gathered from tracers that know nothing of each other, in both directions, and says where it stopped."""

from __future__ import annotations

from collections.abc import Iterable
from xml.etree import ElementTree

import pytest

from waybill.errors import NotFound
from waybill.tracing import (
    TraceEdge,
    TraceGraph,
    TraceNode,
    key_of,
    name_in,
    render_trace_svg,
    to_open_lineage,
    to_prov,
    trace_thing,
)
from waybill.tracing import graph as graph_module
from waybill.tracing.figure import compute_columns


class FixedTracer:
    """Its own nodes, and edges that may name others' nodes."""

    def __init__(self, nodes: Iterable[TraceNode], edges: Iterable[tuple[str, str, str]]) -> None:
        self.nodes = {node.key: node for node in nodes}
        self.edges = [TraceEdge(*edge) for edge in edges]

    def find(self, text: str) -> Iterable[str]:
        return [node.key for node in self.nodes.values() if node.label == text]

    def describe(self, key: str) -> TraceNode | None:
        return self.nodes.get(key)

    def list_edges(self, key: str) -> Iterable[TraceEdge]:
        return [edge for edge in self.edges if key in (edge.source, edge.target)]


INGEST = FixedTracer(
    [
        TraceNode(
            "waybill:ingest/job/1", "job", "deposit", "ingest", "Completed", "2026-01-01T00:00:00Z", is_data=False
        ),
        TraceNode("ark:/99999/a", "object", "Maps <of> the bay", "ingest", owner="ann"),
    ],
    [("waybill:ingest/job/1", "ark:/99999/a", "stored")],
)
LOTS = FixedTracer(
    [
        TraceNode("waybill:lots/lot/maps", "lot", "maps", "lots", "complete"),
        TraceNode("waybill:lots/run/7", "run", "count", "lots", "complete", is_data=False),
        TraceNode("waybill:lots/lot/counts", "lot", "counts", "lots", "complete"),
        TraceNode("waybill:lots/lot/elsewhere", "lot", "elsewhere", "lots"),
    ],
    [
        ("ark:/99999/a", "waybill:lots/lot/maps", "in"),
        ("waybill:lots/lot/maps", "waybill:lots/run/7", "read by"),
        ("waybill:lots/run/7", "waybill:lots/lot/counts", "published"),
        ("waybill:lots/lot/counts", "waybill:archive/migration/3", "migrated as"),
    ],
)


def test_a_thing_is_traced_to_both_ends_from_wherever_one_begins() -> None:
    graphs = [
        trace_thing([INGEST, LOTS], text)
        for text in ("deposit", "maps", "counts", "ark:/99999/a", " waybill:lots/run/7")
    ]
    ways = [({node.key for node in graph.nodes}, set(graph.edges)) for graph in graphs]
    assert ways[0][0] == {*INGEST.nodes, *LOTS.nodes} - {"waybill:lots/lot/elsewhere"}
    assert all(way == ways[0] for way in ways)
    assert [graph.starts for graph in graphs[:2]] == [("waybill:ingest/job/1",), ("waybill:lots/lot/maps",)]
    assert all(graph.is_whole for graph in graphs)
    # an edge to a node that no loaded application describes is left out
    assert not any("archive" in edge.target for edge in graphs[0].edges)


def test_what_may_not_be_seen_is_not_there_and_is_not_passed() -> None:
    graph = trace_thing([INGEST, LOTS], "deposit", lambda node: node.type != "lot")
    assert {node.type for node in graph.nodes} == {"job", "object"}
    with pytest.raises(NotFound):
        trace_thing([INGEST, LOTS], "maps", lambda node: node.type != "lot")
    with pytest.raises(NotFound):
        trace_thing([INGEST, LOTS], "nothing")


def test_a_graph_that_is_too_large_says_so(monkeypatch: pytest.MonkeyPatch) -> None:
    lot = TraceNode("waybill:lots/lot/big", "lot", "big", "lots")
    objects = [TraceNode(f"ark:/99999/{n}", "object", str(n), "ingest") for n in range(10)]
    tracer = FixedTracer([lot, *objects], [(node.key, lot.key, "in") for node in objects])
    assert trace_thing([tracer], "big").is_whole
    monkeypatch.setattr(graph_module, "MAX_LINKS", 5)
    graph = trace_thing([tracer], "big")
    assert (len(graph.nodes), graph.is_whole) == (6, False)
    monkeypatch.setattr(graph_module, "MAX_LINKS", 50)
    monkeypatch.setattr(graph_module, "MAX_NODES", 3)
    graph = trace_thing([tracer], "big")
    assert (len(graph.nodes), graph.is_whole) == (3, False)


def test_columns_lead_from_first_to_last_and_a_cycle_ends() -> None:
    graph = trace_thing([INGEST, LOTS], "counts")
    columns = compute_columns(graph)
    assert [columns[key] for key in ("waybill:ingest/job/1", "ark:/99999/a", "waybill:lots/lot/maps")] == [0, 1, 2]
    assert columns["waybill:lots/lot/counts"] == 4
    round_trip = TraceGraph(
        ("x",),
        (TraceNode("x", "lot", "x", "lots"), TraceNode("y", "lot", "y", "lots")),
        (TraceEdge("x", "y", "to"), TraceEdge("y", "x", "to")),
        True,
    )
    assert set(compute_columns(round_trip)) == {"x", "y"}
    ElementTree.fromstring(render_trace_svg(round_trip))


def test_the_picture_is_xml_whatever_the_names_hold() -> None:
    svg = render_trace_svg(trace_thing([INGEST, LOTS], "deposit"))
    root = ElementTree.fromstring(svg)
    texts = [element.text for element in root.iter("{http://www.w3.org/2000/svg}text")]
    assert "Maps <of> the bay" in texts
    assert "published" in texts
    odd = TraceNode("k", "lot", "a\x00]]>\ud800", "lots")
    ElementTree.fromstring(render_trace_svg(TraceGraph(("k",), (odd,), (), True)))


def test_open_lineage_has_a_run_for_each_work_and_prov_every_relation() -> None:
    graph = trace_thing([INGEST, LOTS], "deposit")
    runs = {event["job"]["name"]: event for event in to_open_lineage(graph)}
    assert [each["name"] for each in runs["lots.run"]["inputs"]] == ["waybill:lots/lot/maps"]
    assert [each["name"] for each in runs["lots.run"]["outputs"]] == ["waybill:lots/lot/counts"]
    assert runs["ingest.job"]["outputs"][0]["name"] == "ark:/99999/a"
    assert runs["lots.in"]["inputs"][0]["name"] == "ark:/99999/a", "two data without work between them"
    again = to_open_lineage(trace_thing([INGEST, LOTS], "counts"))
    assert {e["run"]["runId"] for e in again} == {e["run"]["runId"] for e in runs.values()}, "the same run has one id"

    prov = to_prov(graph)
    assert set(prov["activity"]) == {"waybill:ingest/job/1", "waybill:lots/run/7"}
    assert {"waybill:ark:/99999/a", "waybill:lots/lot/maps"} <= set(prov["entity"])
    (derived,) = prov["wasDerivedFrom"].values()
    assert derived == {"prov:generatedEntity": "waybill:lots/lot/maps", "prov:usedEntity": "waybill:ark:/99999/a"}
    assert {"prov:activity": "waybill:lots/run/7", "prov:entity": "waybill:lots/lot/maps"} in prov["used"].values()
    assert len(prov["wasGeneratedBy"]) == 2


def test_names_with_odd_letters_survive_in_keys() -> None:
    for name in ("a/b", "ä b%2F", "x?y#z"):
        assert name_in(key_of("lots", "lot", name), "lots", "lot") == name
    assert name_in(key_of("lots", "lot", "a"), "lots", "run") is None
