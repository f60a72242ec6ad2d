"""Builds the web application and runs it. A request passes, in this order:

    EarlyResponseMiddleware -> RequestMetricsMiddleware -> BrowserSecurityMiddleware -> the error handlers
        -> the authenticator -> the route

The routes are /health, /ready, /metrics, /openapi.json, /api/v1/..., and those of the applications.
"""

from __future__ import annotations

import asyncio
import socket
from collections.abc import AsyncIterator, Iterable, Iterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Annotated, Any

import uvicorn
from fastapi import APIRouter, Depends, FastAPI
from fastapi.concurrency import run_in_threadpool
from fastapi.responses import Response
from fastapi.routing import _IncludedRouter
from starlette.routing import BaseRoute, Mount
from typing_extensions import TypedDict

from waybill.environment import Environment
from waybill.errors import InputError
from waybill.http import accounts, change_stream, errors, events, holds_and_sessions, machines, records, tokens, trace
from waybill.http.api_services import ApiServices
from waybill.http.authentication import TOKEN_SECURITY, TokenAuthenticator, is_credential_active, require_role
from waybill.http.browser_security import BrowserSecurityMiddleware
from waybill.http.change_feed import ChangeFeed
from waybill.http.connection_limits import (
    BACKLOG,
    KEEP_ALIVE_TIMEOUT,
    ConnectionLimitMiddleware,
    LimitedConnection,
    count_allowed_connections,
    install_loop_limits,
    make_connection_type,
)
from waybill.http.connections import StoreConnectionPool
from waybill.http.early_responses import EarlyResponseMiddleware
from waybill.http.foreign_protocol import ForeignProtocol, ForeignRoute, list_paths
from waybill.http.json_io import make_json_route, to_json_response
from waybill.http.metrics import CONTENT_TYPE, RequestMetricsMiddleware, ServerMetrics
from waybill.http.readiness import ReadinessProbe
from waybill.record import StoreError, prepare_decoders
from waybill.registry import Registry
from waybill.tokens import Identity

SHUTDOWN_TIMEOUT = 10  # seconds for running requests when the server stops
API_DESCRIPTION = """Records in explicit states, moved by steps that survive any crash.

Every error has the shape `{"error": {"code", "message", "hint"}}`. A write is answered when it is committed; 503 means that nothing was
written, 504 that the outcome is unknown. Times are RFC 3339 in UTC."""


class HealthView(TypedDict):
    status: str


class ServerIndexView(TypedDict):
    name: str
    description: str
    api: str
    health: str
    ready: str


class ReadyView(TypedDict):
    ready: bool


NOT_READY_RESPONSES: dict[int | str, dict[str, Any]] = {
    503: {"model": ReadyView, "description": "The store cannot be read, or is slow to answer."}
}


def create_app(environment: Environment, *, open_loopback: bool = False, hosts: Iterable[str] = ()) -> FastAPI:
    """`open_loopback`: requests from this machine need no token. `hosts`: further names of the server ("*": any).

    The services are in `app.state.services`, for routes that are added later.
    """
    connections = StoreConnectionPool(environment)
    authenticator = TokenAuthenticator(connections, open_loopback)
    change_feed = ChangeFeed(
        environment.open_store, change_stream.make_topic_reader(environment.machines), is_credential_active
    )
    services = ApiServices(environment, connections, authenticator, change_feed)
    metrics = ServerMetrics(services)

    @asynccontextmanager
    async def lifespan(app: FastAPI) -> AsyncIterator[None]:
        yield
        await run_in_threadpool(change_feed.close)
        await run_in_threadpool(connections.close)

    app = FastAPI(
        title="Waybill",
        version="1",
        description=API_DESCRIPTION,
        lifespan=lifespan,
        docs_url=None,  # its page loads scripts from another host
        redoc_url=None,
        redirect_slashes=False,
        swagger_ui_oauth2_redirect_url=None,
    )
    app.state.services = services
    app.state.protocols = []
    app.include_router(_build_server_routes(services, metrics))
    for part in (machines, records, holds_and_sessions, tokens, accounts, trace, change_stream, events):
        app.include_router(part.build_router(services))
    _add_applications(app, environment, authenticator)
    sort_routes(app)
    _describe_registry(app, Registry.from_environment(environment))
    errors.install_error_handlers(app)
    app.add_middleware(ConnectionLimitMiddleware, authenticator=authenticator)
    app.add_middleware(BrowserSecurityMiddleware, listens_on=environment.config.http.host, hosts=hosts)
    app.add_middleware(RequestMetricsMiddleware, metrics=metrics)
    app.add_middleware(EarlyResponseMiddleware)
    prepare_decoders()
    return app


def _describe_registry(app: FastAPI, registry: Registry) -> None:
    """Add what no route tells to the OpenAPI document: the events, and the kinds with their actions."""
    generate = app.openapi

    def build_document() -> dict[str, Any]:
        document = generate()
        document["webhooks"] = {
            event.name: {
                "post": {
                    "summary": event.description,
                    "requestBody": {"content": {"application/cloudevents+json": {"schema": {"type": "object"}}}},
                    "responses": {"2XX": {"description": "Received."}},
                }
            }
            for event in registry.events
        }
        document["x-kinds"] = {
            machine.name: {
                "description": machine.description,
                "actions": {action.name: action.description for action in machine.actions},
            }
            for machine in registry.machines
        }
        return document

    app.openapi = build_document  # type: ignore[method-assign]


def _build_server_routes(services: ApiServices, metrics: ServerMetrics) -> APIRouter:
    routes = APIRouter(tags=["server"])

    def read_store() -> None:
        with services.connections.open_store() as store:
            store.list_holds()

    readiness = ReadinessProbe(read_store)

    @routes.get("/", summary="Where to find what", response_model=ServerIndexView)
    async def get_index() -> Response:
        """For a browser that opens the printed URL."""
        return to_json_response(
            {
                "name": "Waybill",
                "description": "Records are below /api/v1 and need a token; the description of the API does not.",
                "api": "/openapi.json",
                "health": "/health",
                "ready": "/ready",
            }
        )

    @routes.get("/health", summary="Is the process alive?", response_model=HealthView)
    async def get_health() -> Response:
        """Never reads the store: a server whose store is unavailable must not be restarted for it."""
        return to_json_response({"status": "ok"})

    @routes.get("/ready", summary="Can the store be read?", response_model=ReadyView, responses=NOT_READY_RESPONSES)
    async def get_readiness() -> Response:
        """Answers within about a second, whatever the store does. The server's log says why it is not ready."""
        if await readiness.is_ready():
            return to_json_response({"ready": True})
        return to_json_response({"ready": False}, 503, {"Retry-After": "2"})

    guarded = APIRouter(
        tags=["server"], route_class=make_json_route(services.authenticator.authenticate), dependencies=[TOKEN_SECURITY]
    )

    @guarded.get(
        "/metrics",
        summary="For Prometheus",
        response_class=Response,
        responses=errors.describe_responses(
            403,
            503,
            extra={
                200: {"content": {"text/plain": {"schema": {"type": "string"}}}, "description": "Metrics."},
                **errors.ERROR_SCHEMA_RESPONSE,
            },
        ),
    )
    def get_metrics(identity: Annotated[Identity, require_role("reader")]) -> Response:
        return Response(metrics.render_text(), media_type=CONTENT_TYPE)

    routes.include_router(guarded)
    return routes


def _add_applications(app: FastAPI, environment: Environment, authenticator: TokenAuthenticator) -> None:
    """Routers are authenticated as `TokenAuthenticator.make_role_dependency` says; plain routes and mounts are protocols
    with an authentication of their own.
    """
    for application in environment.applications:
        if application.routes is None:
            continue
        try:
            routes = application.routes(environment)
        except (InputError, StoreError):
            raise  # their messages say what is wrong
        except Exception as error:  # anything that the code of an application raises
            raise InputError(
                f"The routes of the application {application.name} cannot be built: {type(error).__name__}: {error}. "
                "Repair or uninstall it, or leave it out with the setting `applications`.",
                code="bad-application",
            ) from error
        for part in routes if isinstance(routes, (list, tuple)) else [routes]:
            if isinstance(part, APIRouter):
                for single in _split_router(part):
                    app.include_router(
                        single, dependencies=[TOKEN_SECURITY, Depends(authenticator.make_role_dependency())]
                    )
            elif isinstance(part, ForeignProtocol):
                app.state.protocols.append(part)
                app.router.routes.append(ForeignRoute(part))
            elif isinstance(part, BaseRoute):
                app.router.routes.append(part)
            else:
                raise InputError(
                    f"The application {application.name} has {part!r} among its routes; it must be a router, a route or a ForeignProtocol.",
                    code="bad-application",
                )


def _split_router(router: APIRouter) -> Iterator[APIRouter]:
    """A router for each route, so that routes of different applications can be sorted among each other."""
    for route in router.routes:
        single = APIRouter()
        single.routes.append(route)
        yield single


def sort_routes(app: FastAPI) -> None:
    """Put the routes in the order in which they are tried. Safe to repeat, when routes have been added."""
    app.router.routes.sort(key=_specificity_of)


def _specificity_of(route: BaseRoute) -> tuple[int, ...]:
    """Sort exact paths before parameters, and those before catch-alls, segment by segment: a catch-all of one
    application hides no route of another, whatever their names. Routes that are alike stay in the order of declaration.
    """
    if isinstance(route, ForeignRoute):
        return (3,)
    if isinstance(route, _IncludedRouter):
        found = list_paths(route)
        path = found[0] if len(found) == 1 else ""
    else:
        path = getattr(route, "path", "")
    segments = [2 if ":path}" in part else 1 if "{" in part else 0 for part in path.strip("/").split("/")]
    return tuple(segments) + ((2,) if isinstance(route, Mount) else ())


class ApiServer(uvicorn.Server):
    """uvicorn, which ends the live streams first when it stops.

    `run()` blocks until `should_exit` is set or a signal arrives; signals are handled in the main thread only.
    """

    def __init__(
        self,
        app: FastAPI,
        host: str,
        port: int,
        *,
        log_level: str = "info",
        access_log: bool = False,
        tls: tuple[Path, Path] | None = None,
        max_connections: int | None = None,
    ) -> None:
        """`tls`: the files of the certificate and of its key."""
        super().__init__(
            uvicorn.Config(
                app,
                host,
                port,
                log_level=log_level,
                access_log=access_log,
                log_config=None,
                http=make_connection_type(count_allowed_connections() if max_connections is None else max_connections),
                backlog=BACKLOG,
                timeout_keep_alive=KEEP_ALIVE_TIMEOUT,
                timeout_graceful_shutdown=SHUTDOWN_TIMEOUT,
                server_header=False,
                ws="none",
                ssl_certfile=tls[0] if tls is not None else None,
                ssl_keyfile=tls[1] if tls is not None else None,
            )
        )
        self._stop_change_feed = app.state.services.change_feed.stop

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        install_loop_limits(asyncio.get_running_loop())
        await super().startup(sockets)

    async def on_tick(self, counter: int) -> bool:
        if counter % 10 == 0:
            for connection in list(self.server_state.connections):
                if isinstance(connection, LimitedConnection):
                    connection.check()
        return await super().on_tick(counter)

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        self._stop_change_feed()
        await super().shutdown(sockets)

    def stop(self) -> None:
        """May be called from any thread."""
        self.should_exit = True

    @property
    def address(self) -> tuple[str, int]:
        """Where it listens, once it has started; with port 0, the port that the system chose."""
        host, port = self.servers[0].sockets[0].getsockname()[:2]
        return host, port
