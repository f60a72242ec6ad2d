"""In which row and column of a figure each state stands."""

from __future__ import annotations

from collections.abc import Mapping

from waybill.drawing.links import Link
from waybill.machine import Machine


def rows(machine: Machine, every: list[Link]) -> dict[str, int]:
    """The longest way from where records begin, without the links that lead back."""
    after: dict[str, list[str]] = {s.name: [] for s in machine.states}
    for link in every:
        if link.source != link.target:
            after[link.source].append(link.target)
    forward: dict[str, list[str]] = {name: [] for name in after}
    left: list[str] = []  # in the order in which the walk leaves them for good: each after all that follows it
    for start in dict.fromkeys((machine.initial, *machine.begins, *after)):
        if start not in left:
            _walk(start, after, forward, left)
    found = dict.fromkeys(after, 0)
    for name in reversed(left):
        for target in forward[name]:
            found[target] = max(found[target], found[name] + 1)
    return found


def _walk(start: str, after: Mapping[str, list[str]], forward: dict[str, list[str]], left: list[str]) -> None:
    """Depth first, with a stack of our own: a table may be longer than Python's."""
    way = [start]
    ahead = {start: iter(after[start])}
    while way:
        name = way[-1]
        target = next(ahead[name], None)
        if target is None:
            left.append(way.pop())
        elif target not in way:
            forward[name].append(target)
            if target not in ahead and target not in left:
                way.append(target)
                ahead[target] = iter(after[target])


def columns(machine: Machine, every: list[Link], row: Mapping[str, int]) -> dict[str, int]:
    """The way of success is column 0; others stand below the state that leads to them, or in the next free place of
    their row.
    """
    success: list[str] = []
    name: str | None = machine.initial
    while name is not None and name not in success:
        success.append(name)
        state = machine.state(name)
        name = state.then if state is not None else None
    found: dict[str, int] = {}
    taken: set[tuple[int, int]] = set()
    for name in sorted(row, key=lambda name: row[name]):  # a stable sort: in a row, the order of the table
        if name in success and (row[name], 0) not in taken:
            column = 0
        else:
            above = [found[link.source] for link in every if link.target == name and row[link.source] == row[name] - 1]
            free = [c for c in (*above, *range(1, len(row) + 1)) if c > 0 and (row[name], c) not in taken]
            column = free[0]
        found[name] = column
        taken.add((row[name], column))
    return found
