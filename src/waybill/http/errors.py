"""Every error response has one shape, and this is the only module that makes it:

    {"error": {"code": "refused", "message": "shipment s1 is Lost; resume needs it to be Failed. ...", "hint": "..."}}

`message` says what is wrong, `hint` what to do. Programs read the status and `code`, people read the rest. The status
follows from the code: waybill.errors has the table.
"""

from __future__ import annotations

import logging
import secrets
from collections.abc import Mapping
from typing import Annotated, Any

import msgspec
from fastapi import FastAPI, Request, Response
from fastapi.exceptions import RequestValidationError
from pydantic import Field
from starlette.exceptions import HTTPException
from typing_extensions import TypedDict

from waybill.errors import ERROR_CODES, WaybillError
from waybill.record import BadStore, CommitOutcomeUnknown, StoreUnavailable

log = logging.getLogger("waybill.http")

STORE_FAILURES = (StoreUnavailable, BadStore, CommitOutcomeUnknown)  # whose messages name the store
FRAMEWORK_CODES = {
    400: "bad-request",
    401: "no-token",
    403: "forbidden",
    404: "no-route",
    405: "no-method",
    422: "invalid",
}


class ErrorView(TypedDict):
    code: Annotated[str, Field(json_schema_extra=lambda schema: schema.update(enum=sorted(ERROR_CODES)))]
    message: str
    hint: str


class ErrorBody(TypedDict):
    error: ErrorView


class HttpProblem(WaybillError, HTTPException):  # FastAPI lets an HTTPException pass when it reads a body
    """An error of the HTTP layer itself."""

    def __init__(self, code: str, message: str, hint: str = "", headers: Mapping[str, str] | None = None) -> None:
        HTTPException.__init__(self, ERROR_CODES[code].status, message, headers)
        self.code = code
        self.hint = hint

    def __str__(self) -> str:
        return self.detail


def describe_error(error: Exception) -> tuple[int, ErrorView, dict[str, str]]:
    """Status, body and headers of the response to an error."""
    if isinstance(error, RequestValidationError):
        return 422, make_error_view("invalid", _describe_invalid_fields(error)), {}
    if isinstance(error, HTTPException) and not isinstance(error, HttpProblem):
        return _describe_framework_error(error)
    if isinstance(error, HttpProblem) or (isinstance(error, WaybillError) and ERROR_CODES[error.code].status != 500):
        headers = dict((isinstance(error, HttpProblem) and error.headers) or {})
        row = ERROR_CODES[error.code]
        if row.retry_after and row.status >= 500:
            headers.setdefault("Retry-After", str(row.retry_after))
        return row.status, make_error_view(error.code, str(error), error.hint), headers
    incident = secrets.token_hex(4)
    log.error("incident %s", incident, exc_info=error)
    words = f"Something went wrong in the server; it is written in its log as incident {incident}."
    hint = "Tell the server's operator the incident's number. Read the record before you repeat a write."
    return 500, make_error_view("internal", words, hint), {}


def _describe_framework_error(error: HTTPException) -> tuple[int, ErrorView, dict[str, str]]:
    """What the framework refuses by itself: unknown routes and methods, bodies that are no JSON."""
    code = FRAMEWORK_CODES.get(error.status_code, "refused")
    message = ERROR_CODES[code].description if error.status_code in (404, 405) else str(error.detail)
    return error.status_code, make_error_view(code, message), dict(error.headers or {})


def _describe_invalid_fields(error: RequestValidationError) -> str:
    """Each wrong field with its place; not the values, which may be large or secret."""
    described = []
    for problem in error.errors()[:5]:
        path = [str(part) for part in problem.get("loc", ())]
        where = " ".join((path[0], ".".join(path[1:]))).strip() if path else "request"
        described.append(f"{where}: {str(problem.get('msg', 'invalid')).removeprefix('Value error, ')}")
    return "; ".join(described) + "."


def make_error_view(code: str, message: str, hint: str = "") -> ErrorView:
    clean = message.encode("utf-8", "replace").decode()  # a name may hold half of a surrogate pair
    return {"code": code, "message": clean, "hint": hint or ERROR_CODES[code].hint}


def describe_for_client(error: Exception, is_authenticated: bool) -> tuple[int, ErrorView, dict[str, str]]:
    """To a client without a valid token, the failure of a store does not say where the store is and who its user is."""
    status, view, headers = describe_error(error)
    if not is_authenticated and isinstance(error, STORE_FAILURES):
        log.debug("not shown to an unauthenticated client: %s", error)
        view = {**view, "message": "The server's store cannot be used now."}
    return status, view, headers


def to_error_response(request: Request, error: Exception, is_authenticated: bool = True) -> Response:
    """The response to an error, in the shape of the protocol that owns the path of the request."""
    from waybill.http.foreign_protocol import find_protocol  # which imports this module

    status, view, headers = describe_for_client(error, is_authenticated)
    if protocol := find_protocol(request.scope):
        return protocol.to_error_response(request, status, view, headers)
    body: ErrorBody = {"error": view}
    return Response(msgspec.json.encode(body), status, headers, media_type="application/json")


async def _handle_error(request: Request, error: Exception) -> Response:
    return to_error_response(request, error, is_authenticated=getattr(request.state, "identity", None) is not None)


def install_error_handlers(app: FastAPI) -> None:
    """Make every error of the application answer in this shape."""
    for kind in (HTTPException, RequestValidationError, WaybillError, Exception):
        app.add_exception_handler(kind, _handle_error)


def describe_responses(
    *statuses: int, extra: dict[int | str, dict[str, Any]] | None = None
) -> dict[int | str, dict[str, Any]]:
    """For the OpenAPI description of a route: its error responses, and what else it can answer with."""
    responses: dict[int | str, dict[str, Any]] = {}
    responses.update(extra or {})
    responses.update(
        {status: {"content": _ERROR_CONTENT, "description": STATUS_DESCRIPTIONS[status]} for status in sorted(statuses)}
    )
    return responses


READ_STATUSES = (401, 403, 404, 422, 503)  # of a route that reads, beside 400
WRITE_STATUSES = (400, 401, 403, 404, 409, 413, 415, 422, 503, 504)
STATUS_DESCRIPTIONS = {
    400: "The request cannot be understood.",
    401: "No token, or one that is not valid.",
    403: "The token's role does not allow this.",
    404: "Not found.",
    405: "This route has no such method.",
    408: "The body did not arrive in time.",
    409: "Not possible in the present state: the message says why.",
    410: "It existed, and was removed for good.",
    413: "The body is too large.",
    415: "The body is not JSON.",
    416: "The range is outside the file.",
    421: "The Host header names another server.",
    422: "A parameter or the body is invalid.",
    500: "A bug in the server.",
    503: "The store is unavailable, or the server is busy; try again.",
    504: "It is not known whether this was written.",
}

# FastAPI would build a validator for each `model`, ten for every route; the description takes the schema from one route.
_ERROR_CONTENT = {"application/json": {"schema": {"$ref": f"#/components/schemas/{ErrorBody.__name__}"}}}
ERROR_SCHEMA_RESPONSE: dict[int | str, dict[str, Any]] = {
    401: {"model": ErrorBody, "description": STATUS_DESCRIPTIONS[401]}
}
