"""Webhook deliveries: CloudEvents, signed, delivered at least once, each with one id for ever."""

from __future__ import annotations

import dataclasses
import hashlib
import hmac
import json
import socket
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from tests.apps.ingest.ingest_fixture import FileServer, IngestFixture
from tests.servers.ports import free_port
from waybill.application import EventType
from waybill.config import WebhookSettings
from waybill.machine import Backoff
from waybill.notify import make_webhook_deliveries, post
from waybill.notify.webhooks import SIGNATURE_HEADER, WebhookEvent, make_webhook_machine
from waybill.record import Record
from waybill.step import New
from waybill.transfer import AddressPolicy
from waybill.transfer.address_policy import TransferError

AT = 1_700_000_000.25
LOOPBACK = AddressPolicy(allow=["127.0.0.0/8"])


class Receiver:
    """Accepts what is posted, and answers with the given statuses; the last one is repeated."""

    def __init__(self, web: FileServer, *statuses: int) -> None:
        self.bodies: list[bytes] = []
        self.headers: list[dict[str, str]] = []
        self.statuses = list(statuses) or [204]
        web.answers["/hook"] = self

    def __call__(self, handler: Any) -> None:
        self.bodies.append(handler.rfile.read(int(handler.headers["Content-Length"])))
        self.headers.append({name.lower(): value for name, value in handler.headers.items()})
        status = self.statuses.pop(0) if len(self.statuses) > 1 else self.statuses[0]
        handler.send_response(status)
        if status in (301, 302):
            handler.send_header("Location", "/elsewhere")
        handler.send_header("Content-Length", "0")
        handler.end_headers()


def new_deliveries(hooks: tuple[WebhookSettings, ...], **fields: Any) -> tuple[New, ...]:
    usual: dict[str, Any] = {
        "event_type": EventType("org.waybill.ingest.job.completed", "A test."),
        "source": "/ingest",
        "subject": "jid-1",
        "data": {"n": 1},
        "key": "k",
        "at": AT,
    }
    return make_webhook_deliveries(hooks, **(usual | fields))


@contextmanager
def deliver_event(
    folder: Path, *statuses: int, secret: str = "", store: str = ""
) -> Iterator[tuple[IngestFixture, Record, Receiver]]:
    """Create an event for one webhook, and start a worker that delivers it without waiting between tries."""
    web = FileServer()
    try:
        receiver = Receiver(web, *statuses)
        hook: dict[str, Any] = {"url": f"{web.url}/hook", "secret": secret}
        with IngestFixture(folder, store=store, webhooks={"ours": hook}) as ingest:
            machine = ingest.environment.machines["webhook_delivery"]
            states = tuple(
                dataclasses.replace(s, backoff=Backoff(0.01, 1, 0.01), max_tries=min(s.max_tries, 5))
                for s in machine.states
            )
            ingest.environment.machines["webhook_delivery"] = dataclasses.replace(machine, states=states)
            with ingest.engine() as engine:
                (new,) = new_deliveries(ingest.environment.config.webhooks)
                made = engine.submit(new)
            with ingest.workers(queues=["webhook_delivery"]):
                yield ingest, made, receiver
    finally:
        web.close()


@pytest.mark.parametrize("store", ["sqlite", "postgres", "zookeeper"])
def test_delivery_waiting_to_delivered(tmp_path: Path, store: str, request: pytest.FixtureRequest) -> None:
    url = "" if store == "sqlite" else request.getfixturevalue(f"{'fast_' if store == 'postgres' else ''}{store}_url")
    with deliver_event(tmp_path, secret="hush", store=url) as (ingest, made, receiver):
        done = ingest.wait("webhook_delivery", made.id, "Delivered")
    (body,) = receiver.bodies
    event = json.loads(body)
    assert event == {
        "specversion": "1.0",
        "id": event["id"],
        "source": "/ingest",
        "type": "org.waybill.ingest.job.completed",
        "subject": "jid-1",
        "time": "2023-11-14T22:13:20.250Z",
        "datacontenttype": "application/json",
        "data": {"n": 1},
    }
    assert receiver.headers[0]["content-type"].startswith("application/cloudevents+json")
    assert (
        receiver.headers[0][SIGNATURE_HEADER.lower()] == "sha256=" + hmac.new(b"hush", body, hashlib.sha256).hexdigest()
    )
    assert "hush" not in json.dumps([done.documents["event"], done.message])


def test_without_a_secret_nothing_is_signed(tmp_path: Path) -> None:
    with deliver_event(tmp_path) as (ingest, made, receiver):
        ingest.wait("webhook_delivery", made.id, "Delivered")
    assert SIGNATURE_HEADER.lower() not in receiver.headers[0]


def test_an_unavailable_receiver_gets_the_same_event_later(tmp_path: Path) -> None:
    with deliver_event(tmp_path, 503, 429, 200) as (ingest, made, receiver):
        ingest.wait("webhook_delivery", made.id, "Delivered")
    assert len(receiver.bodies) == 3
    assert len(set(receiver.bodies)) == 1


@pytest.mark.parametrize("store", ["sqlite", "postgres", "zookeeper"])
def test_delivery_waiting_to_undeliverable_and_resend(
    tmp_path: Path, store: str, request: pytest.FixtureRequest
) -> None:
    url = "" if store == "sqlite" else request.getfixturevalue(f"{'fast_' if store == 'postgres' else ''}{store}_url")
    with deliver_event(tmp_path, 410, store=url) as (ingest, made, receiver):
        assert "410" in ingest.wait("webhook_delivery", made.id, "Undeliverable").message
        assert len(receiver.bodies) == 1
        receiver.statuses = [200]
        with ingest.engine() as engine:
            engine.act(made.ref, "resend")
        ingest.wait("webhook_delivery", made.id, "Delivered")


def test_a_receiver_that_stays_unavailable_is_given_up_and_the_delivery_can_be_dropped(tmp_path: Path) -> None:
    with deliver_event(tmp_path, 500) as (ingest, made, receiver):
        ingest.wait("webhook_delivery", made.id, "Undeliverable")
        assert len(receiver.bodies) == 5
        with ingest.engine() as engine:
            assert engine.act(made.ref, "drop", confirmed=True).record.state == "Dropped"


def test_a_delivery_is_tried_for_a_week() -> None:
    waiting = make_webhook_machine(()).find_state("Waiting")
    assert waiting is not None
    assert 6.5 < sum(waiting.backoff.compute_delay(n) for n in range(waiting.max_tries - 1)) / 86400 < 8


def test_a_delivery_to_a_webhook_that_is_no_longer_configured_waits(tmp_path: Path) -> None:
    with IngestFixture(tmp_path) as ingest:
        (new,) = new_deliveries((WebhookSettings("gone", "http://127.0.0.1/hook"),))
        with ingest.engine() as engine:
            made = engine.submit(new)
        with ingest.workers(queues=["webhook_delivery"]):
            with ingest.engine() as engine:
                while not (record := engine.store.get("webhook_delivery", made.id)).message:
                    engine.store.watch(0.05)
        assert record.state == "Waiting"
        assert "There is no webhook 'gone'" in record.message


@pytest.mark.parametrize(
    ("types", "subscribed"),
    [
        (("*",), True),
        (("org.waybill.ingest.*",), True),
        (("org.waybill.ingest.job.completed",), True),
        (("org.waybill.ingest.job",), False),
        (("org.waybill.ingest.batch.*", "org.waybill.*.completed"), True),
        ((), False),
        (("ORG.WAYBILL.*",), False),
    ],
)
def test_a_webhook_gets_the_types_that_it_subscribes_to(types: tuple[str, ...], subscribed: bool) -> None:
    assert bool(new_deliveries((WebhookSettings("a", "http://127.0.0.1", types),))) is subscribed


def _event_id_of(new: New) -> str:
    (document,) = new.documents
    assert isinstance(document, WebhookEvent)
    return str(document.event["id"])


def test_the_id_follows_from_what_happened() -> None:
    hooks = (WebhookSettings("a", "http://127.0.0.1"), WebhookSettings("b", "http://127.0.0.1"))
    first, second = (_event_id_of(new) for new in new_deliveries(hooks))
    (again, _) = (_event_id_of(new) for new in new_deliveries(hooks, at=AT + 9))
    (other, _) = (_event_id_of(new) for new in new_deliveries(hooks, key="another"))
    (kind, _) = (
        _event_id_of(new)
        for new in new_deliveries(hooks, event_type=EventType("org.waybill.ingest.job.failed", "A test."))
    )
    assert first == second == again
    assert len({first, other, kind}) == 3


# --- posting


@pytest.mark.parametrize(
    ("status", "permanent"),
    [
        (301, True),
        (400, True),
        (404, True),
        (410, True),
        (408, False),
        (425, False),
        (429, False),
        (500, False),
        (503, False),
    ],
)
def test_which_statuses_are_permanent_errors(status: int, permanent: bool) -> None:
    web = FileServer()
    try:
        receiver = Receiver(web, status)
        with pytest.raises(TransferError) as refused:
            post(f"{web.url}/hook", b"{}", {}, reach=LOOPBACK, timeout=60)
        assert refused.value.is_retryable is not permanent
        assert len(receiver.bodies) == 1
        assert [path for _, path in web.requests] == ["/hook"], "a redirect is not followed"
    finally:
        web.close()


def test_nothing_is_sent_to_an_address_that_is_not_allowed() -> None:
    web = FileServer()
    try:
        for url in (f"{web.url}/hook", "http://localhost:1/", "file:///etc/passwd", "http://me:hush@127.0.0.1/"):
            with pytest.raises(TransferError) as refused:
                post(url, b"{}", {}, reach=AddressPolicy(), timeout=5)
            assert not refused.value.is_retryable
            assert "hush" not in str(refused.value)
        assert web.requests == []
    finally:
        web.close()


def test_an_unreachable_or_silent_receiver_is_a_transient_error() -> None:
    with pytest.raises(TransferError) as absent:
        post(f"http://127.0.0.1:{free_port()}/hook", b"{}", {}, reach=LOOPBACK, timeout=60)
    assert absent.value.is_retryable
    with socket.create_server(("127.0.0.1", 0)) as silent:
        with pytest.raises(TransferError, match="did not answer in time") as late:
            post(f"http://127.0.0.1:{silent.getsockname()[1]}/hook", b"{}", {}, reach=LOOPBACK, timeout=0.2)
        assert late.value.is_retryable
