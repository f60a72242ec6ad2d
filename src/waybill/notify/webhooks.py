"""Webhooks: subscribers that post each event to a URL, as a CloudEvent 1.0.

An event that the receiver refuses rests as a record of its own, a webhook delivery, and the next one is sent. While the
receiver is unavailable the subscription waits for it; after a week it is parked.

    Undeliverable -> (resend) -> Waiting -> Delivered, (drop) -> Dropped

    POST url
    Content-Type: application/cloudevents+json
    X-Waybill-Signature-256: sha256=<HMAC-SHA256 of the body with the webhook's secret, in hex>

An event may be delivered twice, with the same `id` and `source`; a receiver that has seen the pair has seen the event. They
come in the order in which they happened. The record names its webhook; address and secret are in the settings alone.
"""

from __future__ import annotations

import hashlib
import hmac
from collections.abc import Callable, Iterable, Mapping
from datetime import UTC, datetime
from typing import Any

import msgspec

from waybill.config import WebhookSettings
from waybill.machine import UPKEEP_POOL, Backoff, Document, Machine, action, end, rest, work
from waybill.notify.http_post import HttpPostAnswer, post
from waybill.record import DocumentStruct, Record
from waybill.step import Done, Fail, New, Outcome, Step, StepContext, Wait
from waybill.subscriptions import EventHandler, ReceivedEvent, Subscriber, SubscriberContext
from waybill.transfer import AddressPolicy
from waybill.transfer.address_policy import TransferError

DAY = 86400.0
TIMEOUT = 30.0  # seconds: a receiver accepts an event and works on it afterwards
MAX_TRIES = 180  # about a week, an hour apart
SIGNATURE_HEADER = "X-Waybill-Signature-256"
UNDELIVERABLE = "Undeliverable"
_ANY_ADDRESS = AddressPolicy(allow=("0.0.0.0/0", "::/0"))  # whoever writes the settings may name an internal host


def make_webhook_subscribers(webhooks: Iterable[WebhookSettings], *, source: Callable[[], str]) -> list[Subscriber]:
    """Return the subscriber of each webhook. `source`: the URL of this installation, as the events give it."""
    return [
        Subscriber(
            f"webhook-{hook.name}", dict.fromkeys(hook.types, make_webhook_handler(hook, source)), max_tries=MAX_TRIES
        )
        for hook in webhooks
        if hook.types
    ]


def make_webhook_handler(hook: WebhookSettings, source: Callable[[], str]) -> EventHandler:
    def post_event(event: ReceivedEvent, ctx: SubscriberContext) -> Done | None:
        """Safe to repeat: the id of the event is the same. A refused event rests as a record, and the next one is sent."""
        cloud_event = to_cloud_event(event, source())
        try:
            _post_to(hook, cloud_event)
        except TransferError as error:
            if error.is_retryable:
                raise
            refused = New(
                "webhook_delivery", (WebhookEvent(hook.name, cloud_event),), state=UNDELIVERABLE, message=str(error)
            )
            return Done(spawn=(refused,))
        return None

    return post_event


def to_cloud_event(event: ReceivedEvent, source: str) -> dict[str, Any]:
    return {
        "specversion": "1.0",
        "id": event.id,
        "source": f"{source.rstrip('/')}/{event.type.partition('.')[0]}",
        "type": event.type,
        "subject": event.subject,
        "time": datetime.fromtimestamp(event.at, UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z"),
        "datacontenttype": "application/json",
        "data": dict(event.data),
    }


class WebhookEvent(DocumentStruct, frozen=True):
    """An event, and the name of the webhook that it is for."""

    webhook: str
    event: dict[str, Any]


def make_webhook_machine(webhooks: Iterable[WebhookSettings]) -> Machine:
    """Return the machine, whose step delivers to these webhooks."""
    return Machine(
        name="webhook_delivery",
        plural="webhook deliveries",
        prefix="delivery",
        description="An event that a webhook has refused.",
        is_internal=True,
        made_by="subscriptions of webhooks",
        initial_states=(UNDELIVERABLE,),
        steps={"Waiting": make_post_step({hook.name: hook for hook in webhooks})},
        states=(
            work(
                "Waiting",
                to="Delivered",
                description="To be posted to its webhook again.",
                on_fail=UNDELIVERABLE,
                max_tries=MAX_TRIES,
                backoff=Backoff(10, 2, 3600),
                pool=UPKEEP_POOL,
            ),
            rest(UNDELIVERABLE, description="The receiver refused it.", settled=True, keep=90 * DAY),
            end("Delivered", description="The receiver has accepted it.", keep=7 * DAY),
            end("Dropped", description="Given up by an operator.", keep=7 * DAY),
        ),
        actions=(
            action("resend", UNDELIVERABLE, "Waiting", "Try again."),
            action(
                "drop",
                f"Waiting {UNDELIVERABLE}",
                "Dropped",
                "Do not deliver it.",
                when_claimed="wait",
                confirm="The receiver never gets it.",
            ),
        ),
        documents=(Document("event", WebhookEvent, "service", "The event, and the webhook that it is for."),),
    )


def make_post_step(webhooks: Mapping[str, WebhookSettings]) -> Step:
    def post_waiting(record: Record, ctx: StepContext) -> Outcome:
        """Safe to repeat: the id of the event is the same."""
        delivery = record.document(WebhookEvent)
        hook = webhooks.get(delivery.webhook)
        if hook is None:
            return Wait(
                3600, f"There is no webhook {delivery.webhook!r} in the settings; name it there, or drop the delivery."
            )
        try:
            response = _post_to(hook, delivery.event)
        except TransferError as error:
            if not error.is_retryable:
                raise Fail(str(error)) from None
            raise
        return Done(message=f"answered {response.status}")

    return post_waiting


def _post_to(hook: WebhookSettings, event: Mapping[str, Any]) -> HttpPostAnswer:
    body = msgspec.json.encode(event)
    return post(hook.url, body, build_headers(hook, body), reach=_ANY_ADDRESS, timeout=TIMEOUT)


def build_headers(hook: WebhookSettings, body: bytes) -> dict[str, str]:
    headers = {"content-type": "application/cloudevents+json; charset=utf-8"}
    if hook.secret:
        headers[SIGNATURE_HEADER] = "sha256=" + hmac.new(hook.secret.encode(), body, hashlib.sha256).hexdigest()
    return headers
