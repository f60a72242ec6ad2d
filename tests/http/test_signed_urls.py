"""A signed URL opens one thing for a while, to a client without a token, and nothing else."""

from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest
from fastapi import APIRouter, Response
from hypothesis import given
from hypothesis import strategies as st

from tests.http.api_fixture import BOX, CRATE, ApiFixture
from waybill import config
from waybill.application import Application
from waybill.environment import Environment
from waybill.http.json_io import to_json_response
from waybill.http.request_context import allow_signed_urls, make_router
from waybill.signed_urls import UrlSigner

PARTS = st.lists(st.text(max_size=6), min_size=1, max_size=3)


def build_routers(environment: Environment) -> list[APIRouter]:
    router = make_router("/warehouse", "warehouse")
    opened = allow_signed_urls(
        "operator", lambda context, store: UrlSigner.from_store(store, "labels"), ("crate", "number")
    )

    @router.get("/{crate}/labels/{number}", **opened)
    def show_label(crate: str, number: int, expires: int = 0, signature: str = "") -> Response:
        return to_json_response({"crate": crate})

    return [router]


@pytest.fixture
def api(tmp_path: Path) -> Iterator[ApiFixture]:
    application = Application("crates", "Crates.", (CRATE, BOX), routes=build_routers)
    loaded = config.load(env={}, overrides={"data": tmp_path / "data"})
    with closing(ApiFixture(Environment.from_config(loaded, [application]))) as api:
        yield api


def test_a_signed_url_opens_one_thing_until_it_expires(api: ApiFixture) -> None:
    with api.engine() as engine:
        signer, now = UrlSigner.from_store(engine.store, "labels"), int(engine.store.now())
        other = UrlSigner.from_store(engine.store, "lists")
    good, url = signer.sign_query(("c 1", "7"), now + 1000), "/warehouse/c%201/labels/7"
    assert api.client().get(f"{url}?{good}").json() == {"crate": "c 1"}
    for wrong in (
        f"/warehouse/c%201/labels/8?{good}",
        f"/warehouse/c%202/labels/7?{good}",
        f"{url}?{good[:-1]}",
        f"{url}?{good.replace('expires=', 'expires=9')}",
        f"{url}?{signer.sign_query(('c 1', '7'), now - 1)}",
        f"{url}?{other.sign_query(('c 1', '7'), now + 1000)}",
        f"{url}?expires=x&signature=%C3%A9",
    ):
        refused = api.client().get(wrong)
        assert (refused.status_code, refused.json()["error"]["code"]) == (403, "bad-signature"), wrong
    assert api.client().get(url).status_code == 401
    assert api.client("reader").get(url).status_code == 403
    assert api.client("operator").get(f"{url}?{good[:-1]}").status_code == 200, "a token is enough"


@given(PARTS, PARTS)
def test_a_signature_is_for_its_own_parts_alone(first: list[str], second: list[str]) -> None:
    signer = UrlSigner("labels", "sesame")
    query = dict(pair.split("=") for pair in signer.sign_query(first, 100).split("&"))
    assert signer.is_valid(second, query, 99.0) == (first == second)
    assert not signer.is_valid(first, query, 100.0)
    assert not UrlSigner("labels", "another secret").is_valid(first, query, 99.0)
