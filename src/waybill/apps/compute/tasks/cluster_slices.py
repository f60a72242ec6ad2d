"""Tasks that run in another process: a slice of a chunk's keys goes there, and what its tasks put out comes back.

    ClusterSlice -> run_slice, in a process of the cluster: its own resources, its own sandboxes -> GatheredOutputs

The bytes of outputs go from there into the objects; nothing names them until the chunk that waits publishes them. A slice
may run twice, or half and then again: what nobody names is removed.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from waybill.apps.compute.machine import ChunkKeys
from waybill.apps.compute.task_lines import InputKey, TaskError, TaskLine
from waybill.apps.compute.tasks.publishing import GatheredOutputs, OutputGatherer
from waybill.apps.compute.tasks.running import PhaseRunner, describe_map, make_task_id
from waybill.apps.compute.tasks.workspace import InitFailed
from waybill.errors import WaybillError

if TYPE_CHECKING:
    from waybill.application import Application
    from waybill.apps.compute.resources import ComputeResources
    from waybill.config import Config
    from waybill.environment import Environment

NO_ROOM_PAUSE = 0.2  # seconds between two attempts to get a workspace
_lock = threading.Lock()
_resources_by_place: dict[str, ComputeResources] = {}


class ClusterUnavailable(WaybillError):
    """The cluster cannot be reached, or lost the same tasks again and again."""

    code = "unavailable"


class ClusterSlice(NamedTuple):
    config: Config  # the settings of the worker that waits: the store's and the objects' URLs among them
    make_environment: Callable[[Config, list[Application]], Environment]  # how a process begins with settings
    about: ChunkKeys
    first: int  # of the chunk's keys
    keys: list[InputKey]


def run_slice(work: ClusterSlice) -> GatheredOutputs:
    """In a process of the cluster: run the tasks of some keys. Fewer lines than keys: the job was cancelled."""
    resources = _open_resources(work)
    about = work.about
    gatherer = OutputGatherer(resources.storage)
    row = resources.find_job(about.job)
    if row is None or row.cancelled:
        return gatherer.take_all()
    manifest = row.read_manifest()
    phase = manifest.phases[about.phase]

    def fetch(asset: str, place: Path) -> None:
        resources.fetch_for_job(about.account, about.job, asset, place)

    done = 0
    tasks = resources.tasks
    if tasks.workspaces.problem:
        raise ClusterUnavailable(f"A worker of the cluster cannot run tasks: {tasks.workspaces.problem}")
    with tasks.slots.watch_only(about.job, about.account, lambda: False) as lease:
        while True:
            try:
                with tasks.workspaces.borrow((about.job, about.phase), phase, fetch, lease.stop.is_set) as workspace:
                    if workspace is None:
                        if lease.stop.wait(NO_ROOM_PAUSE):
                            break
                        continue
                    runner = PhaseRunner(
                        resources, about.job, about.account, manifest, about.phase, workspace, lease, gatherer
                    )
                    for key in work.keys[done:]:
                        if lease.stop.is_set():
                            break
                        line = runner.run_map(key, make_task_id(about.object, about.first + work.first + done))
                        gatherer.add_line(line, key.key if about.phase > 0 and line.error is None else "")
                        done += 1
                    break
            except InitFailed as failure:
                for number, key in enumerate(work.keys[done:], done):
                    task = make_task_id(about.object, about.first + work.first + number)
                    error = TaskError(describe_map(about.phase, key), "TaskInitError", str(failure))
                    gatherer.add_line(
                        TaskLine(task, about.phase, key.key, key.p0, error=error, start=time.time(), order=key.order)
                    )
                break
    return gatherer.take_all()


def _open_resources(work: ClusterSlice) -> ComputeResources:
    """Made once in each process of the cluster for each store."""
    from waybill.apps.compute.application import APPLICATION

    place = f"{work.config.store}\n{work.config.objects}"
    with _lock:
        found = _resources_by_place.get(place)
        if found is None:
            found = work.make_environment(work.config, [APPLICATION]).resources_of("compute")
            _resources_by_place[place] = found
        return found
