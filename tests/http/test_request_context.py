"""Routes that an application declares with a router of its own: roles, parameters, pages, refusals."""

from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import Annotated

import pytest
from fastapi import APIRouter, Query, Response

from tests.http.api_fixture import BOX, CRATE, ApiFixture
from waybill import config
from waybill.application import Application
from waybill.environment import Environment
from waybill.errors import InputError, NotFound
from waybill.http.errors import WRITE_STATUSES, describe_responses
from waybill.http.json_io import to_json_response
from waybill.http.request_context import (
    OPEN_ROLE,
    RequestContext,
    RouteContext,
    declare_role,
    make_foreign_router,
    make_router,
)
from waybill.objects import ObjectNotFound, ObjectStoreUnavailable
from waybill.views import ListQuery

REFUSALS = {
    "wrong": InputError("It is wrong."),
    "lost": NotFound("It is lost."),
    "large": InputError("It is large.", code="too-large"),
    "away": ObjectStoreUnavailable("It is unavailable."),
    "bug": ObjectNotFound("It should be there."),
}


class WarehouseContext(RequestContext):
    @property
    def resources(self) -> list[str]:
        found: list[str] = self.environment.resources_of("crates")
        return found


def build_routers(environment: Environment) -> list[APIRouter]:
    router, foreign = make_router("/warehouse", "warehouse"), make_foreign_router("/foreign", "foreign")

    @router.get("/crates", **declare_role("reader"))
    def list_crates(
        context: RouteContext, page_token: str | None = None, limit: Annotated[int, Query(ge=1)] = 2
    ) -> Response:
        with context.open_engine() as engine:
            page, next_token = context.find_page(engine.store, ListQuery("crate"), page_token, limit=limit)
        return to_json_response({"ids": [record.id for record in page.records], "next": next_token})

    @router.put("/{name}", responses=describe_responses(*WRITE_STATUSES), **declare_role("operator"))
    def refuse(context: RouteContext, name: str) -> Response:
        context.notify_change()
        raise REFUSALS[name]

    @router.get("/who", **declare_role(OPEN_ROLE))
    async def say_who(context: RouteContext, role: str = "") -> Response:
        if role:
            await context.authenticate(role)
        return to_json_response({"known": context.identity is not None})

    @foreign.get("/who", **declare_role("reader"))
    def say_name(context: RouteContext) -> Response:
        return to_json_response({"who": context.who, "resources": WarehouseContext(context.request).resources})

    return [router, foreign]


@pytest.fixture
def api(tmp_path: Path) -> Iterator[ApiFixture]:
    application = Application(
        "crates", "Crates.", (CRATE, BOX), resources=lambda environment: ["a trolley"], routes=build_routers
    )
    loaded = config.load(env={}, overrides={"data": tmp_path / "data"})
    with closing(ApiFixture(Environment.from_config(loaded, [application]))) as api:
        yield api


def test_a_route_needs_its_role_and_knows_its_caller_and_resources(api: ApiFixture) -> None:
    assert api.client().get("/foreign/who").status_code == 401
    answer = api.client("reader").get("/foreign/who?strange=1")
    assert answer.json() == {"who": "the reader", "resources": ["a trolley"]}, (
        "a foreign protocol has parameters of its own"
    )
    assert api.client("reader").put("/warehouse/lost").status_code == 403
    strange = api.client("reader").get("/warehouse/crates?strange=1")
    assert (strange.status_code, strange.json()["error"]["code"]) == (400, "bad-query")


def test_an_open_route_authenticates_when_it_wants(api: ApiFixture) -> None:
    assert api.client().get("/warehouse/who").json() == {"known": False}
    assert api.client().get("/warehouse/who?role=reader").status_code == 401
    assert api.client("reader").get("/warehouse/who?role=operator").status_code == 403
    assert api.client("operator").get("/warehouse/who?role=operator").json() == {"known": True}


def test_a_list_is_read_page_by_page_and_a_token_of_another_list_is_refused(api: ApiFixture) -> None:
    made = [api.submit().id for _ in range(5)]
    seen, query = list[str](), ""
    with api.client("reader") as client:
        while True:
            page = client.get(f"/warehouse/crates{query}").json()
            seen += page["ids"]
            if page["next"] is None:
                break
            query = f"?page_token={page['next']}"
        assert seen == made
        other = client.get("/api/v1/records/box?limit=1").json()["next"]
        assert other is None
        api.submit("box", {"way": {"road": "a"}}, id="b1")
        api.submit("box", {"way": {"road": "a"}}, id="b2")
        other = client.get("/api/v1/records/box?limit=1").json()["next"]
        refused = client.get(f"/warehouse/crates?page_token={other}")
        assert (refused.status_code, refused.json()["error"]["code"]) == (400, "bad-page-token")


@pytest.mark.parametrize(
    ("name", "status"), [("wrong", 400), ("lost", 404), ("large", 413), ("away", 503), ("bug", 500)]
)
def test_a_refusal_has_the_status_of_its_class(api: ApiFixture, name: str, status: int) -> None:
    answer = api.client("operator").put(f"/warehouse/{name}")
    assert answer.status_code == status
    message = answer.json()["error"]["message"]
    assert ("incident" in message) if name == "bug" else (message == str(REFUSALS[name]))
