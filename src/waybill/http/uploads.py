"""Uploads: request bodies and multipart forms, read while they arrive, however large they are.

`UploadSlots` limits the uploads of a process, and of one token; none may be too slow. Each is read by a thread of its
own, which asks the event loop for the next chunk; a slow reader slows the client down, and memory holds only a few chunks.

    for part in read_form(chunks, content_type):
        part.name, part.filename, b"".join(part.data)       the rest of a part is skipped when the next one is requested

Anything that is not a form raises InputError. The parser is python-multipart's; it does not detect a missing last
boundary, so `_FormEvents` does.
"""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from contextlib import AsyncExitStack
from dataclasses import dataclass
from typing import Any, TypeVar

import anyio
import anyio.from_thread
import anyio.to_thread
from fastapi import Request
from python_multipart.exceptions import FormParserError
from python_multipart.multipart import MultipartParser, parse_options_header
from starlette.requests import ClientDisconnect

from waybill.errors import InputError
from waybill.http.errors import HttpProblem

UPLOAD_SLOTS = 16  # uploads at once in a process
SLOTS_PER_CLIENT = 6  # of them, for one token
UPLOAD_TIMEOUT = 60.0  # seconds without a byte
SLOT_TIMEOUT = 10.0  # seconds that an upload waits for a slot
MIN_SPEED = 2048  # bytes a second, while the server waits for them
SPEED_WINDOW = 60.0  # seconds of waiting over which the speed is measured
MAX_PARTS = 200
LONGEST_FIELD = 64 * 1024  # bytes of a field that is not a file

T = TypeVar("T")


class UploadSlots:
    def __init__(
        self,
        slots: int = UPLOAD_SLOTS,
        timeout: float = UPLOAD_TIMEOUT,
        *,
        slots_per_client: int = SLOTS_PER_CLIENT,
        slot_timeout: float = SLOT_TIMEOUT,
        speed_window: float = SPEED_WINDOW,
    ) -> None:
        self._limiter = anyio.CapacityLimiter(slots)
        self._timeout, self._slot_timeout, self._speed_window = timeout, slot_timeout, speed_window
        self._slots_per_client = min(slots, slots_per_client)
        self._client_limiters: dict[str, anyio.CapacityLimiter] = {}  # of clients that upload now

    @property
    def waiting_count(self) -> int:
        """The number of uploads that wait for a slot."""
        limiters = (self._limiter, *self._client_limiters.values())
        return sum(limiter.statistics().tasks_waiting for limiter in limiters)

    async def take(self, request: Request, work: Callable[[Iterator[bytes]], T]) -> T:
        """Run `work` with the chunks of the body, in a thread. Raises 503 when the slots stay taken: those of the token, or all."""
        key = _client_of(request)
        own = self._client_limiters.setdefault(key, anyio.CapacityLimiter(self._slots_per_client))
        async with AsyncExitStack() as slots:
            try:
                with anyio.fail_after(self._slot_timeout):
                    for limiter in (own, self._limiter):  # the own one first: whoever waits for it takes nobody's slot
                        borrower = object()
                        await limiter.acquire_on_behalf_of(borrower)
                        slots.callback(limiter.release_on_behalf_of, borrower)
            except TimeoutError:
                message = "All places for uploads are taken" + ("" if own.available_tokens else " by this token") + "."
                raise HttpProblem("busy", message, "Try again in a moment; fewer at once are faster.") from None
            finally:
                slots.callback(self._forget_client, key)
            return await anyio.to_thread.run_sync(work, self._iter_chunks(request), limiter=anyio.CapacityLimiter(1))

    def _forget_client(self, key: str) -> None:
        found = self._client_limiters.get(key)
        if found is not None and not found.borrowed_tokens and not found.statistics().tasks_waiting:
            del self._client_limiters[key]

    def _iter_chunks(self, request: Request) -> Iterator[bytes]:
        stream = aiter(request.stream())
        waited = received = 0.0  # seconds and bytes since the speed was measured last

        async def read_chunk() -> bytes | None:
            try:
                with anyio.fail_after(self._timeout):
                    return await anext(stream, None)
            except TimeoutError:
                raise HttpProblem(
                    "too-slow", f"Nothing was received for {self._timeout:.0f} seconds.", "Send it again."
                ) from None
            except ClientDisconnect:
                raise HttpProblem(
                    "disconnected", "The client disconnected before the upload was complete.", "Send it again."
                ) from None

        while True:
            start = time.monotonic()
            chunk = anyio.from_thread.run(read_chunk)
            if chunk is None:
                return
            # Only the time in which the server waits for the client counts: it may itself be slow to store the bytes.
            waited, received = waited + time.monotonic() - start, received + len(chunk)
            if waited >= self._speed_window:
                if received < MIN_SPEED * waited:
                    message = f"The upload is slower than {MIN_SPEED} bytes a second."
                    raise HttpProblem("too-slow", message, "Send it again over a faster connection.")
                waited = received = 0.0
            if chunk:
                yield chunk


def _client_of(request: Request) -> str:
    """Whose places an upload takes: those of its token; without one, of its address."""
    identity = getattr(request.state, "identity", None)
    if identity is not None:
        return str(identity.token or identity.sign_in or identity.name)
    return f"address {request.client.host if request.client else ''}"


@dataclass
class FormPart:
    name: str
    filename: str | None  # None: a field
    data: Iterator[bytes]

    def read_text(self) -> str:
        """Return the value of a field; raise InputError if it is too long or not UTF-8."""
        parts, size = [], 0
        for chunk in self.data:
            size += len(chunk)
            if size > LONGEST_FIELD:
                raise InputError(f"The field {self.name[:60]!r} has more than {LONGEST_FIELD} bytes.")
            parts.append(chunk)
        try:
            return b"".join(parts).decode()
        except UnicodeDecodeError:
            raise InputError(f"The field {self.name[:60]!r} is not UTF-8.") from None


def read_form(chunks: Iterable[bytes], content_type: str) -> Iterator[FormPart]:
    """Yield the parts in order."""
    events = _FormEvents(content_type)
    remaining = iter(chunks)
    while True:
        part = _read_next_part(events, remaining)
        if part is None:
            return
        yield part
        for _ in part.data:
            pass  # skip what was not read


def _read_next_part(events: _FormEvents, chunks: Iterator[bytes]) -> FormPart | None:
    while (event := events.next_event(chunks)) is not None:
        if event[0] == "headers":
            disposition, options = parse_options_header(event[1].get(b"content-disposition"))
            if disposition != b"form-data" or b"name" not in options:
                raise InputError(
                    "A part of the form has no name: it needs the header Content-Disposition: form-data; name=..."
                )
            filename = _decode_name(options[b"filename"]) if b"filename" in options else None
            return FormPart(_decode_name(options[b"name"]), filename, _iter_data(events, chunks))
    return None


def _iter_data(events: _FormEvents, chunks: Iterator[bytes]) -> Iterator[bytes]:
    while (event := events.next_event(chunks)) is not None and event[0] == "data":
        yield event[1]


def _decode_name(name: bytes) -> str:
    try:
        return name.decode()
    except UnicodeDecodeError:
        return name.decode("iso-8859-1")


class _FormEvents:
    """The events of the parser in order: ("headers", {...}), ("data", bytes) ..., ("end", None) for each part, then None."""

    def __init__(self, content_type: str) -> None:
        kind, options = parse_options_header(content_type.encode("latin-1", "replace"))
        if kind != b"multipart/form-data" or not options.get(b"boundary"):
            raise InputError("This is not a form: send multipart/form-data, as `curl -F file=@...` does.")
        self._queue: deque[tuple[str, Any]] = deque()
        self._headers: dict[bytes, bytes] = {}
        self._field, self._value = b"", b""
        self._part_count = 0
        self._is_complete = False
        try:
            self._parser = MultipartParser(
                options[b"boundary"],
                {
                    "on_part_begin": self._on_part_begin,
                    "on_header_field": self._on_header_field,
                    "on_header_value": self._on_header_value,
                    "on_header_end": self._on_header_end,
                    "on_headers_finished": lambda: self._queue.append(("headers", self._headers)),
                    "on_part_data": lambda data, start, end: self._queue.append(("data", bytes(data[start:end]))),
                    "on_part_end": lambda: self._queue.append(("end", None)),
                    "on_end": self._on_end,
                },
            )
        except FormParserError as error:
            raise InputError(f"The form cannot be read: {error}.") from None

    def next_event(self, chunks: Iterator[bytes]) -> tuple[str, Any] | None:
        while not self._queue:
            chunk = next(chunks, None)
            if chunk is None:
                if not self._is_complete:
                    raise InputError("The form ends before its last boundary: it is incomplete.")
                return None
            if self._is_complete:
                continue  # bytes after the last boundary are ignored
            try:
                self._parser.write(chunk)
            except FormParserError as error:
                raise InputError(f"The form cannot be read: {error}.") from None
        return self._queue.popleft()

    def _on_part_begin(self) -> None:
        self._part_count += 1
        if self._part_count > MAX_PARTS:
            raise InputError(f"The form has more than {MAX_PARTS} parts.")
        self._headers = {}

    def _on_header_field(self, data: bytes, start: int, end: int) -> None:
        self._field += data[start:end]

    def _on_header_value(self, data: bytes, start: int, end: int) -> None:
        self._value += data[start:end]

    def _on_header_end(self) -> None:
        self._headers[self._field.lower()] = self._value
        self._field, self._value = b"", b""

    def _on_end(self) -> None:
        self._is_complete = True
