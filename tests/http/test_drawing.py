"""Figures show every state and every arrow of any table, and nothing that a name could smuggle in."""

import itertools
import xml.etree.ElementTree as ET
from collections.abc import Iterator

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.http.api_fixture import BOX, CRATE
from waybill.demo import PARCEL, SHIPMENT
from waybill.drawing import render_mermaid, render_svg
from waybill.drawing.layout import LABEL_LETTER_WIDTH, MachineLayout, assign_rows, collect_links, compute_layout
from waybill.machine import RESUME, STAY, Action, Machine, action, end, join, rest, retired, work

SVG = "{http://www.w3.org/2000/svg}"

LONG = Machine(
    name="job",
    plural="jobs",
    description="Many ways to fail & <one> to win.",
    states=(
        work("Pending", to="Estimating", description="Waits.", on_hold="Held"),
        rest("Held", description="On hold."),
        work("Estimating", to="Downloading", description="Looks.", on_fail=None),
        work("Downloading", to="Recording", description="Fetches.", or_to=("Completed",)),
        work("Recording", to="Notify", description="Writes.", on_host_lost="Downloading"),
        join("Notify", to="Completed", description="Until all have heard.", on_fail="Failed"),
        rest("Failed", description="Gave up.", settled=True),
        end("Completed", description="Done."),
        end("Deleted", description="Removed."),
        retired("Old", to="Pending"),
    ),
    actions=(
        action("release", "Held", "Pending", "Let go."),
        action("resume", "Failed", RESUME, "Again."),
        action("delete", "Failed Held", "Deleted", "Away."),
        action("note", "Held Failed", STAY, "Write."),
    ),
    hold_names=lambda record: (),
)
ODD = Machine(
    name="<\"&'>",
    plural="odd",
    description="\x00 ]]> --> é 💡",
    states=(
        work('a "b" <c>', to="d & e;\n:#", description="<script>alert(1)</script>", on_fail="f\x01"),
        rest("f\x01", description="?"),
        end("d & e;\n:#", description="]]>"),
    ),
    actions=(action("<go>", "f\x01", "d & e;\n:#", "&"),),
)
MACHINES = [CRATE, BOX, SHIPMENT, PARCEL, LONG, ODD]


@pytest.fixture(params=MACHINES, ids=lambda m: str(MACHINES.index(m)))
def machine(request: pytest.FixtureRequest) -> Machine:
    found: Machine = request.param
    return found


def clean(text: str) -> str:
    return "".join(
        "\N{REPLACEMENT CHARACTER}" if (ord(c) < 32 and c not in "\t\n\r") or c in "\ufffe\uffff" else c for c in text
    )


def check_complete(machine: Machine, text: str) -> ET.Element:
    figure = ET.fromstring(text)
    states = [g.get("data-state") for g in figure.iter(f"{SVG}g") if g.get("data-state") is not None]
    assert states == [clean(s.name) for s in machine.states]
    drawn = [p for p in figure.iter(f"{SVG}path") if p.get("data-from") is not None]
    shown = {
        (p.get("data-from"), p.get("data-to"), label) for p in drawn for label in str(p.get("data-labels")).split(",")
    }
    assert shown == {(clean(a.source), clean(a.target), clean(a.label)) for a in machine.iter_arrows()}
    return figure


def test_every_state_and_arrow_is_drawn_and_every_name_can_be_read(machine: Machine) -> None:
    figure = check_complete(machine, render_svg(machine))
    texts = [t.text for t in figure.iter(f"{SVG}text")]
    for state in machine.states:
        assert clean(state.name) in texts
    for link in collect_links(machine):
        if link.text:
            assert clean(link.text) in texts or ", ".join(map(clean, link.labels)) in texts
    assert {element.tag.removeprefix(SVG) for element in figure.iter()} <= {
        "svg",
        "title",
        "defs",
        "marker",
        "path",
        "rect",
        "g",
        "text",
        "circle",
    }


def test_sorts_look_different() -> None:
    figure = ET.fromstring(render_svg(LONG))
    boxes = {g.get("data-state"): g for g in figure.iter(f"{SVG}g") if g.get("data-state")}
    rects = {name: box.findall(f"{SVG}rect") for name, box in boxes.items()}
    assert len(rects["Completed"]) == 2  # an end is doubled
    assert len(rects["Pending"]) == 1
    assert rects["Held"][0].get("stroke-dasharray")  # a rest is dashed
    assert not rects["Pending"][0].get("stroke-dasharray")
    assert boxes["Pending"].find(f"{SVG}circle") is not None  # where records begin


def test_a_figure_can_show_counts_and_lead_on(machine: Machine) -> None:
    text = render_svg(machine, {machine.initial_state: 1234567}, lambda state: f"/records?state={state}&x=1")
    figure = check_complete(machine, text)
    assert "1,234,567" in [t.text for t in figure.iter(f"{SVG}text")]
    assert len(list(figure.iter(f"{SVG}a"))) == len(machine.states)


def test_the_same_table_always_makes_the_same_figure(machine: Machine) -> None:
    assert render_svg(machine) == render_svg(machine)
    assert render_mermaid(machine) == render_mermaid(machine)


def test_mermaid_shows_every_state_and_arrow() -> None:
    text = render_mermaid(LONG).splitlines()
    assert text[0] == "stateDiagram-v2"
    assert "    [*] --> Pending" in text
    for link in collect_links(LONG):
        assert f"    {link.source} --> {link.target}" + (f": {link.text}" if link.text else "") in text
    assert "    Completed --> [*]" in text


def test_mermaid_takes_names_that_it_would_not_understand() -> None:
    lines = render_mermaid(ODD).splitlines()
    assert len(lines) == 1 + 3 + 1 + 3 + 1
    assert '    state "a #34;b#34; #60;c#62;" as a__b___c_' in lines


def crossings(placed: MachineLayout) -> Iterator[str]:
    """Lines that run through a box, and boxes that overlap."""
    for (link, points), box in itertools.product(placed.lines, placed.boxes.values()):
        for (x1, y1), (x2, y2) in itertools.pairwise(points):
            inside_x = min(x1, x2) < box.right - 0.5 and max(x1, x2) > box.left + 0.5
            inside_y = min(y1, y2) < box.bottom - 0.5 and max(y1, y2) > box.y + 0.5
            if inside_x and inside_y:
                yield f"{link.source} to {link.target} runs through {box.name}"
    for one, two in itertools.combinations(placed.boxes.values(), 2):
        if one.left < two.right and two.left < one.right and one.y < two.bottom and two.y < one.bottom:
            yield f"{one.name} lies on {two.name}"


def overlaps(placed: MachineLayout) -> Iterator[str]:
    """Lines of different meaning that run on top of each other, so that nobody could tell which is which."""
    pieces = [(link, *piece) for link, points in placed.lines for piece in itertools.pairwise(points)]
    for (one, a, b), (two, c, d) in itertools.combinations(pieces, 2):
        for along, across in ((0, 1), (1, 0)):
            if a[across] == b[across] == c[across] == d[across]:
                shared = min(max(a[along], b[along]), max(c[along], d[along])) - max(
                    min(a[along], b[along]), min(c[along], d[along])
                )
                if shared > 1 and one.labels != two.labels:
                    yield f"{one} and {two} share a line"


def test_no_line_runs_through_a_box_or_on_another(machine: Machine) -> None:
    assert list(crossings(compute_layout(machine, 30.0))) == []
    assert list(overlaps(compute_layout(machine, 30.0))) == []


def test_rails_run_beside_all_boxes_and_texts(machine: Machine) -> None:
    placed = compute_layout(machine, 30.0)
    left, right = min(box.left for box in placed.boxes.values()), max(box.right for box in placed.boxes.values())
    reach = max(
        (label.x + LABEL_LETTER_WIDTH * len(label.text) for label in placed.labels if label.anchor == "start"),
        default=0.0,
    )
    rails = [x for _, points in placed.lines if len(points) == 6 for x in (points[2][0],)]
    assert all(x < left or x > max(right, reach) for x in rails)


def test_rows_are_the_longest_way_from_the_beginning() -> None:
    found = assign_rows(LONG, collect_links(LONG))
    assert [found[name] for name in ("Pending", "Estimating", "Held", "Downloading", "Recording", "Notify")] == [
        1,
        2,
        2,
        3,
        4,
        5,
    ]
    assert found["Old"] == 0  # leads to the beginning
    assert found["Failed"] == found["Completed"] == 6
    assert found["Deleted"] == 7


NAMES = st.text(st.characters(codec="utf-8", exclude_characters=","), min_size=1, max_size=12)  # a comma parts labels


@st.composite
def tables(draw: st.DrawFn) -> Machine:
    """Any table that a machine can be built from: a chain of work, with any jumps, failures, holds and actions."""
    names = draw(st.lists(NAMES, min_size=3, max_size=8, unique=True))
    *steps, failed, last = names
    some = st.lists(st.sampled_from(names), max_size=2, unique=True)
    states = [
        work(name, to=after, description="x", or_to=draw(some), on_fail=draw(st.sampled_from([failed, None, last])))
        for name, after in zip(steps, [*steps[1:], last], strict=True)
    ]
    sources = st.lists(st.sampled_from([*steps, failed]), min_size=1, max_size=3, unique=True)
    labels = draw(st.lists(NAMES, max_size=4, unique=True))
    targets = st.sampled_from([*names, RESUME, STAY])
    actions = [Action(label, tuple(draw(sources)), draw(targets), "x") for label in labels]
    way_out = Action("way out", (failed,), last, "x")
    return Machine(
        "any",
        "anys",
        "Any.",
        (*states, rest(failed, description="x"), end(last, description="x")),
        (*actions, way_out),
        initial_states=(failed,),
    )


@given(tables())
def test_any_table_has_a_whole_figure(machine: Machine) -> None:
    check_complete(machine, render_svg(machine))
    assert list(crossings(compute_layout(machine, 30.0))) == []
    assert list(overlaps(compute_layout(machine, 30.0))) == []
    assert render_mermaid(machine).count("\n") >= len(collect_links(machine))
