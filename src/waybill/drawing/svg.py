"""A machine as an SVG picture, without scripts, fonts or style sheets from outside.

Colours and dashes are attributes, so that a page may inline the picture under any content policy, and its style sheet
may still change them by class. Each state has its description as a tooltip; each line names the arrows that it shows
(`data-from`, `data-to`, `data-labels`).
"""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Mapping
from xml.sax.saxutils import escape, quoteattr

from waybill.drawing.layout import LABEL_LETTER_WIDTH, MachineLayout, Point, StateBox, StateLink, compute_layout
from waybill.machine import Machine, State, StateType

INK = "#1f2933"
PAPER = "#ffffff"
FONT = "ui-sans-serif, system-ui, 'Segoe UI', 'DejaVu Sans', sans-serif"
STATE_FILLS = {"work": "#e8f1fb", "join": "#efe9fb", "rest": "#fdf3dc", "end": "#e6f4ea", "retired": "#eeeeee"}
LINE_COLOURS = {"step": "#46627f", "fail": "#b42318", "hold": "#8a5a00", "maintenance": "#6b6b6b", "person": "#1652b5"}
NOT_XML = re.compile("[\x00-\x08\x0b\x0c\x0e-\x1f\ud800-\udfff\ufffe\uffff]")  # characters that XML does not allow
MARGIN = 16.0
CORNER = 6.0
STATE_TYPE_TEXTS: dict[StateType, str] = {
    "work": "a step runs",
    "join": "until all children have settled",
    "rest": "until an action is taken",
    "end": "final",
    "retired": "no longer entered",
}


def render_svg(
    machine: Machine,
    counts: Mapping[str, int] | None = None,
    link_of: Callable[[str], str] | None = None,
    *,
    current: str | None = None,
    visited: Collection[str] = (),
) -> str:
    """The figure. `counts`: the number of records in each state, written into its box; `link_of`: the URL of a state,
    which makes its box a link. `current` and `visited`: where one record is, and where it was; their boxes have these classes.
    """
    placed = compute_layout(machine, box_height=30.0 if counts is None else 46.0)
    left, top, right, bottom = placed.bounds
    right = max(right, left + 360.0)
    legend, legend_height = _render_legend(machine, left, right, bottom + 24)
    width, height = right - left + 2 * MARGIN, bottom - top + 24 + legend_height + 2 * MARGIN
    title = f"{machine.name}: {machine.description}"
    initial_states = dict.fromkeys((machine.initial_state, *machine.initial_states))
    role = "img" if link_of is None else "group"  # what is inside of an image cannot be reached with a screen reader
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" role="{role}" class="machine" font-family={quoteattr(FONT)} width="{width:.0f}" '
        f'height="{height:.0f}" viewBox="{_format_point(left - MARGIN, top - MARGIN)} {_format_point(width, height)}" '
        f"aria-label={quoteattr(title)}>",
        f"<title>{escape(title)}</title>",
        _render_arrowheads(machine),
        f'<rect class="paper" {_format_place(left - MARGIN, top - MARGIN)} {_format_size(width, height)} fill="{PAPER}"/>',
        *(_render_line(machine, line, points) for line, points in placed.lines),
        *(
            _render_box(
                state,
                placed.boxes[state.name],
                state.name in initial_states,
                counts,
                link_of,
                " current" if state.name == current else " visited" if state.name in visited else "",
            )
            for state in machine.states
        ),
        *_render_labels(placed),
        legend,
        "</svg>",
    ]
    return NOT_XML.sub("\N{REPLACEMENT CHARACTER}", "\n".join(parts) + "\n")


def _format_number(number: float) -> str:
    return f"{number:.1f}".removesuffix(".0")


def _format_point(x: float, y: float) -> str:
    return f"{_format_number(x)} {_format_number(y)}"


def _format_place(x: float, y: float) -> str:
    return f'x="{_format_number(x)}" y="{_format_number(y)}"'


def _format_size(width: float, height: float) -> str:
    return f'width="{_format_number(width)}" height="{_format_number(height)}"'


def _tone_of(link: StateLink) -> str:
    return "fail" if link.labels[0] == "fail" else link.by


def _render_arrowheads(machine: Machine) -> str:
    heads = (
        f'<marker id={quoteattr(_arrowhead_id_of(machine, tone))} viewBox="0 0 10 10" refX="9" refY="5" markerWidth="8" markerHeight="8" '
        f'orient="auto"><path class="head {tone}" d="M0 1 L10 5 L0 9 z" fill="{colour}"/></marker>'
        for tone, colour in LINE_COLOURS.items()
    )
    return f"<defs>{''.join(heads)}</defs>"


def _arrowhead_id_of(machine: Machine, tone: str) -> str:
    """With the machine's name: several figures may be on one page, where ids must differ."""
    return "head-" + "".join(c if c.isalnum() else "-" for c in machine.name) + "-" + tone


def _render_line(machine: Machine, link: StateLink, points: list[Point]) -> str:
    tone = _tone_of(link)
    dashes = ' stroke-dasharray="5 3"' if link.by in ("hold", "maintenance") else ""
    title = f"{link.source} → {link.target}: {', '.join(link.labels)}"
    return (
        f'<path class="arrow {tone}" data-from={quoteattr(link.source)} data-to={quoteattr(link.target)} '
        f'data-labels={quoteattr(",".join(link.labels))} d="{_render_path(points)}" fill="none" '
        f'stroke="{LINE_COLOURS[tone]}" stroke-width="1.4"{dashes} '
        f"marker-end={quoteattr(f'url(#{_arrowhead_id_of(machine, tone)})')}><title>{escape(title)}</title></path>"
    )


def _render_path(points: list[Point]) -> str:
    """Straight lines with rounded corners."""
    commands = [f"M{_format_point(points[0][0], points[0][1])}"]
    for before, corner, after in zip(points, points[1:], points[2:], strict=False):
        start, end = _move_towards(corner, before), _move_towards(corner, after)
        commands.append(
            f"L{_format_point(start[0], start[1])} Q{_format_point(corner[0], corner[1])} {_format_point(end[0], end[1])}"
        )
    commands.append(f"L{_format_point(points[-1][0], points[-1][1])}")
    return " ".join(commands)


def _move_towards(corner: Point, other: Point) -> Point:
    """A point a little way from a corner towards the next point, at most half-way."""
    dx, dy = other[0] - corner[0], other[1] - corner[1]
    distance = abs(dx) + abs(dy)  # lines run along the axes
    share = min(CORNER, distance / 2) / distance if distance else 0.0
    return corner[0] + dx * share, corner[1] + dy * share


def _render_box(
    state: State,
    box: StateBox,
    is_initial: bool,
    counts: Mapping[str, int] | None,
    link_of: Callable[[str], str] | None,
    more_classes: str = "",
) -> str:
    dashes = {"rest": ' stroke-dasharray="6 3"', "retired": ' stroke-dasharray="2 3"'}.get(state.type, "")
    parts = [_render_rect(box, 0, STATE_FILLS[state.type], f'stroke="{INK}" stroke-width="1.3"{dashes}')]
    if state.type == "end":
        parts.append(_render_rect(box, 3.5, "none", f'stroke="{INK}" stroke-width="1"'))
    if state.type == "join":
        parts += [
            f'<path d="M{_format_point(x, box.y)} V{_format_number(box.bottom)}" stroke="{INK}" stroke-width="1.3"/>'
            for x in (box.left + 6, box.right - 6)
        ]
    middle = box.y + box.height / 2
    parts.append(_render_text(box.x, middle + (4.5 if counts is None else -3), state.name, 13, INK, weight="600"))
    if counts is not None:
        parts.append(_render_text(box.x, middle + 15, f"{counts.get(state.name, 0):,}", 12, INK, kind="count"))
    if is_initial:
        parts.append(
            f'<circle class="initial" cx="{_format_number(box.left - 18)}" cy="{_format_number(middle)}" r="5" fill="{INK}"/>'
            f'<path class="initial" d="M{_format_point(box.left - 13, middle)} H{_format_number(box.left)}" '
            f'stroke="{INK}" stroke-width="1.4"/>'
        )
    inside = "".join(parts)
    if link_of is not None:
        inside = f"<a href={quoteattr(link_of(state.name))}>{inside}</a>"
    title = f"<title>{escape(f'{state.name} ({state.type}): {state.description}')}</title>"
    return f'<g class="state {state.type}{more_classes}" data-state={quoteattr(state.name)}>{title}{inside}</g>'


def _render_rect(box: StateBox, inset: float, fill: str, rest: str) -> str:
    return (
        f'<rect {_format_place(box.left + inset, box.y + inset)} width="{_format_number(box.width - 2 * inset)}" '
        f'height="{_format_number(box.height - 2 * inset)}" rx="{_format_number(7 - inset)}" fill="{fill}" {rest}/>'
    )


def _render_text(
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
        f'<text class="{kind}" {_format_place(x, y)} font-size="{size}" font-weight="{weight}" text-anchor="{anchor}" '
        f'fill="{colour}">{escape(text)}</text>'
    )


def _render_labels(placed: MachineLayout) -> list[str]:
    """Above all lines, each with a margin of background around its letters."""
    texts = []
    for label in placed.labels:
        colour = LINE_COLOURS["fail" if label.text.split(", ")[0] == "fail" else label.by]
        texts.append(
            f'<text class="label" {_format_place(label.x, label.y)} font-size="11" text-anchor="{label.anchor}" fill="{colour}" '
            f'stroke="{PAPER}" stroke-width="3" stroke-linejoin="round" paint-order="stroke">{escape(label.text)}</text>'
        )
    return texts


def _render_legend(machine: Machine, left: float, right: float, y: float) -> tuple[str, float]:
    """The meaning of the shapes, in as many lines as it needs; and its height."""
    parts, x, top = [], left, y
    for state_type in (each for each in STATE_TYPE_TEXTS if any(s.type == each for s in machine.states)):
        text = f"{state_type}: {STATE_TYPE_TEXTS[state_type]}"
        width = 24 + LABEL_LETTER_WIDTH * len(text)
        if x > left and x + width > right:
            x, y = left, y + 20
        sample = _render_box(
            State("", state_type, STATE_TYPE_TEXTS[state_type]),
            StateBox("", 0, 0, 14.0, width=18.0, x=x + 9, y=y),
            False,
            None,
            None,
        )
        parts.append(sample.replace('class="state', 'class="sample').replace(' data-state=""', ""))
        parts.append(_render_text(x + 24, y + 11, text, 11, INK, anchor="start", kind="legend"))
        x += width + 14
    return f'<g class="legend">{"".join(parts)}</g>', y + 14 - top
