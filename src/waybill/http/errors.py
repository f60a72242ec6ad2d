"""Every refusal has one shape, and this is the only place that makes it:

    {"error": {"code": "refused", "message": "shipment s1 is Lost; resume needs it to be Failed. ...", "hint": "..."}}

`message` says what is wrong, `hint` what to do. A program looks at the status and `code`, a person reads the rest.
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
from waybill.rules import BadMark, Refused, UnknownKind, UnknownQueue
from waybill.views import BadToken

log = logging.getLogger("waybill.http")


class ErrorView(TypedDict):
    code: str
    message: str
    hint: str


class ErrorBody(TypedDict):
    error: ErrorView


class Problem(HTTPException):
    """A refusal of the HTTP layer itself."""

    def __init__(
        self, status: int, code: str, message: str, hint: str = "", headers: Mapping[str, str] | None = None
    ) -> None:
        super().__init__(status, message, dict(headers or {}))
        self.code = code
        self.hint = hint


class Refusal(NamedTuple):
    status: int
    hint: str
    headers: dict[str, str] = {}  # noqa: RUF012 - never written


AGAIN = {"Retry-After": "2"}
TROUBLES = (nouns.Unavailable, nouns.BadStore, nouns.Unknown)  # whose sentences name the store

# The first class that fits, from the special to the general.
REFUSALS: tuple[tuple[type[Exception], str, Refusal], ...] = (
    (UnknownKind, "unknown-kind", Refusal(404, "GET /api/v1/machines lists the kinds.")),
    (
        nouns.NotFound,
        "not-found",
        Refusal(404, "Look at the id, or list what there is with GET /api/v1/records/{kind}."),
    ),
    (BadToken, "bad-page-token", Refusal(400, "Ask for the first page again, without a token.")),
    (UnknownQueue, "unknown-queue", Refusal(422, "GET /api/v1/machines lists the kinds with their states.")),
    (BadMark, "bad-name", Refusal(422, "Names are parted by single slashes, such as queue/shipment.")),
    (Refused, "refused", Refusal(409, "GET the record to see its state and the actions that are possible now.")),
    (nouns.Taken, "taken", Refusal(409, "Try again when the other record has dropped the key.")),
    (nouns.Exists, "exists", Refusal(409, "Choose another id, or send an Idempotency-Key when you repeat a request.")),
    (nouns.Conflict, "conflict", Refusal(409, "Read the record again, then decide again.")),
    (nouns.SessionLost, "session-lost", Refusal(409, "Open a new session.")),
    (nouns.TooLarge, "too-large", Refusal(413, "Put bulk into a manifest in object storage and name that instead.")),
    (nouns.Unavailable, "unavailable", Refusal(503, "Nothing was written; try again in a moment.", AGAIN)),
    (
        nouns.BadStore,
        "bad-store",
        Refusal(503, "The server's operator must look at its store: `waybill doctor`.", AGAIN),
    ),
    (
        nouns.Unknown,
        "unknown",
        Refusal(
            504,
            "It may have been written. Repeat with the same Idempotency-Key, or read the record before you decide.",
            AGAIN,
        ),
    ),
    (
        MachineError,
        "bad-documents",
        Refusal(422, "GET /api/v1/machines/{kind} says which documents the kind has and who writes them."),
    ),
)

HINTS = {
    401: "Send the header Authorization: Bearer <token>.",
    404: "GET /openapi.json lists the routes.",
    405: "GET /openapi.json lists the methods of each route.",
    422: "GET /openapi.json says what is right.",
}
CODES = {400: "bad-request", 401: "no-token", 403: "forbidden", 404: "no-route", 405: "no-method", 422: "invalid"}


def describe(error: Exception) -> tuple[int, ErrorView, dict[str, str]]:
    """Status, words and headers of a refusal."""
    if isinstance(error, Problem):
        return error.status_code, _words(error.code, str(error.detail), error.hint), dict(error.headers or {})
    if isinstance(error, RequestValidationError):
        return 422, _words(CODES[422], _sentences(error), HINTS[422]), {}
    if isinstance(error, StarletteHTTPException):
        return _plain(error)
    for kind, code, refusal in REFUSALS:
        if isinstance(error, kind):
            own = error.hint if isinstance(error, nouns.NotFound) else ""
            return refusal.status, _words(code, str(error) or code, own or refusal.hint), refusal.headers
    if isinstance(error, nouns.StoreError):
        return 409, _words(error.code, str(error), "Read the record again, then decide again."), {}
    incident = secrets.token_hex(4)
    log.error("incident %s", incident, exc_info=error)
    words = f"Something went wrong in the server; it is written in its log as incident {incident}."
    hint = "Tell the server's operator the incident's number. Read the record before you repeat a write."
    return 500, _words("internal", words, hint), {}


def _plain(error: StarletteHTTPException) -> tuple[int, ErrorView, dict[str, str]]:
    """What the framework refuses by itself: unknown routes and methods, bodies that are no JSON."""
    status = error.status_code
    said = {404: "There is no such route.", 405: "This route has no such method."}.get(status, str(error.detail))
    return status, _words(CODES.get(status, "refused"), said, HINTS.get(status, "")), dict(error.headers or {})


def _sentences(error: RequestValidationError) -> str:
    """Each mistake with its place, in words; not the values, which may be large or secret."""
    found = []
    for mistake in error.errors()[:5]:
        place = [str(part) for part in mistake.get("loc", ())]
        where = " ".join((place[0], ".".join(place[1:]))).strip() if place else "request"
        found.append(f"{where}: {str(mistake.get('msg', 'not right')).removeprefix('Value error, ')}")
    return "; ".join(found) + "."


def _words(code: str, message: str, hint: str) -> ErrorView:
    clean = message.encode("utf-8", "replace").decode()  # a name may hold half of a surrogate pair
    return {"code": code, "message": clean, "hint": hint}


def said(error: Exception, known: bool) -> tuple[int, ErrorView, dict[str, str]]:
    """`known`: it is said to somebody who showed a token.

    To others a store in trouble says nothing of where it is and who its user is.
    """
    status, words, headers = describe(error)
    if not known and isinstance(error, TROUBLES):
        log.debug("said to nobody: %s", error)
        words = {**words, "message": "The server's store cannot be used now."}
    return status, words, headers


def answer(error: Exception, known: bool = True) -> Response:
    status, words, headers = said(error, known)
    body: ErrorBody = {"error": words}
    return Response(msgspec.json.encode(body), status, headers, media_type="application/json")


async def _handle(request: Request, error: Exception) -> Response:
    return answer(error, known=getattr(request.state, "identity", None) is not None)


def install(app: FastAPI) -> None:
    """Make every error of the application speak this way."""
    for kind in (
        StarletteHTTPException,
        RequestValidationError,
        Exception,
        nouns.StoreError,
        *(kind for kind, _, _ in REFUSALS),
    ):
        app.add_exception_handler(kind, _handle)


def responses(*statuses: int, also: dict[int | str, dict[str, Any]] | None = None) -> dict[int | str, dict[str, Any]]:
    """For the description of a route: which refusals it can answer with, and what else."""
    described: dict[int | str, dict[str, Any]] = {}
    described.update(also or {})
    described.update({status: {"model": ErrorBody, "description": DESCRIPTIONS[status]} for status in sorted(statuses)})
    return described


DESCRIPTIONS = {
    400: "The request cannot be understood.",
    401: "No token, or one that is not valid.",
    403: "The token's role does not allow this.",
    404: "There is no such thing.",
    405: "This route has no such method.",
    408: "The body did not come in time.",
    409: "Not now, or not so: the message says why.",
    410: "It was here, and has gone for good.",
    413: "The body is too large.",
    415: "The body is not JSON.",
    416: "There is nothing in this range.",
    421: "The Host header names another server.",
    422: "A parameter or the body is not right.",
    500: "A mistake of the server.",
    503: "The store is away, or the server is busy; try again.",
    504: "It is not known whether this was written.",
}
