"""The duties of a simulation: the real machine and the real duties, at a pace that fits virtual time.

Left out is the one that looks at what real uploads leave behind (leftovers); working folders are looked after where
they are real.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from waybill.duties import DUTY, Duty, Post
from waybill.duties.consistency import Consistency
from waybill.duties.folders import Folders
from waybill.duties.hosts import Hosts
from waybill.duties.joins import Joins
from waybill.duties.requests import Requests
from waybill.duties.retention import Retention
from waybill.duties.upkeep import Upkeep
from waybill.record import Record
from waybill.sim.world import current
from waybill.step import Context, Outcome

if TYPE_CHECKING:
    from waybill.sim.process import Process
    from waybill.sim.simulation import Simulation

# its own steps: the real machine's belong to the process that simulates
SIMULATED = replace(DUTY, steps={}, _by_name={})


@SIMULATED.step("Watching")
def a_round(record: Record, ctx: Context) -> Outcome:
    """Each process has a post of its own, as each has a host."""
    return current().simulation.stage.here().post.step(record, ctx)


def built_in(real_files: bool) -> tuple[Duty, ...]:
    duties: tuple[Duty, ...] = (
        Joins(every=20.0),
        Upkeep(every=20.0),
        Requests(every=10.0),
        Hosts(grace=25.0, every=10.0),
        Retention(every=20.0),
        Consistency(every=40.0),
    )
    # Real folders have real times: none is too young. Here every folder is made by a step of a record that is there.
    return (*duties, Folders(age=0.0, every=30.0)) if real_files else duties


def post_of(simulation: Simulation, process: Process) -> Post:
    scenario, root = simulation.scenario, simulation.root_of(process.host)
    return Post(
        simulation.duties,
        simulation.machines,
        process.host,
        root,
        scenario.objects(),
        lambda: simulation.stage.wire(process),
        scenario.retention(),
        scenario.outfit,
    )
