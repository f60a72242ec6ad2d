"""Real workers for tests: a store, two machines whose steps the test sets, and waiting on conditions, never on time."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from waybill.engine import Engine
from waybill.machine import RESUME, STAY, Backoff, LockFamily, Machine, action, end, join, rest, work
from waybill.record import Record, Store
from waybill.rules import Machines
from waybill.step import Done, Outcome, StepContext
from waybill.worker import StepTransition, Worker, run_one_step

Step = Callable[[Record, StepContext], Outcome]
WAIT_SECONDS = 120.0  # before a condition that does not become true fails the test


class WorkerFixture:
    """Parcels go Packing -> Sending -> Sent; a crate spawns parcels and waits for them."""

    def __init__(self, open_store: Callable[[], Store], root: Path) -> None:
        self.open_store, self.root = open_store, root
        self.crate, self.parcel = build_machines()
        self.machines = Machines.from_machines((self.crate, self.parcel))
        self.store = open_store()
        self.engine = Engine(self.store, self.machines)
        self.workers: list[tuple[Worker, threading.Thread]] = []

    def set_steps(self, **steps: Step) -> None:
        """Set the steps by state; one that is not given is done at once."""
        for machine in (self.crate, self.parcel):
            for state in machine.states:
                if state.type == "work":
                    machine.bound_steps[state.name] = steps.get(state.name, lambda record, ctx: Done())
                elif state.name in steps:
                    machine.bound_steps[state.name] = steps[state.name]

    def start_worker(self, **options: Any) -> Worker:
        """Start a worker in a thread of its own."""
        defaults: dict[str, Any] = {
            "host": "h1",
            "work_root": self.root,
            "objects": None,
            "threads": 2,
            "ttl": 10.0,
            "grace": 10.0,
        }
        worker = Worker(self.open_store, self.machines, **{**defaults, **options})
        thread = threading.Thread(target=worker.run, daemon=True)
        thread.start()
        self.workers.append((worker, thread))
        return worker

    def run_one_step(self, **options: Any) -> StepTransition | None:
        return run_one_step(self.open_store, self.machines, host="h1", work_root=self.root, objects=None, **options)  # type: ignore[arg-type]

    def stop_worker(self, worker: Worker) -> None:
        worker.stop()
        thread = next(t for w, t in self.workers if w is worker)
        thread.join(WAIT_SECONDS)
        assert not thread.is_alive(), "the worker did not end"

    def get(self, record: Record) -> Record:
        return self.store.get(record.kind, record.id)

    def wait_until(self, condition: Callable[[], Any], what: str = "the condition") -> None:
        """Wait until the condition is true, or fail."""
        deadline = time.monotonic() + WAIT_SECONDS
        while not condition():
            assert time.monotonic() < deadline, f"waited {WAIT_SECONDS:.0f} s for: {what}"
            threading.Event().wait(0.005)

    def wait_for_state(self, record: Record, state: str) -> Record:
        self.wait_until(
            lambda: self.get(record).state == state, f"{record.ref} to be {state} (it is {self.get(record)})"
        )
        return self.get(record)

    @contextmanager
    def closing(self) -> Iterator[WorkerFixture]:
        try:
            yield self
        finally:
            for worker, _ in self.workers:
                worker.stop()
            for _, thread in self.workers:
                thread.join(WAIT_SECONDS)
            self.store.close()


def build_machines() -> tuple[Machine, Machine]:
    crate = Machine(
        name="crate",
        plural="crates",
        prefix="crt",
        description="Many parcels.",
        states=(
            work("Filling", to="Waiting", description="Make the parcels."),
            join("Waiting", to="Shipped", description="Until all are sent."),
            work("Deleting", to="Gone", description="Remove the parcels.", on_fail=None, poll_interval=0.05),
            rest("Failed", description="Gave up.", settled=True),
            end("Shipped", description="All are sent."),
            end("Gone", description="Removed."),
        ),
        actions=(
            action("resume", "Failed", RESUME, "Again."),
            action("delete", "Waiting Failed", "Deleting", "Remove all.", when_claimed="wait"),
        ),
    )
    parcel = Machine(
        name="parcel",
        plural="parcels",
        prefix="pcl",
        description="One parcel.",
        parent="crate",
        states=(
            work(
                "Packing",
                to="Sending",
                description="Box it.",
                on_hold="Held",
                max_tries=3,
                backoff=Backoff(0.01, 1, 1),
                leaves_files=True,
            ),
            rest("Held", description="Stopped by a hold."),
            work(
                "Sending",
                to="Sent",
                description="Send it.",
                locks=("van",),
                max_tries=2,
                backoff=Backoff(0.01, 1, 1),
                poll_interval=0.05,
                on_host_lost="Packing",
            ),
            rest("Failed", description="Gave up.", settled=True),
            end("Sent", description="Gone."),
            end("Dropped", description="Given up."),
        ),
        actions=(
            action("resume", "Failed", RESUME, "Again."),
            action("release", "Held", "Packing", "Go on."),
            action("drop", "Packing Sending Failed", "Dropped", "Give it up.", when_claimed="wait"),
            action("shake", "Packing Sending", STAY, "Shake it."),
        ),
        locks=(LockFamily("van", "one parcel in a van at a time"),),
        hold_names=lambda record: ("collections/a",),
    )
    return crate, parcel
