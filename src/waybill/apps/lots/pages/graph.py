"""Datasets and arcs as a picture: from the left, where objects arrive, to the right, each with its counts."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from html import escape

from waybill.apps.lots.declaration.checks import AppliedDeclarations

WIDTH, HEIGHT, GAP_X, GAP_Y, MARGIN = 190, 52, 60, 18, 10
BAD = ("partial", "missing", "never")


def find_depths(applied: AppliedDeclarations) -> dict[str, int]:
    """Return how far from the left each dataset and arc is. There is no circle: applying refuses it."""
    made_by = {sink.dataset: arc for arc in applied.arcs.values() for sink in arc.sinks}
    depths: dict[str, int] = {}

    def depth_of_dataset(id: str) -> int:
        key = f"dataset {id}"
        if key not in depths:
            depths[key] = depth_of_arc(made_by[id].id) + 1 if id in made_by else 0
        return depths[key]

    def depth_of_arc(id: str) -> int:
        key = f"arc {id}"
        if key not in depths:
            depths[key] = 1 + max(depth_of_dataset(source.dataset) for source in applied.arcs[id].sources)
        return depths[key]

    for id in applied.datasets:
        depth_of_dataset(id)
    for id in applied.arcs:
        depth_of_arc(id)
    return depths


def draw_graph(
    applied: AppliedDeclarations, counts: Mapping[str, Mapping[str, int]], link: Callable[[str], str]
) -> str:
    """Return SVG. `counts`: by key (a dataset's title, or "arc " and an arc's), of lots by class."""
    depths = find_depths(applied)
    rows: dict[int, int] = {}
    places: dict[str, tuple[int, int]] = {}
    for key, depth in sorted(depths.items(), key=lambda each: (each[1], each[0])):
        places[key] = (MARGIN + depth * (WIDTH + GAP_X), MARGIN + rows.get(depth, 0) * (HEIGHT + GAP_Y))
        rows[depth] = rows.get(depth, 0) + 1
    width = 2 * MARGIN + (max(depths.values(), default=0) + 1) * (WIDTH + GAP_X) - GAP_X
    height = 2 * MARGIN + max(rows.values(), default=1) * (HEIGHT + GAP_Y)
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" class="lot-graph" viewBox="0 0 {width} {height}" role="img" '
        'aria-label="Datasets and arcs">'
    ]
    for arc in applied.arcs.values():
        parts += [_draw_line(places[f"dataset {source.dataset}"], places[f"arc {arc.id}"]) for source in arc.sources]
        parts += [_draw_line(places[f"arc {arc.id}"], places[f"dataset {sink.dataset}"]) for sink in arc.sinks]
    for id, dataset in applied.datasets.items():
        parts.append(
            _draw_box(
                places[f"dataset {id}"],
                "dataset",
                dataset.title,
                dataset.unit,
                counts.get(dataset.title, {}),
                link(dataset.title),
            )
        )
    for id, arc in applied.arcs.items():
        key = f"arc {arc.title}"
        parts.append(
            _draw_box(places[f"arc {id}"], "arc", arc.title, arc.workload.type, counts.get(key, {}), link(key))
        )
    return "".join([*parts, "</svg>"])


def _draw_line(start: tuple[int, int], end: tuple[int, int]) -> str:
    x1, y1, x2, y2 = start[0] + WIDTH, start[1] + HEIGHT // 2, end[0], end[1] + HEIGHT // 2
    middle = (x1 + x2) // 2
    return f'<path class="edge" d="M{x1} {y1}C{middle} {y1} {middle} {y2} {x2} {y2}"/>'


def _draw_box(place: tuple[int, int], kind: str, title: str, note: str, counts: Mapping[str, int], url: str) -> str:
    x, y = place
    bad = sum(counts.get(name, 0) for name in BAD)
    summary = ", ".join(f"{count} {name}" for name, count in counts.items()) or "no lots yet"
    tone = "bad" if bad else "good"
    radius = 4 if kind == "dataset" else 22
    shown = title if len(title) <= 24 else f"{title[:23]}…"
    return (
        f'<a href="{escape(url, quote=True)}"><title>{escape(f"{kind} {title}: {summary}")}</title>'
        f'<rect class="{kind} {tone}" x="{x}" y="{y}" width="{WIDTH}" height="{HEIGHT}" rx="{radius}"/>'
        f'<text x="{x + WIDTH // 2}" y="{y + 22}" class="name">{escape(shown)}</text>'
        f'<text x="{x + WIDTH // 2}" y="{y + 40}" class="note">{escape(note)} · {bad} gaps</text></a>'
    )
