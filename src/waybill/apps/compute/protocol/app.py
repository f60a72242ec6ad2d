"""A request of the protocol from its first byte to its reply.

    path -> caller -> call, in a thread -> reply, streamed

Every refusal below these paths has Manta's shape. A connection whose request was answered before its body was read is
closed: its client may never send that body.
"""

from __future__ import annotations

import time
import uuid
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable, Iterator
from typing import Any

import anyio
import anyio.to_thread
import msgspec
from starlette.types import Receive, Scope, Send

from waybill.apps.compute.access import Caller
from waybill.apps.compute.errors import MantaError, to_manta_error
from waybill.apps.compute.paths import StoragePath, parse_url_path
from waybill.apps.compute.protocol.requests import Reply, StorageRequest

MAX_THREADS = 64  # requests that are at work at once; more wait
Authenticate = Callable[[Scope, StoragePath], Awaitable[Caller]]
Call = Callable[[StorageRequest], Reply]


class MantaApp:
    """The protocol as an ASGI application. `find_call` chooses what answers a request."""

    def __init__(self, authenticate: Authenticate, find_call: Callable[[StorageRequest], Call]) -> None:
        self._authenticate = authenticate
        self._find_call = find_call
        self._limiter: anyio.CapacityLimiter | None = None

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        began = time.monotonic()
        request: StorageRequest | None = None
        try:
            path = parse_url_path(scope["raw_path"])
            request = StorageRequest(scope, receive, path, await self._authenticate(scope, path))
            call = self._find_call(request)
            await request.prefetch()
            reply = await self._run(call, request)
        except Exception as error:  # noqa: BLE001 - every refusal has Manta's shape; unknown errors are logged there
            reply = make_refusal(to_manta_error(error))
        headers = {
            "Server": "Manta",
            "x-request-id": _read_request_id(scope),
            "x-response-time": str(int((time.monotonic() - began) * 1000)),
            "x-server-name": "waybill",
            **reply.headers,
        }
        if request is None or not request.is_body_read:
            headers["Connection"] = "close"
        await self._send(reply, headers, scope["method"] == "HEAD", send)

    async def _run(self, call: Callable[..., Any], *arguments: Any) -> Any:
        if self._limiter is None:
            self._limiter = anyio.CapacityLimiter(MAX_THREADS)
        return await anyio.to_thread.run_sync(call, *arguments, limiter=self._limiter)

    async def _send(self, reply: Reply, headers: dict[str, str], is_head: bool, send: Send) -> None:
        body = reply.body
        if isinstance(body, bytes) and reply.status not in (204, 304):
            headers.setdefault("Content-Length", str(len(body)))
        encoded = [(name.lower().encode("latin-1"), _encode_value(value)) for name, value in headers.items()]
        await send({"type": "http.response.start", "status": reply.status, "headers": encoded})
        if is_head or reply.status in (204, 304):
            await send({"type": "http.response.body", "body": b""})
        elif isinstance(body, bytes):
            await send({"type": "http.response.body", "body": body})
        else:
            async for piece in self._iterate(body):
                await send({"type": "http.response.body", "body": piece, "more_body": True})
            await send({"type": "http.response.body", "body": b""})

    async def _iterate(self, body: Iterable[bytes]) -> AsyncIterator[bytes]:
        pieces = iter(body)
        try:
            while (piece := await self._run(_next_piece, pieces)) is not None:
                yield piece
        finally:
            if hasattr(body, "close"):
                body.close()


def _next_piece(pieces: Iterator[bytes]) -> bytes | None:
    return next(pieces, None)


def _encode_value(value: str) -> bytes:
    """A header value that cannot split the header."""
    return value.replace("\r", " ").replace("\n", " ").encode("utf-8" if not value.isascii() else "ascii")


def _read_request_id(scope: Scope) -> str:
    for name, value in scope["headers"]:
        if name == b"x-request-id" and len(value) <= 100 and value.isascii():
            return str(value.decode("ascii"))
    return str(uuid.uuid4())


def make_refusal(error: MantaError) -> Reply:
    body = msgspec.json.encode({"code": error.manta_code, "message": str(error)})
    return Reply(error.status, {"Content-Type": "application/json", **error.headers}, body)
