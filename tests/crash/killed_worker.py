"""A worker process that is killed again and again, and the machines that it serves.

    python -m tests.crash.killed_worker STORE_URL FOLDER      serve until killed

A crate spawns parcels page by page and joins them; a parcel goes through eight states, meets a transient error now and
then, waits, and in one state owns an exclusive lock.
"""

from __future__ import annotations

import logging
import os
import random
import signal
import sys
from pathlib import Path
from typing import Any, cast

from waybill.engine import Engine
from waybill.machine import RESUME, Backoff, LockFamily, Machine, action, end, join, rest, work
from waybill.maintenance import MAINTENANCE, MaintenanceScheduler, collect_routines
from waybill.record import CommitOutcomeUnknown, Record, StoreUnavailable
from waybill.rules import Machines
from waybill.step import Done, New, Outcome, StepContext, Wait
from waybill.stores import open_store
from waybill.worker import Worker

CHILDREN = 12
PAGE_SIZE = 5
NAMES = ("Picking", "Packing", "Weighing", "Labelling", "Loading", "Driving", "Handing", "Signing")
QUICK = Backoff(0.01, 1.5, 0.2)

CRATE = Machine(
    name="crate",
    plural="crates",
    prefix="crt",
    description="Many parcels.",
    states=(
        work("Filling", to="Waiting", description="Make the parcels.", max_tries=1000, backoff=QUICK),
        join("Waiting", to="Reporting", description="Until all are signed for."),
        work("Reporting", to="Shipped", description="Say so.", max_tries=1000, backoff=QUICK),
        rest("Failed", description="Gave up.", settled=True),
        end("Shipped", description="All are signed for."),
    ),
    actions=(action("resume", "Failed", RESUME, "Again."),),
)
PARCEL = Machine(
    name="parcel",
    plural="parcels",
    prefix="pcl",
    description="One parcel.",
    parent="crate",
    states=(
        *(
            work(
                name,
                to=then,
                description="Do it.",
                max_tries=1000,
                backoff=QUICK,
                locks=("van",) if name == "Driving" else (),
            )
            for name, then in zip(NAMES, (*NAMES[1:], "Signed"), strict=True)
        ),
        rest("Failed", description="Gave up.", settled=True),
        end("Signed", description="Arrived."),
    ),
    actions=(action("resume", "Failed", RESUME, "Again."),),
    locks=(LockFamily("van", "one parcel in a van at a time"),),
)
MACHINES = Machines.from_machines((CRATE, PARCEL, MAINTENANCE))


def register(folder: Path) -> None:
    rng = random.Random(os.getpid())

    def fill(record: Record, ctx: StepContext) -> Outcome:
        ctx.spawn_each((New("parcel", {"number": {"n": n}}) for n in range(CHILDREN)), page_size=PAGE_SIZE)
        return Done()

    def report(record: Record, ctx: StepContext) -> Outcome:
        return Done({"report": ctx.count_by_state("parcel", parent=record.ref)})

    def plain(record: Record, ctx: StepContext) -> Outcome:
        if rng.random() < 0.02:
            raise OSError("a transient error")
        return Wait(0.01) if rng.random() < 0.02 else Done()

    def drive(record: Record, ctx: StepContext) -> Outcome:
        ctx.save(locks=[f"van/{record.documents['number']['n'] % 3}"])
        return Done({"drove": {"claim_version": ctx.claim_version}})

    CRATE.bound_steps.update(Filling=fill, Reporting=report)
    for name in NAMES:
        PARCEL.bound_steps[name] = drive if name == "Driving" else plain


def main(url: str, folder: str) -> None:
    logging.basicConfig(level=logging.WARNING)
    register(Path(folder))
    scheduler = MaintenanceScheduler(collect_routines(), MACHINES, "here", Path(folder), None, lambda: open_store(url))
    scheduler.register_step()
    store = open_store(url)
    scheduler.ensure_records(Engine(store, MACHINES))
    store.close()
    worker = Worker(
        lambda: open_store(url),
        MACHINES,
        host="here",
        work_root=Path(folder),
        objects=cast(Any, None),
        threads=2,
        ttl=2.0,
    )
    signal.signal(signal.SIGTERM, lambda number, frame: worker.stop())
    worker.run()


STORE_UNAVAILABLE = 75  # the exit code of a process whose store is unavailable at its start: the supervisor restarts it

if __name__ == "__main__":
    try:
        main(sys.argv[1], sys.argv[2])
    except (StoreUnavailable, CommitOutcomeUnknown):
        sys.exit(STORE_UNAVAILABLE)
