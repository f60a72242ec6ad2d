"""Webhooks: CloudEvents, signed, delivered at least once and in order, each with one id for ever."""

from __future__ import annotations

import hashlib
import hmac
import json
import socket
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from tests.apps.ingest.ingest_fixture import FileServer
from tests.servers.ports import free_port
from tests.subscriptions.bakery import BAKERY
from waybill.notify import post
from waybill.notify.webhooks import MAX_TRIES, SIGNATURE_HEADER, WebhookEvent
from waybill.record import Ref
from waybill.step import New
from waybill.testing import StepTester
from waybill.transfer import AddressPolicy
from waybill.transfer.address_policy import TransferError

SUBSCRIPTION = Ref("subscription", "webhook-ours")
REFUSED = New("webhook_delivery", (WebhookEvent("gone", {"id": "1"}),))
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


@contextmanager
def deliver_event(
    folder: Path, *statuses: int, secret: str = "", store: str = "", types: tuple[str, ...] = ("*",)
) -> Iterator[tuple[StepTester, Receiver]]:
    """A loaf is baked and sold, and one webhook is told."""
    web = FileServer()
    try:
        receiver = Receiver(web, *statuses)
        hook = {"url": f"{web.url}/hook", "secret": secret, "types": list(types)}
        settings = {"webhooks": {"ours": hook}, "events.source": "https://waybill.test"}
        with StepTester(BAKERY, folder, store=store, settings=settings) as town:
            town.submit("loaf", id="rye")
            yield town, receiver
    finally:
        web.close()


@pytest.mark.parametrize("store", ["sqlite", "postgres", "zookeeper"])
def test_events_come_signed_and_in_order(tmp_path: Path, store: str, request: pytest.FixtureRequest) -> None:
    url = "" if store == "sqlite" else request.getfixturevalue(f"{'fast_' if store == 'postgres' else ''}{store}_url")
    with deliver_event(tmp_path, secret="hush", store=url or f"sqlite:///{tmp_path}/town.db") as (town, receiver):
        town.run_until_idle()
        (baked, sold) = town.find_all("event")
        assert "hush" not in json.dumps([baked.documents["event"], town.get(SUBSCRIPTION).message])
    body, second = receiver.bodies
    event = json.loads(body)
    assert event == {
        "specversion": "1.0",
        "id": baked.id,
        "source": "https://waybill.test/bakery",
        "type": "bakery.loaf.baked",
        "subject": "rye",
        "time": event["time"],
        "datacontenttype": "application/json",
        "data": {"grams": 500},
    }
    assert json.loads(second)["id"] == sold.id
    assert receiver.headers[0]["content-type"].startswith("application/cloudevents+json")
    assert (
        receiver.headers[0][SIGNATURE_HEADER.lower()] == "sha256=" + hmac.new(b"hush", body, hashlib.sha256).hexdigest()
    )


def test_without_a_secret_nothing_is_signed(tmp_path: Path) -> None:
    with deliver_event(tmp_path) as (town, receiver):
        town.run_until_idle()
    assert SIGNATURE_HEADER.lower() not in receiver.headers[0]


def test_an_unavailable_receiver_gets_the_same_event_later_and_in_order(tmp_path: Path) -> None:
    with deliver_event(tmp_path, 503, 429, 200) as (town, receiver):
        town.run_until(Ref("loaf", "rye"), "Gone")
        while len(receiver.bodies) < 4:
            town.run_until_idle()
            town.advance(3600)
            town.store.release_due_waits()
    assert len(set(receiver.bodies[:3])) == 1
    assert [json.loads(body)["type"] for body in receiver.bodies[2:]] == ["bakery.loaf.baked", "bakery.loaf.sold"]


def test_a_refused_event_rests_and_stops_no_other(tmp_path: Path) -> None:
    with deliver_event(tmp_path, 410, 200) as (town, receiver):
        town.run_until_idle()
        assert [json.loads(body)["type"] for body in receiver.bodies] == ["bakery.loaf.baked", "bakery.loaf.sold"]
        (refused,) = town.find_all("webhook_delivery")
        assert (refused.state, "410" in refused.message) == ("Undeliverable", True)
        town.act(refused, "resend")
        town.run_until(refused, "Delivered")
        assert receiver.bodies[2] == receiver.bodies[0]
        again = town.submit("webhook_delivery", (WebhookEvent("ours", {"id": "1"}),))
        receiver.statuses = [404]
        town.run_until(again, "Undeliverable")
        assert town.act(again, "drop").record.state == "Dropped"


def test_a_receiver_is_waited_for_for_a_week_then_its_subscription_is_parked(tmp_path: Path) -> None:
    with deliver_event(tmp_path, 500) as (town, receiver):
        began = town.now()
        parked = town.run_until(SUBSCRIPTION, "Parked")
        assert 6.5 < (town.now() - began) / 86400 < 8
        assert len(receiver.bodies) == MAX_TRIES
        receiver.statuses = [200]
        town.act(parked, "resume")
        town.run_until_idle()
        assert [json.loads(body)["type"] for body in receiver.bodies[-2:]] == ["bakery.loaf.baked", "bakery.loaf.sold"]


def test_a_delivery_to_a_webhook_that_is_no_longer_configured_waits(tmp_path: Path) -> None:
    with StepTester(BAKERY, tmp_path) as town:
        made = town.submit(REFUSED)
        town.step(made)
        assert "There is no webhook 'gone'" in town.get(made).message
        assert town.get(made).state == "Waiting"


@pytest.mark.parametrize(
    ("types", "received"),
    [
        (("*",), 2),
        (("bakery.*",), 2),
        (("bakery.loaf.baked",), 1),
        (("bakery.loaf",), 0),
        (("bakery.cake.*", "*.sold"), 1),
        ((), 0),
        (("BAKERY.*",), 0),
    ],
)
def test_a_webhook_gets_the_types_that_it_subscribes_to(tmp_path: Path, types: tuple[str, ...], received: int) -> None:
    with deliver_event(tmp_path, types=types) as (town, receiver):
        town.run_until_idle()
        assert len(receiver.bodies) == received
        assert len(town.find_all("event")) == received, "an event that nobody wants is not even logged"


def test_an_event_that_was_posted_before_a_crash_comes_again_with_its_id(tmp_path: Path) -> None:
    with deliver_event(tmp_path) as (town, receiver):
        town.run_until(Ref("loaf", "rye"), "Gone")
        for _ in town.crash_at_every_call(SUBSCRIPTION, "Listening"):
            ids = [json.loads(body)["id"] for body in receiver.bodies]
            assert len(set(ids)) <= 2
            assert ids == sorted(ids, key=lambda id: (ids.index(id),))
            receiver.bodies.clear()


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
