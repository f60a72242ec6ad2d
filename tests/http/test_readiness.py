"""The question whether the server can do its work: answered soon whatever the store does, by one check at a time,
and to anybody.
"""

import asyncio
import logging
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest
from starlette.testclient import TestClient

from tests.http.api_fixture import ApiFixture
from waybill.http import create_app
from waybill.http.readiness import ReadinessProbe
from waybill.record import StoreUnavailable

SECRET = "postgresql://ada@/books?host=/run/secret"


class Slow:
    """A store that answers when it is let to."""

    def __init__(self) -> None:
        self.asked = 0
        self.at_work = threading.Semaphore(0)
        self.may_answer = threading.Event()

    def __call__(self) -> None:
        self.asked += 1
        self.at_work.release()
        assert self.may_answer.wait(120)


@contextmanager
def quiet_checks() -> Iterator[None]:
    yield
    for thread in threading.enumerate():
        if thread.name == "waybill-ready":
            thread.join(120)


def test_a_store_that_does_not_answer_is_not_ready_and_is_asked_once() -> None:
    store = Slow()
    readiness = ReadinessProbe(store, timeout=0.0)
    with quiet_checks():
        assert [asyncio.run(readiness.is_ready()) for _ in range(20)] == [False] * 20
        assert store.at_work.acquire(timeout=120)
        assert store.asked == 1, "those who ask meanwhile join the check that is under way"
        store.may_answer.set()
    assert asyncio.run(ReadinessProbe(store, timeout=120.0).is_ready()) is True


def test_those_who_ask_together_share_one_check() -> None:
    store = Slow()
    readiness = ReadinessProbe(store, timeout=120.0)

    async def together() -> list[bool]:
        asking = [asyncio.create_task(readiness.is_ready()) for _ in range(5)]
        await asyncio.to_thread(store.at_work.acquire)
        store.may_answer.set()
        return await asyncio.gather(*asking)

    assert asyncio.run(together()) == [True] * 5
    assert store.asked == 1


def test_the_log_says_why_once_for_each_change(caplog: pytest.LogCaptureFixture) -> None:
    troubles: list[Exception | None] = [
        StoreUnavailable("out for lunch"),
        StoreUnavailable("still out"),
        None,
        None,
        ValueError("a mistake"),
        None,
    ]
    checks = iter(troubles)

    def check() -> None:
        if (trouble := next(checks)) is not None:
            raise trouble

    readiness = ReadinessProbe(check, timeout=120.0)
    with caplog.at_level(logging.WARNING, "waybill.http"):
        assert [asyncio.run(readiness.is_ready()) for _ in troubles] == [False, False, True, True, False, True]
    assert caplog.messages == [
        "not ready: out for lunch",
        "ready again",
        "not ready: ValueError: a mistake",
        "ready again",
    ]


def test_a_slow_store_is_said_to_be_slow_and_then_what_is_wrong(caplog: pytest.LogCaptureFixture) -> None:
    may_fail = threading.Event()

    def check() -> None:
        assert may_fail.wait(120)
        raise StoreUnavailable("No server answers.")

    readiness = ReadinessProbe(check, timeout=0.0)
    with caplog.at_level(logging.WARNING, "waybill.http"), quiet_checks():
        assert [asyncio.run(readiness.is_ready()) for _ in range(3)] == [False] * 3
        may_fail.set()
    assert caplog.messages == ["not ready: the store has not answered within 0 s", "not ready: No server answers."]


@pytest.fixture
def away(api: ApiFixture, monkeypatch: pytest.MonkeyPatch) -> None:
    def open_store(*args: Any, **kwargs: Any) -> None:
        raise StoreUnavailable(f"No server answers at {SECRET}.")

    monkeypatch.setattr("waybill.stores.open_store", open_store)


def test_the_route_answers_while_every_thread_of_the_pool_waits(
    api: ApiFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    """So it may not need one of them, nor one connection for each probe."""
    opened = threading.Semaphore(0)
    may_open = threading.Event()

    def hang(*args: Any, **kwargs: Any) -> None:
        opened.release()
        assert may_open.wait(120)
        raise StoreUnavailable("nobody there")

    api.app = create_app(api.environment, open_loopback=True)
    monkeypatch.setattr("waybill.stores.open_store", hang)
    with quiet_checks(), api.client() as client:
        others = [threading.Thread(target=client.get, args=("/api/v1/holds",)) for _ in range(50)]
        for each in others:
            each.start()
        assert all(opened.acquire(timeout=120) for _ in range(8)), "as many as there are connections"
        answer = client.get("/ready")
        may_open.set()
        for each in others:
            each.join(120)
    assert (answer.status_code, answer.json()) == (503, {"ready": False})
    assert answer.headers["retry-after"]


def test_the_description_says_what_is_answered(anyone: TestClient) -> None:
    responses = anyone.get("/openapi.json").json()["paths"]["/ready"]["get"]["responses"]
    shapes = {responses[status]["content"]["application/json"]["schema"]["$ref"] for status in ("200", "503")}
    assert shapes == {"#/components/schemas/ReadyView"}


@pytest.mark.usefixtures("away")
def test_without_the_store_whoever_is_not_known_learns_nothing_of_it(anyone: TestClient, reader: TestClient) -> None:
    assert anyone.get("/ready").json() == {"ready": False}
    for client in (anyone, reader):
        refused = client.get(
            "/api/v1/holds", headers={"Authorization": "Bearer wb_abc_" + "A" * 43} if client is anyone else {}
        )
        assert refused.status_code == 503
        assert refused.json()["error"]["code"] == "unavailable"
        assert refused.headers["retry-after"]
        assert "secret" not in refused.text, "nobody can be looked up in a store that is away"


@pytest.mark.usefixtures("away")
def test_whoever_needs_no_token_is_told(api: ApiFixture) -> None:
    api.app = create_app(api.environment, open_loopback=True)
    with api.client() as client:
        assert SECRET in client.get("/api/v1/holds").json()["error"]["message"]
