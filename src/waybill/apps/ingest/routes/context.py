"""What the routes of ingest share: the request context, routers and roles, refusals as HTTP errors, paths.

    router = make_router("ingest batches")

    @router.get("/batches/{name}", **require_role("reader"))
    def get_batch(context: IngestRequest, name: ...):
        with context.open_engine() as engine: ...

A request is authenticated before any of its body is read. The refusals of the service become HTTP errors:
InvalidRequest 400, TargetNotFound 404, PayloadTooLarge 413, every other ActionRefused 409.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager
from typing import TYPE_CHECKING, Annotated, Any, cast
from urllib.parse import quote

from fastapi import APIRouter, Depends, Request, Response

from waybill.apps.ingest import service
from waybill.apps.ingest.resources import IngestResources
from waybill.engine import Engine
from waybill.http.errors import HttpProblem, describe_responses
from waybill.http.json_io import check_parameters, make_json_route, to_json_response
from waybill.objects import ObjectsError, is_permanent
from waybill.record import CommitTooLarge
from waybill.tokens import Identity
from waybill.views import PageTokens

if TYPE_CHECKING:
    from waybill.http.api_services import ApiServices
    from waybill.record import Store
PREFIX = "/api/v1/ingest"
MAX_JSON_BYTES = 1024 * 1024  # bytes of a JSON body


class IngestRequestContext:
    def __init__(self, request: Request) -> None:
        self.request = request
        self._services = cast("ApiServices", request.app.state.services)

    @property
    def who(self) -> str:
        identity: Identity = self.request.state.identity
        return identity.name

    @property
    def resources(self) -> IngestResources:
        return cast(IngestResources, self._services.environment.get_resources("batch"))

    def open_connection(self) -> AbstractContextManager[Engine]:
        """Open a store connection, for a short time: nothing that waits for the client belongs inside.

        Refusals of the service are raised as they are.
        """
        return self._services.connections.open_engine()

    @contextmanager
    def open_engine(self) -> Iterator[Engine]:
        """Open a store connection; refusals of the service are raised as HTTP errors."""
        with translate_refusals(), self.open_connection() as engine:
            yield engine

    def page_tokens_of(self, store: Store) -> PageTokens:
        return self._services.get_page_tokens(store)

    def notify_change(self) -> None:
        """Tell the change feed that records have changed."""
        self._services.change_feed.notify_changed()


IngestRequest = Annotated[IngestRequestContext, Depends(IngestRequestContext)]


async def _check_parameters(request: Request) -> None:
    check_parameters(request)


STRICT_PARAMETERS = [Depends(_check_parameters)]  # unknown query parameters are refused


def make_router(tag: str) -> APIRouter:
    return APIRouter(
        prefix=PREFIX,
        tags=[tag],
        route_class=make_json_route(_authenticate),
        dependencies=STRICT_PARAMETERS,
        responses=describe_responses(400),
    )


def make_foreign_router(tag: str, prefix: str) -> APIRouter:
    """Return a router for a foreign protocol, whose clients may send unknown query parameters."""
    return APIRouter(prefix=prefix, tags=[tag], route_class=make_json_route(_authenticate))


async def _authenticate(request: Request) -> None:
    await request.app.state.services.authenticator.authenticate(request)


def require_role(name: str, **openapi: Any) -> dict[str, Any]:
    """Declare the role that a route needs; the authenticator reads it. `openapi`: more for the description of the API."""
    return {"openapi_extra": {"x-role": name, **openapi}}


@contextmanager
def translate_refusals() -> Iterator[None]:
    """Translate refusals of the service, and transient errors of objects, into HTTP errors."""
    try:
        yield
    except service.ManagedDocumentNotFound as error:
        raise HttpProblem(404, "not-found", str(error), f"GET {PREFIX}/{error.kind}s lists them.") from error
    except service.TargetNotFound as error:
        raise HttpProblem(404, "not-found", str(error), "Check the name, or list the existing ones.") from error
    except service.PayloadTooLarge as error:
        raise HttpProblem(413, "too-large", str(error), "Split it, or submit a URL instead.") from error
    except service.InvalidRequest as error:
        raise HttpProblem(400, "invalid-submission", str(error), "Correct the request and send it again.") from error
    except ObjectsError as error:
        if is_permanent(error):
            raise
        raise HttpProblem(
            503, "unavailable", str(error), "Nothing was submitted; try again in a moment.", {"Retry-After": "10"}
        ) from error


def error_response(
    status: int, code: str, message: str, hint: str = "", headers: Mapping[str, str] | None = None
) -> Response:
    clean = message.encode("utf-8", "replace").decode()
    return to_json_response({"error": {"code": code, "message": clean, "hint": hint}}, status, headers)


async def read_small_body(request: Request) -> bytes:
    """Read a JSON body; raise CommitTooLarge if it is too large."""
    parts, size = [], 0
    async for part in request.stream():
        size += len(part)
        if size > MAX_JSON_BYTES:
            raise CommitTooLarge(f"The body has more than {MAX_JSON_BYTES} bytes.")
        parts.append(part)
    return b"".join(parts)


def object_path_of(ark: str) -> str:
    """Return the URL path of an object."""
    return f"/api/v1/ingest/objects/{quote(ark, safe='')}"


def version_path_of(ark: str, number: int) -> str:
    return f"{object_path_of(ark)}/versions/{number}"


def file_path_of(ark: str, number: int, path: str) -> str:
    return f"{version_path_of(ark, number)}/files/{quote(path)}"
