"""A scenario: the machines that are simulated, what is submitted, what clients do meanwhile, and what must hold besides
the common invariants.

One object is made for each seed. A scenario of an application is a subclass of `Scenario`, named in the entry-point group
`waybill.scenarios`; its steps are the application's own, over fakes that call `world.reach_point` or
`world.perform_effect` before and after each effect.

    build_machines               the machines, with their steps
    build_submissions            what is submitted at the beginning, each with an idempotency key
    list_hold_names              the holds that the operator sets and clears
    build_client_scripts         what clients do besides, one after the other, each retried until it is done
    build_subscribers            who subscribes to the events that its steps tell of
    build_maintenance_routines   the application's own maintenance; get_retention: when settled records are removed
    check_change                 called with every committed change: raises InvariantViolation for what must not be
    find_problems                called when all is quiet: one sentence for each problem
"""

from __future__ import annotations

import importlib
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping
from functools import cache
from importlib.metadata import entry_points
from pathlib import Path
from typing import Any, ClassVar

from waybill.engine import Engine
from waybill.errors import NotFound
from waybill.events import EventType
from waybill.machine import Machine
from waybill.maintenance import MaintenanceRoutine
from waybill.record import Change, Record, Store
from waybill.sim.invariant_checker import CheckedRecord
from waybill.sim.world import SimulatedWorld
from waybill.step import New
from waybill.subscriptions import Subscriber

ENTRY_POINT_GROUP = "waybill.scenarios"
ClientScript = Callable[[Engine], None]


class Scenario:
    """What one seed simulates. Subclasses override what they need."""

    name: ClassVar[str] = ""
    description: ClassVar[str] = ""
    is_retry_free: ClassVar[bool] = True  # its steps raise transient errors only where the world injects them
    target_points: ClassVar[tuple[str, ...]] = ()  # points of its own at which all faults of a seed may be injected
    uses_real_files: ClassVar[bool] = False  # its steps use ctx.workdir: give them real folders

    def __init__(self, world: SimulatedWorld) -> None:
        self.world = world
        self.rng = world.rng

    def build_machines(self) -> tuple[Machine, ...]:
        raise NotImplementedError

    def build_submissions(self) -> Iterable[New]:
        raise NotImplementedError

    def list_hold_names(self) -> tuple[str, ...]:
        return ()

    def open_objects(self) -> Any:
        """What steps receive as `ctx.objects`."""
        return None

    def resources_of(self, kind: str) -> Any:
        """What steps of that kind receive as `ctx.resources`; called on the host where the step runs."""
        return None

    def build_client_scripts(self) -> Iterable[ClientScript]:
        """What clients do besides submitting and acting. Each must be safe to repeat: the replacement of a crashed client
        begins again with the script that was not finished.
        """
        return ()

    def build_maintenance_routines(self) -> tuple[MaintenanceRoutine, ...]:
        """The application's own routines, besides the built-in ones."""
        return ()

    def build_subscribers(self) -> Mapping[str, Subscriber]:
        """Who subscribes to the events of its steps, by the ids of the subscriptions."""
        return {}

    def list_event_types(self) -> tuple[EventType, ...]:
        """The events that its steps tell of, if anybody subscribes."""
        return ()

    def get_retention(self) -> Mapping[str, float]:
        """Seconds after which settled records are removed, by "kind.State"; overrides the machines."""
        return {}

    def check_change(self, change: Change, record: Record | None, checked: CheckedRecord) -> None:
        """Check a committed change. `record` is None when it was removed."""

    def find_problems(self, store: Store) -> Iterator[str]:
        """What is wrong at the end, one sentence each."""
        yield from ()


def list_scenario_names() -> list[str]:
    """The built-in scenarios and those of installed applications."""
    return sorted({*_load_built_in(), *(entry.name for entry in entry_points(group=ENTRY_POINT_GROUP))})


@cache
def get_scenario(name: str) -> type[Scenario]:
    """The scenario of this name, or `module:Class` for one that is not installed.

    Only the scenario that is asked for is imported: a scenario that cannot be loaded does not stop the others.
    """
    if ":" in name:
        return _load_by_path(name)
    if (built_in := _load_built_in().get(name)) is not None:
        return built_in
    for entry in entry_points(group=ENTRY_POINT_GROUP):
        if entry.name == name:
            loaded: type[Scenario] = entry.load()
            return loaded
    raise NotFound(f"There is no scenario {name!r}; there are {', '.join(list_scenario_names())}.")


def _load_built_in() -> dict[str, type[Scenario]]:
    from waybill.sim.scenarios import BUILT_IN

    return {scenario.name: scenario for scenario in BUILT_IN}


def _load_by_path(path: str) -> type[Scenario]:
    module, _, attribute = path.partition(":")
    here = str(Path.cwd())  # a console script does not search the current folder
    if here not in sys.path:
        sys.path.append(here)
    try:
        loaded: type[Scenario] = getattr(importlib.import_module(module), attribute)
    except (ImportError, AttributeError) as error:
        raise NotFound(f"The scenario {path} cannot be loaded: {error}.") from error
    return loaded
