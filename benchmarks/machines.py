"""The machines that are measured: eight states whose steps do nothing, in plain words and in Merritt's."""

from __future__ import annotations

from waybill.apps.ingest.machine import build_tables as ingest_tables
from waybill.machine import RESUME, Machine, action, end, join, rest, work
from waybill.record import Record
from waybill.step import Done, Outcome, StepContext

STATES = 8
LAST = "Arrived"
MERRITT = ("Pending", "Estimating", "Provisioning", "Downloading", "Processing", "Storing", "Recording", "Notify")

DONE = Done()


def nothing(record: Record, ctx: StepContext) -> Outcome:
    return DONE


def parcel() -> Machine:
    """One parcel through eight stations."""
    names = [f"Station{number}" for number in range(1, STATES + 1)]
    return _machine("parcel", "parcels", "pcl", names, LAST, parent=None)


def batch() -> Machine:
    """Merritt's batch, which waits for its jobs."""
    return Machine(
        name="batch", plural="batches", prefix="bid", description="Jobs that came together.",
        states=(
            join("Processing", "Completed", "Until the jobs have settled."),
            end("Completed", "All jobs have settled."),
        ),
    )  # fmt: skip


def job() -> Machine:
    """Merritt's job, in the states that its ZooKeeper tree has folders for."""
    return _machine("job", "jobs", "jid", MERRITT, "Completed", parent="batch")


def ingest() -> tuple[Machine, ...]:
    """Those of ingest as they are, with all states; but for its jobs there is nothing to do."""
    tables = ingest_tables(storing_state=True)
    for machine in tables:
        if machine.name == "job":
            for state in MERRITT:
                machine.step(state)(nothing)
    return tables


def _machine(
    name: str, plural: str, prefix: str, states: list[str] | tuple[str, ...], last: str, *, parent: str | None
) -> Machine:
    targets = [*states[1:], last]
    machine = Machine(
        name=name, plural=plural, prefix=prefix, description="One thing on its way.", parent=parent,
        states=(
            *(work(state, then, "A step that does nothing.") for state, then in zip(states, targets, strict=True)),
            rest("Failed", "A step gave up.", settled=True),
            end(last, "At its end."),
        ),
        actions=(action("resume", "Failed", RESUME, "Try again."),),
    )  # fmt: skip
    for state in states:
        machine.step(state)(nothing)
    return machine
