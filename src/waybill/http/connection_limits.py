"""What one client may cost: how long a connection may be idle or slow, and how many there may be.

A connection is closed when

    no request is complete   HEADER_TIMEOUT seconds after the connection was made or the request began
    a body stops             BODY_TIMEOUT seconds without a byte, while somebody waits for it
    a response is not read   WRITE_TIMEOUT seconds
    nothing is requested     KEEP_ALIVE_TIMEOUT seconds after a response

There are at most `max_connections`, fewer than the process may have files open. The last RESERVED of them answer /health,
/ready and administrators only; everybody else gets 503 there. A connection beyond all of them is closed at once. A request
whose length is said twice (Content-Length and Transfer-Encoding) is refused: two servers in a row could split it differently.

All connections are looked at once a second (`check`), which costs less than a timer for each.
"""

from __future__ import annotations

import asyncio
import logging
import resource
import time
from collections.abc import Callable
from typing import Any

import h11
from starlette.requests import Request
from starlette.types import ASGIApp, Receive, Scope, Send
from uvicorn.protocols.http.h11_impl import H11Protocol

from waybill.errors import WaybillError
from waybill.http.authentication import TokenAuthenticator
from waybill.http.errors import HttpProblem, to_error_response

log = logging.getLogger("waybill.http")

HEADER_TIMEOUT = 20.0  # seconds
BODY_TIMEOUT = 90.0
WRITE_TIMEOUT = 120.0
KEEP_ALIVE_TIMEOUT = 5
RESERVED = 20  # connections for health and administrators
BACKLOG = 128  # connections that the system may accept before the process counts them
OTHER_FILES = 200  # open files of everything else: databases, payloads, logs
MAX_CONNECTIONS = 4000
REPORT_INTERVAL = 60.0  # seconds between two lines in the log that say the same
OPEN_PATHS = ("/health", "/ready")
_RESERVED_STATE = "is_reserved_connection"


def count_allowed_connections() -> int:
    """How many connections the limit of open files leaves room for."""
    soft, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft == resource.RLIM_INFINITY:
        return MAX_CONNECTIONS
    return max(min(MAX_CONNECTIONS, soft - OTHER_FILES - BACKLOG), min(2 * RESERVED, soft // 4))


class RepeatedWarning:
    """A warning in the log, at most once in REPORT_INTERVAL, with how often it was due."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._last_at = -REPORT_INTERVAL
        self._count = 0

    def report(self, message: str) -> None:
        self._count += 1
        if self._clock() - self._last_at >= REPORT_INTERVAL:
            log.warning("%s (%d times since the last line)", message, self._count)
            self._last_at, self._count = self._clock(), 0


class LimitedConnection(H11Protocol):
    """One connection of a client."""

    max_connections = MAX_CONNECTIONS
    too_many = RepeatedWarning()

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        self._is_reserved = False
        self._since = self.loop.time()  # of what `check` waits for
        self._is_waiting_for_head = True
        super().connection_made(transport)
        count = len(self.connections)
        if count > self.max_connections:
            self.too_many.report(f"more than {self.max_connections} connections: new ones are closed")
            transport.abort()
        elif count > self.max_connections - RESERVED:
            self.too_many.report(
                f"{count} connections: of new ones only health and administrators are answered, until others are closed"
            )
            self._is_reserved = True

    def data_received(self, data: bytes) -> None:
        if self._is_idle() and not self._is_waiting_for_head:
            self._is_waiting_for_head, self._since = True, self.loop.time()
        elif not self._is_waiting_for_head:
            self._since = self.loop.time()
        super().data_received(data)

    def handle_events(self) -> None:
        before = self.cycle
        super().handle_events()
        if self.cycle is not before:
            self._is_waiting_for_head, self._since = False, self.loop.time()
            if self._is_reserved:
                self.scope["state"][_RESERVED_STATE] = True
            names = [name for name, _ in self.headers]
            if b"content-length" in names and b"transfer-encoding" in names:
                self.scope["state"]["has_two_lengths"] = True

    def check(self) -> None:
        """Close the connection if its client is too slow."""
        if self.transport is None or self.transport.is_closing():
            return
        waited = self.loop.time() - self._since
        if self._is_waiting_for_head:
            if waited > (HEADER_TIMEOUT / 4 if self._is_reserved else HEADER_TIMEOUT):
                self.transport.abort()
        elif self.flow.write_paused:
            if waited > WRITE_TIMEOUT:
                self.transport.abort()
        elif not self._is_idle() and self.cycle.more_body and not self.flow.read_paused:
            if waited > BODY_TIMEOUT:
                self.transport.abort()
        else:
            self._since = self.loop.time()  # the server is at work, or keep-alive has its own timer

    def pause_writing(self) -> None:
        self._since = self.loop.time()
        super().pause_writing()

    def _is_idle(self) -> bool:
        return self.cycle is None or self.cycle.response_complete

    def shutdown(self) -> None:
        try:
            super().shutdown()
        except h11.LocalProtocolError:  # in the middle of a request line
            self.transport.abort()


def make_connection_type(max_connections: int) -> type[LimitedConnection]:
    """The type of the connections of one server."""
    return type(
        "LimitedConnection", (LimitedConnection,), {"max_connections": max_connections, "too_many": RepeatedWarning()}
    )


class ConnectionLimitMiddleware:
    """Answers reserved connections, and refuses a body with two lengths."""

    def __init__(self, app: ASGIApp, authenticator: TokenAuthenticator) -> None:
        self._app, self._authenticator = app, authenticator

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        state = scope.get("state") or {}
        problem = None
        if scope["type"] == "http" and state.get("has_two_lengths"):
            message = "The request has both Content-Length and Transfer-Encoding: its length is not certain."
            problem = HttpProblem("bad-request", message, "Send one of them.", {"Connection": "close"})
        elif scope["type"] == "http" and state.get(_RESERVED_STATE) and scope["path"] not in OPEN_PATHS:
            problem = await self._refuse_unless_admin(Request(scope))
        await (self._app if problem is None else to_error_response(Request(scope), problem))(scope, receive, send)

    async def _refuse_unless_admin(self, request: Request) -> HttpProblem | None:
        try:
            await self._authenticator.authenticate(request)
            if request.state.identity.has_role("admin"):
                return None
        except WaybillError:
            pass  # whoever it is, it is no administrator
        return HttpProblem(
            "busy", "The server has too many connections.", "Try again in a moment.", {"Connection": "close"}
        )


def install_loop_limits(loop: asyncio.AbstractEventLoop) -> None:
    """Say once a minute that connections cannot be accepted, where asyncio would log a traceback for each."""
    warning = RepeatedWarning()

    def handle(loop: asyncio.AbstractEventLoop, context: dict[str, Any]) -> None:
        error = context.get("exception")
        if isinstance(error, OSError) and "accept" in str(context.get("message", "")):
            warning.report(f"connections cannot be accepted: {error.strerror}")
        else:
            loop.default_exception_handler(context)

    loop.set_exception_handler(handle)
