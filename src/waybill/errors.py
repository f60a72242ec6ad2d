"""The errors of Waybill: one base class, and one table that says what each code means.

Every error has a `code`, which programs read, and a text, which people read: no program compares the text. A class has a
code of its own where some caller must tell it from the others; elsewhere the code is given when the error is raised. What
follows from a code, the HTTP status and the exit code of the command line among it, is in ERROR_CODES and nowhere else.
An application has codes of its own, `Application.error_codes`.

`StepStopped` and the crashes of the simulator are no errors: they derive from BaseException and have no code.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

# Exit codes of the command line.
OK = 0
FAILED = 1
USAGE = 2
MISSING = 3
CONFLICT = 4
STORE = 5


class ErrorCode(NamedTuple):
    """What follows from a code."""

    status: int  # of HTTP; 500 is logged as an incident, and its text is not shown to the client
    exit_code: int
    description: str
    hint: str = ""  # what to do, for a client of HTTP
    command_hint: str = ""  # what to do, at the command line
    retry_after: int = 0  # seconds after which the same request may succeed; 0: it fails again


_RETRY = "Nothing was written; try again in a moment."
_READ_AGAIN = "Read the record again, then decide again."
_CORRECT = "Correct it and send it again."
_OPENAPI = "GET /openapi.json describes the parameters and bodies."

ERROR_CODES: dict[str, ErrorCode] = {
    # What was given is wrong.
    "invalid": ErrorCode(422, FAILED, "A parameter or the body is not of its type.", _OPENAPI),
    "invalid-request": ErrorCode(
        400, FAILED, "What was sent cannot be accepted as it is.", "Correct the request and send it again."
    ),
    "usage": ErrorCode(400, USAGE, "The arguments of the command are wrong or contradict each other.", _OPENAPI),
    "bad-request": ErrorCode(400, USAGE, "The request cannot be understood.", _OPENAPI),
    "bad-query": ErrorCode(400, USAGE, "The parameters contradict each other, or one is unknown.", _OPENAPI),
    "bad-json": ErrorCode(400, USAGE, "The body is not valid JSON.", "Send one JSON value in UTF-8."),
    "not-json": ErrorCode(415, USAGE, "The body is not JSON.", "Send the header Content-Type: application/json."),
    "bad-page-token": ErrorCode(
        400,
        USAGE,
        "This page token is not one of ours, or belongs to another list. Begin again without a token.",
        "Request the first page again, without a page token.",
    ),
    "bad-documents": ErrorCode(
        422,
        FAILED,
        "A document is not declared, not of its type, or not the caller's to write.",
        "GET /api/v1/machines/{kind} says which documents the kind has and what writes them.",
    ),
    "bad-name": ErrorCode(
        422,
        FAILED,
        "This cannot be the name of a hold.",
        "The parts of a name are separated by single slashes, such as queue/shipment.",
    ),
    "too-large": ErrorCode(
        413,
        FAILED,
        "The body, or what it would write, is too large.",
        "Put bulk into a manifest in object storage and name that instead.",
    ),
    "bad-path": ErrorCode(400, FAILED, "A path cannot be decoded.", "Write each byte as %XX, with two hex digits."),
    "durable-catalogue": ErrorCode(
        409, FAILED, "A catalogue whose rows are the truth was to be dropped or rebuilt.", "Restore a backup instead."
    ),
    "too-many-rows": ErrorCode(422, FAILED, "A query finds more rows than it may return.", "Narrow the query."),
    "content-mismatch": ErrorCode(500, STORE, "Data does not have the expected size or digest."),
    "unknown-digest": ErrorCode(422, USAGE, "No digest of this type is supported.", _OPENAPI),
    "bad-format": ErrorCode(422, FAILED, "A file or a text is not what its format requires.", _CORRECT),
    "bad-container": ErrorCode(422, FAILED, "A zip or a tar is damaged, unsafe or too large.", _CORRECT),
    "bad-manifest": ErrorCode(422, FAILED, "A manifest is not written as it must be.", _CORRECT),
    # What was named does not exist.
    "not-found": ErrorCode(
        404,
        MISSING,
        "There is no such record.",
        "Check the id, or list the records with GET /api/v1/records/{kind}.",
        "Check the id, or list the records with `waybill ls KIND`.",
    ),
    "unknown-name": ErrorCode(
        404, MISSING, "There is nothing of this name.", "Check the name, or list the existing ones."
    ),
    "unknown-kind": ErrorCode(
        404,
        MISSING,
        "There is no such kind of record.",
        "GET /api/v1/machines lists the kinds.",
        "`waybill machines` lists the kinds; those of the demonstration need the setting demo.",
    ),
    "unknown-event": ErrorCode(
        422,
        FAILED,
        "No application declares this type of event, or it cannot be sent.",
        "The page of events lists the declared types.",
    ),
    "unknown-state": ErrorCode(
        400, MISSING, "The kind has no such state.", "GET /api/v1/machines lists the kinds with their states."
    ),
    "unknown-action": ErrorCode(
        404, MISSING, "The kind has no such action.", "GET /api/v1/machines lists the kinds with their actions."
    ),
    "unknown-queue": ErrorCode(
        422, MISSING, "No queue has this name.", "GET /api/v1/machines lists the kinds with their states."
    ),
    "unknown-hold-name": ErrorCode(
        422, MISSING, "No record heeds a hold of this name.", "`waybill machines KIND` says what can be held."
    ),
    "unknown-hold": ErrorCode(404, MISSING, "No hold of this name is set.", "GET /api/v1/holds lists them."),
    "no-route": ErrorCode(404, MISSING, "There is no such route.", "GET /openapi.json lists the routes."),
    "no-method": ErrorCode(
        405, MISSING, "This route has no such method.", "GET /openapi.json lists the methods of each route."
    ),
    "gone": ErrorCode(410, MISSING, "It existed, and was removed for good.", "Request it again."),
    # It is not possible now.
    "refused": ErrorCode(
        409,
        FAILED,
        "Not possible in the present state; the message says why.",
        "GET the record to see its state and the actions that are possible now.",
    ),
    "claimed": ErrorCode(409, CONFLICT, "A worker has claimed the record.", "Try again when the claim has ended."),
    "conflict": ErrorCode(409, CONFLICT, "The record has changed since it was read.", _READ_AGAIN),
    "busy-record": ErrorCode(
        409,
        CONFLICT,
        "Others keep changing the record, or requested another action of it that is not answered yet.",
        "Nothing was written; try again in a moment.",
    ),
    "parent-closed": ErrorCode(
        409, FAILED, "The parent is closed or gone, and takes no more children.", "GET the parent to see its state."
    ),
    "claim-lost": ErrorCode(409, CONFLICT, "The claim has ended.", _READ_AGAIN),
    "exists": ErrorCode(
        409,
        CONFLICT,
        "A record of this kind and id exists already.",
        "Choose another id, or send an Idempotency-Key when you repeat a request.",
    ),
    "lock-unavailable": ErrorCode(
        409, CONFLICT, "Another record owns a lock.", "Try again when the other record has released the lock."
    ),
    "session-lost": ErrorCode(409, FAILED, "The session has ended, and its claims with it.", "Open a new session."),
    "damaged-document": ErrorCode(
        409,
        FAILED,
        "A document of the record is missing, damaged or of a version that this release does not read.",
        "GET the record to see its documents; its operator must examine what wrote them.",
    ),
    "failed": ErrorCode(409, FAILED, "The work of the record failed; the message says why.", "Resume it."),
    # Who asks.
    "no-token": ErrorCode(401, FAILED, "The request has no token.", "Send the header Authorization: Bearer <token>."),
    "bad-token": ErrorCode(401, FAILED, "The token is not valid.", "Send the header Authorization: Bearer <token>."),
    "bad-token-file": ErrorCode(500, FAILED, "The file with the token cannot be used."),
    "forbidden": ErrorCode(403, FAILED, "The role of the token is not sufficient.", "Use a token with another role."),
    "bad-signature": ErrorCode(
        403, FAILED, "A signed URL is not ours, or has expired.", "Send a token, or get a new URL."
    ),
    "foreign-origin": ErrorCode(
        403, FAILED, "A page of another site sent the request.", "Send it from a page of ours."
    ),
    "unknown-host": ErrorCode(421, FAILED, "The Host header names another server.", "Use the name of this server."),
    # How it arrived.
    "too-slow": ErrorCode(408, FAILED, "An upload stopped.", "Send it again."),
    "disconnected": ErrorCode(400, FAILED, "The client disconnected during an upload.", "Send it again."),
    "bad-range": ErrorCode(416, FAILED, "The range is outside the file.", "Request a range inside of it."),
    # The store, and the object store.
    "unavailable": ErrorCode(503, STORE, "The store is unavailable.", _RETRY, "", 2),
    "busy": ErrorCode(503, FAILED, "The server is busy.", "Try again in a moment.", "", 5),
    "bad-store": ErrorCode(
        503,
        STORE,
        "The store cannot be opened as it is.",
        "The server's operator must examine its store: `waybill doctor`.",
        "",
        2,
    ),
    "outcome-unknown": ErrorCode(
        504,
        STORE,
        "The store was lost in the middle of a write: it may have been written.",
        "It may have been written. Repeat with the same Idempotency-Key, or read the record before you decide.",
        "",
        2,
    ),
    "objects": ErrorCode(500, STORE, "The object store failed.", "", "", 10),
    "objects-refused": ErrorCode(500, STORE, "The object store does not accept the request."),
    "objects-unsupported": ErrorCode(500, STORE, "The object store cannot do this safely."),
    "object-not-found": ErrorCode(500, STORE, "There is no such object."),
    "object-exists": ErrorCode(500, STORE, "An object of this name exists already."),
    "object-changed": ErrorCode(500, STORE, "The object has changed since it was read."),
    "objects-denied": ErrorCode(500, STORE, "The object store denies access."),
    "objects-full": ErrorCode(503, STORE, "There is no space left for objects.", _RETRY, "", 10),
    "objects-unavailable": ErrorCode(503, STORE, "The object store is unavailable.", _RETRY, "", 10),
    "damaged": ErrorCode(500, FAILED, "Stored content is missing or damaged.", "Tell the server's operator."),
    # Other servers.
    "address-not-allowed": ErrorCode(
        422, FAILED, "The policy does not allow requests to this address.", "Name an address that the server may use."
    ),
    "host-unresolved": ErrorCode(
        422, FAILED, "The name of a host cannot be resolved.", "Check the name of the host, or try again.", "", 10
    ),
    "transfer-refused": ErrorCode(422, FAILED, "Another server does not take or send this.", "Check the address."),
    "transfer-failed": ErrorCode(503, FAILED, "Another server cannot be reached.", "Try again in a moment.", "", 10),
    "no-server": ErrorCode(
        503, STORE, "The Waybill server cannot be reached.", "Check its address, and whether it runs.", "", 10
    ),
    "bad-server": ErrorCode(500, STORE, "The server does not answer as a Waybill server does."),
    # Commands of users.
    "sandbox-refused": ErrorCode(
        422,
        FAILED,
        "A command cannot be run here, or not with these limits; the message says why.",
        "Ask for less, or for what the machine has.",
        "`waybill doctor` says what this machine offers for sandboxes.",
    ),
    "sandbox-lost": ErrorCode(503, FAILED, "A sandbox ended while its command ran.", "Run it again.", "", 2),
    # Settings, applications, files of this process.
    "bad-config": ErrorCode(
        500, USAGE, "A setting is wrong.", "", "`waybill config` shows the settings in force and where each came from."
    ),
    "bad-application": ErrorCode(500, USAGE, "An application cannot be loaded, or its settings are wrong."),
    "bad-machine": ErrorCode(409, FAILED, "A machine is not declared as it must be.", "Tell the server's operator."),
    "no-socket": ErrorCode(500, FAILED, "The server cannot listen on its address."),
    "files": ErrorCode(500, FAILED, "A file or folder cannot be used; the message says what to do."),
    "disk": ErrorCode(500, STORE, "The disk is full, read-only or broken."),
    "internal": ErrorCode(500, FAILED, "A bug.", "", "WAYBILL_DEBUG=1 shows where; please report it."),
}


def declare_error_codes(codes: Mapping[str, ErrorCode]) -> None:
    """Add the codes of an application to the table."""
    if known := [code for code in codes if code in ERROR_CODES and ERROR_CODES[code] != codes[code]]:
        raise ValueError(f"These error codes are declared already: {', '.join(known)}.")
    ERROR_CODES.update(codes)


class WaybillError(Exception):
    """Waybill could not do this."""

    code: str = "internal"

    def __init__(self, message: str | None = None, *, code: str = "", hint: str = "") -> None:
        super().__init__(message or (ERROR_CODES[code].description if code else (self.__doc__ or "").strip()))
        if code:
            self.code = code
        self.hint = hint  # what to do, where the hint of the code is too general

    @property
    def is_retryable(self) -> bool:
        """Whether the same request may succeed later."""
        return ERROR_CODES[self.code].retry_after > 0


class ActionRefused(WaybillError):
    """This is not allowed now."""

    code = "refused"


class InputError(ActionRefused):
    """What was given is wrong: a setting, an argument, a body or a file."""

    code = "invalid-request"


class FormatError(InputError):
    """A file or a text is not what its format requires."""

    code = "bad-format"

    def __init__(self, message: str, line: int = 0, *, code: str = "") -> None:
        super().__init__(f"Line {line}: {message}" if line else message, code=code)
        self.line = line


class NotFound(ActionRefused):
    """What was named does not exist."""

    code = "unknown-name"
