"""The layout of a machine's figure: where its boxes, lines and labels are.

Arrows between the same two states are one link. States are in rows: a state's row is the longest path to it from an
initial state. The path of success is the first column; the others are beside it, under the state that leads to them
where there is space. Lines never cross a box:

    straight   to the state right below
    near       out of the bottom, along a track between the two rows, into the top
    far        out of the bottom, along a track, along a rail beside all boxes (right: forward, left: back), along a track, into the top

Lines of the same meaning share a rail: all failures into one state, all targets of one resume.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import NamedTuple

from waybill.machine import Machine

LABEL_LETTER_WIDTH = 6.6  # width of a letter of a label
NAME_LETTER_WIDTH = 7.9  # and of a state's name: rather wide, since the reader's font is not known
PORT_SPACING = 14.0  # between two lines that leave or enter a box
TEXT_TRACK_SPACING = 18.0  # between two tracks that carry a text
TRACK_SPACING = 9.0  # between two that carry none
RAIL_SPACING = 12.0  # between two rails
COLUMN_SPACING = 52.0  # between two columns; the dot of an initial state is there
ARROWHEAD_SPACE = 16.0  # for the head of an arrow

Point = tuple[float, float]


class StateLink(NamedTuple):
    """All arrows from one state to another, under one line."""

    source: str
    target: str
    labels: tuple[str, ...]
    by: str  # the cause of the first of them: "step", "hold", "maintenance" or "person"

    @property
    def text(self) -> str:
        """The text beside the line. Success needs none; failures and actions do."""
        return ", ".join(label for label in self.labels if label != "done")


@dataclass(eq=False)
class StateBox:
    name: str
    row: int
    column: int
    height: float
    loops: str = ""  # the labels of the arrows from the state to itself
    width: float = 0.0
    x: float = 0.0  # of its middle
    y: float = 0.0  # of its top
    tracks_end: float = 0.0  # below the tracks of all lines that leave its row

    @property
    def bottom(self) -> float:
        return self.y + self.height

    @property
    def left(self) -> float:
        return self.x - self.width / 2

    @property
    def right(self) -> float:
        return self.x + self.width / 2


@dataclass(eq=False)
class LinkRail:
    """Links of the same meaning. Near ones have no rail of their own, only a track between their two rows."""

    links: list[StateLink]
    side: int  # 1: right, -1: left
    is_far: bool
    x: float = 0.0

    @property
    def sources(self) -> list[str]:
        return list(dict.fromkeys(link.source for link in self.links))

    @property
    def targets(self) -> list[str]:
        return list(dict.fromkeys(link.target for link in self.links))


@dataclass(eq=False)
class RailEnd:
    """Where a rail leaves the bottom of a box, or enters its top."""

    rail: LinkRail
    box: StateBox
    side: int  # the half of the box
    text: str = ""
    x: float = 0.0
    y: float = 0.0  # of its track


@dataclass(frozen=True)
class LinkLabel:
    x: float
    y: float
    text: str
    by: str
    anchor: str


@dataclass
class MachineLayout:
    boxes: dict[str, StateBox]
    lines: list[tuple[StateLink, list[Point]]] = field(default_factory=list)
    labels: list[LinkLabel] = field(default_factory=list)
    bounds: tuple[float, float, float, float] = (0, 0, 0, 0)  # left, top, right, bottom


def compute_layout(machine: Machine, box_height: float) -> MachineLayout:
    links = collect_links(machine)
    boxes = _make_boxes(machine, links, box_height)
    bent = [link for link in links if link.source != link.target and not _is_straight(boxes, link)]
    rails = [*_make_near_rails(boxes, bent), *_make_far_rails(boxes, bent)]
    outs = [RailEnd(rail, boxes[name], rail.side, rail.links[0].text) for rail in rails for name in rail.sources]
    ins = [
        RailEnd(rail, boxes[name], rail.side if rail.is_far else -rail.side) for rail in rails for name in rail.targets
    ]
    _place_columns(boxes, outs, ins)
    _place_rails(boxes, [rail for rail in rails if rail.is_far], outs)
    _place_rows(boxes, outs, ins, {boxes[link.source].row for link in links if link.text and _is_straight(boxes, link)})
    return _route_lines(boxes, links, outs, ins)


def _make_boxes(machine: Machine, links: list[StateLink], height: float) -> dict[str, StateBox]:
    row = assign_rows(machine, links)
    column = assign_columns(machine, links, row)
    loops = {link.source: ", ".join(link.labels) for link in links if link.source == link.target}
    return {
        s.name: StateBox(s.name, row[s.name], column[s.name], height, loops.get(s.name, "")) for s in machine.states
    }


def collect_links(machine: Machine) -> list[StateLink]:
    """The links of a machine, in the order of its declaration."""
    labels: dict[tuple[str, str], list[str]] = {}
    causes: dict[tuple[str, str], str] = {}
    for arrow in machine.iter_arrows():
        pair = (arrow.source, arrow.target)
        causes.setdefault(pair, arrow.by)
        if arrow.label not in labels.setdefault(pair, []):
            labels[pair].append(arrow.label)
    return [StateLink(*pair, tuple(names), causes[pair]) for pair, names in labels.items()]


def assign_rows(machine: Machine, links: list[StateLink]) -> dict[str, int]:
    """The longest path from an initial state, without the links that lead back."""
    after: dict[str, list[str]] = {s.name: [] for s in machine.states}
    for link in links:
        if link.source != link.target:
            after[link.source].append(link.target)
    forward: dict[str, list[str]] = {name: [] for name in after}
    finished: list[str] = []  # in the order in which the walk leaves them for good: each after all its successors
    for start in dict.fromkeys((machine.initial_state, *machine.initial_states, *after)):
        if start not in finished:
            _walk_depth_first(start, after, forward, finished)
    found = dict.fromkeys(after, 0)
    for name in reversed(finished):
        for target in forward[name]:
            found[target] = max(found[target], found[name] + 1)
    return found


def _walk_depth_first(
    start: str, after: Mapping[str, list[str]], forward: dict[str, list[str]], finished: list[str]
) -> None:
    """Depth first, with a stack of its own: a machine may be deeper than Python's recursion limit."""
    path = [start]
    ahead = {start: iter(after[start])}
    while path:
        name = path[-1]
        target = next(ahead[name], None)
        if target is None:
            finished.append(path.pop())
        elif target not in path:
            forward[name].append(target)
            if target not in ahead and target not in finished:
                path.append(target)
                ahead[target] = iter(after[target])


def assign_columns(machine: Machine, links: list[StateLink], rows: Mapping[str, int]) -> dict[str, int]:
    """The path of success is column 0; the others are below the state that leads to them, or in the next free column of
    their row.
    """
    success: list[str] = []
    name: str | None = machine.initial_state
    while name is not None and name not in success:
        success.append(name)
        state = machine.find_state(name)
        name = state.to if state is not None else None
    found: dict[str, int] = {}
    taken: set[tuple[int, int]] = set()
    for name in sorted(rows, key=lambda name: rows[name]):  # a stable sort: in a row, the order of the declaration
        if name in success and (rows[name], 0) not in taken:
            column = 0
        else:
            above = [
                found[link.source] for link in links if link.target == name and rows[link.source] == rows[name] - 1
            ]
            free = [c for c in (*above, *range(1, len(rows) + 1)) if c > 0 and (rows[name], c) not in taken]
            column = free[0]
        found[name] = column
        taken.add((rows[name], column))
    return found


def _is_straight(boxes: dict[str, StateBox], link: StateLink) -> bool:
    source, target = boxes[link.source], boxes[link.target]
    return target.row == source.row + 1 and target.column == source.column


def _make_near_rails(boxes: dict[str, StateBox], bent: list[StateLink]) -> list[LinkRail]:
    shared: dict[tuple[str, tuple[str, ...], int], list[StateLink]] = {}
    for link in bent:
        source, target = boxes[link.source], boxes[link.target]
        if target.row == source.row + 1:
            shared.setdefault((link.source, link.labels, 1 if target.column > source.column else -1), []).append(link)
    return [LinkRail(members, side, is_far=False) for (_, _, side), members in shared.items()]


def _make_far_rails(boxes: dict[str, StateBox], bent: list[StateLink]) -> list[LinkRail]:
    """Links that leave one state under one label share a rail; else those that enter one state under one label."""
    far = [link for link in bent if boxes[link.target].row != boxes[link.source].row + 1]
    side = {link: 1 if boxes[link.target].row > boxes[link.source].row else -1 for link in far}
    shared: dict[tuple[str, str, tuple[str, ...], int], list[StateLink]] = {}
    for link in far:
        ways = sum(
            1 for other in far if (other.source, other.labels, side[other]) == (link.source, link.labels, side[link])
        )
        source, target = (link.source, "") if ways > 1 else ("", link.target)
        shared.setdefault((source, target, link.labels, side[link]), []).append(link)
    return [LinkRail(members, way, is_far=True) for (_, _, _, way), members in shared.items()]


def _place_columns(boxes: dict[str, StateBox], outs: list[RailEnd], ins: list[RailEnd]) -> None:
    """Make boxes as wide as their names and lines need; then give each line its port, from the middle outwards."""
    for box in boxes.values():
        ports = max(
            sum(1 for end in ends if end.box is box and end.side == side) for ends in (outs, ins) for side in (1, -1)
        )
        box.width = max(96.0, NAME_LETTER_WIDTH * len(box.name) + 28, 2 * (ports + 1) * PORT_SPACING)
    left = 0.0
    for column in range(max(box.column for box in boxes.values()) + 1):
        inside = [box for box in boxes.values() if box.column == column]
        width = max((box.width for box in inside), default=0.0)
        for box in inside:
            box.x = left + width / 2
        loops = max((box.right + 30 + LABEL_LETTER_WIDTH * len(box.loops) for box in inside if box.loops), default=0.0)
        left = max(left + width + COLUMN_SPACING, loops + COLUMN_SPACING / 2)
    # a line that leaves a box and one that enters the box below must not share an x
    for ends, offset in ((outs, -PORT_SPACING / 2), (ins, 0.0)):
        used: dict[tuple[str, int], int] = {}
        for end in ends:
            half = (end.box.name, end.side)
            used[half] = used.get(half, 0) + 1
            end.x = end.box.x + end.side * (PORT_SPACING * used[half] + offset)


def _place_rails(boxes: dict[str, StateBox], rails: list[LinkRail], outs: list[RailEnd]) -> None:
    """Beside all boxes and all texts; short rails inside, long ones outside; two that do not overlap share a column."""

    def span(rail: LinkRail) -> tuple[int, int]:
        ends = [2 * boxes[name].row + 1 for name in rail.sources] + [2 * boxes[name].row - 1 for name in rail.targets]
        return min(ends), max(ends)

    for side in (1, -1):
        texts = [side * end.x + LABEL_LETTER_WIDTH * len(end.text) + 8 for end in outs if end.side == side]
        loops = [
            box.right + 30 + LABEL_LETTER_WIDTH * len(box.loops) for box in boxes.values() if box.loops and side == 1
        ]
        edges = [side * (box.right if side == 1 else box.left) for box in boxes.values()]
        start = max(*edges, *texts, *loops) + (14 if side == 1 else 26)  # the dot of an initial state is on the left
        columns: list[list[tuple[int, int]]] = []
        for rail in sorted((r for r in rails if r.side == side), key=lambda r: span(r)[1] - span(r)[0]):
            low, high = span(rail)
            free = (i for i, spans in enumerate(columns) if all(high < a or b < low for a, b in spans))
            column = next(free, len(columns))
            if column == len(columns):
                columns.append([])
            columns[column].append((low, high))
            rail.x = side * (start + RAIL_SPACING * column)


def _place_rows(boxes: dict[str, StateBox], outs: list[RailEnd], ins: list[RailEnd], text_rows: set[int]) -> None:
    """From the top down: the tracks that enter a row, the row, the tracks that leave it, and (`text_rows`) space for the
    texts of straight lines.
    """
    y = 0.0
    for row in range(max(box.row for box in boxes.values()) + 1):
        # An outer port takes the lower track when entering and the upper one when leaving: then no two lines of one box
        # cross.
        entering = sorted((e for e in ins if e.box.row == row and e.rail.is_far), key=lambda e: e.side * e.x)
        for end in entering:
            y += TRACK_SPACING
            end.y = y
        y += ARROWHEAD_SPACE
        for box in boxes.values():
            if box.row == row:
                box.y = y
        y += max(box.height for box in boxes.values())
        for end in sorted((e for e in outs if e.box.row == row), key=lambda e: -e.side * e.x):
            y += TEXT_TRACK_SPACING if end.text else TRACK_SPACING
            end.y = y
        y += 6 + (TEXT_TRACK_SPACING if row in text_rows else 0)
        for box in boxes.values():
            if box.row == row:
                box.tracks_end = y


def _route_lines(
    boxes: dict[str, StateBox], links: list[StateLink], outs: list[RailEnd], ins: list[RailEnd]
) -> MachineLayout:
    placed = MachineLayout(boxes)
    out_of = {(end.rail, end.box.name): end for end in outs}
    into = {(end.rail, end.box.name): end for end in ins}
    rail_of = {link: end.rail for end in outs for link in end.rail.links}
    for link in links:
        source, target = boxes[link.source], boxes[link.target]
        if link in rail_of:
            out, end = out_of[rail_of[link], link.source], into[rail_of[link], link.target]
            start: list[Point] = [(out.x, source.bottom), (out.x, out.y)]
            over: list[Point] = (
                [(end.rail.x, out.y), (end.rail.x, end.y), (end.x, end.y)] if end.rail.is_far else [(end.x, out.y)]
            )
            placed.lines.append((link, [*start, *over, (end.x, target.y)]))
        elif source is not target:
            placed.lines.append((link, [(source.x, source.bottom), (target.x, target.y)]))
            if link.text:
                placed.labels.append(LinkLabel(source.x + 5, source.tracks_end - 5, link.text, link.by, "start"))
        else:
            x, y = source.right, source.y + source.height / 2
            placed.lines.append((link, [(x, y - 7), (x + 20, y - 7), (x + 20, y + 7), (x, y + 7)]))
            placed.labels.append(LinkLabel(x + 26, y + 4, source.loops, link.by, "start"))
    for end in outs:
        if end.text:
            anchor = "start" if end.side == 1 else "end"
            placed.labels.append(LinkLabel(end.x + 5 * end.side, end.y - 4, end.text, end.rail.links[0].by, anchor))
    placed.bounds = _bounds_of(placed)
    return placed


def _bounds_of(placed: MachineLayout) -> tuple[float, float, float, float]:
    points = [point for _, line in placed.lines for point in line]
    for box in placed.boxes.values():
        points += [(box.left - 26, box.y), (box.right, box.bottom)]
    for label in placed.labels:
        reach = LABEL_LETTER_WIDTH * len(label.text) * (1 if label.anchor == "start" else -1)
        points += [(label.x + reach, label.y - 10), (label.x, label.y)]
    return min(x for x, _ in points), min(y for _, y in points), max(x for x, _ in points), max(y for _, y in points)
