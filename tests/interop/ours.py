"""Waybill's side of a mixed run: the machines of ingest with steps that do next to nothing, on the tree that
Merritt's services share.

    ours = Ours(url, folder)
    with ours.working():
        ours.until("job", id, "Completed")

A step notes what it did in `ours.done`. As a program it works until it is killed: `python -m tests.interop.ours URL
FOLDER`.
"""

import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Any

from waybill.apps.ingest.machine import tables
from waybill.duties.duty import Hand, a_round
from waybill.duties.joins import Joins
from waybill.duties.requests import Requests
from waybill.duties.retention import Retention
from waybill.duties.upkeep import Upkeep
from waybill.engine import Engine
from waybill.machine import Machine
from waybill.objects import open_objects
from waybill.record import NotFound, Record, Ref
from waybill.rules import Machines
from waybill.step import Context, Done, Fail, New, Outcome, Wait
from waybill.stores.zookeeper import ZookeeperStore
from waybill.worker import Arrow, Worker, step_once

PATIENCE = 120.0
DUTIES = (Upkeep(), Joins(), Requests(), Retention())


class Ours:
    def __init__(
        self, url: str, folder: Path, *, storing: bool = True, outside: tuple[str, ...] = (), grace: float = 0.0
    ) -> None:
        self.url, self.folder, self.grace = url, folder, grace
        self.done: list[tuple[str, str]] = []  # (id, state) of each step that ran
        self.fails: dict[str, str] = {}  # state -> why its step fails
        self.blocks: dict[str, threading.Event] = {}  # state -> its step waits for this
        self.machines = Machines.of(tables(storing=storing, outside=outside))
        for machine in self.machines.values():
            for state in machine.states:
                if state.sort in ("work", "join"):
                    machine.steps[state.name] = self._step(machine, state.name)
        self.store = self.open_store()
        self.engine = Engine(self.store, self.machines)

    def open_store(self) -> ZookeeperStore:
        return ZookeeperStore(self.url, listing=0.05, grace=self.grace, timeout=50, patience=30)

    def close(self) -> None:
        self.store.close()

    def _step(self, machine: Machine, state: str) -> Callable[[Record, Context], Outcome]:
        special = {
            ("batch", "Pending"): _pending,
            ("batch", "Processing"): _processing,
            ("batch", "Reporting"): _reporting,
            ("batch", "UpdateReporting"): _reporting,
            ("job", "Estimating"): _estimating,
            ("job", "Processing"): _identifying,
        }

        def step(record: Record, ctx: Context) -> Outcome:
            self.done.append((record.id, state))
            if state in self.blocks:
                self.blocks[state].wait(PATIENCE)
            if state in self.fails:
                raise Fail(self.fails[state])
            return special.get((machine.name, state), lambda record, ctx: Done())(record, ctx)

        return step

    # --- working

    def worker(self, **options: Any) -> Worker:
        objects = open_objects((self.folder / "objects").absolute().as_uri())
        defaults: dict[str, Any] = {
            "host": "h",
            "work_root": self.folder / "work",
            "objects": objects,
            "threads": 4,
            "ttl": 30.0,
        }
        kinds = [name for name, machine in self.machines.items() if machine.working()]
        return Worker(self.open_store, self.machines, **{**defaults, "roles": kinds, **options})

    @contextmanager
    def working(self, **options: Any) -> Iterator[Worker]:
        """A worker, and the duties all the time."""
        worker = self.worker(**options)
        stop = threading.Event()
        faults: list[BaseException] = []

        def guarded(run: Callable[[], None]) -> None:
            try:
                run()
            except BaseException as error:  # noqa: BLE001 - raised below
                faults.append(error)

        threads = [
            threading.Thread(target=guarded, args=(run,)) for run in (worker.run, lambda: self._look_after(stop))
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
        if faults:
            raise faults[0]

    def _look_after(self, stop: threading.Event) -> None:
        with closing(self.open_store()) as store:
            while not stop.wait(0.1):
                self.rounds(store)

    def rounds(self, store: ZookeeperStore | None = None) -> None:
        """One round of the duties that every worker has."""
        hand = Hand(
            store or self.store,
            self.machines,
            "h",
            self.folder / "work",
            None,
            self.open_store,
            {},
            {},
            lambda: False,
            "duty",
        )
        for duty in DUTIES:
            a_round(duty, hand)

    # --- looking

    def until(self, kind: str, id: str, *states: str, patience: float = PATIENCE) -> Record:
        """Until the record is in one of the states, and free."""
        end = time.monotonic() + patience
        while True:
            record = self.store.get(kind, id)
            if record.state in states and record.session is None:
                return record
            if time.monotonic() > end:
                lines = "\n".join(
                    f"{line.before} -> {line.after} {line.event} {line.why}" for line in self.store.history(kind, id)
                )
                raise AssertionError(
                    f"{record.ref} is {record.state}, not {states}: {record.parked} {record.message}\n{lines}"
                )
            self.store.watch(0.05)

    def jobs(self, batch: str, count: int) -> list[str]:
        """The ids of a batch's jobs, when there are so many."""
        end = time.monotonic() + PATIENCE
        while len(found := self.store.find("job", parent=Ref("batch", batch)).records) < count:
            assert time.monotonic() < end, f"{batch} has {len(found)} jobs, not {count}"
            self.store.watch(0.05)
        return [record.id for record in found]

    def once(self, **options: Any) -> Arrow | None:
        """One step, of whatever is due."""
        objects = open_objects((self.folder / "objects").absolute().as_uri())
        kinds = [name for name, machine in self.machines.items() if machine.working()]
        return step_once(
            self.open_store,
            self.machines,
            host="h",
            work_root=self.folder / "work",
            objects=objects,
            **{"roles": kinds, **options},
        )

    def gone(self, kind: str, id: str) -> bool:
        try:
            self.store.get(kind, id)
        except NotFound:
            return True
        return False

    def submit(self, jobs: int = 1, **submission: Any) -> Record:
        return self.engine.submit(
            New("batch", {"submission": {"profile": "p", "jobs": jobs, "update": False, **submission}})
        )


def _pending(batch: Record, ctx: Context) -> Outcome:
    return Done({"spawned": {"count": 0, "whole": False}})


def _processing(batch: Record, ctx: Context) -> Outcome:
    if not batch.docs["spawned"]["whole"] if "spawned" in batch.docs else False:
        said = batch.docs["submission"]
        ctx.spawn_each(
            (
                New("job", {"configuration": {"profile": said.get("profile", ""), "jobID": f"jid-{n}"}})
                for n in range(said.get("jobs", 1))
            ),
            portion=2,
        )
        return Wait(0)
    return Done()


def _reporting(batch: Record, ctx: Context) -> Outcome:
    if "spawned" in batch.docs and not batch.docs["spawned"]["whole"]:
        return _processing(batch, ctx)
    counts = ctx.tally("job", parent=batch.ref)
    return Done({"status-report": {"counts": counts}}, to="Failed" if counts.get("Failed") else "Completed")


def _estimating(job: Record, ctx: Context) -> Outcome:
    return Done({"space_needed": 1000})


def _identifying(job: Record, ctx: Context) -> Outcome:
    ids = job.docs.get("identifiers", {})
    ark = ids.get("primary_id") or f"ark:/99999/{job.id}"
    ctx.save({"identifiers": {"primary_id": ark, "local_id": []}}, keys=(f"storage/{ark}",))
    return Done({"inventory": {"manifest_url": "http://ours/manifest", "mode": "add"}})


def main() -> None:
    url, folder = sys.argv[1:]
    ours = Ours(url, Path(folder), grace=0.5)
    with ours.working(ttl=2.0):
        print("ready", flush=True)
        threading.Event().wait()


if __name__ == "__main__":
    main()
