"""Where everything of a machine's figure lies.

States stand in rows: a state's row is the longest way to it from where records begin. The way of success is the first
column; the others stand beside it, under the state that leads to them where there is room. Lines never cross a box:

    straight   to the state right below
    near       out of the bottom, along a track between the two rows, into the top
    far        out of the bottom, along a track, along a rail beside all boxes (right: forward, left: back), along a track, into the top

Lines of the same meaning share a rail: all failures into one state, all ways that one resume can take.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from waybill.drawing.links import Link, links
from waybill.drawing.rows import columns, rows
from waybill.machine import Machine

LETTER = 6.6  # width of a letter of a label, and
NAME_LETTER = 7.9  # of a state's name: on the wide side, since the reader's font is not known
PORT = 14.0  # between two lines that leave or enter a box
TRACK = 18.0  # between two tracks that carry a text
THIN = 9.0  # between two that carry none
LANE = 12.0  # between two rails
GAP = 52.0  # between two columns; the dot of a beginning stands in it
HEAD = 16.0  # room for an arrow's head

Point = tuple[float, float]


@dataclass(eq=False)
class Box:
    name: str
    row: int
    column: int
    height: float
    loops: str = ""  # what leads from the state to itself
    width: float = 0.0
    x: float = 0.0  # of its middle
    y: float = 0.0  # of its top
    end: float = 0.0  # where all that leaves its row has its tracks above

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
class Rail:
    """What links of the same meaning share.

    Near ones have no rail of their own, only a track between their two rows.
    """

    links: list[Link]
    side: int  # where it goes: 1: right, -1: left
    far: bool
    x: float = 0.0

    @property
    def sources(self) -> list[str]:
        return list(dict.fromkeys(link.source for link in self.links))

    @property
    def targets(self) -> list[str]:
        return list(dict.fromkeys(link.target for link in self.links))


@dataclass(eq=False)
class End:
    """Where a rail leaves the bottom of a box, or enters its top."""

    rail: Rail
    box: Box
    side: int  # the half of the box
    text: str = ""
    x: float = 0.0
    y: float = 0.0  # of its track


@dataclass(frozen=True)
class Label:
    x: float
    y: float
    text: str
    by: str
    anchor: str


@dataclass
class Layout:
    boxes: dict[str, Box]
    lines: list[tuple[Link, list[Point]]] = field(default_factory=list)
    labels: list[Label] = field(default_factory=list)
    bounds: tuple[float, float, float, float] = (0, 0, 0, 0)  # left, top, right, bottom


def layout(machine: Machine, box_height: float) -> Layout:
    every = links(machine)
    boxes = _boxes(machine, every, box_height)
    bent = [link for link in every if link.source != link.target and not _straight(boxes, link)]
    rails = [*_near(boxes, bent), *_far(boxes, bent)]
    outs = [End(rail, boxes[name], rail.side, rail.links[0].text) for rail in rails for name in rail.sources]
    ins = [End(rail, boxes[name], rail.side if rail.far else -rail.side) for rail in rails for name in rail.targets]
    _place_columns(boxes, outs, ins)
    _place_rails(boxes, [rail for rail in rails if rail.far], outs)
    _place_rows(boxes, outs, ins, {boxes[link.source].row for link in every if link.text and _straight(boxes, link)})
    return _drawn(boxes, every, outs, ins)


def _boxes(machine: Machine, every: list[Link], height: float) -> dict[str, Box]:
    row = rows(machine, every)
    column = columns(machine, every, row)
    loops = {link.source: ", ".join(link.labels) for link in every if link.source == link.target}
    return {s.name: Box(s.name, row[s.name], column[s.name], height, loops.get(s.name, "")) for s in machine.states}


def _straight(boxes: dict[str, Box], link: Link) -> bool:
    source, target = boxes[link.source], boxes[link.target]
    return target.row == source.row + 1 and target.column == source.column


def _near(boxes: dict[str, Box], bent: list[Link]) -> list[Rail]:
    shared: dict[tuple[str, tuple[str, ...], int], list[Link]] = {}
    for link in bent:
        source, target = boxes[link.source], boxes[link.target]
        if target.row == source.row + 1:
            shared.setdefault((link.source, link.labels, 1 if target.column > source.column else -1), []).append(link)
    return [Rail(members, side, far=False) for (_, _, side), members in shared.items()]


def _far(boxes: dict[str, Box], bent: list[Link]) -> list[Rail]:
    """Shared by what leaves one state under one name, else by what enters one state under one name."""
    far = [link for link in bent if boxes[link.target].row != boxes[link.source].row + 1]
    side = {link: 1 if boxes[link.target].row > boxes[link.source].row else -1 for link in far}
    shared: dict[tuple[str, str, tuple[str, ...], int], list[Link]] = {}
    for link in far:
        ways = sum(
            1 for other in far if (other.source, other.labels, side[other]) == (link.source, link.labels, side[link])
        )
        source, target = (link.source, "") if ways > 1 else ("", link.target)
        shared.setdefault((source, target, link.labels, side[link]), []).append(link)
    return [Rail(members, way, far=True) for (_, _, _, way), members in shared.items()]


def _place_columns(boxes: dict[str, Box], outs: list[End], ins: list[End]) -> None:
    """Boxes as wide as their names and the lines at them ask for; then each line its port, from the middle outwards."""
    for box in boxes.values():
        ports = max(
            sum(1 for end in ends if end.box is box and end.side == side) for ends in (outs, ins) for side in (1, -1)
        )
        box.width = max(96.0, NAME_LETTER * len(box.name) + 28, 2 * (ports + 1) * PORT)
    left = 0.0
    for column in range(max(box.column for box in boxes.values()) + 1):
        inside = [box for box in boxes.values() if box.column == column]
        width = max((box.width for box in inside), default=0.0)
        for box in inside:
            box.x = left + width / 2
        loops = max((box.right + 30 + LETTER * len(box.loops) for box in inside if box.loops), default=0.0)
        left = max(left + width + GAP, loops + GAP / 2)
    # what leaves a box above and what enters one below must not share a line
    for ends, offset in ((outs, -PORT / 2), (ins, 0.0)):
        used: dict[tuple[str, int], int] = {}
        for end in ends:
            place = (end.box.name, end.side)
            used[place] = used.get(place, 0) + 1
            end.x = end.box.x + end.side * (PORT * used[place] + offset)


def _place_rails(boxes: dict[str, Box], rails: list[Rail], outs: list[End]) -> None:
    """Beside all boxes and all texts; short rails inside, long ones outside; two that do not meet share a lane."""

    def span(rail: Rail) -> tuple[int, int]:
        ends = [2 * boxes[name].row + 1 for name in rail.sources] + [2 * boxes[name].row - 1 for name in rail.targets]
        return min(ends), max(ends)

    for side in (1, -1):
        texts = [side * end.x + LETTER * len(end.text) + 8 for end in outs if end.side == side]
        loops = [box.right + 30 + LETTER * len(box.loops) for box in boxes.values() if box.loops and side == 1]
        edges = [side * (box.right if side == 1 else box.left) for box in boxes.values()]
        start = max(*edges, *texts, *loops) + (14 if side == 1 else 26)  # the dot of a beginning stands on the left
        lanes: list[list[tuple[int, int]]] = []
        for rail in sorted((r for r in rails if r.side == side), key=lambda r: span(r)[1] - span(r)[0]):
            low, high = span(rail)
            lane = next((i for i, taken in enumerate(lanes) if all(high < a or b < low for a, b in taken)), len(lanes))
            if lane == len(lanes):
                lanes.append([])
            lanes[lane].append((low, high))
            rail.x = side * (start + LANE * lane)


def _place_rows(boxes: dict[str, Box], outs: list[End], ins: list[End], told: set[int]) -> None:
    """From the top down: the tracks that enter a row, the row, the tracks that leave it, and (`told`) room for texts
    of straight lines.
    """
    y = 0.0
    for row in range(max(box.row for box in boxes.values()) + 1):
        # An outer port takes the lower track when entering and the upper one when leaving: then no two lines of one box
        # cross.
        entering = sorted((e for e in ins if e.box.row == row and e.rail.far), key=lambda e: e.side * e.x)
        for end in entering:
            y += THIN
            end.y = y
        y += HEAD
        for box in boxes.values():
            if box.row == row:
                box.y = y
        y += max(box.height for box in boxes.values())
        for end in sorted((e for e in outs if e.box.row == row), key=lambda e: -e.side * e.x):
            y += TRACK if end.text else THIN
            end.y = y
        y += 6 + (TRACK if row in told else 0)
        for box in boxes.values():
            if box.row == row:
                box.end = y


def _drawn(boxes: dict[str, Box], every: list[Link], outs: list[End], ins: list[End]) -> Layout:
    placed = Layout(boxes)
    out_of = {(end.rail, end.box.name): end for end in outs}
    into = {(end.rail, end.box.name): end for end in ins}
    rail_of = {link: end.rail for end in outs for link in end.rail.links}
    for link in every:
        source, target = boxes[link.source], boxes[link.target]
        if link in rail_of:
            out, end = out_of[rail_of[link], link.source], into[rail_of[link], link.target]
            start: list[Point] = [(out.x, source.bottom), (out.x, out.y)]
            over: list[Point] = (
                [(end.rail.x, out.y), (end.rail.x, end.y), (end.x, end.y)] if end.rail.far else [(end.x, out.y)]
            )
            placed.lines.append((link, [*start, *over, (end.x, target.y)]))
        elif source is not target:
            placed.lines.append((link, [(source.x, source.bottom), (target.x, target.y)]))
            if link.text:
                placed.labels.append(Label(source.x + 5, source.end - 5, link.text, link.by, "start"))
        else:
            x, y = source.right, source.y + source.height / 2
            placed.lines.append((link, [(x, y - 7), (x + 20, y - 7), (x + 20, y + 7), (x, y + 7)]))
            placed.labels.append(Label(x + 26, y + 4, source.loops, link.by, "start"))
    for end in outs:
        if end.text:
            anchor = "start" if end.side == 1 else "end"
            placed.labels.append(Label(end.x + 5 * end.side, end.y - 4, end.text, end.rail.links[0].by, anchor))
    placed.bounds = _bounds(placed)
    return placed


def _bounds(placed: Layout) -> tuple[float, float, float, float]:
    points = [point for _, line in placed.lines for point in line]
    for box in placed.boxes.values():
        points += [(box.left - 26, box.y), (box.right, box.bottom)]
    for label in placed.labels:
        reach = LETTER * len(label.text) * (1 if label.anchor == "start" else -1)
        points += [(label.x + reach, label.y - 10), (label.x, label.y)]
    return min(x for x, _ in points), min(y for _, y in points), max(x for x, _ in points), max(y for _, y in points)
