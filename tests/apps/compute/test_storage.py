"""Storage as its protocol says, on both databases: every refusal in Manta's shape, nothing read that is refused."""

import base64
import hashlib
import socket
from datetime import UTC, datetime, timedelta
from email.utils import format_datetime
from urllib.parse import quote

import pytest

from tests.apps.compute.compute_server import ComputeServer

DIRECTORY = "application/x-json-stream; type=directory"


def md5(data: bytes) -> str:
    return base64.b64encode(hashlib.md5(data).digest()).decode()


def test_an_object_comes_back_with_what_was_said_about_it(server: ComputeServer, home: str) -> None:
    put = server.put(
        f"{home}/a", b"hello", content_type="text/x", content_md5=md5(b"hello"), m_color="blue", durability_level="3"
    )
    assert put.status == 204
    assert put.headers["computed-md5"] == md5(b"hello")
    got = server.get(f"{home}/a")
    assert got.body == b"hello"
    expected = {"etag": put.headers["etag"], "content-type": "text/x", "content-length": "5", "content-md5": md5(b"hello"),
                "durability-level": "3", "m-color": "blue", "server": "Manta"}  # fmt: skip
    assert {name: got.headers.get(name) for name in expected} == expected
    assert server.head(f"{home}/a").headers["content-length"] == "5"


def test_replacing_linking_and_removing(server: ComputeServer, home: str) -> None:
    server.put(f"{home}/a", b"one")
    assert server.link(f"{home}/b", f"{home}/a").status == 204
    server.put(f"{home}/a", b"two")
    assert (server.get(f"{home}/a").body, server.get(f"{home}/b").body) == (b"two", b"one")
    assert server.delete(f"{home}/a").status == 204
    assert server.get(f"{home}/b").body == b"one"
    assert server.get(f"{home}/a").code == "ResourceNotFound"
    assert server.request("PUT", f"{home}/b?metadata=true", headers={"m-new": "1"}).status == 204
    assert server.head(f"{home}/b").headers["m-new"] == "1"
    assert server.get(f"{home}/b").body == b"one"


@pytest.mark.parametrize(
    ("method", "path", "headers", "code", "status"),
    [
        ("PUT", "/none/a", {}, "DirectoryDoesNotExist", 404),
        ("PUT", "/o/a", {}, "ParentNotDirectory", 400),
        ("PUT", "/d", {}, "OperationNotAllowedOnDirectory", 400),
        ("PUT", "/../../../../../alice/stor", {}, "InvalidResource", 400),
        ("PUT", "/a%00b", {}, "InvalidResource", 400),
        ("PUT", "/a%FFb", {}, "InvalidResource", 400),
        ("PUT", "/" + "x" * 1025, {}, "InvalidResource", 400),
        ("PUT", "/" + "d/" * 10_000 + "o", {}, "DirectoryDoesNotExist", 404),
        ("PUT", "/o", {"if-none-match": "*"}, "PreconditionFailed", 412),
        ("PUT", "/new", {"if-match": "6af5f1a1-0000"}, "PreconditionFailed", 412),
        ("PUT", "/new", {"content-md5": md5(b"else")}, "ContentMD5Mismatch", 400),
        ("PUT", "/new", {"content-md5": "garbage"}, "BadRequest", 400),
        ("PUT", "/new", {"durability-level": "10"}, "InvalidDurabilityLevel", 400),
        ("PUT", "/new", {"m-x": "y" * 5000}, "RequestEntityTooLarge", 413),
        ("PUT", "/new", {"max-content-length": "2"}, "MaxContentLengthExceeded", 413),
        ("PUT", "/new", {"content-type": "application/json; type=link"}, "LocationRequired", 400),
        ("PUT", "/new", {"content-type": "application/json; type=link", "location": "/alice/stor/none"}, "SourceObjectNotFound", 404),
        ("PUT", "/new", {"content-type": "application/json; type=link", "location": "/alice/stor"}, "LinkNotObject", 400),
        ("PUT", "/new", {"content-type": "application/json; type=link", "location": "x"}, "InvalidLink", 400),
        ("GET", "/o", {"range": "bytes=9-"}, "RequestedRangeNotSatisfiable", 416),
        ("GET", "/o", {"range": "bytes=0-1,3-4"}, "NotImplemented", 501),
        ("GET", "/o", {"if-match": "other"}, "PreconditionFailed", 412),
        ("GET", "/o", {"accept": "image/png"}, "NotAcceptable", 406),
        ("GET", "/none", {}, "ResourceNotFound", 404),
        ("GET", "?limit=1025", {}, "InvalidArgument", 400),
        ("GET", "?limit=0", {}, "InvalidArgument", 400),
        ("GET", "?sort=mtime&marker=yesterday", {}, "InvalidParameter", 400),
        ("GET", "?marker=/%21", {}, "InvalidParameter", 400),
        ("DELETE", "", {}, "DirectoryNotEmpty", 400),
        ("DELETE", "/none", {}, "ResourceNotFound", 404),
        ("PATCH", "/o", {}, "MethodNotAllowed", 405),
    ],
)  # fmt: skip
def test_refusals(
    sqlite_compute: ComputeServer, method: str, path: str, headers: dict[str, str], code: str, status: int
) -> None:
    home = "/alice/stor/refusals"
    sqlite_compute.make_directory(home)
    sqlite_compute.make_directory(f"{home}/d")
    sqlite_compute.put(f"{home}/o", b"hello")
    body = b"hello" if method == "PUT" and "link" not in headers.get("content-type", "") else None
    answer = sqlite_compute.request(method, home + path, body, headers)
    assert (answer.status, answer.code, answer.headers["content-type"]) == (status, code, "application/json")
    assert sqlite_compute.get(home).names == ["d", "o"]
    assert sqlite_compute.get(f"{home}/o").body == b"hello"


def test_roots_always_exist_and_are_never_removed(sqlite_compute: ComputeServer) -> None:
    for area in ("stor", "public", "jobs", "reports"):
        listed = sqlite_compute.get(f"/nobody/{area}")
        assert (listed.status, listed.headers["content-type"], listed.body) == (200, DIRECTORY, b"")
        assert sqlite_compute.delete(f"/nobody/{area}").code == "OperationNotAllowedOnRootDirectory"
    assert sqlite_compute.put("/nobody/stor", b"x").code == "OperationNotAllowedOnRootDirectory"
    assert sqlite_compute.get("/api/stor/x").headers["content-type"] == "application/json"
    assert "error" in sqlite_compute.get("/api/stor/x").lines[0]  # the server's own: no account can be called api


def test_conditions_and_ranges(server: ComputeServer, home: str) -> None:
    etag = server.put(f"{home}/a", b"0123456789").headers["etag"]
    later = format_datetime(datetime.now(UTC) + timedelta(hours=1), usegmt=True)
    earlier = format_datetime(datetime.now(UTC) - timedelta(hours=1), usegmt=True)
    assert server.get(f"{home}/a", if_none_match=etag).status == 304
    assert server.get(f"{home}/a", if_modified_since=later).status == 304
    assert server.get(f"{home}/a", if_modified_since=earlier).status == 200
    assert server.get(f"{home}/a", if_unmodified_since=earlier).status == 412
    assert server.put(f"{home}/a", b"0123456789", if_match=etag).status == 204
    assert server.put(f"{home}/a", b"x", if_match=etag).status == 412
    for header, expected in (
        ("bytes=2-4", b"234"),
        ("bytes=7-", b"789"),
        ("bytes=-2", b"89"),
        ("bytes=5-99", b"56789"),
    ):
        part = server.get(f"{home}/a", range=header)
        assert (part.status, part.body) == (206, expected)
    assert server.get(f"{home}/a", range="bytes=2-4").headers["content-range"] == "bytes 2-4/10"


def test_listings_page_by_name_and_by_time(server: ComputeServer, home: str) -> None:
    names = [*(f"k{n:03d}" for n in range(30)), "Z", "a b", "é", "ü%41", "日本"]
    for name in names:
        assert server.put(f"{home}/{quote(name)}", name.encode()).status == 204
    in_order = sorted(names, key=str.encode)
    found: list[str] = []
    marker = ""
    while True:
        page = server.get(f"{home}?limit=7&marker={quote(marker)}")
        assert page.headers["result-set-size"] == str(len(names))
        found += page.names[1:] if marker else page.names
        if "page-token" not in page.headers:
            break
        marker = page.names[-1]  # inclusive
    assert found == in_order
    token, found = "", []
    while True:
        page = server.get(f"{home}?limit=7&marker={quote(token)}")
        found += page.names
        if not (token := page.headers.get("page-token", "")):
            break
        server.delete(f"{home}/{quote(page.names[-1])}")
    assert found == in_order
    left = server.get(f"{home}?limit=1024").names
    assert server.get(f"{home}?limit=1024&sort_order=reverse").names == left[::-1]
    by_time = server.get(f"{home}?limit=1024&sort=mtime").names
    assert set(by_time) == set(left)
    assert server.get(f"{home}?limit=1024&sort=mtime&sort_order=reverse").names == by_time[::-1]
    token, found = "", []
    while True:
        page = server.get(f"{home}?limit=4&sort=mtime&marker={quote(token)}")
        found += page.names
        if not (token := page.headers.get("page-token", "")):
            break
    assert found == by_time
    assert server.get(f"{home}?dir=true").names == []


def test_a_put_is_told_to_continue_only_after_its_checks(server: ComputeServer, home: str) -> None:
    def begin(path: str) -> tuple[socket.socket, bytes]:
        connection = socket.create_connection(("127.0.0.1", server.port), timeout=20)
        connection.sendall(
            f"PUT {path} HTTP/1.1\r\nHost: 127.0.0.1:{server.port}\r\nExpect: 100-continue\r\nContent-Length: 5\r\n\r\n".encode()
        )
        return connection, connection.recv(65536)

    refused, answer = begin(f"{home}/none/a")
    assert answer.startswith(b"HTTP/1.1 404")
    while data := refused.recv(65536):  # closed: its client never sends the body
        answer += data
    assert b"DirectoryDoesNotExist" in answer
    refused.close()
    allowed, answer = begin(f"{home}/a")
    assert answer.startswith(b"HTTP/1.1 100")
    allowed.sendall(b"hello")
    assert allowed.recv(65536).startswith(b"HTTP/1.1 204")
    allowed.close()
    assert server.get(f"{home}/a").body == b"hello"


def test_a_client_that_stops_half_way_leaves_nothing(server: ComputeServer, home: str) -> None:
    server.put(f"{home}/a", b"old")
    connection = socket.create_connection(("127.0.0.1", server.port), timeout=20)
    connection.sendall(
        f"PUT {home}/a HTTP/1.1\r\nHost: 127.0.0.1:{server.port}\r\nContent-Length: 10000000\r\n\r\n".encode()
        + b"x" * 2_000_000
    )
    connection.close()
    assert server.get(f"{home}/a").body == b"old"
    assert server.get(home).names == ["a"]


def test_large_objects_are_streamed(sqlite_compute: ComputeServer) -> None:
    data = bytes(range(256)) * 4 * 1024 * 10  # 10 MiB
    assert sqlite_compute.put("/alice/stor/large", data, content_md5=md5(data)).status == 204
    assert sqlite_compute.get("/alice/stor/large").body == data
    chunks = (data[i : i + 100_000] for i in range(0, len(data), 100_000))
    assert sqlite_compute.put("/alice/stor/large2", chunks).headers["computed-md5"] == md5(data)


def test_what_was_acknowledged_survives_a_kill(tmp_path_factory: pytest.TempPathFactory) -> None:
    server = ComputeServer(tmp_path_factory.mktemp("killed"))
    with server:
        for number in range(20):
            assert server.put(f"/alice/stor/{number:02d}", f"{number}".encode()).status == 204
        server.kill()
        server.start()
        assert server.get("/alice/stor").names == [f"{number:02d}" for number in range(20)]
        assert [server.get(f"/alice/stor/{number:02d}").body for number in range(20)] == [
            f"{n}".encode() for n in range(20)
        ]
