"""Webhook deliveries: events for programs, as CloudEvents 1.0; each delivery to one receiver is a record that any worker
carries out.

    Waiting -> Delivered
    Waiting -> Undeliverable -> (resend) -> Waiting, (drop) -> Dropped    refused, or the receiver was unavailable for a week

    POST url
    Content-Type: application/cloudevents+json
    X-Waybill-Signature-256: sha256=<HMAC-SHA256 of the body with the webhook's secret, in hex>

An event may be delivered twice, with the same `id` and `source`; a receiver that has seen the pair has seen the event.
The order is not guaranteed. The record names its webhook; address and secret are in the settings alone.
"""

from __future__ import annotations

import hashlib
import hmac
import uuid
from collections.abc import Iterable, Mapping
from datetime import UTC, datetime
from fnmatch import fnmatchcase
from typing import Any

import msgspec

from waybill.application import EventType
from waybill.config import WebhookSettings
from waybill.machine import Backoff, Document, Machine, action, end, rest, work
from waybill.notify.http_post import post
from waybill.record import DocumentStruct, Record
from waybill.step import Done, Fail, New, Outcome, Step, StepContext, Wait
from waybill.transfer import AddressPolicy
from waybill.transfer.address_policy import TransferError

DAY = 86400.0
TIMEOUT = 30.0  # seconds: a receiver accepts an event and works on it afterwards
MAX_TRIES = 180  # about a week, an hour apart
SIGNATURE_HEADER = "X-Waybill-Signature-256"
_EVENT_ID_NAMESPACE = uuid.UUID("2a7d0b64-91a8-5b0f-8a4e-6d3e8f4f3c77")
_ANY_ADDRESS = AddressPolicy(allow=("0.0.0.0/0", "::/0"))  # whoever writes the settings may name an internal host


def make_webhook_deliveries(
    webhooks: Iterable[WebhookSettings],
    *,
    event_type: EventType,
    source: str,
    subject: str,
    data: Mapping[str, Any],
    key: str,
    at: float,
) -> tuple[New, ...]:
    """Return one delivery of the event for each webhook that subscribes to its type. `key` names what happened: the same
    key gives the same event id.
    """
    subscribed = [
        hook.name for hook in webhooks if any(fnmatchcase(event_type.name, pattern) for pattern in hook.types)
    ]
    if not subscribed:
        return ()
    event = {
        "specversion": "1.0",
        "id": str(uuid.uuid5(_EVENT_ID_NAMESPACE, f"{event_type.name} {key}")),
        "source": source,
        "type": event_type.name,
        "subject": subject,
        "time": datetime.fromtimestamp(at, UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z"),
        "datacontenttype": "application/json",
        "data": dict(data),
    }
    return tuple(
        New("webhook_delivery", (WebhookEvent(name, event),), is_child=False, priority=5) for name in subscribed
    )


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
        description="The delivery of one event to one webhook. An unavailable receiver delays it.",
        is_internal=True,
        made_by="steps that notify somebody",
        steps={"Waiting": make_post_step({hook.name: hook for hook in webhooks})},
        states=(
            work(
                "Waiting",
                to="Delivered",
                description="To be posted to its webhook.",
                on_fail="Undeliverable",
                max_tries=MAX_TRIES,
                backoff=Backoff(10, 2, 3600),
            ),
            rest(
                "Undeliverable",
                description="The receiver refused it, or was unavailable for a week.",
                settled=True,
                keep=90 * DAY,
            ),
            end("Delivered", description="The receiver has accepted it.", keep=7 * DAY),
            end("Dropped", description="Given up by an operator.", keep=7 * DAY),
        ),
        actions=(
            action("resend", "Undeliverable", "Waiting", "Try again."),
            action(
                "drop",
                "Waiting Undeliverable",
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
        body = msgspec.json.encode(delivery.event)
        try:
            response = post(hook.url, body, build_headers(hook, body), reach=_ANY_ADDRESS, timeout=TIMEOUT)
        except TransferError as error:
            if not error.is_retryable:
                raise Fail(str(error)) from None
            raise
        return Done(message=f"answered {response.status}")

    return post_waiting


def build_headers(hook: WebhookSettings, body: bytes) -> dict[str, str]:
    headers = {"content-type": "application/cloudevents+json; charset=utf-8"}
    if hook.secret:
        headers[SIGNATURE_HEADER] = "sha256=" + hmac.new(hook.secret.encode(), body, hashlib.sha256).hexdigest()
    return headers
