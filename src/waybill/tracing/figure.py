"""A trace as SVG: columns from what came first to what came last, an arrow for each edge.

A node's column is the longest path to it. Colours are classes and attributes, as in the figures of machines, so that a page
may inline it under its content policy.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from xml.sax.saxutils import escape, quoteattr

from waybill.tracing.graph import TraceGraph, TraceNode

BOX_WIDTH, BOX_HEIGHT = 210, 58
COLUMN_SPACING, ROW_SPACING, MARGIN = 110, 18, 12
MAX_LABEL = 28  # letters that fit into a box
NOT_XML = re.compile("[\x00-\x08\x0b\x0c\x0e-\x1f\ud800-\udfff\ufffe\uffff]")  # characters that XML does not allow
INK, PAPER, LINE = "#1f2933", "#ffffff", "#46627f"
DATA_FILL, WORK_FILL = "#e6f4ea", "#e8f1fb"


def render_trace_svg(graph: TraceGraph, link_of: Callable[[TraceNode], str] = lambda node: node.page) -> str:
    columns = compute_columns(graph)
    places: dict[str, tuple[int, int]] = {}
    heights: dict[int, int] = {}
    for node in graph.nodes:
        column = columns[node.key]
        row = heights.get(column, 0)
        heights[column] = row + 1
        places[node.key] = (MARGIN + column * (BOX_WIDTH + COLUMN_SPACING), MARGIN + row * (BOX_HEIGHT + ROW_SPACING))
    width = 2 * MARGIN + (max(heights) + 1) * (BOX_WIDTH + COLUMN_SPACING) - COLUMN_SPACING
    height = 2 * MARGIN + max(heights.values()) * (BOX_HEIGHT + ROW_SPACING) - ROW_SPACING
    title = f"The way of {', '.join(node.label for node in graph.nodes if node.key in graph.starts)}"
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" role="img" class="trace machine" width="{width}" height="{height}" '
        f'viewBox="0 0 {width} {height}" font-family="ui-sans-serif, system-ui, sans-serif" aria-label={quoteattr(title)}>',
        f"<title>{escape(title)}</title>",
        f'<defs><marker id="trace-head" viewBox="0 0 8 8" refX="7" refY="4" markerWidth="7" markerHeight="7" orient="auto">'
        f'<path d="M0 0 8 4 0 8z" fill="{LINE}"/></marker></defs>',
        f'<rect class="paper" width="{width}" height="{height}" fill="{PAPER}"/>',
    ]
    for edge in graph.edges:
        parts.append(_render_edge(edge.label, places[edge.source], places[edge.target]))
    for node in graph.nodes:
        parts.append(_render_node(node, places[node.key], node.key in graph.starts, link_of(node)))
    return NOT_XML.sub("\N{REPLACEMENT CHARACTER}", "\n".join([*parts, "</svg>"]) + "\n")


def compute_columns(graph: TraceGraph) -> dict[str, int]:
    """The longest path to each node. A cycle, which only wrong data have, ends after as many rounds as there are nodes."""
    columns = {node.key: 0 for node in graph.nodes}
    for _ in graph.nodes:
        changed = False
        for edge in graph.edges:
            if edge.source != edge.target and columns[edge.target] <= columns[edge.source] < len(graph.nodes):
                columns[edge.target] = columns[edge.source] + 1
                changed = True
        if not changed:
            break
    used = {column: place for place, column in enumerate(sorted(set(columns.values())))}
    return {key: used[column] for key, column in columns.items()}


def _render_edge(label: str, source: tuple[int, int], target: tuple[int, int]) -> str:
    x1, y1 = source[0] + BOX_WIDTH, source[1] + BOX_HEIGHT // 2
    x2, y2 = target[0], target[1] + BOX_HEIGHT // 2
    bend = max(40, (x2 - x1) // 2)
    path = f"M{x1} {y1}C{x1 + bend} {y1} {x2 - bend} {y2} {x2} {y2}"
    text_x, text_y = x2 - 12, y2 - 6
    return (
        f'<path class="line" d="{path}" fill="none" stroke="{LINE}" marker-end="url(#trace-head)"/>'
        f'<text class="label" x="{text_x}" y="{text_y}" font-size="11" text-anchor="end" fill="{LINE}">{escape(label)}</text>'
    )


def _render_node(node: TraceNode, place: tuple[int, int], is_start: bool, link: str) -> str:
    x, y = place
    label = node.label if len(node.label) <= MAX_LABEL else node.label[: MAX_LABEL - 1] + "…"
    since = node.at[:16].replace("T", " ")
    fill, width = DATA_FILL if node.is_data else WORK_FILL, 2.5 if is_start else 1
    texts = [
        (18, 'font-size="11"', f"{node.application} {node.type}"),
        (34, 'font-size="13" font-weight="600"', label),
        (50, 'font-size="11"', f"{node.state} {since}".strip()),
    ]
    parts = [
        f'<g class="state{" current" if is_start else ""}">',
        f"<title>{escape(' '.join((node.type, node.label, node.state, node.at)).strip())}</title>",
        f'<rect x="{x}" y="{y}" width="{BOX_WIDTH}" height="{BOX_HEIGHT}" rx="6" fill="{fill}" stroke="{INK}" '
        f'stroke-width="{width}"/>',
        *(f'<text x="{x + 10}" y="{y + dy}" {font} fill="{INK}">{escape(text)}</text>' for dy, font, text in texts),
        "</g>",
    ]
    box = "".join(parts)
    return f"<a href={quoteattr(link)}>{box}</a>" if link else box
