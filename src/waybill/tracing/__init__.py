"""Trace: the whole way of a thing through all applications, in both directions.

    tracers = open_tracers(environment, store)
    graph = trace_thing(tracers, "ark:/99999/fk4abc", is_visible)

A *node* is a thing that was in motion: a deposit, an object, a lot, a run, a job, a migration. Its key is a URI, and one that
applications agree on without knowing each other: an ARK, or `waybill:APPLICATION/TYPE/NAME`. An *edge* leads from what
something was made of to what was made. Each application has a tracer, `Application.tracer`, which describes its own nodes,
and says of any node, also of another application's, which edges it knows: from its records, its catalogue and its
manifests. Nothing is stored for this, so there is nothing to rebuild.

graph.py     nodes, edges, tracers, and how a graph is gathered
exports.py   the graph as OpenLineage events and as PROV JSON
figure.py    the graph as SVG
"""

from waybill.tracing.exports import to_open_lineage, to_prov
from waybill.tracing.figure import render_trace_svg
from waybill.tracing.graph import (
    TraceEdge,
    TraceEdgeView,
    TraceGraph,
    TraceNode,
    TraceNodeView,
    Tracer,
    TraceView,
    key_of,
    name_in,
    open_tracers,
    to_trace_view,
    trace_thing,
)

__all__ = [
    "TraceEdge",
    "TraceEdgeView",
    "TraceGraph",
    "TraceNode",
    "TraceNodeView",
    "TraceView",
    "Tracer",
    "key_of",
    "name_in",
    "open_tracers",
    "render_trace_svg",
    "to_open_lineage",
    "to_prov",
    "to_trace_view",
    "trace_thing",
]
