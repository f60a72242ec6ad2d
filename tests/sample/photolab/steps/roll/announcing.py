"""Announcing: the event is part of the commit that ends the step, so it is told exactly when the roll is ready."""

from photolab.machine import ROLL_READY
from waybill import Done, Event, Outcome, Record, StepContext


def run_step(roll: Record, ctx: StepContext) -> Outcome:
    counts = ctx.count_by_state("photo", parent=roll.ref)
    return Done(events=(Event(ROLL_READY, roll.id, counts),), message=f"{counts.get('Developed', 0)} photos")
