"""An application that tells of its loaves, and one that listens."""

from __future__ import annotations

from waybill import (
    Act,
    Application,
    Document,
    Done,
    Event,
    EventType,
    Fail,
    Machine,
    New,
    Outcome,
    Record,
    RecordNotFound,
    Ref,
    StepContext,
    action,
    end,
    rest,
    work,
)
from waybill.subscriptions import ReceivedEvent, SubscriberContext

BAKED = EventType("bakery.loaf.baked", "A loaf is out of the oven.")
SOLD = EventType("bakery.loaf.sold", "Somebody has bought it.")


def baking(loaf: Record, ctx: StepContext) -> Outcome:
    return Done(events=(Event(BAKED, loaf.id, {"grams": 500}),))


def selling(loaf: Record, ctx: StepContext) -> Outcome:
    return Done(events=(Event(SOLD, loaf.id),))


LOAF = Machine(
    name="loaf", plural="loaves", prefix="loaf", description="Bread.",
    steps={"Baking": baking, "Selling": selling},
    states=(
        work("Baking", to="Selling", description="In the oven."),
        work("Selling", to="Gone", description="On the shelf."),
        end("Gone", description="Sold."),
    ),
)  # fmt: skip

OFFER = Machine(
    name="offer", plural="offers", description="A loaf on the web page.",
    states=(rest("Shown", description="For sale.", settled=True), end("Over", description="Sold.")),
    actions=(action("close", "Shown", "Over", "It is sold."),),
    documents=(Document("offer", None, "service", "Which event made it."),),
)  # fmt: skip


def show_offer(event: ReceivedEvent, ctx: SubscriberContext) -> Done:
    return Done(spawn=(New("offer", {"offer": {"event": event.id, **event.data}}, id=event.subject),))


def close_offer(event: ReceivedEvent, ctx: SubscriberContext) -> Done:
    return Done(acts=(Act(Ref("offer", event.subject), "close"),))


def raise_always(event: ReceivedEvent, ctx: SubscriberContext) -> None:
    raise RuntimeError(f"the shop is closed for {event.subject}")


def refuse_first(event: ReceivedEvent, ctx: SubscriberContext) -> None:
    if event.subject.endswith("1"):
        raise Fail("This loaf is burnt.")


BAKERY = Application("bakery", "Bakes.", (LOAF,), events=(BAKED, SOLD))
SHOP = Application(
    "shop", "Sells.", (OFFER,), subscribes={"bakery.loaf.baked": show_offer, "bakery.loaf.sold": close_offer}
)
BROKEN = Application("broken", "Never listens.", (), subscribes={"bakery.*": raise_always})


def has_offer(ctx: SubscriberContext, id: str) -> bool:
    try:
        ctx.get("offer", id)
    except RecordNotFound:
        return False
    return True
