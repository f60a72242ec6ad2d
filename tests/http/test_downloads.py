"""Content is sent whole or in part, with a digest to check it by; damaged content is never sent as if it were whole."""

import base64
import hashlib
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import httpx2
import pytest
from fastapi import APIRouter, Request, Response

from tests.http.api_fixture import BOX, CRATE, ApiFixture, run_server
from waybill import config
from waybill.application import Application
from waybill.environment import Environment
from waybill.http.downloads import BUFFERED_SIZE, DownloadContent, send_content
from waybill.http.request_context import declare_role, make_router

SHORT, LONG = b"hello", bytes(range(256)) * (BUFFERED_SIZE // 128)
CONTENTS = {"short": SHORT, "long": LONG}


def build_routers(environment: Environment) -> list[APIRouter]:
    router = make_router("/warehouse", "warehouse")

    def fetch(request: Request, name: str) -> Response:
        data = CONTENTS.get(name, SHORT)
        content = DownloadContent(
            lambda start, end: environment.objects.get(name, start=start, end=end),
            len(data),
            hashlib.sha256(data).hexdigest(),
            "no such type",
            f"{name} é.txt",
            f"The file {name}",
            "Ask the keeper.",
        )
        return send_content(request, content)

    router.get("/{name}", **declare_role("open"))(fetch)
    router.head("/{name}", **declare_role("open"))(fetch)
    return [router]


@pytest.fixture
def environment(tmp_path: Path) -> Environment:
    loaded = config.load(env={}, overrides={"data": tmp_path / "data"})
    made = Environment.from_config(loaded, [Application("crates", "Crates.", (CRATE, BOX), routes=build_routers)])
    for name, data in CONTENTS.items():
        made.objects.put(name, data)
    return made


@pytest.fixture
def client(environment: Environment) -> Iterator[httpx2.Client]:
    with closing(ApiFixture(environment)) as api, run_server(api) as url, httpx2.Client(base_url=url) as client:
        yield client


@pytest.mark.parametrize("name", CONTENTS)
def test_the_whole_content_comes_with_its_digest_as_an_attachment(client: httpx2.Client, name: str) -> None:
    digest = hashlib.sha256(CONTENTS[name])
    answer = client.get(f"/warehouse/{name}")
    assert (answer.status_code, answer.content) == (200, CONTENTS[name])
    assert answer.headers["etag"] == f'"{digest.hexdigest()}"'
    assert answer.headers["repr-digest"] == f"sha-256=:{base64.b64encode(digest.digest()).decode()}:"
    assert answer.headers["content-type"] == "application/octet-stream", "what is no media type is not sent as one"
    assert (
        answer.headers["content-disposition"]
        == f"attachment; filename=\"{name} _.txt\"; filename*=UTF-8''{name}%20%C3%A9.txt"
    )
    head = client.head(f"/warehouse/{name}")
    assert (head.content, head.headers["content-length"]) == (b"", str(len(CONTENTS[name])))
    assert client.get(f"/warehouse/{name}", headers={"If-None-Match": answer.headers["etag"]}).status_code == 304


@pytest.mark.parametrize("name", CONTENTS)
def test_a_range_is_sent_alone_and_one_outside_is_refused(client: httpx2.Client, name: str) -> None:
    data, size = CONTENTS[name], len(CONTENTS[name])
    for asked, start, end in (("0-0", 0, 1), ("2-", 2, size), ("-2", size - 2, size), (f"1-{size * 2}", 1, size)):
        answer = client.get(f"/warehouse/{name}", headers={"Range": f"bytes={asked}"})
        assert (answer.status_code, answer.content) == (206, data[start:end]), asked
        assert answer.headers["content-range"] == f"bytes {start}-{end - 1}/{size}"
    outside = client.get(f"/warehouse/{name}", headers={"Range": f"bytes={size}-"})
    assert (outside.status_code, outside.headers["content-range"]) == (416, f"bytes */{size}")
    assert outside.json()["error"]["code"] == "bad-range"
    for ignored in ("bytes=3-1", "bytes=0-1,3-4", "lines=0-1", "bytes=-"):
        assert client.get(f"/warehouse/{name}", headers={"Range": ignored}).status_code == 200
    older = {"Range": "bytes=0-0", "If-Range": '"older"'}
    assert client.get(f"/warehouse/{name}", headers=older).status_code == 200, "the client has other content"


def test_damaged_or_missing_content_is_never_sent_as_if_it_were_whole(
    environment: Environment, client: httpx2.Client
) -> None:
    environment.objects.put("short", b"HELLO")
    environment.objects.put("long", LONG[:-1] + b"x")
    for name, headers in (("short", {}), ("short", {"Range": "bytes=0-0"}), ("missing", {})):
        error = client.get(f"/warehouse/{name}", headers=headers).json()["error"]
        assert (error["code"], error["hint"]) == ("damaged", "Ask the keeper.")
    with pytest.raises(httpx2.RemoteProtocolError):
        client.get("/warehouse/long")
