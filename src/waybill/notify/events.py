"""Events: what programs are told by webhooks, as CloudEvents 1.0, each a record that any worker delivers to one
receiver.

    Waiting -> Delivered
    Waiting -> Undeliverable -> (resend) -> Waiting, (drop) -> Dropped    the receiver refuses it, or was away for a week

    POST url
    Content-Type: application/cloudevents+json
    X-Waybill-Signature-256: sha256=<HMAC-SHA256 of the body with the webhook's secret, in hex>

An event may come twice, with the same `id` and `source`; a receiver that has seen the pair has seen the event. The
order is not promised. The record names its webhook; address and secret stand in the settings alone.
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

from waybill.config import Webhook
from waybill.machine import Backoff, Document, Machine, action, end, rest, work
from waybill.notify.posting import NotPosted, post
from waybill.record import Record
from waybill.step import Context, Done, Fail, New, Outcome, Step, Wait
from waybill.transfer import Reach

DAY = 86400.0
TIMEOUT = 30.0  # seconds: a receiver takes an event in and works on it afterwards
TRIES = 180  # about a week, an hour apart
SIGNATURE = "X-Waybill-Signature-256"
_NAMES = uuid.UUID("2a7d0b64-91a8-5b0f-8a4e-6d3e8f4f3c77")
_ANYWHERE = Reach(allow=("0.0.0.0/0", "::/0"))  # whoever writes the settings may name a host in the house


def events(
    webhooks: Iterable[Webhook], *, type: str, source: str, subject: str, data: Mapping[str, Any], key: str, at: float
) -> tuple[New, ...]:
    """The event, once for each webhook that wants its type; none if nobody does. `key` names what happened: the same
    key, the same id.
    """
    wanted = [hook.name for hook in webhooks if any(fnmatchcase(type, pattern) for pattern in hook.types)]
    if not wanted:
        return ()
    event = {
        "specversion": "1.0",
        "id": str(uuid.uuid5(_NAMES, f"{type} {key}")),
        "source": source,
        "type": type,
        "subject": subject,
        "time": datetime.fromtimestamp(at, UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z"),
        "datacontenttype": "application/json",
        "data": dict(data),
    }
    return tuple(New("event", {"event": {"webhook": name, "event": event}}, child=False, priority=5) for name in wanted)


def event_machine(webhooks: Iterable[Webhook]) -> Machine:
    """The machine, whose step delivers to these."""
    machine = Machine(
        name="event",
        plural="events",
        prefix="event",
        doc="News on its way to one webhook. A receiver that is away delays it.",
        made_by="steps that have something to tell",
        states=(
            work(
                "Waiting",
                "Delivered",
                "To be posted to its webhook.",
                fails="Undeliverable",
                tries=TRIES,
                backoff=Backoff(10, 2, 3600),
            ),
            rest("Undeliverable", "The receiver refused it, or was away for a week.", settled=True, keep=90 * DAY),
            end("Delivered", "The receiver has taken it.", keep=7 * DAY),
            end("Dropped", "Given up by an operator.", keep=7 * DAY),
        ),
        actions=(
            action("resend", "Undeliverable", "Waiting", "Try again."),
            action(
                "drop",
                "Waiting Undeliverable",
                "Dropped",
                "Do not deliver it.",
                claimed="wait",
                confirm="The receiver is not told.",
            ),
        ),
        documents=(Document("event", "service", "The event, and the webhook that it is for."),),
    )
    machine.step("Waiting")(posting({hook.name: hook for hook in webhooks}))
    return machine


def posting(webhooks: Mapping[str, Webhook]) -> Step:
    def waiting(record: Record, ctx: Context) -> Outcome:
        """Safe to repeat: the event's id is the same."""
        told = record.docs["event"]
        hook = webhooks.get(told["webhook"])
        if hook is None:
            return Wait(
                3600, f"There is no webhook {told['webhook']!r} in the settings; name it there, or drop the event."
            )
        body = msgspec.json.encode(told["event"])
        try:
            answer = post(hook.url, body, headers(hook, body), reach=_ANYWHERE, timeout=TIMEOUT)
        except NotPosted as error:
            if error.permanent:
                raise Fail(str(error)) from None
            raise
        return Done(message=f"answered {answer.status}")

    return waiting


def headers(hook: Webhook, body: bytes) -> dict[str, str]:
    found = {"content-type": "application/cloudevents+json; charset=utf-8"}
    if hook.secret:
        found[SIGNATURE] = "sha256=" + hmac.new(hook.secret.encode(), body, hashlib.sha256).hexdigest()
    return found
