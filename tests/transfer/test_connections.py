"""Connections are kept from one download to the next; nothing else is."""

from __future__ import annotations

import http.server
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from waybill.transfer import AddressPolicy, DownloadRequest, FetcherCache, download, probe_sizes

BODY = b"hello"
REACH = AddressPolicy(allow=["127.0.0.0/8"])


class Server(http.server.ThreadingHTTPServer):
    """Notes from which port each request came, and with which cookie. `closes`: after each answer, as busy servers
    do.
    """

    def __init__(self) -> None:
        self.ports: list[int] = []
        self.cookies: list[str | None] = []
        self.closes = False
        server = self

        class Handler(http.server.BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def log_message(self, format: str, *args: object) -> None: ...

            def do_GET(self) -> None:
                server.ports.append(self.client_address[1])
                server.cookies.append(self.headers["Cookie"])
                self.send_response(200)
                self.send_header("Set-Cookie", "who=me; Path=/")
                self.send_header("Content-Length", str(len(BODY)))
                self.end_headers()
                if self.command == "GET":
                    self.wfile.write(BODY)
                self.close_connection = server.closes  # without saying so

            do_HEAD = do_GET

        super().__init__(("127.0.0.1", 0), Handler)

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.server_port}/a.txt"


@pytest.fixture
def server() -> Iterator[Server]:
    with Server() as server:
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        yield server
        server.shutdown()
        thread.join()


@pytest.fixture
def connections() -> Iterator[FetcherCache]:
    cache = FetcherCache()
    yield cache
    cache.close()


def get(server: Server, folder: Path, connections: FetcherCache | None, *names: str) -> None:
    wanted = [DownloadRequest(server.url, name) for name in names]
    assert all(
        fetched.ok
        for fetched in download(wanted, folder, policy=REACH, connections=connections, pause=lambda seconds: None)
    )


def test_one_connection_serves_many_downloads(server: Server, tmp_path: Path, connections: FetcherCache) -> None:
    assert [
        offer.size
        for offer in probe_sizes(
            [DownloadRequest(server.url, "a")], policy=REACH, connections=connections, timeout=30.0
        )
    ] == [len(BODY)]
    get(server, tmp_path, connections, "a")
    get(server, tmp_path, connections, "b")
    assert len(server.ports) == 3
    assert len(set(server.ports)) == 1


def test_without_them_each_download_has_its_own(server: Server, tmp_path: Path) -> None:
    get(server, tmp_path, None, "a")
    get(server, tmp_path, None, "b")
    assert len(set(server.ports)) == 2


def test_cookies_are_not_kept(server: Server, tmp_path: Path, connections: FetcherCache) -> None:
    get(server, tmp_path, connections, "a")
    get(server, tmp_path, connections, "b")
    assert server.cookies == [None, None]


def test_a_connection_that_the_server_has_closed_is_made_anew(
    server: Server, tmp_path: Path, connections: FetcherCache
) -> None:
    server.closes = True
    get(server, tmp_path, connections, "a")
    get(server, tmp_path, connections, "b")
    assert len(set(server.ports)) == 2


def test_each_thread_has_its_own(server: Server, tmp_path: Path, connections: FetcherCache) -> None:
    get(server, tmp_path, connections, "a")
    other = threading.Thread(target=get, args=(server, tmp_path, connections, "b"))
    other.start()
    other.join()
    get(server, tmp_path, connections, "c", "d")  # in further threads: theirs end with the download
    get(server, tmp_path, connections, "e")
    assert server.ports[0] == server.ports[-1]
    assert server.ports[0] not in server.ports[1:-1]


def test_what_is_closed_is_made_anew(server: Server, tmp_path: Path, connections: FetcherCache) -> None:
    get(server, tmp_path, connections, "a")
    connections.close()
    get(server, tmp_path, connections, "b")
    assert len(set(server.ports)) == 2
