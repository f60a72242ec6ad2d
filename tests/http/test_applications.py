"""Routes that an application brings: guarded unless they say that they guard themselves."""

from collections.abc import Callable, Iterator
from contextlib import closing
from pathlib import Path

import pytest
from fastapi import APIRouter, Request
from starlette.responses import PlainTextResponse
from starlette.routing import Mount, Route

from tests.http.api_fixture import BOX, CRATE, ApiFixture
from waybill import config
from waybill.application import Application
from waybill.environment import Environment
from waybill.errors import InputError
from waybill.http.request_context import declare_role
from waybill.record import RecordNotFound
from waybill.rules import ActionRefused


def bring(environment: Environment) -> list[APIRouter | Route]:
    routes = APIRouter(prefix="/warehouse")

    @routes.get("/gate")
    def gate(request: Request) -> dict[str, str]:
        return {"who": request.state.identity.name}

    @routes.post("/gate")
    def push(request: Request) -> dict[str, int]:
        with request.app.state.services.connections.open_engine() as engine:
            return engine.store.count_by_state("crate")

    @routes.post("/parcel", openapi_extra={"x-role": "submitter"})
    def parcel() -> None:
        raise ActionRefused("The warehouse is closed on Sundays.")

    @routes.get("/lost")
    def lost() -> None:
        raise RecordNotFound("Nobody has seen it.")

    @routes.post("/ping", openapi_extra={"x-role": "open"})
    def ping() -> str:
        return "ring"

    return [routes, Route("/plain", lambda request: PlainTextResponse("plain"))]


@pytest.fixture
def api(tmp_path: Path) -> Iterator[ApiFixture]:
    application = Application("crates", "Crates.", (CRATE, BOX), routes=bring)
    with closing(
        ApiFixture(Environment.from_config(config.load(env={}, overrides={"data": tmp_path / "data"}), [application]))
    ) as api:
        yield api


@pytest.mark.parametrize(
    ("method", "path", "by_role"),
    [
        ("GET", "/warehouse/gate", {None: 401, "reader": 200}),
        ("POST", "/warehouse/gate", {None: 401, "reader": 403, "submitter": 403, "operator": 200}),
        ("POST", "/warehouse/parcel", {None: 401, "reader": 403, "submitter": 409}),
        ("GET", "/warehouse/lost", {None: 401, "reader": 404}),
        ("POST", "/warehouse/ping", {None: 200}),
        ("GET", "/plain", {None: 200}),
    ],
)
def test_routes_of_applications_are_guarded(
    api: ApiFixture, method: str, path: str, by_role: dict[str | None, int]
) -> None:
    for role, status in by_role.items():
        answer = api.client(role).request(method, path)
        assert answer.status_code == status, (role, answer.text)
        if status >= 400:
            assert set(answer.json()["error"]) == {"code", "message", "hint"}


def test_a_route_knows_who_asks(api: ApiFixture) -> None:
    assert api.client("reader").get("/warehouse/gate").json() == {"who": "the reader"}


def test_a_route_that_is_none_is_named(tmp_path: Path) -> None:
    broken = Application("broken", "Nothing.", (CRATE, BOX), routes=lambda environment: ["/here"])
    with pytest.raises(InputError, match="The application broken has '/here' among its routes"):
        ApiFixture(Environment.from_config(config.load(env={}, overrides={"data": tmp_path / "data"}), [broken]))


def test_routes_that_cannot_be_built_are_named(tmp_path: Path) -> None:
    broken = Application("broken", "Nothing.", (CRATE, BOX), routes=lambda environment: dict[str, str]()["gate"])
    with pytest.raises(
        InputError, match=r"routes of the application broken cannot be built: KeyError: 'gate'\. Repair or"
    ):
        ApiFixture(Environment.from_config(config.load(env={}, overrides={"data": tmp_path / "data"}), [broken]))


def test_a_catch_all_of_one_application_hides_no_route_of_another(tmp_path: Path) -> None:
    """Whatever their names and order: exact paths first, then parameters, catch-alls last."""

    def answer(text: str) -> Callable[[Request], PlainTextResponse]:
        return lambda request: PlainTextResponse(text)

    greedy_router = APIRouter()
    greedy_router.add_api_route("/control/{path:path}", lambda: PlainTextResponse("router"), **declare_role("reader"))
    greedy = Application(
        "aaa",
        "Everything.",
        (),
        routes=lambda environment: [
            Route("/{path:path}", answer("everything")),
            Route("/{user}/stor/{path:path}", answer("storage")),
            Mount("/files", routes=[Route("/{path:path}", answer("mount"))]),
            greedy_router,
        ],
    )
    modest = Application(
        "zzz",
        "A little.",
        (),
        routes=lambda environment: [
            Route("/control/api/list", answer("list")),
            Route("/{user}/jobs", answer("jobs")),
            Route("/files/exact", answer("exact")),
        ],
    )
    settings = config.load(env={}, overrides={"data": tmp_path / "data"})
    with closing(ApiFixture(Environment.from_config(settings, [greedy, modest]))) as api:
        client = api.client("reader")
        found = {
            path: client.get(path).text
            for path in (
                "/control/api/list",
                "/ann/jobs",
                "/ann/stor/a/b",
                "/ann/other",
                "/files/exact",
                "/files/x",
                "/control/x",
            )
        }
        assert client.get("/health").json()
    assert found == {
        "/control/api/list": "list",
        "/ann/jobs": "jobs",
        "/ann/stor/a/b": "storage",
        "/ann/other": "everything",
        "/files/exact": "exact",
        "/files/x": "mount",
        "/control/x": "router",
    }
