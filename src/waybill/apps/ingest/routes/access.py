"""Assemblies over HTTP: request one, see its state, fetch the archive.

    POST /api/v1/ingest/access                   request an object, a version or some files of it as zip or tar; returns a token, when it
                                                 will be ready, and a URL
    GET  /api/v1/ingest/access/<token>           the archive when it is ready; 202 before, 410 after it has expired
    GET  /api/v1/ingest/access/<token>/state     its state

The last two need no other authentication: the token is a secret.
"""

from __future__ import annotations

from typing import Annotated, Any

import msgspec
from fastapi import APIRouter, Depends, Path, Request, Response

from waybill.apps.ingest.access import AssemblyRequest, request_assembly, tokens
from waybill.apps.ingest.documents import AssemblyOrder, AssemblyToken, PackedArchive, to_rfc3339
from waybill.apps.ingest.machine.access import ASSEMBLY
from waybill.apps.ingest.routes.context import IngestRequest, IngestRequestContext
from waybill.apps.ingest.routes.objects import AUDIT_HINT, check_embargo
from waybill.http.downloads import DownloadContent, send_content
from waybill.http.errors import WRITE_STATUSES, HttpProblem, describe_responses
from waybill.http.json_io import MAX_BODY, read_body, to_json_response
from waybill.http.request_context import OPEN_ROLE, declare_role, make_router
from waybill.record import Record, RecordNotFound

TokenPath = Annotated[str, Path(max_length=200, description="The token that the request returned.")]

PREFIX = "/api/v1/ingest/access"
REQUEST_AGAIN = f"Request it again: POST {PREFIX}"
DAY = 86400.0


def build_access_router() -> APIRouter:
    router = make_router(PREFIX, "ingest access")

    def find_assembly(context: IngestRequestContext, token: str) -> Record:
        """Return the assembly; raise 410 if there is none any more.

        Removed assemblies leave no trace, so every unknown token gets the same 410.
        """
        if not tokens.is_well_formed(token):
            raise RecordNotFound(
                f"This is not the token of an assembly; it may be cut off. Request an assembly: POST {PREFIX}."
            )
        with context.open_engine() as engine:
            record = tokens.find_assembly(engine.store, context.resources.objects, token)
        if record is None:
            seconds = context.resources.settings.access.keep_seconds
            lifetime = f"{seconds / DAY:.3g} days" if seconds >= 2 * DAY else f"{seconds / 3600:.3g} hours"
            message = (
                f"There is no assembly with this token any more: assemblies expire {lifetime} after they are packed."
            )
            raise HttpProblem("gone", message, REQUEST_AGAIN)
        if record.state == ASSEMBLY.deleted:
            raise _make_expired_problem(record)
        return record

    @router.post(
        "",
        summary="Request an object, a version or files as an archive",
        status_code=201,
        responses=describe_responses(*WRITE_STATUSES),
        **declare_role(
            "reader", requestBody={"required": True, "content": {"application/json": {"schema": _REQUEST_SCHEMA}}}
        ),
    )
    def create_assembly(context: IngestRequest, body: Annotated[bytes, Depends(_read_request)]) -> Response:
        """201 for a new assembly, 200 for one that the same user requested before and that has not expired."""
        try:
            assembly_request = msgspec.json.decode(body, type=AssemblyRequest)
        except (msgspec.DecodeError, UnicodeDecodeError) as error:
            hint = 'Send JSON such as {"object": "ark:/99999/fk4x"}.'
            raise HttpProblem("invalid", f"The request is not valid: {error}.", hint) from None
        ark = assembly_request.object
        if (row := context.resources.inventory.get_object(ark)) is not None:  # else there is nothing to assemble
            check_embargo(context.identity, ark, row)
        is_operator = context.identity is not None and context.identity.has_role("operator")
        with context.open_engine() as engine:
            requested = request_assembly(
                engine, context.resources, assembly_request, owner=context.who, ignores_embargo=is_operator
            )
        return to_json_response(
            _to_view(requested.record),
            201 if requested.is_new else 200,
            {"Location": f"{PREFIX}/{tokens.token_of(requested.record)}"},
        )

    @router.get(
        "/{token}/state",
        summary="The state of an assembly",
        responses=describe_responses(410),
        **declare_role(OPEN_ROLE),
    )
    def show_state(context: IngestRequest, token: TokenPath) -> Response:
        return to_json_response(_to_view(find_assembly(context, token)))

    def fetch_archive(context: IngestRequest, token: TokenPath) -> Response:
        record = find_assembly(context, token)
        if record.state in ASSEMBLY.live:
            return to_json_response(_to_view(record), 202, {"Retry-After": "5"})
        if record.state == ASSEMBLY.failed:
            hint = "An operator can requeue it; or request it again."
            raise HttpProblem("failed", f"The assembly failed: {record.message}", hint)
        packed, order = record.document(PackedArchive), record.find_document(AssemblyOrder)
        with context.open_engine() as engine:
            has_expired = packed.expires < engine.store.now()
        if has_expired or order is None:
            raise _make_expired_problem(record)
        if not order.ignores_embargo:
            check_embargo(None, order.object, context.resources.inventory.get_object(order.object))
        objects = context.resources.objects
        content = DownloadContent(
            lambda start, end: objects.get(packed.name, start=start, end=end),
            packed.size,
            packed.sha256,
            order.mime,
            order.file_name,
            "The assembly",
            AUDIT_HINT,
        )
        return send_content(context.request, content)

    fetch_responses = describe_responses(409, 410, 416, 500)
    router.get(
        "/{token}",
        summary="Fetch an assembly",
        response_class=Response,
        responses=fetch_responses,
        **declare_role(OPEN_ROLE),
    )(fetch_archive)
    router.head("/{token}", include_in_schema=False, **declare_role(OPEN_ROLE))(fetch_archive)
    return router


async def _read_request(request: Request) -> bytes:
    return await read_body(request, MAX_BODY)


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


def _make_expired_problem(record: Record) -> HttpProblem:
    """Return 410 with the time of expiry and the body that requests it again."""
    order, packed = record.find_document(AssemblyOrder), record.find_document(PackedArchive)
    when = f" at {to_rfc3339(packed.expires)}" if packed is not None else ""
    is_deleted = record.state == ASSEMBLY.deleted
    message = "This assembly has expired or was deleted." if is_deleted else f"This assembly has expired{when}."
    hint = f"{REQUEST_AGAIN} {order.to_request_json()}" if order is not None else REQUEST_AGAIN
    return HttpProblem("gone", message, hint)


def _to_view(record: Record) -> dict[str, Any]:
    """Return an assembly as its requester sees it."""
    order, packed = record.find_document(AssemblyOrder), record.find_document(PackedArchive)
    token = record.document(AssemblyToken)
    view: dict[str, Any] = {
        "token": token.token,
        "url": token.url,
        "status": record.state,
        "message": record.message,
        "ready_at": token.ready_at,
        "content_bytes": token.content_bytes,
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
    if record.state == "Completed" and packed is not None:
        view |= {
            "size": packed.size,
            "sha256": packed.sha256,
            "files": packed.files,
            "expires": to_rfc3339(packed.expires),
            "renames": packed.renamed,
        }
    return view
