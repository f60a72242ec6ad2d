"""Announcing: the event is made in the commit that ends the step, so it is sent exactly when the roll is ready."""

from photolab.machine import ROLL_READY
from waybill import Done, Outcome, Record, StepContext
from waybill.notify import make_webhook_deliveries


def run_step(roll: Record, ctx: StepContext) -> Outcome:
    counts = ctx.count_by_state("photo", parent=roll.ref)
    deliveries = make_webhook_deliveries(
        ctx.resources.webhooks,
        event_type=ROLL_READY,
        source="/photolab",
        subject=roll.id,
        data=counts,
        key=str(roll.ref),
        at=ctx.now(),
    )
    return Done(spawn=deliveries, message=f"{counts.get('Developed', 0)} photos")
