"""Timings of one phase as a chart: how long its tasks took, and how much of that they computed."""

from __future__ import annotations

from typing import Any

from markupsafe import Markup

WIDTH, BAR, GAP, LEFT = 560, 14, 6, 90
MEASURES = (("p50", "half"), ("p90", "9 of 10"), ("p99", "99 of 100"), ("max", "all"))


def draw_timings(phase: dict[str, Any]) -> Markup:
    """Bars of wall clock time, with the CPU time inside, for half of the tasks, nine of ten and so on."""
    wall, cpu = phase["wall"], phase["cpu"]
    longest = max(wall["max"], cpu["max"], 1e-6)
    height = len(MEASURES) * (BAR + GAP)
    parts = []
    for number, (name, label) in enumerate(MEASURES):
        top = number * (BAR + GAP)
        width, inner = ((WIDTH - LEFT - 70) * value / longest for value in (wall[name], min(cpu[name], wall[name])))
        parts.append(
            f'<text x="{LEFT - 6}" y="{top + BAR - 3}" text-anchor="end">{label}</text>'
            f'<rect x="{LEFT}" y="{top}" width="{max(width, 1):.1f}" height="{BAR}" opacity="0.45"></rect>'
            f'<rect x="{LEFT}" y="{top}" width="{max(inner, 0):.1f}" height="{BAR}"></rect>'
            f'<text x="{LEFT + max(width, 1) + 5:.1f}" y="{top + BAR - 3}">{wall[name]:.3g} s</text>'
        )
    title = f"Tasks of phase {phase['phase']}: half took at most {wall['p50']:.3g} s, all at most {wall['max']:.3g} s"
    return Markup(  # numbers and words of ours only
        f'<svg class="chart" viewBox="0 0 {WIDTH} {height}" role="img" aria-label="{title}" width="{WIDTH}" height="{height}" '
        f'font-size="11" fill="currentColor">{"".join(parts)}</svg>'
    )
