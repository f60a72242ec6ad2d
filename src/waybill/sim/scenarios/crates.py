"""Crates of parcels that are packed at once: nothing but joins, as close together as they come.

crate    Filling -> Waiting -> Full, filled again by people        parcel   Packing -> Packed, with a box of its own or not
box      Folding -> Folded
"""

from __future__ import annotations

from collections.abc import Iterator

from waybill.machine import Machine, action, end, join, rest, work
from waybill.record import Change, Record, Ref
from waybill.sim.ledger import Entry, Violation
from waybill.sim.scenario import Scenario
from waybill.sim.world import World, current
from waybill.step import Context, Done, Fail, New, Outcome

CRATE = Machine(
    name="crate",
    plural="crates",
    prefix="crt",
    doc="Some parcels.",
    states=(
        work("Filling", "Waiting", "Makes its parcels.", fails=None),
        join("Waiting", "Full", "They are being packed."),
        rest("Full", "All are packed.", settled=True, keep=60.0),
        end("Shipped", "Gone."),
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
    doc="One parcel.",
    parent="crate",
    states=(
        work("Packing", "Waiting", "Packs it.", also=("Packed",)),
        join("Waiting", "Packed", "Its box is being folded."),
        rest("Failed", "It does not fit.", settled=True),
        rest("Packed", "In its crate.", settled=True),
        end("Thrown", "Away."),
    ),
    actions=(
        action("resume", "Failed", "Packing", "Try again."),
        action("throw", "Packed Failed Packing", "Thrown", "Away with it.", claimed="wait"),
    ),
)

BOX = Machine(
    name="box",
    plural="boxes",
    prefix="box",
    doc="Around a parcel.",
    parent="parcel",
    states=(work("Folding", "Folded", "Folds it.", fails=None), end("Folded", "A box.")),
)


@CRATE.step("Filling")
def fill(crate: Record, ctx: Context) -> Outcome:
    plan = crate.docs["crate"]
    return Done(spawn=tuple(New("parcel", {"parcel": each}) for each in plan["parcels"]))


@PARCEL.step("Packing")
def pack(parcel: Record, ctx: Context) -> Outcome:
    current().point("packing")
    plan = parcel.docs["parcel"]
    if plan["odd"] and parcel.retries == 0:
        raise Fail("It does not fit.")
    return Done(spawn=(New("box"),)) if plan["box"] else Done(to="Packed")


@BOX.step("Folding")
def fold(box: Record, ctx: Context) -> Outcome:
    current().takes(0.02)
    return Done()


class Crates(Scenario):
    name = "crates"
    doc = "Parents, children and grandchildren that settle as close together as they come."

    def __init__(self, world: World) -> None:
        super().__init__(world)
        self.joined: dict[Ref, int] = {}  # how often each is in its join, or was
        self.planned: dict[Ref, int] = {}  # how many parcels each crate gets with every filling
        self.filled: dict[Ref, int] = {}  # how many it should have by now

    def machines(self) -> tuple[Machine, ...]:
        return (CRATE, PARCEL, BOX)

    def submissions(self) -> Iterator[New]:
        for n in range(self.rng.choice((1, 2, 4))):
            parcels = [
                {"odd": self.rng.random() < 0.1, "box": self.rng.random() < 0.4}
                for _ in range(self.rng.choice((1, 2, 2, 3, 6)))
            ]
            yield New("crate", {"crate": {"parcels": parcels}}, request=f"crate-{n}")

    def changed(self, change: Change, record: Record | None, entry: Entry) -> None:
        if record is None:
            return
        if change.before is None:
            if record.kind == "crate":
                self.planned[record.ref] = len(record.docs["crate"]["parcels"])
        elif change.before.state != record.state:
            self._moved(change.before.state, record)

    def _moved(self, before: str, record: Record) -> None:
        """A join is left once for each time that it is entered, and the children that it waits for came with the
        entering.
        """
        ref = record.ref
        if record.state == "Waiting":
            self.joined[ref] = self.joined.get(ref, 0) + 1
            self.filled[ref] = self.filled.get(ref, 0) + self.planned.get(ref, 1)
        elif before == "Waiting":
            self.joined[ref] -= 1
            if self.joined[ref] < 0:
                raise Violation(f"{ref} leaves its join twice")
            if (made := self.world.simulation.ledger.children.get(ref, 0)) != self.filled[ref]:
                raise Violation(f"{ref} was to have {self.filled[ref]} children, and {made} were made")
