"""Properties: the text files in which Java programs keep settings, read exactly as Java reads them.

    # a comment (! too)
    key = value            also `key: value` and `key value`
    long = one line \\
           goes on here
    word = Gr\\u00fc\\u00dfe     escapes: \\t \\n \\r \\f \\uXXXX; before anything else a backslash is dropped

Java takes such a file as ISO-8859-1; people write UTF-8. What is valid UTF-8 is read as that, everything else as
ISO-8859-1.
"""

from __future__ import annotations

import re
from collections.abc import Iterator

LIMIT = 1_000_000  # bytes

_END = re.compile(r"\r\n|\n|\r")
_BLANKS = " \t\f"
_ESCAPES = {"t": "\t", "n": "\n", "r": "\r", "f": "\f"}
_HEX = re.compile("[0-9a-fA-F]{4}")


class BadProperties(Exception):
    """The file is not what it should be."""

    permanent = True

    def __init__(self, line: int, what: str) -> None:
        super().__init__(f"Line {line}: {what}" if line else what)
        self.line = line


def read(data: bytes) -> dict[str, str]:
    """All keys in their order; of a key that is there twice, the last value."""
    found, faults = read_all(data)
    if faults:
        raise faults[0]
    return found


def read_all(data: bytes) -> tuple[dict[str, str], list[BadProperties]]:
    """The same, and beside it what is wrong with the lines that cannot be read."""
    if len(data) > LIMIT:
        return {}, [BadProperties(0, f"It is longer than {LIMIT:,} bytes.")]
    found: dict[str, str] = {}
    faults: list[BadProperties] = []
    for line, text in _logical_lines(_decoded(data)):
        key, value = _split(text)
        try:
            found[_plain(key, line)] = _plain(value, line)
        except BadProperties as error:
            faults.append(error)
    return found, faults


def _decoded(data: bytes) -> str:
    try:
        return data.decode("utf-8-sig")
    except UnicodeDecodeError:
        return data.decode("iso-8859-1")


def _logical_lines(text: str) -> Iterator[tuple[int, str]]:
    """Lines put together where they go on, each with the number of its first; without comments and empty ones."""
    first, so_far = 0, ""
    lines = _END.split(text)
    for number, raw in enumerate(lines, start=1):
        line = raw.lstrip(_BLANKS)
        if not so_far and (not line or line[0] in "#!"):
            continue
        first = first if so_far else number
        goes_on = (len(line) - len(line.rstrip("\\"))) % 2 == 1
        so_far += line[:-1] if goes_on else line
        if not goes_on or number == len(lines):
            yield first, so_far
            so_far = ""


def _split(text: str) -> tuple[str, str]:
    """Key and value, still with their escapes: the key ends at a blank, `=` or `:` that no backslash precedes."""
    at = 0
    while at < len(text) and text[at] not in "=:" + _BLANKS:
        at += 2 if text[at] == "\\" else 1
    rest = text[at:].lstrip(_BLANKS)
    return text[:at], (rest[1:].lstrip(_BLANKS) if rest[:1] in ("=", ":") else rest)


def _plain(text: str, line: int) -> str:
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
                raise BadProperties(line, f"\\u must be followed by four hex digits, and not by {digits!a}.")
            plain.append(chr(int(digits, 16)))
            at += 6
        else:
            plain.append(_ESCAPES.get(text[at + 1 : at + 2], text[at + 1 : at + 2]))
            at += 2
    try:
        return "".join(plain).encode("utf-16", "surrogatepass").decode("utf-16")  # two escapes may be one character
    except UnicodeDecodeError:
        raise BadProperties(line, "It holds half of a surrogate pair, which is no character.") from None
