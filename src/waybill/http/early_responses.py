"""What happens to the rest of a body when the response comes first.

A refusal (no token, no such parent, a full disk) is sent before the body was read. A small rest is read and dropped, and
the connection goes on. Otherwise the response says `Connection: close`; the server reads on for a moment, because a
connection that is closed while bytes arrive is reset, and the client would lose the response; then it closes.

A client that sends `Expect: 100-continue` is told to continue when the body is first read, so after all checks. After a
refusal it sends nothing, and the connection is closed at once.
"""

from __future__ import annotations

import anyio
from starlette.datastructures import Headers, MutableHeaders
from starlette.types import ASGIApp, Message, Receive, Scope, Send

SMALL_BODY = 64 * 1024  # bytes that are not worth a new connection
DRAIN_BYTES = 4 * 1024 * 1024
DRAIN_SECONDS = 2.0


class EarlyResponseMiddleware:
    def __init__(self, app: ASGIApp) -> None:
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http" or not _has_large_body(headers := Headers(scope=scope)):
            await self._app(scope, receive, send)
            return
        expects_continue = headers.get("expect", "").lower() == "100-continue"
        is_complete = is_reading = closes = False

        async def receive_and_note() -> Message:
            nonlocal is_complete, is_reading
            is_reading = True
            message = await receive()
            is_complete = message["type"] == "http.disconnect" or not message.get("more_body", False)
            return message

        async def send_and_close(message: Message) -> None:
            nonlocal closes
            if message["type"] == "http.response.start":
                closes = not is_complete
                if closes:
                    MutableHeaders(scope=message)["Connection"] = "close"
            # Nothing is on its way when the client waits to be told to continue.
            elif closes and not message.get("more_body", False) and (is_reading or not expects_continue):
                await send({**message, "more_body": True})
                await _drain(receive_and_note)
                message = {"type": "http.response.body", "body": b"", "more_body": False}
            await send(message)

        await self._app(scope, receive_and_note, send_and_close)


def _has_large_body(headers: Headers) -> bool:
    stated = headers.get("content-length", "")
    expects = "expect" in headers
    return "transfer-encoding" in headers or (
        stated.isdigit() and (int(stated) > SMALL_BODY or (expects and stated != "0"))
    )


async def _drain(receive: Receive) -> None:
    """Read and drop what arrives, for a limited time."""
    size = 0
    with anyio.move_on_after(DRAIN_SECONDS):
        while size < DRAIN_BYTES:
            message = await receive()
            size += len(message.get("body", b""))
            if message["type"] == "http.disconnect" or not message.get("more_body", False):
                return
