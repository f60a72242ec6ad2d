"""What a figure shows of a machine's arrows: one link from state to state, however many arrows it stands for."""

from __future__ import annotations

from typing import NamedTuple

from waybill.machine import Machine


class Link(NamedTuple):
    """All arrows from one state to another, under one line."""

    source: str
    target: str
    labels: tuple[str, ...]
    by: str  # who causes the first of them: "step", "mark", "duty" or "person"

    @property
    def text(self) -> str:
        """What stands beside the line. Success needs no word, failure and people's actions do."""
        return ", ".join(label for label in self.labels if label != "done")


def links(machine: Machine) -> list[Link]:
    """In the order of the table."""
    labels: dict[tuple[str, str], list[str]] = {}
    causes: dict[tuple[str, str], str] = {}
    for arrow in machine.arrows():
        pair = (arrow.source, arrow.target)
        causes.setdefault(pair, arrow.by)
        if arrow.label not in labels.setdefault(pair, []):
            labels[pair].append(arrow.label)
    return [Link(*pair, tuple(names), causes[pair]) for pair, names in labels.items()]
