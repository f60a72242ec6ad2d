"""Java's properties files, read exactly as Java reads them.

    # a comment (! too)
    key = value            also `key: value` and `key value`
    long = one line \\
           continues here
    word = Gr\\u00fc\\u00dfe     escapes: \\t \\n \\r \\f \\uXXXX; any other backslash is dropped

Java reads such a file as ISO-8859-1; people write UTF-8. Valid UTF-8 is read as UTF-8, everything else as ISO-8859-1.
"""

from __future__ import annotations

import re
from collections.abc import Iterator

from waybill.errors import FormatError

MAX_BYTES = 1_000_000  # bytes

_END = re.compile(r"\r\n|\n|\r")
_BLANKS = " \t\f"
_ESCAPES = {"t": "\t", "n": "\n", "r": "\r", "f": "\f"}
_HEX = re.compile("[0-9a-fA-F]{4}")


def read(data: bytes) -> dict[str, str]:
    """Return all keys in order; of a repeated key, the last value."""
    properties, faults = read_all(data)
    if faults:
        raise faults[0]
    return properties


def read_all(data: bytes) -> tuple[dict[str, str], list[FormatError]]:
    """Return all keys, and the faults of the lines that cannot be read."""
    if len(data) > MAX_BYTES:
        return {}, [FormatError(f"It is longer than {MAX_BYTES:,} bytes.")]
    properties: dict[str, str] = {}
    faults: list[FormatError] = []
    for line, text in _read_logical_lines(_decode(data)):
        key, value = _split(text)
        try:
            properties[_unescape(key, line)] = _unescape(value, line)
        except FormatError as error:
            faults.append(error)
    return properties, faults


def _decode(data: bytes) -> str:
    try:
        return data.decode("utf-8-sig")
    except UnicodeDecodeError:
        return data.decode("iso-8859-1")


def _read_logical_lines(text: str) -> Iterator[tuple[int, str]]:
    """Yield joined lines with the number of the first, without comments and empty lines."""
    first, joined = 0, ""
    lines = _END.split(text)
    for number, raw in enumerate(lines, start=1):
        line = raw.lstrip(_BLANKS)
        if not joined and (not line or line[0] in "#!"):
            continue
        first = first if joined else number
        continues = (len(line) - len(line.rstrip("\\"))) % 2 == 1
        joined += line[:-1] if continues else line
        if not continues or number == len(lines):
            yield first, joined
            joined = ""


def _split(text: str) -> tuple[str, str]:
    """Return key and value with their escapes: the key ends at a blank, `=` or `:` without a backslash before it."""
    at = 0
    while at < len(text) and text[at] not in "=:" + _BLANKS:
        at += 2 if text[at] == "\\" else 1
    rest = text[at:].lstrip(_BLANKS)
    return text[:at], (rest[1:].lstrip(_BLANKS) if rest[:1] in ("=", ":") else rest)


def _unescape(text: str, line: int) -> str:
    if "\\" not in text:
        return text
    plain: list[str] = []
    at = 0
    while at < len(text):
        if text[at] != "\\":
            plain.append(text[at])
            at += 1
        elif text[at + 1 : at + 2] == "u":
            digits = text[at + 2 : at + 6]
            if not _HEX.fullmatch(digits):
                raise FormatError(f"\\u must be followed by four hex digits, and not by {digits!a}.", line)
            plain.append(chr(int(digits, 16)))
            at += 6
        else:
            plain.append(_ESCAPES.get(text[at + 1 : at + 2], text[at + 1 : at + 2]))
            at += 2
    try:
        return "".join(plain).encode("utf-16", "surrogatepass").decode("utf-16")  # two escapes may be one character
    except UnicodeDecodeError:
        raise FormatError("It contains half of a surrogate pair, which is not a character.", line) from None
