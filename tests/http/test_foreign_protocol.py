"""A protocol of others: its names, its refusals, and what becomes of a body that is refused, on a real socket."""

from __future__ import annotations

import socket
from collections.abc import Iterator, Mapping
from contextlib import closing
from pathlib import Path
from urllib.parse import urlsplit

import msgspec
import pytest
from fastapi import Request, Response

from tests.http.api_fixture import BOX, CRATE, ApiFixture, run_server
from waybill import config
from waybill.application import Application
from waybill.environment import Environment
from waybill.http.errors import ErrorView, HttpProblem
from waybill.http.foreign_protocol import ForeignProtocol, Segments, list_reserved_segments, segments_of
from waybill.http.json_io import read_body
from waybill.http.request_context import declare_role, make_router

MIB = 1024 * 1024


def to_depot_error(request: Request, status: int, view: ErrorView, headers: Mapping[str, str]) -> Response:
    body = msgspec.json.encode({"code": view["code"].title().replace("-", ""), "message": view["message"]})
    return Response(body, status, dict(headers), media_type="application/json")


async def handle_depot(request: Request, segments: Segments) -> Response:
    if request.method == "PUT":
        if segments[1] == "missing":
            raise HttpProblem("no-route", "There is no such shelf.")
        body = await read_body(request, 10 * MIB)
        return Response(msgspec.json.encode({"bytes": len(body)}), 201)
    if request.method != "GET":
        raise HttpProblem("no-method", "Only GET and PUT.")
    if segments[-1] == "broken":
        raise RuntimeError("a bug")
    return Response("|".join(ascii(name) for name in segments))


DEPOT = ForeignProtocol(owns=lambda segments: len(segments) > 1, handle=handle_depot, to_error_response=to_depot_error)


@pytest.fixture(scope="module")
def api(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ApiFixture]:
    plain = make_router("/api/v1/scales", "scales")

    @plain.put("/{name}", **declare_role("admin"))
    async def weigh(request: Request, name: str) -> Response:
        return Response(str(len(await read_body(request, 10 * MIB))))

    folder: Path = tmp_path_factory.mktemp("depot")
    settings = config.load(env={}, overrides={"data": folder / "data"})
    depot = Application("depot", "A depot.", (CRATE, BOX), routes=lambda _: [plain, DEPOT])
    with closing(ApiFixture(Environment.from_config(settings, [depot]))) as api:
        yield api


@pytest.fixture(scope="module")
def url(api: ApiFixture) -> Iterator[str]:
    with run_server(api) as url:
        yield url


class RawClient:
    """One connection, byte by byte."""

    def __init__(self, url: str) -> None:
        parts = urlsplit(url)
        self.socket = socket.create_connection((parts.hostname, parts.port), timeout=20)
        self.host = parts.netloc

    def send_head(self, method: str, path: str, *headers: str) -> None:
        lines = [f"{method} {path} HTTP/1.1", f"Host: {self.host}", *headers, "", ""]
        self.socket.sendall("\r\n".join(lines).encode())

    def read_response(self) -> tuple[int, dict[str, str], bytes]:
        """The next response; its body by its Content-Length."""
        data = b""
        while b"\r\n\r\n" not in data:
            received = self.socket.recv(1)
            assert received, f"the connection ended after {data!r}"
            data += received
        lines = data.decode().split("\r\n")
        headers = {name.lower(): value.strip() for name, _, value in (line.partition(":") for line in lines[1:])}
        body = b""
        while len(body) < int(headers.get("content-length", 0)):
            body += self.socket.recv(65536)
        return int(lines[0].split()[1]), headers, body

    def is_closed(self) -> bool:
        """Whether the server ends the connection, now or soon."""
        try:
            return self.socket.recv(1) == b""
        except ConnectionResetError:
            return True


@pytest.fixture
def client(url: str) -> Iterator[RawClient]:
    client = RawClient(url)
    with client.socket:
        yield client


@pytest.mark.parametrize(
    ("path", "names"),
    [
        ("/a/b%2Fc", "'a'|'b/c'"),
        ("/a/line%0Abreak%0A", r"'a'|'line\nbreak\n'"),
        ("/a/%FF%C3%A9", r"'a'|'\udcff\xe9'"),
        ("/a//b/", "'a'|''|'b'|''"),
        ("/a/..%2F../x?query=1", "'a'|'../..'|'x'"),
        ("/%00/%25", r"'\x00'|'%'"),
    ],
)
def test_every_name_arrives_as_its_bytes(client: RawClient, path: str, names: str) -> None:
    client.send_head("GET", path)
    assert client.read_response()[::2] == (200, names.encode())


@pytest.mark.parametrize(
    ("method", "path", "headers", "status", "code"),
    [
        ("GET", "/a/%G1", [], 400, "BadPath"),
        ("GET", "/a/%4", [], 400, "BadPath"),
        ("DELETE", "/a/b", [], 405, "NoMethod"),
        ("PUT", "/a/missing", ["Content-Length: 0"], 404, "NoRoute"),
        ("PUT", "/a/b", [f"Content-Length: {20 * MIB}"], 413, "TooLarge"),
        ("PUT", "/a/b", ["Origin: http://elsewhere.example"], 403, "ForeignOrigin"),
        ("GET", "/a/broken", [], 500, "Internal"),
    ],
)
def test_refusals_have_the_shape_of_the_protocol(
    client: RawClient, method: str, path: str, headers: list[str], status: int, code: str
) -> None:
    client.send_head(method, path, *headers)
    answered, _, body = client.read_response()
    view = msgspec.json.decode(body)
    assert (answered, view["code"]) == (status, code)
    assert set(view) == {"code", "message"}


def test_the_paths_of_the_server_stay_its_own(api: ApiFixture, client: RawClient) -> None:
    """Also those that do not exist, below a segment that it uses."""
    for method, path, status in (("GET", "/health", 200), ("GET", "/api/v1/nothing", 404), ("PUT", "/health", 405)):
        client.send_head(method, path)
        answered, _, body = client.read_response()
        assert answered == status
        assert "error" in msgspec.json.decode(body) or status == 200
    client.send_head("GET", "/nothing")  # one segment: not the protocol's
    assert "error" in msgspec.json.decode(client.read_response()[2])
    assert {"api", "health", "metrics", "ready", "openapi.json", ""} <= list_reserved_segments(api.app)


def test_a_foreign_host_is_refused_in_the_shape_of_the_protocol(client: RawClient) -> None:
    client.host = "elsewhere.example"
    client.send_head("GET", "/a/b")
    status, _, body = client.read_response()
    assert (status, msgspec.json.decode(body)["code"]) == (421, "UnknownHost")


@pytest.mark.parametrize("length", ["Content-Length: 5", "Transfer-Encoding: chunked"])
def test_continue_is_said_after_the_checks(client: RawClient, length: str) -> None:
    client.send_head("PUT", "/a/b", "Expect: 100-continue", length)
    assert client.read_response()[0] == 100
    client.socket.sendall(b"hello" if length.endswith("5") else b"5\r\nhello\r\n0\r\n\r\n")
    assert client.read_response()[::2] == (201, b'{"bytes":5}')
    client.send_head("GET", "/a/again")  # the connection goes on
    assert client.read_response()[0] == 200
    client.send_head("PUT", "/a/missing", "Expect: 100-continue", length)
    status, headers, _ = client.read_response()
    assert (status, headers["connection"]) == (404, "close")
    assert client.is_closed()


def test_routes_of_the_api_check_the_role_before_they_say_continue(api: ApiFixture, url: str) -> None:
    for role, status in (("reader", 403), ("admin", 100)):
        client = RawClient(url)
        with client.socket:
            token = f"Authorization: Bearer {api.tokens[role]}"
            client.send_head("PUT", "/api/v1/scales/a", token, "Expect: 100-continue", "Content-Length: 5")
            assert client.read_response()[0] == status


def test_an_upload_that_is_refused_gets_its_answer_and_the_connection_ends(client: RawClient) -> None:
    client.send_head("PUT", "/a/missing", f"Content-Length: {10**12}")
    client.socket.sendall(b"x" * MIB)
    status, headers, _ = client.read_response()
    assert (status, headers["connection"]) == (404, "close")
    much = b"x" * (1000 * MIB)  # far more than is read and dropped
    with pytest.raises((BrokenPipeError, ConnectionResetError)):
        client.socket.sendall(much)


def test_a_small_body_that_nobody_reads_costs_no_connection(client: RawClient) -> None:
    client.send_head("PUT", "/a/missing", "Content-Length: 2")
    client.socket.sendall(b"{}")
    status, headers, _ = client.read_response()
    assert (status, "connection" in headers) == (404, False)
    client.send_head("GET", "/a/b")
    assert client.read_response()[0] == 200


def test_a_path_is_split_into_the_names_that_were_joined() -> None:
    names = ("", "a/b", "\n", "\udcff", "é%", "..")
    raw = b"/" + b"/".join(
        "".join(f"%{byte:02X}" for byte in n.encode("utf-8", "surrogateescape")).encode() for n in names
    )
    assert segments_of(raw) == names
