"""The machines that are measured: eight states whose steps do nothing, in plain words and in Merritt's."""

from __future__ import annotations

from dataclasses import replace

from waybill.apps.ingest.machine import build_tables as ingest_tables
from waybill.machine import Machine, end, join, work
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
            join("Processing", to="Completed", description="Until the jobs have settled."),
            end("Completed", description="All jobs have settled."),
        ),
    )  # fmt: skip


def job() -> Machine:
    """Merritt's job, in the states that its ZooKeeper tree has folders for."""
    return _machine("job", "jobs", "jid", MERRITT, "Completed", parent="batch")


def ingest() -> tuple[Machine, ...]:
    """Those of ingest as they are, with all states; but for its jobs there is nothing to do."""
    steps = dict.fromkeys(MERRITT, nothing)
    return tuple(
        replace(table, steps=steps if table.name == "job" else "") for table in ingest_tables(storing_state=True)
    )


def _machine(
    name: str, plural: str, prefix: str, states: list[str] | tuple[str, ...], last: str, *, parent: str | None
) -> Machine:
    targets = [*states[1:], last]
    return Machine(
        name=name, plural=plural, prefix=prefix, description="One thing on its way.", parent=parent, steps=dict.fromkeys(states, nothing),
        states=(
            *(work(state, to=then, description="A step that does nothing.") for state, then in zip(states, targets, strict=True)),
            end(last, description="At its end."),
        ),
    )  # fmt: skip
