"""The kinds `event`, a line of the log, and `subscription`, a reader of the log."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import Any

from waybill.errors import ActionRefused
from waybill.events import EVENT_KIND, SUBSCRIPTION_KIND, EventBody
from waybill.machine import UPKEEP_POOL, Backoff, Document, Machine, action, end, rest, work
from waybill.record import DocumentStruct, Record, Store

MAX_STEP_TRIES = 1_000_000  # the subscriber says after how many tries it is parked


class SubscriptionCursor(DocumentStruct, frozen=True):
    """How far a subscription has read."""

    seq: int = 0  # the creation number of the last event that was handled or passed over
    handled: int = 0  # events handled since the subscription was made
    failing: str = ""  # the id of the event that its handler cannot handle
    failing_seq: int = 0  # and its creation number


def position_of(subscription: Record) -> int:
    """Return the number of the last event that it has read. A new one begins with what happens after it was made."""
    cursor = subscription.find_document(SubscriptionCursor)
    return cursor.seq if cursor is not None else subscription.seq


def find_unread(event: Record, store: Store) -> str | None:
    """Return why the event cannot leave the log yet."""
    for subscription in store.each(SUBSCRIPTION_KIND, documents=True):
        if subscription.state != ENDED and position_of(subscription) < event.seq:
            return f"The subscription {subscription.id} has not read {event.ref} yet."
    return None


LOGGED, EXPIRED = "Logged", "Expired"
LISTENING, PARKED, ENDED = "Listening", "Parked", "Ended"

EVENT = Machine(
    name=EVENT_KIND,
    plural="events",
    prefix="event",
    description="Something that happened, and that somebody wants to know.",
    made_by="commits that tell of it",
    states=(
        rest(LOGGED, description="In the log, for those who have not read it yet."),
        end(EXPIRED, description="Taken out of the log by an operator.", keep=0),
    ),
    actions=(action("expire", LOGGED, EXPIRED, "Take it out of the log.", guard=find_unread),),
    documents=(Document("event", EventBody, "service", "Its type, what it is about, and its data."),),
)


def skip_failing(subscription: Record, args: Mapping[str, Any]) -> tuple[SubscriptionCursor, ...]:
    cursor = subscription.find_document(SubscriptionCursor)
    if cursor is None or not cursor.failing or args != {"event": cursor.failing}:
        failing = cursor.failing if cursor is not None else ""
        raise ActionRefused(f"Name the event that is given up: --arg event={failing or 'ID'}.")
    return (SubscriptionCursor(cursor.failing_seq, cursor.handled),)


def make_subscription_machine(subscriber_ids: Collection[str]) -> Machine:
    """Return the machine of a process that knows these subscribers. Its step is given by the scheduler."""

    def refuse_present(subscription: Record, store: Store) -> str | None:
        if subscription.id in subscriber_ids:
            return f"{subscription.id} subscribes here; take it out of the settings first."
        return None

    return Machine(
        name=SUBSCRIPTION_KIND,
        plural="subscriptions",
        description="An application or a webhook that gets events.",
        made_by="every process that starts",
        is_internal=True,
        states=(
            work(
                LISTENING,
                to=ENDED,
                description="Handles the events of the log, one after the other.",
                on_fail=PARKED,
                max_tries=MAX_STEP_TRIES,
                backoff=Backoff(1, 2, 3600),
                pool=UPKEEP_POOL,
            ),
            rest(PARKED, description="Its handler could not handle an event; it keeps its place in the log."),
            end(ENDED, description="Nobody subscribes under this name any more.", keep=0),
        ),
        actions=(
            action("resume", PARKED, LISTENING, "Try the event again, then go on."),
            action("skip", PARKED, LISTENING, "Give up the event named by `event`, and go on.", writes=skip_failing),
            action(
                "end", f"{LISTENING} {PARKED}", ENDED, "Forget its place in the log.", guard=refuse_present,
                confirm="It never gets the events that it has not read.", when_claimed="wait",
            ),
        ),
        documents=(Document("cursor", SubscriptionCursor, "step", "How far it has read."),),
    )  # fmt: skip
