"""Ships that load, dock and leave: exclusive keys, known before and asked for in the middle, kept through waits,
failures and deaths.

    transfer   Arriving -> Loading (ship) -> Docking (ship, berth) -> Leaving (ship) -> Gone      Stuck keeps its ship
"""

from __future__ import annotations

from collections.abc import Iterator

from waybill.machine import RESUME, Backoff, Document, Keys, Machine, action, end, rest, work
from waybill.record import Change, Record
from waybill.sim.ledger import Entry
from waybill.sim.scenario import Scenario
from waybill.sim.world import current
from waybill.step import Context, Done, Fail, New, Outcome, Wait

SOON = Backoff(1.0, 2.0, 4.0)

TRANSFER = Machine(
    name="transfer",
    plural="transfers",
    prefix="trf",
    doc="Something that needs a ship, and for a while a berth.",
    states=(
        work("Arriving", "Loading", "Not yet on a ship.", also=("Sunk",), backoff=SOON),
        work("Loading", "Docking", "Goes on the ship, slowly.", needs=("ship",), every=1.0, backoff=SOON),
        work(
            "Docking",
            "Leaving",
            "Takes a berth.",
            needs=("ship", "berth"),
            fails="Stuck",
            every=1.0,
            tries=2,
            backoff=SOON,
        ),
        work("Leaving", "Gone", "Goes to sea.", needs=("ship",), fails="Stuck", tries=2, backoff=SOON),
        rest("Stuck", "On its ship, and goes nowhere.", needs=("ship",)),
        rest("Failed", "Never got on."),
        end("Gone", "At sea.", keep=60.0),
        end("Sunk", "No more."),
    ),
    actions=(
        action("resume", "Stuck Failed", RESUME, "Try again."),
        action("sink", "Stuck Failed Loading Docking Leaving", "Sunk", "Give it up.", claimed="wait"),
    ),
    documents=(
        Document("transfer", "service", "Which ship, which berth."),
        Document("aboard", "step", "How much is on it."),
    ),
    keys=(
        Keys("ship", "One transfer on a ship at a time.", of=lambda record: (record.docs["transfer"]["ship"],)),
        Keys("berth", "One ship in a berth at a time."),
    ),
)


@TRANSFER.step("Arriving")
def arrive(transfer: Record, ctx: Context) -> Outcome:
    current().meet_trouble("the pilot")
    return Done(to="Sunk") if transfer.docs["transfer"]["light"] else Done()


@TRANSFER.step("Loading")
def load(transfer: Record, ctx: Context) -> Outcome:
    world = current()
    world.enter(f"ship {transfer.docs['transfer']['ship']}", transfer)
    aboard = transfer.docs["aboard"]["boxes"] if "aboard" in transfer.docs else 0
    world.takes(3.0)
    ctx.check()
    world.meet_trouble("the crane")
    if aboard < transfer.docs["transfer"]["boxes"]:
        return Wait(docs={"aboard": {"boxes": aboard + 1}})
    return Done()


@TRANSFER.step("Docking")
def dock(transfer: Record, ctx: Context) -> Outcome:
    world = current()
    berth = transfer.docs["transfer"]["berth"]
    ctx.save(keys=(f"berth/{berth}",))
    world.enter(f"berth {berth}", transfer)
    world.takes(1.0)
    ctx.check()
    world.meet_trouble("the mooring")
    if not world.hurry and world.chance(0.3):
        return Wait(message="low water")
    if transfer.docs["transfer"]["broken"] and transfer.retries == 0:
        raise Fail("The hull is broken.")
    return Done()


@TRANSFER.step("Leaving")
def leave(transfer: Record, ctx: Context) -> Outcome:
    world = current()
    world.enter(f"ship {transfer.docs['transfer']['ship']}", transfer)
    world.takes(3.0)
    world.meet_trouble("the weather")
    return Done()


class Transfers(Scenario):
    name = "transfers"
    doc = "Exclusive keys: known before and asked for in the middle, kept through waits, failures and deaths."

    def machines(self) -> tuple[Machine, ...]:
        return (TRANSFER,)

    def submissions(self) -> Iterator[New]:
        rng = self.rng
        ships, berths = rng.choice(("x", "xy")), rng.choice(("1", "12"))
        for n in range(rng.choice((2, 3, 5, 7))):
            plan = {
                "ship": rng.choice(ships),
                "berth": rng.choice(berths),
                "boxes": 0 if self.world.hurry else rng.choice((0, 1, 2)),
                "broken": rng.random() < 0.1,
                "light": rng.random() < 0.2,
            }
            yield New("transfer", {"transfer": plan}, request=f"transfer-{n}")

    def changed(self, change: Change, record: Record | None, entry: Entry) -> None:
        """Whoever no longer needs its ship or its berth is out of it, by the very commit that says so."""
        state = entry.machine.state(record.state) if record is not None else None
        needs = state.needs if state is not None else ()
        for place in [p for p, ref in self.world.inside.items() if ref == entry.ref]:
            if place.partition(" ")[0] not in needs:
                self.world.leave(place, entry.ref)
