"""A worker process that is killed again and again, and the machines that it serves.

    python -m tests.crash.freight STORE_URL FOLDER      serve until killed

A crate spawns parcels in portions and joins them; a parcel goes through eight states, fails now and then for a moment,
waits, and, in one state, holds an exclusive key while it writes to a file that no other may write to at the same time.
"""

from __future__ import annotations

import logging
import os
import random
import signal
import sys
from pathlib import Path

from waybill.duties import DUTY, Post, all_duties
from waybill.engine import Engine
from waybill.machine import RESUME, Backoff, Keys, Machine, action, end, join, rest, work
from waybill.record import Record, Unavailable, Unknown
from waybill.rules import Machines
from waybill.step import Context, Done, New, Outcome, Wait
from waybill.stores import open_store
from waybill.worker import Worker

CHILDREN = 12
PORTION = 5
NAMES = ("Picking", "Packing", "Weighing", "Labelling", "Loading", "Driving", "Handing", "Signing")
QUICK = Backoff(0.01, 1.5, 0.2)

CRATE = Machine(
    name="crate",
    plural="crates",
    prefix="crt",
    doc="Many parcels.",
    states=(
        work("Filling", "Waiting", "Make the parcels.", tries=1000, backoff=QUICK),
        join("Waiting", "Reporting", "Until all are signed for."),
        work("Reporting", "Shipped", "Say so.", tries=1000, backoff=QUICK),
        rest("Failed", "Gave up.", settled=True),
        end("Shipped", "All are signed for."),
    ),
    actions=(action("resume", "Failed", RESUME, "Again."),),
)
PARCEL = Machine(
    name="parcel",
    plural="parcels",
    prefix="pcl",
    doc="One parcel.",
    parent="crate",
    states=(
        *(
            work(name, then, "Do it.", tries=1000, backoff=QUICK, needs=("van",) if name == "Driving" else ())
            for name, then in zip(NAMES, (*NAMES[1:], "Signed"), strict=True)
        ),
        rest("Failed", "Gave up.", settled=True),
        end("Signed", "Arrived."),
    ),
    actions=(action("resume", "Failed", RESUME, "Again."),),
    keys=(Keys("van", "one parcel in a van at a time"),),
)
MACHINES = Machines.of((CRATE, PARCEL, DUTY))


def register(folder: Path) -> None:
    rng = random.Random(os.getpid())

    @CRATE.step("Filling")
    def fill(record: Record, ctx: Context) -> Outcome:
        ctx.spawn_each((New("parcel", {"number": {"n": n}}) for n in range(CHILDREN)), portion=PORTION)
        return Done()

    @CRATE.step("Reporting")
    def report(record: Record, ctx: Context) -> Outcome:
        return Done({"report": ctx.tally("parcel", parent=record.ref)})

    def plain(record: Record, ctx: Context) -> Outcome:
        if rng.random() < 0.02:
            raise OSError("a moment's trouble")
        return Wait(0.01) if rng.random() < 0.02 else Done()

    def drive(record: Record, ctx: Context) -> Outcome:
        ctx.save(keys=[f"van/{record.docs['number']['n'] % 3}"])
        return Done({"drove": {"attempt": ctx.attempt}})

    for name in NAMES:
        PARCEL.steps[name] = drive if name == "Driving" else plain


def main(url: str, folder: str) -> None:
    logging.basicConfig(level=logging.WARNING)
    register(Path(folder))
    post = Post(all_duties(), MACHINES, "here", Path(folder), None, lambda: open_store(url))
    post.take_up()
    store = open_store(url)
    post.ensure(Engine(store, MACHINES))
    store.close()
    worker = Worker(
        lambda: open_store(url), MACHINES, host="here", work_root=Path(folder), objects=None, threads=2, ttl=2.0
    )  # type: ignore[arg-type]
    signal.signal(signal.SIGTERM, lambda number, frame: worker.stop())
    worker.run()


AWAY = 75  # the exit code of a process that found no store when it started: whoever supervises it starts it again

if __name__ == "__main__":
    try:
        main(sys.argv[1], sys.argv[2])
    except (Unavailable, Unknown):
        sys.exit(AWAY)
