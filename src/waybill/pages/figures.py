"""The figures of pages: a machine as rows of states, and small charts.

`list_rows` lays a machine out as it is read: the path of success from where records begin, one row for each beginning that has a path of
its own, and beside them the states that are off these paths: held, failed, given up.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from markupsafe import Markup, escape

from waybill.machine import Machine, State
from waybill.views.standstill import is_failed_state

CHART_WIDTH, CHART_HEIGHT = 120, 22


class FlowRows(NamedTuple):
    rows: tuple[tuple[State, ...], ...]
    others: tuple[State, ...]  # off the paths of success


def list_rows(machine: Machine) -> FlowRows:
    placed: set[str] = set()
    rows: list[tuple[State, ...]] = []
    for beginning in (machine.initial_state, *machine.initial_states):
        row: list[State] = []
        name: str | None = beginning
        while name is not None and name not in placed:
            state = machine.find_state(name)
            if state is None:
                break
            row.append(state)
            placed.add(name)
            name = state.to
        if len(row) > 1 or beginning == machine.initial_state:
            rows.append(tuple(row))
        else:  # a beginning that only joins another row, or leads nowhere, has none of its own
            placed.difference_update(state.name for state in row)
    shown = {state.name for row in rows for state in row}
    return FlowRows(tuple(rows), tuple(state for state in machine.states if state.name not in shown))


def tone_of(machine: Machine, state: str) -> str:
    """The class of a state in the style sheet: work, rest, end, bad or lost."""
    declared = machine.find_state(state)
    if declared is None:
        return "unknown"
    if is_failed_state(machine, state):
        return "bad"
    return {"join": "work", "retired": "unknown"}.get(declared.type, declared.type)


def render_chart(numbers: Sequence[int], label: str) -> Markup:
    """Bars, one for each number: the last is now."""
    top = max(numbers, default=0)
    width = CHART_WIDTH / max(1, len(numbers))
    bars = "".join(
        f'<rect x="{n * width:.1f}" y="{CHART_HEIGHT - height:.1f}" width="{max(1.0, width - 1):.1f}" height="{height:.1f}"/>'
        for n, number in enumerate(numbers)
        if (height := max(1.5, number / top * CHART_HEIGHT) if number else 0.0)
    )
    return Markup(
        '<svg class="chart" role="img" width="{}" height="{}" viewBox="0 0 {} {}" aria-label="{}">'
        '<path class="ground" d="M0 {} H{}"/>{}</svg>'
    ).format(
        CHART_WIDTH,
        CHART_HEIGHT,
        CHART_WIDTH,
        CHART_HEIGHT,
        escape(label),
        CHART_HEIGHT - 0.5,
        CHART_WIDTH,
        Markup(bars),
    )
