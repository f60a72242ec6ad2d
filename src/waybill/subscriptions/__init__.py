"""Subscriptions: how an event reaches everybody who wants it.

    a commit with an event   a record of the kind `event` is created in it: the log
    a subscription           a record of its own; its step reads the log after its cursor, calls the handler for one event
                             after the other, and moves the cursor

    Application(subscribes={"bakery.loaf.baked": offer_loaf}, ...)

    def offer_loaf(event: ReceivedEvent, ctx: SubscriberContext) -> Done | None:
        return Done(spawn=(New("offer", (Offer(event.subject),)),))

The log has one order, the order of creation, in which no event is ever put before one that was read. So the cursor is one
number, and each subscription gets every event at least once, in the order of the log. What a handler creates, acts on
and tells is written in the commit that moves the cursor: that happens once. Anything else it does may happen twice, with
the same `event.id`.

A handler that raises is tried again, later and later, and its subscription is parked when its tries are used up: it keeps
its place, doctor names it, and nobody else waits for it.

machines.py    the kinds `event` and `subscription`
subscriber.py  who subscribes: the applications and the webhooks
scheduler.py   the step of the subscriptions, and their records
event_log.py   reading the log, and what is removed from it
"""

from waybill.subscriptions.event_log import EventLogRoutine, SubscriptionRoutine, read_events
from waybill.subscriptions.machines import EVENT, SubscriptionCursor
from waybill.subscriptions.scheduler import SubscriptionScheduler
from waybill.subscriptions.subscriber import (
    EventHandler,
    ReceivedEvent,
    Subscriber,
    SubscriberContext,
    build_routing,
    list_subscribers,
)

__all__ = [
    "EVENT",
    "EventHandler",
    "EventLogRoutine",
    "ReceivedEvent",
    "Subscriber",
    "SubscriberContext",
    "SubscriptionCursor",
    "SubscriptionRoutine",
    "SubscriptionScheduler",
    "build_routing",
    "list_subscribers",
    "read_events",
]
