"""The application, put together: what every request passes, then the routes.

Measured -> Shield -> errors -> guard -> /health /ready /metrics /openapi.json /api/v1/... and the applications' own
routes
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterable
from contextlib import asynccontextmanager
from typing import Annotated, Any

from fastapi import APIRouter, Depends, FastAPI
from fastapi.concurrency import run_in_threadpool
from fastapi.responses import Response
from starlette.routing import BaseRoute
from typing_extensions import TypedDict

from waybill.application import BadApplication
from waybill.config import BadConfig
from waybill.depot import Depot
from waybill.http import errors, events, machines, records, tokens, upkeep
from waybill.http.connections import Connections
from waybill.http.front import Front
from waybill.http.guard import DESCRIBED, Guard, need
from waybill.http.hub import Hub
from waybill.http.metrics import CONTENT_TYPE, Measured, Metrics
from waybill.http.readiness import Readiness
from waybill.http.shield import Shield
from waybill.http.wire import answer, json_route
from waybill.record import StoreError, make_ready
from waybill.tokens import Identity, is_active

ABOUT = """Records in explicit states, moved by steps that survive any crash.

Every refusal has the shape `{"error": {"code", "message", "hint"}}`. A write is answered when it is written; 503 means that nothing was,
504 that nobody knows. Times are RFC 3339 in UTC."""


class HealthView(TypedDict):
    status: str


class IndexView(TypedDict):
    name: str
    description: str
    api: str
    health: str
    ready: str


class ReadyView(TypedDict):
    ready: bool


NOT_READY: dict[int | str, dict[str, Any]] = {
    503: {"model": ReadyView, "description": "The store cannot be read, or is slow to answer."}
}


def create_app(depot: Depot, *, open_loopback: bool = False, hosts: Iterable[str] = ()) -> FastAPI:
    """`open_loopback`: whoever comes from this machine needs no token. `hosts`: other names that the server is
    called by ("*": any).

    What is put together is in `app.state.front`, for routes that are added later.
    """
    connections = Connections(depot)
    guard = Guard(connections, open_loopback)
    hub = Hub(depot.open_store, events.reader(depot.machines), is_active)
    front = Front(depot, connections, guard, hub)
    metrics = Metrics(front)

    @asynccontextmanager
    async def lifespan(app: FastAPI) -> AsyncIterator[None]:
        yield
        await run_in_threadpool(hub.close)
        await run_in_threadpool(connections.close)

    app = FastAPI(
        title="Waybill",
        version="1",
        description=ABOUT,
        lifespan=lifespan,
        docs_url=None,  # its page loads scripts from another site
        redoc_url=None,
        redirect_slashes=False,
        swagger_ui_oauth2_redirect_url=None,
    )
    app.state.front = front
    app.state.connections = connections  # for the routes of applications, which may not import this package
    app.include_router(_own(front, metrics))
    for part in (machines, records, upkeep, tokens, events):
        app.include_router(part.router(front))
    _add_applications(app, depot, guard)
    errors.install(app)
    app.add_middleware(Shield, listens_on=depot.config.http.host, hosts=hosts)
    app.add_middleware(Measured, metrics=metrics)
    make_ready()
    return app


def _own(front: Front, metrics: Metrics) -> APIRouter:
    routes = APIRouter(tags=["server"])

    def read() -> None:
        with front.connections.store() as store:
            store.marks()

    readiness = Readiness(read)

    @routes.get("/", summary="Where things are", response_model=IndexView)
    async def index() -> Response:
        """For whoever opens the printed URL."""
        return answer(
            {
                "name": "Waybill",
                "description": "Records are below /api/v1 and need a token; the description of the API does not.",
                "api": "/openapi.json",
                "health": "/health",
                "ready": "/ready",
            }
        )

    @routes.get("/health", summary="Is the process alive?", response_model=HealthView)
    async def health() -> Response:
        """Never looks at the store: a server whose store is away must not be restarted for it."""
        return answer({"status": "ok"})

    @routes.get("/ready", summary="Can it do its work?", response_model=ReadyView, responses=NOT_READY)
    async def ready() -> Response:
        """Within about a second, whatever the store does. Why it is not ready stands in the server's log."""
        if await readiness.ask():
            return answer({"ready": True})
        return answer({"ready": False}, 503, errors.AGAIN)

    guarded = APIRouter(tags=["server"], route_class=json_route(front.guard.check), dependencies=[DESCRIBED])

    @guarded.get(
        "/metrics",
        summary="For Prometheus",
        response_class=Response,
        responses=errors.responses(
            401,
            403,
            503,
            also={200: {"content": {"text/plain": {"schema": {"type": "string"}}}, "description": "Metrics."}},
        ),
    )
    def read_metrics(identity: Annotated[Identity, need("reader")]) -> Response:
        return Response(metrics.text(), media_type=CONTENT_TYPE)

    routes.include_router(guarded)
    return routes


def _add_applications(app: FastAPI, depot: Depot, guard: Guard) -> None:
    """Routers are guarded as `Guard.routes_of_applications` says; plain routes and mounts are protocols with a guard
    of their own.
    """
    for application in depot.applications:
        if application.routes is None:
            continue
        try:
            brought = application.routes(depot)
        except (BadApplication, BadConfig, StoreError):
            raise  # these say whose fault it is
        except Exception as error:  # whatever the code of others raises
            raise BadApplication(
                f"The routes of the application {application.name} cannot be put together: {type(error).__name__}: {error}. "
                "Mend or uninstall it, or leave it out with the setting `applications`."
            ) from error
        for part in brought if isinstance(brought, (list, tuple)) else [brought]:
            if isinstance(part, APIRouter):
                app.include_router(part, dependencies=[DESCRIBED, Depends(guard.routes_of_applications())])
            elif isinstance(part, BaseRoute):
                app.router.routes.append(part)
            else:
                raise BadApplication(
                    f"The application {application.name} brings {part!r} as a route; it must be a router or a route."
                )


__all__ = ["create_app"]
