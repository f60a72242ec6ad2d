"""The steps of ingest, one module for each work state: steps/<machine>/<state>.py.

A module is bound to its state by its name: steps/job/downloading.py holds the step of the state Downloading of the
machine `job`. Its function `run_step` takes the record and the step's context and returns an outcome. No step imports
another one; what several of them need is a module beside this package.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from importlib import import_module

from waybill.machine import Machine


def attach_steps(machines: Iterable[Machine]) -> tuple[Machine, ...]:
    """The machines, with a step for each state in which Waybill works; a state left to another service has none."""
    attached = tuple(machines)
    for machine in attached:
        for state in machine.list_work_states():
            module = import_module(f"{__name__}.{_package_of(machine)}.{_to_snake_case(state.name)}")
            machine.step(state.name)(module.run_step)
    return attached


def _package_of(machine: Machine) -> str:
    """Small and large assemblies have the same steps."""
    return "access" if machine.name.startswith("access-") else machine.name.replace("-", "_")


def _to_snake_case(name: str) -> str:
    """UpdateReporting -> update_reporting"""
    return re.sub(r"(?<=[a-z])(?=[A-Z])", "_", name).lower()
