"""Routes that an application brings: guarded unless they say that they guard themselves."""

from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest
from fastapi import APIRouter, Request
from starlette.responses import PlainTextResponse
from starlette.routing import Route

from tests.http.yard import BOX, CRATE, Site
from waybill import config
from waybill.application import Application, BadApplication
from waybill.depot import Depot
from waybill.record import NotFound
from waybill.rules import Refused


def bring(depot: Depot) -> list[APIRouter | Route]:
    routes = APIRouter(prefix="/yard")

    @routes.get("/gate")
    def gate(request: Request) -> dict[str, str]:
        return {"who": request.state.identity.name}

    @routes.post("/gate")
    def push(request: Request) -> dict[str, int]:
        with request.app.state.connections.engine() as engine:
            return engine.store.tally("crate")

    @routes.post("/parcel", openapi_extra={"x-role": "submitter"})
    def parcel() -> None:
        raise Refused("The yard is closed on Sundays.")

    @routes.get("/lost")
    def lost() -> None:
        raise NotFound("Nobody has seen it.")

    @routes.post("/bell", openapi_extra={"x-role": "open"})
    def bell() -> str:
        return "ring"

    return [routes, Route("/plain", lambda request: PlainTextResponse("plain"))]


@pytest.fixture
def site(tmp_path: Path) -> Iterator[Site]:
    application = Application("yard", "Crates.", (CRATE, BOX), routes=bring)
    with closing(Site(Depot.of(config.load(env={}, overrides={"data": tmp_path / "data"}), [application]))) as site:
        yield site


@pytest.mark.parametrize(
    ("method", "path", "by_role"),
    [
        ("GET", "/yard/gate", {None: 401, "reader": 200}),
        ("POST", "/yard/gate", {None: 401, "reader": 403, "submitter": 403, "operator": 200}),
        ("POST", "/yard/parcel", {None: 401, "reader": 403, "submitter": 409}),
        ("GET", "/yard/lost", {None: 401, "reader": 404}),
        ("POST", "/yard/bell", {None: 200}),
        ("GET", "/plain", {None: 200}),
    ],
)
def test_routes_of_applications_are_guarded(site: Site, method: str, path: str, by_role: dict[str | None, int]) -> None:
    for role, status in by_role.items():
        answer = site.client(role).request(method, path)
        assert answer.status_code == status, (role, answer.text)
        if status >= 400:
            assert set(answer.json()["error"]) == {"code", "message", "hint"}


def test_a_route_knows_who_asks(site: Site) -> None:
    assert site.client("reader").get("/yard/gate").json() == {"who": "the reader"}


def test_a_route_that_is_none_is_named(tmp_path: Path) -> None:
    broken = Application("broken", "Nothing.", (CRATE, BOX), routes=lambda depot: ["/here"])
    with pytest.raises(BadApplication, match="The application broken brings '/here'"):
        Site(Depot.of(config.load(env={}, overrides={"data": tmp_path / "data"}), [broken]))


def test_routes_that_cannot_be_put_together_are_named(tmp_path: Path) -> None:
    broken = Application("broken", "Nothing.", (CRATE, BOX), routes=lambda depot: {}["gate"])
    with pytest.raises(
        BadApplication, match=r"routes of the application broken cannot be put together: KeyError: 'gate'\. Mend or"
    ):
        Site(Depot.of(config.load(env={}, overrides={"data": tmp_path / "data"}), [broken]))
