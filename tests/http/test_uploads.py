"""Forms are read part by part, whatever the chunks they come in; what is no form is refused in a sentence. Uploads are
read while they arrive, and only so many at once.
"""

import socket
from collections.abc import Iterator
from contextlib import ExitStack, closing
from pathlib import Path
from urllib.parse import urlsplit

import httpx2
import pytest
from fastapi import APIRouter, Request, Response
from hypothesis import given
from hypothesis import strategies as st

from tests.http.api_fixture import BOX, CRATE, ApiFixture, run_server
from tests.servers.process import wait_until
from waybill import config
from waybill.application import Application
from waybill.environment import Environment
from waybill.errors import InputError
from waybill.http.json_io import to_json_response
from waybill.http.request_context import declare_role, make_router
from waybill.http.uploads import UploadSlots, read_form

TYPE = "multipart/form-data; boundary=B"


def form(*parts: tuple[str, str | None, bytes]) -> bytes:
    body = b""
    for name, filename, data in parts:
        extra = f'; filename="{filename}"' if filename is not None else ""
        body += f'--B\r\nContent-Disposition: form-data; name="{name}"{extra}\r\n\r\n'.encode() + data + b"\r\n"
    return body + b"--B--\r\n"


def pieces(data: bytes, sizes: list[int]) -> list[bytes]:
    found = []
    for size in sizes:
        found.append(data[:size])
        data = data[size:]
    return [*found, data]


PARTS = st.lists(
    st.tuples(
        st.text("abc.", min_size=1, max_size=8), st.none() | st.text("abc.é", max_size=8), st.binary(max_size=200)
    ),
    max_size=5,
)


@given(PARTS, st.lists(st.integers(0, 60), max_size=20))
def test_a_form_comes_as_it_was_sent_in_any_chunks(
    parts: list[tuple[str, str | None, bytes]], sizes: list[int]
) -> None:
    chunks = pieces(form(*parts), sizes)
    assert [(part.name, part.filename, b"".join(part.data)) for part in read_form(chunks, TYPE)] == parts


@given(PARTS, st.data())
def test_a_form_that_ends_early_is_refused(parts: list[tuple[str, str | None, bytes]], data: st.DataObject) -> None:
    whole = form(*parts)
    cut = data.draw(st.integers(0, len(whole) - 5))  # without the last --B-- it is not whole
    with pytest.raises(InputError):
        list(read_form([whole[:cut]], TYPE))


@given(st.lists(st.binary(max_size=300), max_size=4), st.text(max_size=60) | st.just(TYPE))
def test_any_bytes_are_a_form_or_are_refused(chunks: list[bytes], kind: str) -> None:
    try:
        for part in read_form(chunks, kind):
            assert isinstance(part.name, str)
    except InputError as refusal:
        assert str(refusal)  # noqa: PT017


def test_what_nobody_reads_is_skipped() -> None:
    body = form(("a", None, b"x" * 100_000), ("b", None, b"2"))
    assert [part.name for part in read_form(pieces(body, [1000] * 50), TYPE)] == ["a", "b"]


def test_a_field_has_an_end_and_is_text() -> None:
    with pytest.raises(InputError, match="more than"):
        next(read_form([form(("a", None, b"x" * 100_000))], TYPE)).read_text()
    with pytest.raises(InputError, match="not UTF-8"):
        next(read_form([form(("a", None, b"\xff"))], TYPE)).read_text()


def test_too_many_parts_are_refused() -> None:
    with pytest.raises(InputError, match="more than 200 parts"):
        list(read_form([form(*[("a", None, b"")] * 201)], TYPE))


def test_a_part_without_a_name_is_refused() -> None:
    with pytest.raises(InputError, match="has no name"):
        list(read_form([b"--B\r\nContent-Type: text/plain\r\n\r\nx\r\n--B--\r\n"], TYPE))


@pytest.fixture
def api(tmp_path: Path) -> Iterator[ApiFixture]:
    with closing(make_upload_api(tmp_path, UploadSlots(slots=1))) as api:
        yield api


def make_upload_api(folder: Path, upload_slots: UploadSlots) -> ApiFixture:
    def build_routers(environment: Environment) -> list[APIRouter]:
        router = make_router("/warehouse", "warehouse")

        @router.put("/sizes", **declare_role("submitter"))
        async def add_up(request: Request) -> Response:
            return to_json_response(
                await upload_slots.take(request, lambda chunks: sum(len(chunk) for chunk in chunks))
            )

        @router.put("/forms", **declare_role("submitter"))
        async def list_parts(request: Request) -> Response:
            kind = request.headers.get("content-type", "")
            return to_json_response(
                await upload_slots.take(request, lambda chunks: [part.name for part in read_form(chunks, kind)])
            )

        return [router]

    application = Application("crates", "Crates.", (CRATE, BOX), routes=build_routers)
    loaded = config.load(env={}, overrides={"data": folder / "data"})
    return ApiFixture(Environment.from_config(loaded, [application]))


def test_a_body_of_any_size_is_read_in_chunks(api: ApiFixture) -> None:
    assert api.client("reader").put("/warehouse/sizes", content=b"x").status_code == 403
    answer = api.client("submitter").put("/warehouse/sizes", content=(b"x" * 100_000 for _ in range(30)))
    assert (answer.status_code, answer.json()) == (200, 3_000_000)


def test_one_token_cannot_take_all_places_and_the_wait_ends(tmp_path: Path) -> None:
    slots = UploadSlots(slots=3, slots_per_client=2, slot_timeout=0.3, timeout=60.0)
    api = make_upload_api(tmp_path, slots)
    with closing(api), run_server(api) as url, ExitStack() as stack:
        for _ in range(3):
            stack.enter_context(start_upload(url, api.tokens["submitter"]))
        with httpx2.Client(base_url=url, timeout=60) as client:
            answers: list[httpx2.Response] = []

            def is_refused() -> bool:  # as soon as the three have begun
                answers.append(client.put("/warehouse/sizes", content=b"x", headers=bearer(api, "submitter")))
                return answers[-1].status_code == 503

            wait_until(is_refused, "the places of this token are taken")
            refused = answers[-1]
            assert "by this token" in refused.text
            assert int(refused.headers["Retry-After"]) > 0
            assert client.put("/warehouse/sizes", content=b"abc", headers=bearer(api, "operator")).json() == 3
            stack.enter_context(start_upload(url, api.tokens["admin"]))
            wait_until(
                lambda: (
                    client.put("/warehouse/sizes", content=b"x", headers=bearer(api, "operator")).status_code == 503
                ),
                "all places are taken",
            )


def test_an_upload_below_the_lower_speed_is_ended(tmp_path: Path) -> None:
    api = make_upload_api(tmp_path, UploadSlots(slots=1, speed_window=0.3))
    with closing(api), run_server(api) as url, start_upload(url, api.tokens["submitter"]) as upload:
        answered: list[bytes] = []

        def drip() -> bool:
            upload.settimeout(0.05)
            try:
                answered.append(upload.recv(4096))
            except TimeoutError:
                upload.sendall(b"x")
            return bool(answered)

        wait_until(drip, "it is refused")
        upload.settimeout(60)
        assert answered[0].startswith(b"HTTP/1.1 408")
        assert b"bytes a second" in answered[0] + upload.recv(4096)


def bearer(api: ApiFixture, role: str) -> dict[str, str]:
    return {"Authorization": f"Bearer {api.tokens[role]}"}


def start_upload(url: str, token: str) -> socket.socket:
    """An upload that sends some of its body, and then nothing."""
    parts = urlsplit(url)
    upload = socket.create_connection((parts.hostname, parts.port), timeout=60)
    head = f"PUT /warehouse/sizes HTTP/1.1\r\nHost: {parts.netloc}\r\nAuthorization: Bearer {token}\r\n"
    upload.sendall(f"{head}Content-Length: 1000000\r\n\r\nsome".encode())
    return upload


def test_a_body_that_is_no_form_is_refused_with_the_reason(api: ApiFixture) -> None:
    with api.client("submitter") as client:
        assert client.put("/warehouse/forms", files={"file": ("a.txt", b"hello")}).json() == ["file"]
        answer = client.put("/warehouse/forms", content=b"hello")
        assert answer.status_code == 400
        assert "not a form" in answer.json()["error"]["message"]
