"""What steps, maintenance routines, routes and commands of compute share; made once in each process."""

from __future__ import annotations

import os
import threading
from collections.abc import Iterable
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, cast

from waybill.apps.compute.access import Caller, check_access
from waybill.apps.compute.catalogue import CatalogueConnections
from waybill.apps.compute.errors import MantaError
from waybill.apps.compute.job_tables import JobRow, JobTables, Segment
from waybill.apps.compute.machine import JOB, PHASE, PartNote
from waybill.apps.compute.paths import parse_path
from waybill.apps.compute.settings import read as read_settings
from waybill.apps.compute.storage import Storage, now_ms
from waybill.record import CommitGroup, Ref
from waybill.sandbox import find_support, sweep_remains
from waybill.step import StepContext

if TYPE_CHECKING:
    from waybill.apps.compute.tasks.dask_cluster import DaskExecutor
    from waybill.apps.compute.tasks.local_http import TaskLoop
    from waybill.apps.compute.tasks.slots import Slots
    from waybill.apps.compute.tasks.workspace import Workspaces
    from waybill.environment import Environment
    from waybill.objects import Objects

JOBS_PREFIX = "compute/jobs"


class TaskHost:
    """The part of a process that runs tasks; made when the first one is to run."""

    def __init__(self, resources: ComputeResources) -> None:
        from waybill.apps.compute.tasks.slots import Slots
        from waybill.apps.compute.tasks.workspace import Workspaces

        environment, settings = resources.environment, resources.settings
        support = find_support(environment.config.sandbox)
        if support.can_run:
            sweep_remains(support)
        self.slot_count = settings.slots or os.cpu_count() or 1
        self.slots: Slots = Slots(self.slot_count, resources.is_cancelled)
        root = environment.config.work.root / "compute-tasks"
        root.mkdir(parents=True, exist_ok=True)
        self.workspaces: Workspaces = Workspaces(support, settings, root, self.slot_count)
        self.workspaces.sweep()

    def close(self) -> None:
        self.slots.close()
        self.workspaces.close()


class ComputeResources:
    def __init__(self, environment: Environment) -> None:
        self.environment = environment
        self.settings = read_settings(environment.config.app.get("compute", {}))
        self.connections = CatalogueConnections(environment.open_index)
        self._lock = threading.Lock()
        self._tasks: TaskHost | None = None
        self._task_loop: TaskLoop | None = None
        self._dask: DaskExecutor | None = None
        # Half of the threads are left to maps: reducers wait for those.
        self._reducer_slots = threading.BoundedSemaphore(
            max(1, min(self.settings.reducers, environment.config.work.threads // 2))
        )

    @property
    def objects(self) -> Objects:
        return self.environment.objects

    @cached_property
    def storage(self) -> Storage:
        return Storage(self.environment.objects, self.connections)

    @property
    def tasks(self) -> TaskHost:
        with self._lock:
            if self._tasks is None:
                self._tasks = TaskHost(self)
            return self._tasks

    @property
    def dask(self) -> DaskExecutor | None:
        """None: tasks run on this host."""
        if not self.settings.dask:
            return None
        from waybill.apps.compute.tasks.dask_cluster import DaskExecutor

        with self._lock:
            if self._dask is None:
                self._dask = DaskExecutor(self.settings.dask, self.environment)
            return self._dask

    @property
    def map_slots(self) -> int:
        """How many tasks of map phases run at once."""
        executor = self.dask
        return self.tasks.slot_count if executor is None else executor.count_threads()

    @property
    def task_loop(self) -> TaskLoop:
        from waybill.apps.compute.tasks.local_http import TaskLoop

        with self._lock:
            if self._task_loop is None:
                self._task_loop = TaskLoop()
            return self._task_loop

    def close(self) -> None:
        with self._lock:
            tasks, self._tasks, loop, self._task_loop = self._tasks, None, self._task_loop, None
            executor, self._dask = self._dask, None
        if executor is not None:
            executor.close()
        if tasks is not None:
            tasks.close()
        if loop is not None:
            loop.close()
        self.connections.close()

    # --- jobs

    def job_prefix(self, job: str) -> str:
        """Where the objects of a running job are that nobody else sees."""
        return f"{JOBS_PREFIX}/{job}"

    def find_job(self, job: str) -> JobRow | None:
        with self.connections.open() as tables:
            return JobTables(tables).find(job)

    def is_cancelled(self, job: str) -> bool:
        with self.connections.open() as tables:
            return JobTables(tables).is_cancelled(job)

    def is_log_ended(self, job: str, phase: int) -> bool:
        with self.connections.open() as tables:
            log = JobTables(tables).find_log(job, phase)
        return log is None or log.ended

    def end_log(self, job: str, phase: int) -> None:
        with self.connections.open() as tables:
            JobTables(tables).end_log(job, phase)

    def list_segments(self, job: str, phase: int, after: int) -> list[Segment]:
        with self.connections.open() as tables:
            return JobTables(tables).list_segments(job, phase, after)

    def enter_part(self, job: str, phase: int, part: PartNote) -> None:
        """The row of a committed part. Safe to repeat."""
        with self.connections.open() as tables:
            JobTables(tables).add_output(
                job, phase, part.source, part.object, keys=part.keys, tasks=part.tasks, errors=part.errors, retries=part.retries
            )  # fmt: skip

    def remove_intermediates(self, keys: Iterable[str]) -> None:
        """Remove what one phase has put out when the next has used it up. Safe to repeat."""
        for key in keys:
            try:
                self.storage.delete(parse_path(key))
            except MantaError as error:
                if error.manta_code not in ("ResourceNotFound", "DirectoryDoesNotExist"):
                    raise

    def halt_if_wanted(self, job: str) -> None:
        """Cancel a job that has more errors than its manifest allows."""
        row = self.find_job(job)
        halt = row.read_manifest().options.halt if row is not None else 0
        if halt:
            with self.connections.open() as tables:
                if sum(log.errors for log in JobTables(tables).list_logs(job)) >= halt:
                    JobTables(tables).cancel(job, now=now_ms())

    def fetch_for_job(self, account: str, job: str, asset: str, place: Path) -> None:
        """Write an asset into a file. Raises InitFailed, as Manta words it."""
        from waybill.apps.compute.tasks.workspace import InitFailed

        try:
            path = parse_path(asset)
            check_access(Caller(account, job=job), path, "read")
            entry = self.storage.get(path)
            if entry.is_directory:
                raise MantaError("ResourceNotFound", f"{asset} is a directory")
        except MantaError as error:
            raise InitFailed(f'error retrieving asset "{asset}" (status code {error.status})') from None
        with self.storage.open(entry) as body, place.open("wb") as file:
            for piece in body:
                file.write(piece)

    def take_reducer_slot(self) -> bool:
        return self._reducer_slots.acquire(blocking=False)

    def give_back_reducer_slot(self) -> None:
        self._reducer_slots.release()

    def wake_phase(self, ctx: StepContext, job: str, phase: int) -> None:
        """Tell the phase that its log has changed, if there is one: a hint, it looks by itself too."""
        ref = Ref(PHASE.name, f"{job}.{phase}")
        ctx.run_on_store(lambda store: store.commit([CommitGroup((), (ref,))]))

    def start_archive(self, job: str) -> JobRow:
        with self.connections.open() as tables:
            JobTables(tables).start_archive(job, now=now_ms())
            row = JobTables(tables).find(job)
        assert row is not None
        return row

    def end_input(self, job: str) -> None:
        with self.connections.open() as tables:
            JobTables(tables).end_input(job, now=now_ms())


def job_ref(job: str) -> Ref:
    return Ref(JOB.name, job)


def resources_of(ctx: StepContext) -> ComputeResources:
    return cast(ComputeResources, ctx.resources)
