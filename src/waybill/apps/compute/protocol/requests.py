"""A request of the protocol, and its reply.

The calls run in a thread. They read the body of a request as an iterator that asks the event loop for what has arrived,
so the server says `100 Continue` only when a call begins to read: whatever is refused before is refused unread.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from typing import Any
from urllib.parse import parse_qsl

import anyio
import anyio.from_thread
from starlette.types import Receive, Scope

from waybill.apps.compute.access import Caller
from waybill.apps.compute.errors import MantaError
from waybill.apps.compute.paths import StoragePath

IDLE_TIMEOUT = 45.0  # seconds without a byte of a body
GATHER = 1024 * 1024  # bytes that are handed to a thread together
PREFETCH = 256 * 1024  # a body up to this size is read before the call begins, unless its client waits to be asked
DIRECTORY_TYPE = "application/x-json-stream; type=directory"


@dataclass
class Reply:
    status: int
    headers: dict[str, str] = field(default_factory=dict)
    body: bytes | Iterable[bytes] = b""


class StorageRequest:
    def __init__(self, scope: Scope, receive: Receive, path: StoragePath, caller: Caller) -> None:
        self.method: str = scope["method"]
        self.path = path
        self.caller = caller
        self.headers: dict[str, str] = {}
        for name, value in scope["headers"]:
            self.headers.setdefault(name.decode("latin-1").lower(), value.decode("latin-1"))
        self.query = dict(parse_qsl(scope["query_string"].decode("latin-1"), keep_blank_values=True))
        self._receive = receive
        self._prefetched: bytes | None = None
        self.is_body_read = self.body_size == 0 and "transfer-encoding" not in self.headers

    @property
    def body_size(self) -> int | None:
        """The size that the client says; None for a chunked body."""
        if "transfer-encoding" in self.headers:
            return None
        text = self.headers.get("content-length", "0")
        if not text.isascii() or not text.isdigit():
            raise MantaError("BadRequest", f"content-length is {text[:40]!r}, which is no number")
        return int(text)

    @property
    def is_asked_first(self) -> bool:
        return self.headers.get("expect", "").lower() == "100-continue"

    async def prefetch(self) -> None:
        """Read a short body now: its client sends it anyway, and a call is then one change of threads."""
        size = self.body_size
        if size and size <= PREFETCH and not self.is_asked_first:
            pieces = []
            while not self.is_body_read:
                pieces.append(await self._receive_some(1))
            self._prefetched = b"".join(pieces)

    def iter_body(self) -> Iterator[bytes]:
        """In a thread: the body as it arrives, in pieces of about a megabyte."""
        if self._prefetched is not None:
            yield self._prefetched
            return
        while not self.is_body_read:
            if piece := anyio.from_thread.run(self._receive_some, GATHER):
                yield piece

    def read_body(self, limit: int, code: str) -> bytes:
        """In a thread: the whole of a short body."""
        size, pieces = 0, []
        for piece in self.iter_body():
            pieces.append(piece)
            size += len(piece)
            if size > limit:
                raise MantaError(code, f"The body has more than {limit} bytes.")
        return b"".join(pieces)

    async def _receive_some(self, wanted: int) -> bytes:
        gathered = bytearray()
        while not self.is_body_read and len(gathered) < wanted:
            message: Any
            try:
                with anyio.fail_after(IDLE_TIMEOUT):
                    message = await self._receive()
            except TimeoutError:
                raise MantaError("UploadTimeout", f"request took too long to send data: {IDLE_TIMEOUT:.0f} s") from None
            if message["type"] == "http.disconnect":
                raise MantaError("UploadAbandoned", "request was aborted by the client")
            gathered += message.get("body", b"")
            self.is_body_read = not message.get("more_body", False)
        return bytes(gathered)
