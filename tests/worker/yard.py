"""A small yard to run real workers in: a store, machines with steps that the test controls, and waiting on
conditions, never on time.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from waybill.engine import Engine
from waybill.machine import RESUME, STAY, Backoff, Keys, Machine, action, end, join, rest, work
from waybill.record import Record, Store
from waybill.rules import Machines
from waybill.step import Context, Done, Outcome
from waybill.worker import Arrow, Worker, step_once

Step = Callable[[Record, Context], Outcome]
PATIENCE = 120.0


class Yard:
    """Parcels go Packing -> Sending -> Sent; a crate spawns parcels and waits for them."""

    def __init__(self, open_store: Callable[[], Store], root: Path) -> None:
        self.open_store, self.root = open_store, root
        self.crate, self.parcel = tables()
        self.machines = Machines.of((self.crate, self.parcel))
        self.store = open_store()
        self.engine = Engine(self.store, self.machines)
        self.workers: list[tuple[Worker, threading.Thread]] = []

    def steps(self, **steps: Step) -> None:
        """By state; what is not given is done at once."""
        for machine in (self.crate, self.parcel):
            for state in machine.states:
                if state.sort == "work":
                    machine.steps[state.name] = steps.get(state.name, lambda record, ctx: Done())
                elif state.name in steps:
                    machine.steps[state.name] = steps[state.name]

    def worker(self, **options: Any) -> Worker:
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

    def once(self, **options: Any) -> Arrow | None:
        return step_once(self.open_store, self.machines, host="h1", work_root=self.root, objects=None, **options)  # type: ignore[arg-type]

    def stop(self, worker: Worker) -> None:
        worker.stop()
        thread = next(t for w, t in self.workers if w is worker)
        thread.join(PATIENCE)
        assert not thread.is_alive(), "the worker did not end"

    def get(self, record: Record) -> Record:
        return self.store.get(record.kind, record.id)

    def until(self, holds: Callable[[], Any], what: str = "the condition") -> None:
        """Wait until it holds, or fail."""
        deadline = time.monotonic() + PATIENCE
        while not holds():
            assert time.monotonic() < deadline, f"{what} did not come to hold"
            threading.Event().wait(0.005)

    def until_state(self, record: Record, state: str) -> Record:
        self.until(lambda: self.get(record).state == state, f"{record.ref} {state} (it is {self.get(record)})")
        return self.get(record)

    @contextmanager
    def closing(self) -> Iterator[Yard]:
        try:
            yield self
        finally:
            for worker, _ in self.workers:
                worker.stop()
            for _, thread in self.workers:
                thread.join(PATIENCE)
            self.store.close()


def tables() -> tuple[Machine, Machine]:
    crate = Machine(
        name="crate",
        plural="crates",
        prefix="crt",
        doc="Many parcels.",
        states=(
            work("Filling", "Waiting", "Make the parcels."),
            join("Waiting", "Shipped", "Until all are sent."),
            work("Deleting", "Gone", "Remove the parcels.", fails=None, every=0.05),
            rest("Failed", "Gave up.", settled=True),
            end("Shipped", "All are sent."),
            end("Gone", "Removed."),
        ),
        actions=(
            action("resume", "Failed", RESUME, "Again."),
            action("delete", "Waiting Failed", "Deleting", "Remove all.", claimed="wait"),
        ),
    )
    parcel = Machine(
        name="parcel",
        plural="parcels",
        prefix="pcl",
        doc="One parcel.",
        parent="crate",
        states=(
            work(
                "Packing", "Sending", "Box it.", holds="Held", tries=3, backoff=Backoff(0.01, 1, 1), leaves_files=True
            ),
            rest("Held", "Stopped by a mark."),
            work(
                "Sending",
                "Sent",
                "Send it.",
                needs=("van",),
                tries=2,
                backoff=Backoff(0.01, 1, 1),
                every=0.05,
                remakes="Packing",
            ),
            rest("Failed", "Gave up.", settled=True),
            end("Sent", "Gone."),
            end("Dropped", "Given up."),
        ),
        actions=(
            action("resume", "Failed", RESUME, "Again."),
            action("release", "Held", "Packing", "Go on."),
            action("drop", "Packing Sending Failed", "Dropped", "Give it up.", claimed="wait"),
            action("shake", "Packing Sending", STAY, "Shake it."),
        ),
        keys=(Keys("van", "one parcel in a van at a time"),),
        gates=lambda record: ("collections/a",),
    )
    return crate, parcel
