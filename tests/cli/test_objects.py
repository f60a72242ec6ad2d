"""Objects in S3 from the command line: a short command asks nothing of the server, one that stays asks first what it
is worth.
"""

import signal
from collections.abc import Callable, Iterator

import pytest

from tests.cli.conftest import Running, Waybill, submit_shipment, take_step
from tests.objects.fake_s3 import FakeS3


@pytest.fixture
def server(monkeypatch: pytest.MonkeyPatch) -> Iterator[FakeS3]:
    with FakeS3() as server:
        monkeypatch.setenv("WAYBILL_OBJECTS", f"s3://bucket/place?endpoint={server.endpoint}&region=here")
        monkeypatch.setenv("AWS_ACCESS_KEY_ID", "key")
        monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "secret")
        yield server


def test_a_short_command_asks_nothing_of_the_server(waybill: Waybill, server: FakeS3) -> None:
    submit_shipment(waybill)
    assert take_step(waybill, "shipment")["after"] == "Travelling"
    assert waybill("ls", "shipment").code == 0
    assert server.requests == []


def test_a_server_is_asked_what_it_is_worth_when_waybill_starts(
    server: FakeS3, running: Callable[..., Running]
) -> None:
    serve = running("serve", "--port", 0)
    assert serve.line().startswith("http://")
    assert list(server.objects) == ["place/.waybill/probe.json"]
    assert serve.end(signal.SIGTERM).code == 0
