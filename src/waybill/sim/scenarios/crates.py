"""Crates of parcels that are packed at the same time: nothing but joins, as close together as possible.

crate    Filling -> Waiting -> Full; the operator fills it again
parcel   Packing -> Packed, or Packing -> Waiting -> Packed with a box of its own
box      Folding -> Folded
"""

from __future__ import annotations

from collections.abc import Iterator

from waybill.machine import Machine, action, end, join, rest, work
from waybill.record import Change, Record, Ref
from waybill.sim.invariant_checker import CheckedRecord, InvariantViolation
from waybill.sim.scenario import Scenario
from waybill.sim.world import SimulatedWorld, get_current_world
from waybill.step import Done, Fail, New, Outcome, StepContext

CRATE = Machine(
    name="crate",
    plural="crates",
    prefix="crt",
    description="Some parcels.",
    steps=__name__,
    states=(
        work("Filling", to="Waiting", description="Makes its parcels.", on_fail=None),
        join("Waiting", to="Full", description="They are being packed."),
        rest("Full", description="All are packed.", settled=True, keep=60.0),
        end("Shipped", description="Gone."),
    ),
    actions=(
        action("refill", "Full", "Filling", "One more of each."),
        action("ship", "Full", "Shipped", "Off it goes."),
    ),
)

PARCEL = Machine(
    name="parcel",
    plural="parcels",
    prefix="pcl",
    description="One parcel.",
    steps=__name__,
    parent="crate",
    states=(
        work("Packing", to="Waiting", description="Packs it.", or_to=("Packed",)),
        join("Waiting", to="Packed", description="Its box is being folded."),
        rest("Failed", description="It does not fit.", settled=True),
        rest("Packed", description="In its crate.", settled=True),
        end("Thrown", description="Away."),
    ),
    actions=(
        action("resume", "Failed", "Packing", "Try again."),
        action("throw", "Packed Failed Packing", "Thrown", "Away with it.", when_claimed="wait"),
    ),
)

BOX = Machine(
    name="box",
    plural="boxes",
    prefix="box",
    description="Around a parcel.",
    steps=__name__,
    parent="parcel",
    states=(work("Folding", to="Folded", description="Folds it.", on_fail=None), end("Folded", description="A box.")),
)


def filling(crate: Record, ctx: StepContext) -> Outcome:
    plan = crate.documents["crate"]
    return Done(spawn=tuple(New("parcel", {"parcel": each}) for each in plan["parcels"]))


def packing(parcel: Record, ctx: StepContext) -> Outcome:
    get_current_world().reach_point("packing")
    plan = parcel.documents["parcel"]
    if plan["odd"] and parcel.resume_count == 0:
        raise Fail("It does not fit.")
    return Done(spawn=(New("box"),)) if plan["box"] else Done(to="Packed")


def folding(box: Record, ctx: StepContext) -> Outcome:
    get_current_world().spend_time(0.02)
    return Done()


class CratesScenario(Scenario):
    name = "crates"
    description = "Parents, children and grandchildren that settle at the same time."

    def __init__(self, world: SimulatedWorld) -> None:
        super().__init__(world)
        self.join_counts: dict[Ref, int] = {}  # entries into the join minus exits, by record
        self.planned_parcels: dict[Ref, int] = {}  # parcels of each crate with every filling
        self.expected_children: dict[Ref, int] = {}  # children that the record should have now

    def build_machines(self) -> tuple[Machine, ...]:
        return (CRATE, PARCEL, BOX)

    def build_submissions(self) -> Iterator[New]:
        for n in range(self.rng.choice((1, 2, 4))):
            parcels = [
                {"odd": self.rng.random() < 0.1, "box": self.rng.random() < 0.4}
                for _ in range(self.rng.choice((1, 2, 2, 3, 6)))
            ]
            yield New("crate", {"crate": {"parcels": parcels}}, idempotency_key=f"crate-{n}")

    def check_change(self, change: Change, record: Record | None, checked: CheckedRecord) -> None:
        if record is None:
            return
        if change.before is None:
            if record.kind == "crate":
                self.planned_parcels[record.ref] = len(record.documents["crate"]["parcels"])
        elif change.before.state != record.state:
            self._check_move(change.before.state, record)

    def _check_move(self, before: str, record: Record) -> None:
        """A join is left once for each time it is entered, and all children that it waits for were created on entry."""
        ref = record.ref
        if record.state == "Waiting":
            self.join_counts[ref] = self.join_counts.get(ref, 0) + 1
            self.expected_children[ref] = self.expected_children.get(ref, 0) + self.planned_parcels.get(ref, 1)
        elif before == "Waiting":
            self.join_counts[ref] -= 1
            if self.join_counts[ref] < 0:
                raise InvariantViolation(f"{ref} leaves its join twice")
            if (created := self.world.simulation.checker.child_counts.get(ref, 0)) != self.expected_children[ref]:
                raise InvariantViolation(
                    f"{ref} should have {self.expected_children[ref]} children, and {created} were created"
                )
