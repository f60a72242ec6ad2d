"""Every error response has one shape, and this is the only module that makes it:

    {"error": {"code": "refused", "message": "shipment s1 is Lost; resume needs it to be Failed. ...", "hint": "..."}}

`message` says what is wrong, `hint` what to do. Programs read the status and `code`, people read the rest.
"""

from __future__ import annotations

import logging
import secrets
from collections.abc import Mapping
from typing import Any, NamedTuple

import msgspec
from fastapi import FastAPI, HTTPException, Request, Response
from fastapi.exceptions import RequestValidationError
from starlette.exceptions import HTTPException as StarletteHTTPException
from typing_extensions import TypedDict

from waybill import record as nouns
from waybill.machine import MachineError
from waybill.objects import ObjectsError
from waybill.rules import (
    ActionRefused,
    BadHoldName,
    InvalidRequest,
    PayloadTooLarge,
    TargetNotFound,
    UnknownKind,
    UnknownQueue,
)
from waybill.views import BadPageToken

log = logging.getLogger("waybill.http")


class ErrorView(TypedDict):
    code: str
    message: str
    hint: str


class ErrorBody(TypedDict):
    error: ErrorView


class HttpProblem(HTTPException):
    """An error of the HTTP layer itself."""

    def __init__(
        self, status: int, code: str, message: str, hint: str = "", headers: Mapping[str, str] | None = None
    ) -> None:
        super().__init__(status, message, dict(headers or {}))
        self.code = code
        self.hint = hint


class ErrorResponseRule(NamedTuple):
    status: int
    hint: str
    headers: dict[str, str] = {}  # noqa: RUF012 - never written


RETRY_HEADERS = {"Retry-After": "2"}
STORE_FAILURES = (nouns.StoreUnavailable, nouns.BadStore, nouns.CommitOutcomeUnknown)  # whose messages name the store

# The first class that matches, from the special to the general.
ERROR_RESPONSE_RULES: tuple[tuple[type[Exception], str, ErrorResponseRule], ...] = (
    (UnknownKind, "unknown-kind", ErrorResponseRule(404, "GET /api/v1/machines lists the kinds.")),
    (
        nouns.RecordNotFound,
        "not-found",
        ErrorResponseRule(404, "Check the id, or list the records with GET /api/v1/records/{kind}."),
    ),
    (BadPageToken, "bad-page-token", ErrorResponseRule(400, "Request the first page again, without a page token.")),
    (UnknownQueue, "unknown-queue", ErrorResponseRule(422, "GET /api/v1/machines lists the kinds with their states.")),
    (
        BadHoldName,
        "bad-name",
        ErrorResponseRule(422, "The parts of a name are separated by single slashes, such as queue/shipment."),
    ),
    (TargetNotFound, "not-found", ErrorResponseRule(404, "Check the name, or list the existing ones.")),
    (PayloadTooLarge, "too-large", ErrorResponseRule(413, "Split it, or submit a URL instead.")),
    (InvalidRequest, "invalid-submission", ErrorResponseRule(400, "Correct the request and send it again.")),
    (
        ActionRefused,
        "refused",
        ErrorResponseRule(409, "GET the record to see its state and the actions that are possible now."),
    ),
    (
        nouns.LockUnavailable,
        "lock-unavailable",
        ErrorResponseRule(409, "Try again when the other record has released the lock."),
    ),
    (
        nouns.RecordExists,
        "exists",
        ErrorResponseRule(409, "Choose another id, or send an Idempotency-Key when you repeat a request."),
    ),
    (nouns.Conflict, "conflict", ErrorResponseRule(409, "Read the record again, then decide again.")),
    (nouns.SessionLost, "session-lost", ErrorResponseRule(409, "Open a new session.")),
    (
        nouns.CommitTooLarge,
        "too-large",
        ErrorResponseRule(413, "Put bulk into a manifest in object storage and name that instead."),
    ),
    (
        nouns.StoreUnavailable,
        "unavailable",
        ErrorResponseRule(503, "Nothing was written; try again in a moment.", RETRY_HEADERS),
    ),
    (
        nouns.BadStore,
        "bad-store",
        ErrorResponseRule(503, "The server's operator must examine its store: `waybill doctor`.", RETRY_HEADERS),
    ),
    (
        nouns.CommitOutcomeUnknown,
        "outcome-unknown",
        ErrorResponseRule(
            504,
            "It may have been written. Repeat with the same Idempotency-Key, or read the record before you decide.",
            RETRY_HEADERS,
        ),
    ),
    (
        nouns.DocumentError,
        nouns.DocumentError.code,
        ErrorResponseRule(409, "GET the record to see its documents; its operator must examine what wrote them."),
    ),
    (
        MachineError,
        "bad-documents",
        ErrorResponseRule(422, "GET /api/v1/machines/{kind} says which documents the kind has and what writes them."),
    ),
)

STATUS_HINTS = {
    401: "Send the header Authorization: Bearer <token>.",
    404: "GET /openapi.json lists the routes.",
    405: "GET /openapi.json lists the methods of each route.",
    422: "GET /openapi.json describes the parameters and bodies.",
}
STATUS_CODES = {
    400: "bad-request",
    401: "no-token",
    403: "forbidden",
    404: "no-route",
    405: "no-method",
    422: "invalid",
}


def describe_error(error: Exception) -> tuple[int, ErrorView, dict[str, str]]:
    """Status, body and headers of the response to an error."""
    if isinstance(error, HttpProblem):
        return error.status_code, _make_error_view(error.code, str(error.detail), error.hint), dict(error.headers or {})
    if isinstance(error, RequestValidationError):
        return 422, _make_error_view(STATUS_CODES[422], _describe_invalid_fields(error), STATUS_HINTS[422]), {}
    if isinstance(error, StarletteHTTPException):
        return _describe_framework_error(error)
    for kind, code, refusal in ERROR_RESPONSE_RULES:
        if isinstance(error, kind):
            own = error.hint if isinstance(error, nouns.RecordNotFound) else ""
            return refusal.status, _make_error_view(code, str(error) or code, own or refusal.hint), refusal.headers
    if isinstance(error, nouns.StoreError):
        return 409, _make_error_view(error.code, str(error), "Read the record again, then decide again."), {}
    if isinstance(error, ObjectsError) and not error.permanent:
        hint = "Nothing was submitted; try again in a moment."
        return 503, _make_error_view("unavailable", str(error), hint), {"Retry-After": "10"}
    incident = secrets.token_hex(4)
    log.error("incident %s", incident, exc_info=error)
    words = f"Something went wrong in the server; it is written in its log as incident {incident}."
    hint = "Tell the server's operator the incident's number. Read the record before you repeat a write."
    return 500, _make_error_view("internal", words, hint), {}


def _describe_framework_error(error: StarletteHTTPException) -> tuple[int, ErrorView, dict[str, str]]:
    """What the framework refuses by itself: unknown routes and methods, bodies that are no JSON."""
    status = error.status_code
    message = {404: "There is no such route.", 405: "This route has no such method."}.get(status, str(error.detail))
    return (
        status,
        _make_error_view(STATUS_CODES.get(status, "refused"), message, STATUS_HINTS.get(status, "")),
        dict(error.headers or {}),
    )


def _describe_invalid_fields(error: RequestValidationError) -> str:
    """Each wrong field with its place; not the values, which may be large or secret."""
    described = []
    for problem in error.errors()[:5]:
        path = [str(part) for part in problem.get("loc", ())]
        where = " ".join((path[0], ".".join(path[1:]))).strip() if path else "request"
        described.append(f"{where}: {str(problem.get('msg', 'invalid')).removeprefix('Value error, ')}")
    return "; ".join(described) + "."


def _make_error_view(code: str, message: str, hint: str) -> ErrorView:
    clean = message.encode("utf-8", "replace").decode()  # a name may hold half of a surrogate pair
    return {"code": code, "message": clean, "hint": hint}


def describe_for_client(error: Exception, is_authenticated: bool) -> tuple[int, ErrorView, dict[str, str]]:
    """To a client without a valid token, the failure of a store does not say where the store is and who its user is."""
    status, view, headers = describe_error(error)
    if not is_authenticated and isinstance(error, STORE_FAILURES):
        log.debug("not shown to an unauthenticated client: %s", error)
        view = {**view, "message": "The server's store cannot be used now."}
    return status, view, headers


def to_error_response(error: Exception, is_authenticated: bool = True) -> Response:
    status, view, headers = describe_for_client(error, is_authenticated)
    body: ErrorBody = {"error": view}
    return Response(msgspec.json.encode(body), status, headers, media_type="application/json")


async def _handle_error(request: Request, error: Exception) -> Response:
    return to_error_response(error, is_authenticated=getattr(request.state, "identity", None) is not None)


def install_error_handlers(app: FastAPI) -> None:
    """Make every error of the application answer in this shape."""
    for kind in (
        StarletteHTTPException,
        RequestValidationError,
        Exception,
        ObjectsError,
        nouns.StoreError,
        *(kind for kind, _, _ in ERROR_RESPONSE_RULES),
    ):
        app.add_exception_handler(kind, _handle_error)


def describe_responses(
    *statuses: int, extra: dict[int | str, dict[str, Any]] | None = None
) -> dict[int | str, dict[str, Any]]:
    """For the OpenAPI description of a route: its error responses, and what else it can answer with."""
    responses: dict[int | str, dict[str, Any]] = {}
    responses.update(extra or {})
    responses.update(
        {status: {"model": ErrorBody, "description": STATUS_DESCRIPTIONS[status]} for status in sorted(statuses)}
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
