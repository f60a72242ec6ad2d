"""Whether what is found in a store is what the table allows."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from waybill.machine import Machine


def path_is_legal(machine: Machine, lines: Iterable[tuple[str | None, str | None, str]]) -> str | None:
    """Whether (before, after, event) lines are a path of the table; the first that is not, in words."""
    arrows = {(a.source, a.target) for a in machine.arrows()}
    starts = {machine.initial, *machine.begins}
    at: str | None = None
    for before, after, event in lines:
        if before is None:
            if after not in starts:
                return f"begins in {after}"
        elif event != "seen from outside":
            if at is not None and before != at:
                return f"is in {at}, then leaves {before}"
            if before != after and (before, after) not in arrows and event != "move":
                return f"goes from {before} to {after} by {event}, which is no arrow"
        at = after
    return None


def undeclared(machine: Machine, tally: Mapping[str, int]) -> dict[str, int]:
    """States that hold records and that this release does not declare."""
    return {state: count for state, count in tally.items() if machine.state(state) is None}
