"""Events: CloudEvents to webhooks, signed, delivered at least once, each with one id for ever."""

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

from tests.apps.ingest.site import Site, Web
from tests.servers.ports import free_port
from waybill.config import Webhook
from waybill.machine import Backoff
from waybill.notify import NotPosted, events, post
from waybill.notify.events import SIGNATURE, event_machine
from waybill.record import Record
from waybill.step import New
from waybill.transfer import Reach

AT = 1_700_000_000.25
HERE = Reach(allow=["127.0.0.0/8"])


class Receiver:
    """Takes what is posted, and answers with the statuses given, the last of them ever after."""

    def __init__(self, web: Web, *statuses: int) -> None:
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


def of(hooks: tuple[Webhook, ...], **said: Any) -> tuple[New, ...]:
    usual = {
        "type": "org.waybill.ingest.job.completed",
        "source": "/ingest",
        "subject": "jid-1",
        "data": {"n": 1},
        "key": "k",
        "at": AT,
    }
    return events(hooks, **(usual | said))


@contextmanager
def told(folder: Path, *statuses: int, secret: str = "", store: str = "") -> Iterator[tuple[Site, Record, Receiver]]:
    """An event for one webhook, and a worker that delivers it without waiting between two tries."""
    web = Web()
    try:
        receiver = Receiver(web, *statuses)
        hook: dict[str, Any] = {"url": f"{web.url}/hook", "secret": secret}
        with Site(folder, store=store, webhooks={"ours": hook}) as site:
            machine = site.depot.machines["event"]
            states = tuple(
                dataclasses.replace(s, backoff=Backoff(0.01, 1, 0.01), tries=min(s.tries, 5)) for s in machine.states
            )
            site.depot.machines["event"] = dataclasses.replace(machine, states=states, _by_name={})
            with site.engine() as engine:
                (new,) = of(site.depot.config.webhooks)
                made = engine.submit(new)
            with site.workers(roles=["event"]):
                yield site, made, receiver
    finally:
        web.close()


@pytest.mark.parametrize("store", ["sqlite", "postgres", "zookeeper"])
def test_event_waiting_to_delivered(tmp_path: Path, store: str, request: pytest.FixtureRequest) -> None:
    url = "" if store == "sqlite" else request.getfixturevalue(f"{'fast_' if store == 'postgres' else ''}{store}_url")
    with told(tmp_path, secret="hush", store=url) as (site, made, receiver):
        done = site.wait("event", made.id, "Delivered")
    (body,) = receiver.bodies
    told_of = json.loads(body)
    assert told_of == {
        "specversion": "1.0",
        "id": told_of["id"],
        "source": "/ingest",
        "type": "org.waybill.ingest.job.completed",
        "subject": "jid-1",
        "time": "2023-11-14T22:13:20.250Z",
        "datacontenttype": "application/json",
        "data": {"n": 1},
    }
    assert receiver.headers[0]["content-type"].startswith("application/cloudevents+json")
    assert receiver.headers[0][SIGNATURE.lower()] == "sha256=" + hmac.new(b"hush", body, hashlib.sha256).hexdigest()
    assert "hush" not in json.dumps([done.docs["event"], done.message])


def test_without_a_secret_nothing_is_signed(tmp_path: Path) -> None:
    with told(tmp_path) as (site, made, receiver):
        site.wait("event", made.id, "Delivered")
    assert SIGNATURE.lower() not in receiver.headers[0]


def test_a_receiver_that_is_away_gets_the_same_event_later(tmp_path: Path) -> None:
    with told(tmp_path, 503, 429, 200) as (site, made, receiver):
        site.wait("event", made.id, "Delivered")
    assert len(receiver.bodies) == 3
    assert len(set(receiver.bodies)) == 1


@pytest.mark.parametrize("store", ["sqlite", "postgres", "zookeeper"])
def test_event_waiting_to_undeliverable_and_resend(tmp_path: Path, store: str, request: pytest.FixtureRequest) -> None:
    url = "" if store == "sqlite" else request.getfixturevalue(f"{'fast_' if store == 'postgres' else ''}{store}_url")
    with told(tmp_path, 410, store=url) as (site, made, receiver):
        assert "410" in site.wait("event", made.id, "Undeliverable").message
        assert len(receiver.bodies) == 1
        receiver.statuses = [200]
        with site.engine() as engine:
            engine.act(made.ref, "resend")
        site.wait("event", made.id, "Delivered")


def test_a_receiver_that_stays_away_is_given_up_and_the_event_can_be_dropped(tmp_path: Path) -> None:
    with told(tmp_path, 500) as (site, made, receiver):
        site.wait("event", made.id, "Undeliverable")
        assert len(receiver.bodies) == 5
        with site.engine() as engine:
            assert engine.act(made.ref, "drop", confirmed=True).record.state == "Dropped"


def test_an_event_is_tried_for_a_week() -> None:
    waiting = event_machine(()).state("Waiting")
    assert waiting is not None
    assert 6.5 < sum(waiting.backoff.delay(n) for n in range(waiting.tries - 1)) / 86400 < 8


def test_an_event_of_a_webhook_that_is_no_longer_named_waits(tmp_path: Path) -> None:
    with Site(tmp_path) as site:
        (new,) = of((Webhook("gone", "http://127.0.0.1/hook"),))
        with site.engine() as engine:
            made = engine.submit(new)
        with site.workers(roles=["event"]):
            with site.engine() as engine:
                while not (record := engine.store.get("event", made.id)).message:
                    engine.store.watch(0.05)
        assert record.state == "Waiting"
        assert "There is no webhook 'gone'" in record.message


@pytest.mark.parametrize(
    ("types", "wanted"),
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
def test_a_webhook_gets_the_types_that_it_wants(types: tuple[str, ...], wanted: bool) -> None:
    assert bool(of((Webhook("a", "http://127.0.0.1", types),))) is wanted


def test_the_id_follows_from_what_happened() -> None:
    hooks = (Webhook("a", "http://127.0.0.1"), Webhook("b", "http://127.0.0.1"))
    first, second = (new.docs["event"]["event"]["id"] for new in of(hooks))
    (again, _) = (new.docs["event"]["event"]["id"] for new in of(hooks, at=AT + 9))
    (other, _) = (new.docs["event"]["event"]["id"] for new in of(hooks, key="another"))
    (kind, _) = (new.docs["event"]["event"]["id"] for new in of(hooks, type="org.waybill.ingest.job.failed"))
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
def test_what_an_answer_means(status: int, permanent: bool) -> None:
    web = Web()
    try:
        receiver = Receiver(web, status)
        with pytest.raises(NotPosted) as refused:
            post(f"{web.url}/hook", b"{}", {}, reach=HERE, timeout=60)
        assert refused.value.permanent is permanent
        assert len(receiver.bodies) == 1
        assert [path for _, path in web.requests] == ["/hook"], "a redirect is not followed"
    finally:
        web.close()


def test_nothing_is_sent_to_where_it_may_not_go() -> None:
    web = Web()
    try:
        for url in (f"{web.url}/hook", "http://localhost:1/", "file:///etc/passwd", "http://me:hush@127.0.0.1/"):
            with pytest.raises(NotPosted) as refused:
                post(url, b"{}", {}, reach=Reach(), timeout=5)
            assert refused.value.permanent
            assert "hush" not in str(refused.value)
        assert web.requests == []
    finally:
        web.close()


def test_a_receiver_that_is_not_there_or_says_nothing_is_worth_another_try() -> None:
    with pytest.raises(NotPosted) as absent:
        post(f"http://127.0.0.1:{free_port()}/hook", b"{}", {}, reach=HERE, timeout=60)
    assert not absent.value.permanent
    with socket.create_server(("127.0.0.1", 0)) as silent:
        with pytest.raises(NotPosted, match="did not answer in time") as late:
            post(f"http://127.0.0.1:{silent.getsockname()[1]}/hook", b"{}", {}, reach=HERE, timeout=0.2)
        assert not late.value.permanent
