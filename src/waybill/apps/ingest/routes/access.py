"""Assemblies over HTTP: request one, see its state, fetch the archive.

    POST /api/v1/ingest/access                   request an object, a version or some files of it as zip or tar; returns a token, when it
                                                 will be ready, and a URL
    GET  /api/v1/ingest/access/<token>           the archive when it is ready; 202 before, 410 after it has expired
    GET  /api/v1/ingest/access/<token>/state     its state

The last two need no other authentication: the token is a secret.
"""

from __future__ import annotations

from contextlib import AbstractContextManager
from typing import TYPE_CHECKING, Annotated, Any, cast

import msgspec
from fastapi import APIRouter, Depends, Path, Request, Response

from waybill.apps.ingest.access import AssemblyRequest, order_of, request_assembly, tokens
from waybill.apps.ingest.resources import IngestResources
from waybill.apps.ingest.routes.context import STRICT_PARAMETERS, error_response, read_small_body
from waybill.apps.ingest.routes.downloads import DownloadContent, refuse_embargoed, send
from waybill.engine import Engine
from waybill.http.errors import describe_responses
from waybill.http.json_io import to_json_response
from waybill.record import Record, RecordNotFound
from waybill.tokens import Identity

if TYPE_CHECKING:
    from waybill.environment import Environment

OPEN_ROLE = {"x-role": "open"}
TokenPath = Annotated[str, Path(max_length=200, description="The token that the request returned.")]

PREFIX = "/api/v1/ingest/access"
REQUEST_AGAIN = f"Request it again: POST {PREFIX}"
DAY = 86400.0


def build_access_router(environment: Environment) -> APIRouter:
    refusals = describe_responses(400, 401, 403, 404, 409, 410, 413, 415, 416, 422, 500, 503, 504)
    router = APIRouter(prefix=PREFIX, tags=["ingest access"], responses=refusals, dependencies=STRICT_PARAMETERS)

    def get_resources() -> IngestResources:
        return cast(IngestResources, environment.get_resources("job"))

    def find_assembly(request: Request, token: str) -> Record | Response:
        """Return the assembly, or the response that says why there is none.

        Removed assemblies leave no trace, so every unknown token gets the same 410.
        """
        if not tokens.is_well_formed(token):
            raise RecordNotFound(
                f"This is not the token of an assembly; it may be cut off. Request an assembly: POST {PREFIX}."
            )
        with _open_engine(request) as engine:
            record = tokens.find_assembly(engine.store, get_resources().objects, token)
        if record is None:
            seconds = get_resources().settings.access.keep_seconds
            lifetime = f"{seconds / DAY:.3g} days" if seconds >= 2 * DAY else f"{seconds / 3600:.3g} hours"
            return error_response(
                410,
                "gone",
                f"There is no assembly with this token any more: assemblies expire {lifetime} after they are packed.",
                REQUEST_AGAIN,
            )
        return _respond_expired(record) if record.state == "Deleted" else record

    @router.post(
        "",
        summary="Request an object, a version or files as an archive",
        status_code=201,
        openapi_extra={
            "x-role": "reader",
            "requestBody": {"required": True, "content": {"application/json": {"schema": _REQUEST_SCHEMA}}},
        },
    )
    def create_assembly(request: Request, body: Annotated[bytes, Depends(read_small_body)]) -> Response:
        """201 for a new assembly, 200 for one that the same user requested before and that has not expired."""
        try:
            assembly_request = msgspec.json.decode(body, type=AssemblyRequest)
        except (msgspec.DecodeError, UnicodeDecodeError) as error:
            return error_response(
                422,
                "invalid",
                f"The request is not valid: {error}.",
                'Send JSON such as {"object": "ark:/99999/fk4x"}.',
            )
        if refusal := refuse_embargoed(request, get_resources().inventory.get_object(assembly_request.object)):
            return refusal
        identity: Identity = request.state.identity
        with _open_engine(request) as engine:
            requested = request_assembly(
                engine,
                get_resources(),
                assembly_request,
                owner=identity.name,
                ignores_embargo=identity.has_role("operator"),
            )
        return to_json_response(
            _to_view(requested.record),
            201 if requested.is_new else 200,
            {"Location": f"{PREFIX}/{tokens.token_of(requested.record)}"},
        )

    @router.get("/{token}/state", summary="The state of an assembly", openapi_extra=OPEN_ROLE)
    def show_state(request: Request, token: TokenPath) -> Response:
        record = find_assembly(request, token)
        return record if isinstance(record, Response) else to_json_response(_to_view(record))

    def fetch_archive(request: Request, token: TokenPath) -> Response:
        record = find_assembly(request, token)
        if isinstance(record, Response):
            return record
        if record.state in ("Pending", "Processing"):
            return to_json_response(_to_view(record), 202, {"Retry-After": "5"})
        if record.state == "Failed":
            return error_response(
                409,
                "failed",
                f"The assembly failed: {record.message}",
                "An operator can requeue it; or request it again.",
            )
        packed, order = record.documents["packed"], order_of(record)
        with _open_engine(request) as engine:
            has_expired = packed["expires"] < engine.store.now()
        if has_expired or order is None:
            return _respond_expired(record)
        if not order.ignores_embargo and (
            refusal := refuse_embargoed(None, get_resources().inventory.get_object(order.object))
        ):
            return refusal
        objects = get_resources().objects
        content = DownloadContent(
            lambda start, end: objects.get(packed["name"], start=start, end=end),
            packed["size"],
            packed["sha256"],
            order.mime,
            order.file_name,
            "The assembly",
        )
        return send(request, content)

    router.get("/{token}", summary="Fetch an assembly", openapi_extra=OPEN_ROLE, response_class=Response)(fetch_archive)
    router.head("/{token}", include_in_schema=False, openapi_extra=OPEN_ROLE)(fetch_archive)
    return router


_REQUEST_SCHEMA: dict[str, Any] = {
    "type": "object",
    "required": ["object"],
    "additionalProperties": False,
    "properties": {
        "object": {"type": "string", "description": "Its ARK."},
        "version": {"type": ["integer", "null"], "description": "The version; null: the newest; 0: all."},
        "form": {"enum": ["zip", "zip-stored", "tar", "tar.gz"], "default": "zip"},
        "content": {
            "enum": ["full", "producer"],
            "default": "full",
            "description": "producer: without the files that ingest added.",
        },
        "files": {
            "type": "array",
            "items": {"type": "string"},
            "maxItems": 1000,
            "description": "Only these files of the version.",
        },
    },
}


def _respond_expired(record: Record) -> Response:
    """Return 410 with the time of expiry and the body that requests it again."""
    order, packed = order_of(record), record.documents.get("packed") or {}
    when = f" at {tokens.to_rfc3339(packed['expires'])}" if "expires" in packed else ""
    message = (
        "This assembly has expired or was deleted."
        if record.state == "Deleted"
        else f"This assembly has expired{when}."
    )
    return error_response(
        410, "expired", message, f"{REQUEST_AGAIN} {order.to_request_json()}" if order is not None else REQUEST_AGAIN
    )


def _open_engine(request: Request) -> AbstractContextManager[Engine]:
    return cast(AbstractContextManager[Engine], request.app.state.connections.open_engine())


def _to_view(record: Record) -> dict[str, Any]:
    """Return an assembly as its requester sees it."""
    order, token, packed = order_of(record), record.documents["token"], record.documents.get("packed") or {}
    view: dict[str, Any] = {
        "token": token["token"],
        "url": token["url"],
        "status": record.state,
        "message": record.message,
        "ready_at": token["anticipated-availability-time"],
        "content_bytes": token["cloud-content-byte"],
        "queue": record.kind.removeprefix("access-"),
        "record": record.id,
    }
    if order is not None:
        view |= {
            "object": order.object,
            "version": order.version,
            "form": order.form,
            "content": order.content,
            "name": order.file_name,
        }
    if record.state == "Completed" and packed:
        view |= {
            "size": packed["size"],
            "sha256": packed["sha256"],
            "files": packed["files"],
            "expires": tokens.to_rfc3339(packed["expires"]),
        }
        view["renames"] = packed["renamed"]
    return view
