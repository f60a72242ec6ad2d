"""The graph of a trace: its nodes and edges, and how they are gathered from the tracers of the applications.

It is gathered breadth first from the things that the text names. A thing can have a million neighbours (the objects of a
lot), so of each node only MAX_LINKS edges are followed, and of the whole MAX_NODES nodes are shown; the graph says where it
stopped.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from itertools import islice
from typing import TYPE_CHECKING, NamedTuple, Protocol
from urllib.parse import quote, unquote

from typing_extensions import TypedDict

from waybill.errors import NotFound

if TYPE_CHECKING:
    from waybill.environment import Environment
    from waybill.record import Store

MAX_LINKS = 100  # of one node, by one tracer
MAX_NODES = 400
MAX_TEXT = 1000  # characters of what is looked for


class TraceNode(NamedTuple):
    """A thing. `application`, `scope` and `owner` say who may see it."""

    key: str
    type: str  # what it is, in one word: object, lot, job
    label: str
    application: str
    state: str = ""
    at: str = ""  # when it came into this state, RFC 3339
    is_data: bool = True  # data, such as an object or a lot; otherwise work, such as a job
    page: str = ""  # the path of its page
    owner: str = ""
    scope: str = ""


class TraceEdge(NamedTuple):
    """`target` was made from `source`, or by it."""

    source: str
    target: str
    label: str  # read from source to target: "stored as", "in", "input of"


class Tracer(Protocol):
    """What an application knows. All answers are in a fixed order."""

    def find(self, text: str) -> Iterable[str]:
        """Yield the keys of the application's own things that this text names: an id, a local id, a name."""
        ...

    def describe(self, key: str) -> TraceNode | None:
        """Describe one of its own nodes; None: it is not its own, or it never was."""
        ...

    def list_edges(self, key: str) -> Iterable[TraceEdge]:
        """Yield the edges to and from any node that the application knows of."""
        ...


class TraceGraph(NamedTuple):
    """`starts`: the keys of what was asked for. `nodes` and `edges` are in the order in which they were found."""

    starts: tuple[str, ...]
    nodes: tuple[TraceNode, ...]
    edges: tuple[TraceEdge, ...]
    is_whole: bool  # False: there is more than is shown


class TraceNodeView(TypedDict):
    key: str
    type: str
    label: str
    application: str
    state: str
    at: str
    page: str


class TraceEdgeView(TypedDict):
    source: str
    target: str
    label: str


class TraceView(TypedDict):
    starts: list[str]
    nodes: list[TraceNodeView]
    edges: list[TraceEdgeView]
    whole: bool


def key_of(application: str, type: str, name: str) -> str:
    """The key of a thing that has no URI of its own."""
    return f"waybill:{application}/{type}/{quote(name, safe='/')}"


def name_in(key: str, application: str, type: str) -> str | None:
    """The name in a key of this application and type; None for another key."""
    prefix = f"waybill:{application}/{type}/"
    return unquote(key[len(prefix) :]) if key.startswith(prefix) else None


def open_tracers(environment: Environment, store: Store) -> list[Tracer]:
    """The tracers of all applications, for one trace: they read this store."""
    return [
        application.tracer(environment, store)
        for application in environment.applications
        if application.tracer is not None
    ]


def trace_thing(
    tracers: Sequence[Tracer], text: str, is_visible: Callable[[TraceNode], bool] = lambda node: True
) -> TraceGraph:
    """Gather the way of what the text names. Raises NotFound if it names nothing, or nothing that is visible."""
    text = text.strip()
    named = {text: None} if _describe(tracers, text) else dict.fromkeys(k for each in tracers for k in each.find(text))
    nodes: dict[str, TraceNode] = {}
    edges: dict[TraceEdge, None] = {}
    is_whole = True
    starts: list[str] = []
    for key in named:
        node = _describe(tracers, key)
        if node is not None and is_visible(node):
            nodes[key] = node
            starts.append(key)
    if not starts:
        raise NotFound(f"No deposit, object, lot, run, job or migration is called {text[:200]!r}.", code="unknown-name")
    hidden: set[str] = set()
    frontier = list(starts)
    while frontier:
        following: list[str] = []
        for key in frontier:
            for tracer in tracers:
                found = list(islice(tracer.list_edges(key), MAX_LINKS + 1))
                is_whole = is_whole and len(found) <= MAX_LINKS
                for edge in found[:MAX_LINKS]:
                    other = edge.target if edge.source == key else edge.source
                    if other in hidden:
                        continue
                    if other not in nodes:
                        if len(nodes) >= MAX_NODES:
                            is_whole = False
                            continue
                        node = _describe(tracers, other)
                        if node is None or not is_visible(node):
                            hidden.add(other)
                            continue
                        nodes[other] = node
                        following.append(other)
                    edges[edge] = None
        frontier = following
    return TraceGraph(tuple(starts), tuple(nodes.values()), tuple(edges), is_whole)


def _describe(tracers: Sequence[Tracer], key: str) -> TraceNode | None:
    return next((node for tracer in tracers if (node := tracer.describe(key)) is not None), None)


def to_trace_view(graph: TraceGraph) -> TraceView:
    return {
        "starts": list(graph.starts),
        "nodes": [
            {
                "key": node.key,
                "type": node.type,
                "label": node.label,
                "application": node.application,
                "state": node.state,
                "at": node.at,
                "page": node.page,
            }
            for node in graph.nodes
        ],
        "edges": [{"source": edge.source, "target": edge.target, "label": edge.label} for edge in graph.edges],
        "whole": graph.is_whole,
    }
