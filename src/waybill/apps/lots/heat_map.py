"""The calendar heat map: one cell for each day, coloured by its worst lot; in the terminal, and as SVG.

Weeks are columns and days of the week rows, a year below the other, as everybody knows from elsewhere. Ten years are 3,653
cells, whatever the unit of the lots.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from datetime import date, timedelta
from html import escape

from waybill.apps.lots.catalogue.calendar import LotClass

FIRST_DAY = date(1, 1, 1)
SYMBOLS: dict[LotClass, str] = {
    "complete": "■",
    "empty": "□",
    "running": "▶",
    "waiting": "◌",
    "stale": "≠",
    "partial": "✗",
    "missing": "○",
    "never": "·",
}
COLOURS: dict[LotClass, str] = {
    "complete": "green",
    "empty": "bright_black",
    "running": "blue",
    "waiting": "cyan",
    "stale": "magenta",
    "partial": "red",
    "missing": "yellow",
    "never": "red",
}
CELL, GAP, LEFT, TOP = 11, 2, 40, 18
_DAYS = ("Mon", "", "Wed", "", "Fri", "", "Sun")


def day_of(number: int) -> date:
    return FIRST_DAY + timedelta(days=number)


def group_by_year(days: Iterable[tuple[int, LotClass]]) -> dict[int, dict[date, LotClass]]:
    found: dict[int, dict[date, LotClass]] = {}
    for number, name in days:
        day = day_of(number)
        found.setdefault(day.year, {})[day] = name
    return found


def render_text(days: Iterable[tuple[int, LotClass]]) -> list[list[tuple[str, LotClass | None]]]:
    """Return lines of pieces, each a text and the class that colours it."""
    lines: list[list[tuple[str, LotClass | None]]] = []
    for year, classes in group_by_year(days).items():
        lines.append([(f"{year}", None)])
        first = date(year, 1, 1)
        weeks = (date(year, 12, 31).timetuple().tm_yday + first.weekday() + 6) // 7
        for weekday in range(7):
            line: list[tuple[str, LotClass | None]] = [(f"{_DAYS[weekday]:4}", None)]
            for week in range(weeks):
                day = first + timedelta(days=week * 7 + weekday - first.weekday())
                name = classes.get(day) if day.year == year else None
                line.append((SYMBOLS[name], name) if name is not None else (" ", None))
            lines.append(line)
    return lines


def render_svg(
    days: Iterable[tuple[int, LotClass]], *, title: str, link: str = "", colours: Mapping[LotClass, str] | None = None
) -> str:
    """Return the map as SVG. `link`: of a day, with {day} where its date is."""
    years = group_by_year(days)
    width = LEFT + 54 * (CELL + GAP)
    height = TOP + max(1, len(years)) * (7 * (CELL + GAP) + 14)
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" class="heat-map" viewBox="0 0 {width} {height}" role="img" '
        f'aria-label="{escape(title, quote=True)}">'
    ]
    if colours is not None:  # of a picture that stands alone; a page has its own style sheet
        rules = "".join(f".lot-{name}{{fill:{colour}}}" for name, colour in colours.items())
        parts.append(f"<style>text{{font:9px sans-serif;fill:#555}}{rules}</style>")
    for row, (year, classes) in enumerate(sorted(years.items())):
        top = TOP + row * (7 * (CELL + GAP) + 14)
        parts.append(f'<text x="0" y="{top + 10}">{year}</text>')
        offset = date(year, 1, 1).weekday()
        for day, name in classes.items():
            place = day.timetuple().tm_yday - 1 + offset
            x, y = LEFT + place // 7 * (CELL + GAP), top + place % 7 * (CELL + GAP)
            cell = (
                f'<rect class="lot-{name}" x="{x}" y="{y}" width="{CELL}" height="{CELL}" data-day="{day}">'
                f"<title>{day} {name}</title></rect>"
            )
            parts.append(f'<a href="{escape(link.format(day=day), quote=True)}">{cell}</a>' if link else cell)
    parts.append("</svg>")
    return "".join(parts)


SVG_COLOURS: dict[LotClass, str] = {
    "complete": "#2e8b57",
    "empty": "#c9d6cf",
    "running": "#3b7dd8",
    "waiting": "#9cc3ee",
    "stale": "#a066c9",
    "partial": "#c0392b",
    "missing": "#e6a23c",
    "never": "#f3c6c0",
}
