"""Maintenance in a simulation: the real machine and the real routines, at a pace that fits virtual time.

The routine for temporary files of uploads is left out; the one for working folders runs where the folders are real.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from waybill.maintenance import MAINTENANCE, MaintenanceRoutine, MaintenanceScheduler
from waybill.maintenance.action_requests import ActionRequestRoutine
from waybill.maintenance.consistency import ConsistencyRoutine
from waybill.maintenance.idle_parents import IdleParentRoutine
from waybill.maintenance.lost_hosts import LostHostRoutine
from waybill.maintenance.retention import RetentionRoutine
from waybill.maintenance.store_indexes import StoreIndexRoutine
from waybill.maintenance.working_folders import WorkingFolderRoutine
from waybill.record import Record
from waybill.sim.world import get_current_world
from waybill.step import Outcome, StepContext

if TYPE_CHECKING:
    from waybill.sim.process import SimulatedProcess
    from waybill.sim.simulation import Simulation


def run_round(record: Record, ctx: StepContext) -> Outcome:
    """Run a round with the scheduler of the current process: each has its own, as each has a host."""
    return get_current_world().simulation.cluster.get_current_process().maintenance_scheduler.run_step(record, ctx)


SIMULATED_MAINTENANCE = replace(MAINTENANCE, steps={MAINTENANCE.initial_state: run_round})


def build_routines(real_files: bool) -> tuple[MaintenanceRoutine, ...]:
    routines: tuple[MaintenanceRoutine, ...] = (
        IdleParentRoutine(poll_interval=20.0),
        StoreIndexRoutine(poll_interval=20.0),
        ActionRequestRoutine(poll_interval=10.0),
        LostHostRoutine(grace=25.0, poll_interval=10.0),
        RetentionRoutine(poll_interval=20.0, clock=None),
        ConsistencyRoutine(poll_interval=40.0),
    )
    # Real folders have real times, so no minimum age: here every folder belongs to a record that exists.
    return (*routines, WorkingFolderRoutine(min_age=0.0, poll_interval=30.0)) if real_files else routines


def scheduler_of(simulation: Simulation, process: SimulatedProcess) -> MaintenanceScheduler:
    scenario, root = simulation.scenario, simulation.root_of(process.host)
    return MaintenanceScheduler(
        simulation.maintenance_routines,
        simulation.machines,
        process.host,
        root,
        scenario.open_objects(),
        lambda: simulation.cluster.connect_process(process),
        scenario.get_retention(),
        scenario.resources_of,
    )
