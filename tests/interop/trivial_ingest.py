"""A trivial ingest: the machines of ingest with steps that do next to nothing, on a tree that Merritt's services share.

    ingest = TrivialIngest(url, folder)
    with ingest.run_worker():
        ingest.wait_for("job", id, "Completed")

Each step that runs is recorded in `ingest.step_runs`. As a program it works until it is killed:
`python -m tests.interop.trivial_ingest URL FOLDER`.
"""

import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Any

from waybill.apps.ingest.machine import build_tables
from waybill.engine import Engine
from waybill.machine import Machine
from waybill.maintenance.action_requests import ActionRequestRoutine
from waybill.maintenance.idle_parents import IdleParentRoutine
from waybill.maintenance.retention import RetentionRoutine
from waybill.maintenance.routine import MaintenanceContext, run_round
from waybill.maintenance.store_indexes import StoreIndexRoutine
from waybill.objects import open_objects
from waybill.record import Record, RecordNotFound, Ref
from waybill.rules import Machines
from waybill.step import Done, Fail, New, Outcome, StepContext, Wait
from waybill.stores.zookeeper import ZookeeperStore
from waybill.worker import StepTransition, Worker, run_one_step

WAIT_SECONDS = 120.0
ROUTINES = (StoreIndexRoutine(), IdleParentRoutine(), ActionRequestRoutine(), RetentionRoutine())


class TrivialIngest:
    def __init__(
        self,
        url: str,
        folder: Path,
        *,
        storing_state: bool = True,
        external_states: tuple[str, ...] = (),
        grace_period: float = 0.0,
    ) -> None:
        self.url, self.folder, self.grace_period = url, folder, grace_period
        self.step_runs: list[tuple[str, str]] = []  # (id, state) of each step that ran
        self.failures: dict[str, str] = {}  # state -> the message with which its step fails
        self.blocked_steps: dict[str, threading.Event] = {}  # state -> its step waits for this event
        self.machines = Machines.from_machines(
            build_tables(storing_state=storing_state, external_states=external_states)
        )
        for machine in self.machines.values():
            for state in machine.states:
                if state.type in ("work", "join"):
                    machine.bound_steps[state.name] = self._make_step(machine, state.name)
        self.store = self.open_store()
        self.engine = Engine(self.store, self.machines)

    def open_store(self) -> ZookeeperStore:
        return ZookeeperStore(self.url, listing_ttl=0.05, grace_period=self.grace_period, timeout=50, reconnect_wait=30)

    def close(self) -> None:
        self.store.close()

    def _make_step(self, machine: Machine, state: str) -> Callable[[Record, StepContext], Outcome]:
        special = {
            ("batch", "Pending"): _pending,
            ("batch", "Processing"): _processing,
            ("batch", "Reporting"): _reporting,
            ("batch", "UpdateReporting"): _reporting,
            ("job", "Estimating"): _estimating,
            ("job", "Processing"): _identifying,
        }

        def step(record: Record, ctx: StepContext) -> Outcome:
            self.step_runs.append((record.id, state))
            if state in self.blocked_steps:
                self.blocked_steps[state].wait(WAIT_SECONDS)
            if state in self.failures:
                raise Fail(self.failures[state])
            return special.get((machine.name, state), lambda record, ctx: Done())(record, ctx)

        return step

    # --- running

    def make_worker(self, **options: Any) -> Worker:
        objects = open_objects((self.folder / "objects").absolute().as_uri())
        defaults: dict[str, Any] = {
            "host": "h",
            "work_root": self.folder / "work",
            "objects": objects,
            "threads": 4,
            "ttl": 30.0,
        }
        kinds = [name for name, machine in self.machines.items() if machine.list_work_states()]
        return Worker(self.open_store, self.machines, **{**defaults, "queues": kinds, **options})

    @contextmanager
    def run_worker(self, **options: Any) -> Iterator[Worker]:
        """Run a worker, and the maintenance routines all the time."""
        worker = self.make_worker(**options)
        stop = threading.Event()
        errors: list[BaseException] = []

        def run_guarded(run: Callable[[], None]) -> None:
            try:
                run()
            except BaseException as error:  # noqa: BLE001 - raised below
                errors.append(error)

        threads = [
            threading.Thread(target=run_guarded, args=(run,)) for run in (worker.run, lambda: self._maintain(stop))
        ]
        for thread in threads:
            thread.start()
        try:
            yield worker
        finally:
            worker.stop()
            stop.set()
            for thread in threads:
                thread.join()
        if errors:
            raise errors[0]

    def _maintain(self, stop: threading.Event) -> None:
        with closing(self.open_store()) as store:
            while not stop.wait(0.1):
                self.run_maintenance(store)

    def run_maintenance(self, store: ZookeeperStore | None = None) -> None:
        """Run one round of the maintenance routines that every worker has."""
        context = MaintenanceContext(
            store or self.store,
            self.machines,
            "h",
            self.folder / "work",
            None,
            self.open_store,
            {},
            {},
            lambda: False,
            "maintenance",
        )
        for routine in ROUTINES:
            run_round(routine, context)

    # --- waiting

    def wait_for(self, kind: str, id: str, *states: str, seconds: float = WAIT_SECONDS) -> Record:
        """Wait until the record is in one of the states and nobody claims it."""
        end = time.monotonic() + seconds
        while True:
            record = self.store.get(kind, id)
            if record.state in states and record.session is None:
                return record
            if time.monotonic() > end:
                history = "\n".join(
                    f"{entry.before} -> {entry.after} {entry.cause} {entry.why}"
                    for entry in self.store.history(kind, id)
                )
                raise AssertionError(
                    f"{record.ref} is {record.state}, not {states}: {record.blocked_by} {record.message}\n{history}"
                )
            self.store.watch(0.05)

    def wait_for_jobs(self, batch: str, count: int) -> list[str]:
        """Wait until a batch has so many jobs, and return their ids."""
        end = time.monotonic() + WAIT_SECONDS
        while len(found := self.store.find("job", parent=Ref("batch", batch)).records) < count:
            assert time.monotonic() < end, f"{batch} has {len(found)} jobs, not {count}"
            self.store.watch(0.05)
        return [record.id for record in found]

    def run_one_step(self, **options: Any) -> StepTransition | None:
        """Run one step of whatever is due."""
        objects = open_objects((self.folder / "objects").absolute().as_uri())
        kinds = [name for name, machine in self.machines.items() if machine.list_work_states()]
        return run_one_step(
            self.open_store,
            self.machines,
            host="h",
            work_root=self.folder / "work",
            objects=objects,
            **{"queues": kinds, **options},
        )

    def is_gone(self, kind: str, id: str) -> bool:
        try:
            self.store.get(kind, id)
        except RecordNotFound:
            return True
        return False

    def submit(self, jobs: int = 1, **submission: Any) -> Record:
        return self.engine.submit(
            New("batch", {"submission": {"profile": "p", "jobs": jobs, "update": False, **submission}})
        )


def _pending(batch: Record, ctx: StepContext) -> Outcome:
    return Done({"spawned": {"count": 0, "whole": False}})


def _processing(batch: Record, ctx: StepContext) -> Outcome:
    if not batch.documents["spawned"]["whole"] if "spawned" in batch.documents else False:
        submission = batch.documents["submission"]
        ctx.spawn_each(
            (
                New("job", {"configuration": {"profile": submission.get("profile", ""), "jobID": f"jid-{n}"}})
                for n in range(submission.get("jobs", 1))
            ),
            page_size=2,
        )
        return Wait(0)
    return Done()


def _reporting(batch: Record, ctx: StepContext) -> Outcome:
    if "spawned" in batch.documents and not batch.documents["spawned"]["whole"]:
        return _processing(batch, ctx)
    counts = ctx.count_by_state("job", parent=batch.ref)
    return Done({"status-report": {"counts": counts}}, to="Failed" if counts.get("Failed") else "Completed")


def _estimating(job: Record, ctx: StepContext) -> Outcome:
    return Done({"space_needed": 1000})


def _identifying(job: Record, ctx: StepContext) -> Outcome:
    ids = job.documents.get("identifiers", {})
    ark = ids.get("primary_id") or f"ark:/99999/{job.id}"
    ctx.save({"identifiers": {"primary_id": ark, "local_id": []}}, locks=(f"storage/{ark}",))
    return Done({"inventory": {"manifest_url": "http://ours/manifest", "mode": "add"}})


def main() -> None:
    url, folder = sys.argv[1:]
    ingest = TrivialIngest(url, Path(folder), grace_period=0.5)
    with ingest.run_worker(ttl=2.0):
        print("ready", flush=True)
        threading.Event().wait()


if __name__ == "__main__":
    main()
