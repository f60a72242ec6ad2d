"""A form with a file in it (multipart/form-data), read part by part as it comes, however large the file is.

    for part in read_form(chunks, content_type):
        part.name, part.filename, b"".join(part.data)       a part is read before the next one is asked for; what is left of it is skipped

What is no form raises BadForm with a sentence. The parser is python-multipart's; it knows nothing of the end, so we do.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Any

from python_multipart.exceptions import FormParserError
from python_multipart.multipart import MultipartParser, parse_options_header

from waybill.apps.ingest.service import Unfit

MOST_PARTS = 200
LONGEST_FIELD = 64 * 1024  # bytes of a field that is no file


class BadForm(Unfit):
    """The form cannot be read."""


@dataclass
class Part:
    name: str
    filename: str | None  # None: a field
    data: Iterator[bytes]

    def text(self) -> str:
        """The value of a field; BadForm for one that is too long or not UTF-8."""
        parts, size = [], 0
        for portion in self.data:
            size += len(portion)
            if size > LONGEST_FIELD:
                raise BadForm(f"The field {self.name[:60]!r} has more than {LONGEST_FIELD} bytes.")
            parts.append(portion)
        try:
            return b"".join(parts).decode()
        except UnicodeDecodeError:
            raise BadForm(f"The field {self.name[:60]!r} is not UTF-8.") from None


def read_form(chunks: Iterable[bytes], content_type: str) -> Iterator[Part]:
    """The parts in their order."""
    events = _Events(content_type)
    left = iter(chunks)
    while True:
        part = _next_part(events, left)
        if part is None:
            return
        yield part
        for _ in part.data:
            pass  # what nobody wanted


def _next_part(events: _Events, chunks: Iterator[bytes]) -> Part | None:
    while (event := events.next(chunks)) is not None:
        if event[0] == "headers":
            disposition, options = parse_options_header(event[1].get(b"content-disposition"))
            if disposition != b"form-data" or b"name" not in options:
                raise BadForm(
                    "A part of the form has no name: it needs the header Content-Disposition: form-data; name=..."
                )
            filename = _decoded(options[b"filename"]) if b"filename" in options else None
            return Part(_decoded(options[b"name"]), filename, _data(events, chunks))
    return None


def _data(events: _Events, chunks: Iterator[bytes]) -> Iterator[bytes]:
    while (event := events.next(chunks)) is not None and event[0] == "data":
        yield event[1]


def _decoded(name: bytes) -> str:
    try:
        return name.decode()
    except UnicodeDecodeError:
        return name.decode("iso-8859-1")


class _Events:
    """What the parser says, in order: ("headers", {...}), ("data", bytes) ..., ("end", None) for each part, and then
    None.
    """

    def __init__(self, content_type: str) -> None:
        kind, options = parse_options_header(content_type.encode("latin-1", "replace"))
        if kind != b"multipart/form-data" or not options.get(b"boundary"):
            raise BadForm("This is no form: send it as multipart/form-data, as `curl -F file=@...` does.")
        self._waiting: deque[tuple[str, Any]] = deque()
        self._headers: dict[bytes, bytes] = {}
        self._field, self._value = b"", b""
        self._parts = 0
        self._whole = False
        try:
            self._parser = MultipartParser(
                options[b"boundary"],
                {
                    "on_part_begin": self._begin,
                    "on_header_field": self._in_field,
                    "on_header_value": self._in_value,
                    "on_header_end": self._header,
                    "on_headers_finished": lambda: self._waiting.append(("headers", self._headers)),
                    "on_part_data": lambda data, start, end: self._waiting.append(("data", bytes(data[start:end]))),
                    "on_part_end": lambda: self._waiting.append(("end", None)),
                    "on_end": self._end,
                },
            )
        except FormParserError as error:
            raise BadForm(f"The form cannot be read: {error}.") from None

    def next(self, chunks: Iterator[bytes]) -> tuple[str, Any] | None:
        while not self._waiting:
            chunk = next(chunks, None)
            if chunk is None:
                if not self._whole:
                    raise BadForm("The form ends before its last boundary: it did not come whole.")
                return None
            if self._whole:
                continue  # what follows the last boundary says nothing
            try:
                self._parser.write(chunk)
            except FormParserError as error:
                raise BadForm(f"The form cannot be read: {error}.") from None
        return self._waiting.popleft()

    def _begin(self) -> None:
        self._parts += 1
        if self._parts > MOST_PARTS:
            raise BadForm(f"The form has more than {MOST_PARTS} parts.")
        self._headers = {}

    def _in_field(self, data: bytes, start: int, end: int) -> None:
        self._field += data[start:end]

    def _in_value(self, data: bytes, start: int, end: int) -> None:
        self._value += data[start:end]

    def _header(self) -> None:
        self._headers[self._field.lower()] = self._value
        self._field, self._value = b"", b""

    def _end(self) -> None:
        self._whole = True
