"""The steps of ingest, one file for each state (or two that belong together), and which machine's state each of them works in."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from waybill.machine import Machine
from waybill.step import Step

STEPS: Mapping[str, Mapping[str, Step]] = {
    "batch": {},
    "job": {},
    "access-small": {},
    "access-large": {},
}


def equip(machines: Iterable[Machine]) -> tuple[Machine, ...]:
    """The machines with the steps of the states in which work is done here."""
    equipped = tuple(machines)
    for machine in equipped:
        for name, step in STEPS.get(machine.name, {}).items():
            state = machine.state(name)
            if state is not None and state.works:
                machine.step(name)(step)
    return equipped
