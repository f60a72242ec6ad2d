"""Ships that load, dock and leave: exclusive locks, declared by the machine or taken by a step, that survive waits,
failures and crashes.

    transfer   Arriving -> Loading (ship) -> Docking (ship, berth) -> Leaving (ship) -> Gone; Stuck keeps its ship
"""

from __future__ import annotations

from collections.abc import Iterator

from waybill.machine import RESUME, Backoff, Document, LockFamily, Machine, action, end, rest, work
from waybill.record import Change, Record
from waybill.sim.invariant_checker import CheckedRecord
from waybill.sim.scenario import Scenario
from waybill.sim.world import get_current_world
from waybill.step import Done, Fail, New, Outcome, StepContext, Wait

SHORT_BACKOFF = Backoff(1.0, 2.0, 4.0)

TRANSFER = Machine(
    name="transfer",
    plural="transfers",
    prefix="trf",
    description="Something that needs a ship, and for a while a berth.",
    steps=__name__,
    states=(
        work("Arriving", to="Loading", description="Not yet on a ship.", or_to=("Sunk",), backoff=SHORT_BACKOFF),
        work(
            "Loading",
            to="Docking",
            description="Goes on the ship, slowly.",
            locks=("ship",),
            poll_interval=1.0,
            backoff=SHORT_BACKOFF,
        ),
        work(
            "Docking",
            to="Leaving",
            description="Takes a berth.",
            locks=("ship", "berth"),
            on_fail="Stuck",
            poll_interval=1.0,
            max_tries=2,
            backoff=SHORT_BACKOFF,
        ),
        work(
            "Leaving",
            to="Gone",
            description="Goes to sea.",
            locks=("ship",),
            on_fail="Stuck",
            max_tries=2,
            backoff=SHORT_BACKOFF,
        ),
        rest("Stuck", description="On its ship, and goes nowhere.", locks=("ship",)),
        rest("Failed", description="Never got on."),
        end("Gone", description="At sea.", keep=60.0),
        end("Sunk", description="No more."),
    ),
    actions=(
        action("resume", "Stuck Failed", RESUME, "Try again."),
        action("sink", "Stuck Failed Loading Docking Leaving", "Sunk", "Give it up.", when_claimed="wait"),
    ),
    documents=(
        Document("transfer", None, "service", "Which ship, which berth."),
        Document("aboard", None, "step", "How much is on it."),
    ),
    locks=(
        LockFamily(
            "ship", "One transfer on a ship at a time.", names_of=lambda record: (record.documents["transfer"]["ship"],)
        ),
        LockFamily("berth", "One ship in a berth at a time."),
    ),
)


def arriving(transfer: Record, ctx: StepContext) -> Outcome:
    get_current_world().inject_transient_error("the pilot")
    return Done(to="Sunk") if transfer.documents["transfer"]["light"] else Done()


def loading(transfer: Record, ctx: StepContext) -> Outcome:
    world = get_current_world()
    world.enter_place(f"ship {transfer.documents['transfer']['ship']}", transfer)
    aboard = transfer.documents["aboard"]["boxes"] if "aboard" in transfer.documents else 0
    world.spend_time(3.0)
    ctx.check()
    world.inject_transient_error("the crane")
    if aboard < transfer.documents["transfer"]["boxes"]:
        return Wait(documents={"aboard": {"boxes": aboard + 1}})
    return Done()


def docking(transfer: Record, ctx: StepContext) -> Outcome:
    world = get_current_world()
    berth = transfer.documents["transfer"]["berth"]
    ctx.save(locks=(f"berth/{berth}",))
    world.enter_place(f"berth {berth}", transfer)
    world.spend_time(1.0)
    ctx.check()
    world.inject_transient_error("the mooring")
    if not world.is_instant and world.draw_chance(0.3):
        return Wait(message="low water")
    if transfer.documents["transfer"]["broken"] and transfer.resume_count == 0:
        raise Fail("The hull is broken.")
    return Done()


def leaving(transfer: Record, ctx: StepContext) -> Outcome:
    world = get_current_world()
    world.enter_place(f"ship {transfer.documents['transfer']['ship']}", transfer)
    world.spend_time(3.0)
    world.inject_transient_error("the weather")
    return Done()


class TransfersScenario(Scenario):
    name = "transfers"
    description = "Exclusive locks, declared or taken by a step, that survive waits, failures and crashes."

    def build_machines(self) -> tuple[Machine, ...]:
        return (TRANSFER,)

    def build_submissions(self) -> Iterator[New]:
        rng = self.rng
        ships, berths = rng.choice(("x", "xy")), rng.choice(("1", "12"))
        for n in range(rng.choice((2, 3, 5, 7))):
            plan = {
                "ship": rng.choice(ships),
                "berth": rng.choice(berths),
                "boxes": 0 if self.world.is_instant else rng.choice((0, 1, 2)),
                "broken": rng.random() < 0.1,
                "light": rng.random() < 0.2,
            }
            yield New("transfer", {"transfer": plan}, idempotency_key=f"transfer-{n}")

    def check_change(self, change: Change, record: Record | None, checked: CheckedRecord) -> None:
        """A record leaves its ship or berth with the very commit after which it no longer needs the lock."""
        state = checked.machine.find_state(record.state) if record is not None else None
        families = state.locks if state is not None else ()
        for place in [p for p, ref in self.world.occupants.items() if ref == checked.ref]:
            if place.partition(" ")[0] not in families:
                self.world.leave_place(place, checked.ref)
