"""The log of events over HTTP: pages, and a stream that goes on from Last-Event-ID."""

from __future__ import annotations

import http.client
import json
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import pytest

from tests.http.api_fixture import ApiFixture, run_server
from tests.subscriptions.bakery import BAKED, BAKERY, SHOP, SOLD
from waybill import Environment, Event, config

WAIT = 120.0


@pytest.fixture
def api(tmp_path: Path) -> Iterator[ApiFixture]:
    settings = config.load(env={}, overrides={"data": tmp_path / "data", "events.log": "*"})
    with closing(ApiFixture(Environment.from_config(settings, [BAKERY, SHOP]))) as api:
        yield api


def tell(api: ApiFixture, *events: Event) -> None:
    with api.engine() as engine:
        engine.submit_all([], events=events, who="test")
    api.app.state.services.change_feed.notify_changed()


@contextmanager
def listen(url: str, token: str, query: str = "", **headers: str) -> Iterator[Iterator[dict[str, Any]]]:
    place = urlsplit(url)
    connection = http.client.HTTPConnection(str(place.hostname), place.port, timeout=WAIT)
    connection.request("GET", f"/api/v1/events/stream{query}", headers={"Authorization": f"Bearer {token}", **headers})
    answer = connection.getresponse()
    assert answer.status == 200, answer.read()
    try:
        yield _parse_stream(answer)
    finally:
        answer.close()
        connection.close()


def _parse_stream(answer: http.client.HTTPResponse) -> Iterator[dict[str, Any]]:
    fields: dict[str, Any] = {}
    for raw in answer:
        name, _, value = raw.decode().rstrip("\n").partition(": ")
        if name in ("id", "event", "data"):
            fields[name] = value
        elif not name and "data" in fields:
            yield {**fields, "data": json.loads(fields["data"])}
            fields = {}


def test_a_page_of_the_log(api: ApiFixture) -> None:
    tell(api, Event(BAKED, "rye", {"grams": 500}), Event(SOLD, "rye"), Event(BAKED, "oat"))
    reader = api.client("reader")
    page = reader.get("/api/v1/events", params={"limit": 2}).json()
    assert [(e["type"], e["subject"], e["data"]) for e in page["events"]] == [
        (BAKED.name, "rye", {"grams": 500}),
        (SOLD.name, "rye", {}),
    ]
    rest = reader.get("/api/v1/events", params={"after": page["after"]}).json()
    assert [e["subject"] for e in rest["events"]] == ["oat"]
    sold = reader.get("/api/v1/events", params=[("type", "*.sold"), ("type", "*.burnt")]).json()
    assert [e["type"] for e in sold["events"]] == [SOLD.name]
    assert api.client().get("/api/v1/events").status_code == 401
    assert reader.get("/api/v1/events", params={"after": -1}).status_code == 422


def test_a_stream_tells_what_happens_from_now_on(api: ApiFixture) -> None:
    tell(api, Event(BAKED, "old"))
    with run_server(api) as url, listen(url, api.tokens["reader"], "?after=0") as stream:
        first = next(stream)
        assert (first["event"], first["data"]["subject"]) == (BAKED.name, "old")
        tell(api, Event(SOLD, "old", {"to": "june"}))
        second = next(stream)
        assert (second["event"], second["data"]["data"]) == (SOLD.name, {"to": "june"})
        assert int(second["id"]) > int(first["id"])


def test_a_stream_goes_on_from_the_last_event_that_was_seen(api: ApiFixture) -> None:
    tell(api, *(Event(BAKED, f"loaf {n}") for n in range(5)))
    with run_server(api) as url:
        with listen(url, api.tokens["reader"], **{"Last-Event-ID": "0"}) as stream:
            seen = [next(stream) for _ in range(3)]
        assert [e["data"]["subject"] for e in seen] == ["loaf 0", "loaf 1", "loaf 2"]
        with listen(url, api.tokens["reader"], **{"Last-Event-ID": seen[-1]["id"]}) as stream:
            assert [next(stream)["data"]["subject"] for _ in range(2)] == ["loaf 3", "loaf 4"]


def test_a_stream_of_some_types_passes_over_the_others(api: ApiFixture) -> None:
    tell(api, Event(BAKED, "rye"), Event(SOLD, "rye"))
    with run_server(api) as url, listen(url, api.tokens["reader"], "?after=0&type=*.sold") as stream:
        assert next(stream)["event"] == SOLD.name
