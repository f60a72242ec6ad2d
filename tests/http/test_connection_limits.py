"""Clients that are slow, silent or many: what they may cost, and that others are still answered."""

import os
import re
import resource
import signal
import socket
import subprocess
import sys
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from urllib.parse import urlsplit

import httpx2
import pytest

from tests.http.api_fixture import ApiFixture, make_environment, run_server
from tests.servers.process import wait_until
from waybill.http import connection_limits
from waybill.http.connection_limits import RepeatedWarning, count_allowed_connections

HEAD = b"GET /health HTTP/1.1\r\nHost: localhost\r\n"
OTHER_FILES = 64


@pytest.fixture
def server(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[tuple[ApiFixture, str]]:
    for name in ("HEADER_TIMEOUT", "BODY_TIMEOUT"):
        monkeypatch.setattr(connection_limits, name, 0.5)
    monkeypatch.setattr("waybill.http.app.count_allowed_connections", lambda: connection_limits.RESERVED + 4)
    api = ApiFixture(make_environment(tmp_path / "data"))
    with run_server(api) as url:
        yield api, url


@contextmanager
def connect(url: str, data: bytes = b"") -> Iterator[socket.socket]:
    parts = urlsplit(url)
    with socket.create_connection((parts.hostname, parts.port), timeout=60) as connection:
        connection.sendall(data)
        yield connection


def is_closed(connection: socket.socket) -> bool:
    """Whether the server closes it, after whatever it sends; a time-out fails the test."""
    try:
        while connection.recv(4096):
            pass
    except ConnectionResetError:
        pass
    return True


@pytest.mark.parametrize(
    "sent",
    [
        b"",
        b"GET /hea",
        HEAD,
        HEAD + b"\r\n" + HEAD,  # the second request of a connection stops
        b"PUT /api/v1/holds/a HTTP/1.1\r\nHost: localhost\r\nContent-Length: 10\r\n\r\n12345",
    ],
)
def test_a_connection_that_says_nothing_more_is_closed(server: tuple[ApiFixture, str], sent: bytes) -> None:
    with connect(server[1], sent) as connection:
        assert is_closed(connection)


def test_the_last_connections_are_for_health_and_administrators(
    server: tuple[ApiFixture, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(connection_limits, "HEADER_TIMEOUT", 600.0)
    api, url = server
    with ExitStack() as stack:
        for _ in range(4):
            stack.enter_context(connect(url, HEAD))
        statuses = {}
        for role in ("reader", "operator", "admin"):
            with httpx2.Client(headers={"Authorization": f"Bearer {api.tokens[role]}"}, timeout=60) as client:
                answer = client.get(f"{url}/api/v1/me")
                statuses[role] = answer.status_code
                assert answer.status_code == 200 or answer.headers["Retry-After"]
                assert client.get(f"{url}/health").status_code == 200
        assert statuses == {"reader": 503, "operator": 503, "admin": 200}
        assert httpx2.get(f"{url}/api/v1/me").status_code == 503
        for _ in range(connection_limits.RESERVED):
            stack.enter_context(connect(url, HEAD))
        with connect(url) as beyond:
            assert is_closed(beyond)
    monkeypatch.undo()
    wait_until(lambda: httpx2.get(f"{url}/api/v1/me").status_code == 401, "room again")


def test_a_request_with_two_lengths_is_refused(server: tuple[ApiFixture, str]) -> None:
    both = b"Content-Length: 5\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n"
    with connect(server[1], b"POST /api/v1/x HTTP/1.1\r\nHost: localhost\r\n" + both) as connection:
        answer = connection.recv(4096)
        assert answer.startswith(b"HTTP/1.1 400")
        assert is_closed(connection)


def test_a_warning_is_not_repeated_within_a_minute(caplog: pytest.LogCaptureFixture) -> None:
    now = [0.0]
    warning = RepeatedWarning(lambda: now[0])
    for _ in range(1000):
        warning.report("full")
    now[0] = 61.0
    warning.report("full")
    assert [record.getMessage() for record in caplog.records] == [
        "full (1 times since the last line)",
        "full (1000 times since the last line)",
    ]


def test_the_limit_of_open_files_leaves_room_for_others(monkeypatch: pytest.MonkeyPatch) -> None:
    def allow(soft: int) -> int:
        monkeypatch.setattr(resource, "getrlimit", lambda _: (soft, soft))
        return count_allowed_connections()

    assert allow(resource.RLIM_INFINITY) == allow(65_536) == connection_limits.MAX_CONNECTIONS
    assert 0 < allow(1024) < 1024 - connection_limits.BACKLOG
    assert 0 < allow(100) < 50


def test_without_file_descriptors_the_log_stays_short_and_sigterm_is_obeyed(tmp_path: Path) -> None:
    log = tmp_path / "log"
    command = [
        sys.executable,
        "-c",
        "from waybill.cli import main; main()",
        "serve",
        "--port",
        "0",
        "--data",
        str(tmp_path / "d"),
    ]
    with log.open("wb") as output, ExitStack() as stack:
        process = subprocess.Popen(
            command,
            stdout=output,
            stderr=output,
            env={"PATH": os.environ["PATH"], "PYTHONPATH": os.environ.get("PYTHONPATH", "")},
            preexec_fn=lambda: resource.setrlimit(resource.RLIMIT_NOFILE, (OTHER_FILES, OTHER_FILES)),
        )
        try:
            wait_until(lambda: b"http://127.0.0.1:" in log.read_bytes(), "the server")
            found = re.search(rb"http://127.0.0.1:[0-9]+", log.read_bytes())
            assert found is not None
            for _ in range(4 * OTHER_FILES):
                stack.enter_context(connect(found[0].decode()))
            with connect(found[0].decode(), HEAD + b"\r\n") as connection:
                connection.settimeout(60)
                is_closed(connection)  # answered or closed: the server lives
            process.send_signal(signal.SIGTERM)
            assert process.wait(90) == 0
        finally:
            process.kill()
            process.wait()
    assert log.stat().st_size < 20_000, log.read_text()[:3000]
