"""Assemblies over HTTP: ask for one, see how it is, fetch it.

    POST /api/v1/ingest/access                   an object, a version or some files of it, as zip or tar: a token, when it is ready, a URL
    GET  /api/v1/ingest/access/<token>           the file, once it is ready; 202 until then, 410 when it has expired, also when it is gone
    GET  /api/v1/ingest/access/<token>/state     how it is

The token is all that the last two need: it is a secret of its own.
"""

from __future__ import annotations

from contextlib import AbstractContextManager
from typing import TYPE_CHECKING, Annotated, Any, cast

import msgspec
from fastapi import APIRouter, Depends, Path, Request, Response

from waybill.apps.ingest.access import Wanted, ask, order_of, tokens
from waybill.apps.ingest.outfit import Outfit
from waybill.apps.ingest.routes.answers import answer, refusal, small_body
from waybill.apps.ingest.routes.closing import closed_to
from waybill.apps.ingest.routes.counter import STRICT
from waybill.apps.ingest.routes.sending import Sent, send
from waybill.engine import Engine
from waybill.http.errors import responses
from waybill.record import NotFound, Record

if TYPE_CHECKING:
    from waybill.depot import Depot

OPEN = {"x-role": "open"}
Token = Annotated[str, Path(max_length=200, description="What was answered when the assembly was asked for.")]

PREFIX = "/api/v1/ingest/access"
AGAIN = f"Ask for it again: POST {PREFIX}"
DAY = 86400.0


def router(depot: Depot) -> APIRouter:
    refusals = responses(400, 401, 403, 404, 409, 410, 413, 415, 416, 422, 500, 503, 504)
    routes = APIRouter(prefix=PREFIX, tags=["ingest access"], responses=refusals, dependencies=STRICT)

    def outfit() -> Outfit:
        return cast(Outfit, depot.outfit("job"))

    def found(request: Request, token: str) -> Record | Response:
        """The assembly, or why there is none. Of one that is gone nobody knows any more whether it ever was: all get
        the same answer.
        """
        if not tokens.well_formed(token):
            raise NotFound(
                f"This is no token of an assembly: it is cut, or something else. Ask for an assembly: POST {PREFIX}."
            )
        with _engine(request) as engine:
            record = tokens.find(engine.store, outfit().objects, token)
        if record is None:
            keep = outfit().settings.access.keep
            kept = f"{keep / DAY:.3g} days" if keep >= 2 * DAY else f"{keep / 3600:.3g} hours"
            return refusal(
                410,
                "gone",
                f"There is no assembly of this token any more: it expires {kept} after it was packed.",
                AGAIN,
            )
        return _expired(record) if record.state == "Deleted" else record

    @routes.post(
        "",
        summary="Ask for an object, a version or files as an archive",
        status_code=201,
        openapi_extra={
            "x-role": "reader",
            "requestBody": {"required": True, "content": {"application/json": {"schema": _SCHEMA}}},
        },
    )
    def ask_for(request: Request, body: Annotated[bytes, Depends(small_body)]) -> Response:
        """201 for a new assembly, 200 for one that the same person asked for before and that is still good."""
        try:
            wanted = msgspec.json.decode(body, type=Wanted)
        except (msgspec.DecodeError, UnicodeDecodeError) as error:
            return refusal(
                422, "invalid", f"This is no order: {error}.", 'Send JSON such as {"object": "ark:/99999/fk4x"}.'
            )
        if closed := closed_to(request, outfit().inventory.object(wanted.object)):
            return closed
        lifted = request.state.identity.may("operator")
        with _engine(request) as engine:
            asked = ask(engine, outfit(), wanted, owner=request.state.identity.name, lifted=lifted)
        return answer(
            _view(asked.record), 201 if asked.fresh else 200, {"Location": f"{PREFIX}/{tokens.token_of(asked.record)}"}
        )

    @routes.get("/{token}/state", summary="How an assembly is", openapi_extra=OPEN)
    def state(request: Request, token: Token) -> Response:
        record = found(request, token)
        return record if isinstance(record, Response) else answer(_view(record))

    def fetch(request: Request, token: Token) -> Response:
        record = found(request, token)
        if isinstance(record, Response):
            return record
        if record.state in ("Pending", "Processing"):
            return answer(_view(record), 202, {"Retry-After": "5"})
        if record.state == "Failed":
            return refusal(
                409,
                "failed",
                f"The assembly failed: {record.message}",
                "An operator can have it packed again, or ask anew.",
            )
        packed, order = record.docs["packed"], order_of(record)
        with _engine(request) as engine:
            over = packed["expires"] < engine.store.now()
        if over or order is None:
            return _expired(record)
        if not order.lifted and (closed := closed_to(None, outfit().inventory.object(order.object))):
            return closed
        objects = outfit().objects
        sent = Sent(
            lambda start, end: objects.get(packed["name"], start=start, end=end),
            packed["size"],
            packed["sha256"],
            order.mime,
            order.file_name,
            "The assembly",
        )
        return send(request, sent)

    routes.get("/{token}", summary="Fetch an assembly", openapi_extra=OPEN, response_class=Response)(fetch)
    routes.head("/{token}", include_in_schema=False, openapi_extra=OPEN)(fetch)
    return routes


_SCHEMA: dict[str, Any] = {
    "type": "object",
    "required": ["object"],
    "additionalProperties": False,
    "properties": {
        "object": {"type": "string", "description": "Its ARK."},
        "version": {"type": ["integer", "null"], "description": "Which version; none: the newest; 0: all of them."},
        "form": {"enum": ["zip", "zip-stored", "tar", "tar.gz"], "default": "zip"},
        "content": {
            "enum": ["full", "producer"],
            "default": "full",
            "description": "producer: without what ingest added.",
        },
        "files": {
            "type": "array",
            "items": {"type": "string"},
            "maxItems": 1000,
            "description": "Only these files of the version.",
        },
    },
}


def _expired(record: Record) -> Response:
    """When it was, and the order with which it is asked for again."""
    order, packed = order_of(record), record.docs.get("packed") or {}
    when = f" at {tokens.rfc3339(packed['expires'])}" if "expires" in packed else ""
    words = (
        "This assembly is gone: it has expired or was deleted."
        if record.state == "Deleted"
        else f"This assembly has expired{when}."
    )
    return refusal(410, "expired", words, f"{AGAIN} {order.again()}" if order is not None else AGAIN)


def _engine(request: Request) -> AbstractContextManager[Engine]:
    return cast(AbstractContextManager[Engine], request.app.state.connections.engine())


def _view(record: Record) -> dict[str, Any]:
    """An assembly as whoever asked for it sees it."""
    order, said, packed = order_of(record), record.docs["token"], record.docs.get("packed") or {}
    view: dict[str, Any] = {
        "token": said["token"],
        "url": said["url"],
        "status": record.state,
        "message": record.message,
        "anticipated": said["anticipated-availability-time"],
        "content_bytes": said["cloud-content-byte"],
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
            "expires": tokens.rfc3339(packed["expires"]),
        }
        view["renamed"] = packed["renamed"]
    return view
