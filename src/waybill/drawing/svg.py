"""A machine as an SVG picture: no program, no font and no style sheet from outside.

Colours and dashes are attributes, so that a page may inline the picture under any content policy, and its style sheet
may still change them by class. Each state carries its sentence as a tooltip; each line says which arrows it stands for
(`data-from`, `data-to`, `data-labels`).
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from xml.sax.saxutils import escape, quoteattr

from waybill.drawing.layout import LETTER, Box, Layout, Point, layout
from waybill.drawing.links import Link
from waybill.machine import Machine, Sort, State

INK = "#1f2933"
PAPER = "#ffffff"
FONT = "ui-sans-serif, system-ui, 'Segoe UI', 'DejaVu Sans', sans-serif"
FILL = {"work": "#e8f1fb", "join": "#efe9fb", "rest": "#fdf3dc", "end": "#e6f4ea", "retired": "#eeeeee"}
LINE = {"step": "#46627f", "fail": "#b42318", "mark": "#8a5a00", "duty": "#6b6b6b", "person": "#1652b5"}
NOT_XML = re.compile("[\x00-\x08\x0b\x0c\x0e-\x1f\ud800-\udfff\ufffe\uffff]")  # characters that no XML text may hold
MARGIN = 16.0
CORNER = 6.0
SAYS: dict[Sort, str] = {
    "work": "a step runs",
    "join": "until all children have settled",
    "rest": "until somebody acts",
    "end": "for good",
    "retired": "no longer entered",
}


def svg(machine: Machine, counts: Mapping[str, int] | None = None, link: Callable[[str], str] | None = None) -> str:
    """The figure. `counts` writes into each box how many records are there; `link` makes each box a link to what it
    answers for a state.
    """
    placed = layout(machine, box_height=30.0 if counts is None else 46.0)
    left, top, right, bottom = placed.bounds
    right = max(right, left + 360.0)
    legend, high = _legend(machine, left, right, bottom + 24)
    width, height = right - left + 2 * MARGIN, bottom - top + 24 + high + 2 * MARGIN
    title = f"{machine.name}: {machine.doc}"
    begins = dict.fromkeys((machine.initial, *machine.begins))
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" role="img" class="machine" font-family={quoteattr(FONT)} width="{width:.0f}" '
        f'height="{height:.0f}" viewBox="{_n(left - MARGIN)} {_n(top - MARGIN)} {_n(width)} {_n(height)}" aria-label={quoteattr(title)}>',
        f"<title>{escape(title)}</title>",
        _heads(machine),
        f'<rect class="paper" x="{_n(left - MARGIN)}" y="{_n(top - MARGIN)}" width="{_n(width)}" height="{_n(height)}" fill="{PAPER}"/>',
        *(_line(machine, line, points) for line, points in placed.lines),
        *(_box(state, placed.boxes[state.name], state.name in begins, counts, link) for state in machine.states),
        *_labels(placed),
        legend,
        "</svg>",
    ]
    return NOT_XML.sub("\N{REPLACEMENT CHARACTER}", "\n".join(parts) + "\n")


def _n(number: float) -> str:
    return f"{number:.1f}".removesuffix(".0")


def _tone(link: Link) -> str:
    return "fail" if link.labels[0] == "fail" else link.by


def _heads(machine: Machine) -> str:
    heads = (
        f'<marker id={quoteattr(_head(machine, tone))} viewBox="0 0 10 10" refX="9" refY="5" markerWidth="8" markerHeight="8" '
        f'orient="auto"><path class="head {tone}" d="M0 1 L10 5 L0 9 z" fill="{colour}"/></marker>'
        for tone, colour in LINE.items()
    )
    return f"<defs>{''.join(heads)}</defs>"


def _head(machine: Machine, tone: str) -> str:
    """Several figures may stand on one page, where ids are common to all."""
    return "head-" + "".join(c if c.isalnum() else "-" for c in machine.name) + "-" + tone


def _line(machine: Machine, link: Link, points: list[Point]) -> str:
    tone = _tone(link)
    dashes = ' stroke-dasharray="5 3"' if link.by in ("mark", "duty") else ""
    says = f"{link.source} → {link.target}: {', '.join(link.labels)}"
    return (
        f'<path class="arrow {tone}" data-from={quoteattr(link.source)} data-to={quoteattr(link.target)} '
        f'data-labels={quoteattr(",".join(link.labels))} d="{_path(points)}" fill="none" stroke="{LINE[tone]}" stroke-width="1.4"{dashes} '
        f"marker-end={quoteattr(f'url(#{_head(machine, tone)})')}><title>{escape(says)}</title></path>"
    )


def _path(points: list[Point]) -> str:
    """Straight lines with rounded corners."""
    drawn = [f"M{_n(points[0][0])} {_n(points[0][1])}"]
    for before, corner, after in zip(points, points[1:], points[2:], strict=False):
        come, go = _towards(corner, before), _towards(corner, after)
        drawn.append(f"L{_n(come[0])} {_n(come[1])} Q{_n(corner[0])} {_n(corner[1])} {_n(go[0])} {_n(go[1])}")
    drawn.append(f"L{_n(points[-1][0])} {_n(points[-1][1])}")
    return " ".join(drawn)


def _towards(corner: Point, other: Point) -> Point:
    """A little way from a corner towards the next point, at most half of it."""
    dx, dy = other[0] - corner[0], other[1] - corner[1]
    far = abs(dx) + abs(dy)  # lines run along the axes
    share = min(CORNER, far / 2) / far if far else 0.0
    return corner[0] + dx * share, corner[1] + dy * share


def _box(
    state: State, box: Box, begins: bool, counts: Mapping[str, int] | None, link: Callable[[str], str] | None
) -> str:
    dashes = {"rest": ' stroke-dasharray="6 3"', "retired": ' stroke-dasharray="2 3"'}.get(state.sort, "")
    parts = [_rect(box, 0, FILL[state.sort], f'stroke="{INK}" stroke-width="1.3"{dashes}')]
    if state.sort == "end":
        parts.append(_rect(box, 3.5, "none", f'stroke="{INK}" stroke-width="1"'))
    if state.sort == "join":
        parts += [
            f'<path d="M{_n(x)} {_n(box.y)} V{_n(box.bottom)}" stroke="{INK}" stroke-width="1.3"/>'
            for x in (box.left + 6, box.right - 6)
        ]
    middle = box.y + box.height / 2
    parts.append(_text(box.x, middle + (4.5 if counts is None else -3), state.name, 13, INK, weight="600"))
    if counts is not None:
        parts.append(_text(box.x, middle + 15, f"{counts.get(state.name, 0):,}", 12, INK, kind="count"))
    if begins:
        parts.append(
            f'<circle class="begin" cx="{_n(box.left - 18)}" cy="{_n(middle)}" r="5" fill="{INK}"/>'
            f'<path class="begin" d="M{_n(box.left - 13)} {_n(middle)} H{_n(box.left)}" stroke="{INK}" stroke-width="1.4"/>'
        )
    inside = "".join(parts)
    if link is not None:
        inside = f"<a href={quoteattr(link(state.name))}>{inside}</a>"
    title = f"<title>{escape(f'{state.name} ({state.sort}): {state.doc}')}</title>"
    return f'<g class="state {state.sort}" data-state={quoteattr(state.name)}>{title}{inside}</g>'


def _rect(box: Box, inset: float, fill: str, rest: str) -> str:
    return (
        f'<rect x="{_n(box.left + inset)}" y="{_n(box.y + inset)}" width="{_n(box.width - 2 * inset)}" '
        f'height="{_n(box.height - 2 * inset)}" rx="{_n(7 - inset)}" fill="{fill}" {rest}/>'
    )


def _text(
    x: float,
    y: float,
    text: str,
    size: int,
    colour: str,
    *,
    anchor: str = "middle",
    weight: str = "400",
    kind: str = "name",
) -> str:
    return (
        f'<text class="{kind}" x="{_n(x)}" y="{_n(y)}" font-size="{size}" font-weight="{weight}" text-anchor="{anchor}" '
        f'fill="{colour}">{escape(text)}</text>'
    )


def _labels(placed: Layout) -> list[str]:
    """Above all lines, each with a margin of paper around its letters."""
    drawn = []
    for label in placed.labels:
        colour = LINE["fail" if label.text.split(", ")[0] == "fail" else label.by]
        drawn.append(
            f'<text class="label" x="{_n(label.x)}" y="{_n(label.y)}" font-size="11" text-anchor="{label.anchor}" fill="{colour}" '
            f'stroke="{PAPER}" stroke-width="3" stroke-linejoin="round" paint-order="stroke">{escape(label.text)}</text>'
        )
    return drawn


def _legend(machine: Machine, left: float, right: float, y: float) -> tuple[str, float]:
    """What the shapes mean, in as many lines as it needs; and how high it is."""
    parts, x, top = [], left, y
    for sort in (sort for sort in SAYS if any(s.sort == sort for s in machine.states)):
        text = f"{sort}: {SAYS[sort]}"
        wide = 24 + LETTER * len(text)
        if x > left and x + wide > right:
            x, y = left, y + 20
        sample = _box(State("", sort, SAYS[sort]), Box("", 0, 0, 14.0, width=18.0, x=x + 9, y=y), False, None, None)
        parts.append(sample.replace('class="state', 'class="sample').replace(' data-state=""', ""))
        parts.append(_text(x + 24, y + 11, text, 11, INK, anchor="start", kind="legend"))
        x += wide + 14
    return f'<g class="legend">{"".join(parts)}</g>', y + 14 - top
