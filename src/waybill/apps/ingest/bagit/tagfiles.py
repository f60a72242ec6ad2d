"""Tag files: the texts of a bag, line by line. What is wrong is a BadTagFile with the number of the line."""

from __future__ import annotations

import codecs
import os
import re
from collections.abc import Callable, Iterator
from typing import NamedTuple

LONGEST_LINE = 64 * 1024  # characters
MOST_INFO = 10_000  # elements of bag-info.txt

_VERSION = re.compile(r"BagIt-Version: ([0-9]{1,4})\.([0-9]{1,4})")
_ENCODING = re.compile(r"Tag-File-Character-Encoding: (\S{1,40})")
_ENCODINGS = {"utf-8", "utf-16", "utf-16-le", "utf-16-be", "utf-32", "ascii", "iso8859-1", "iso8859-15", "cp1252"}
_MANIFEST_LINE = re.compile(r"([0-9A-Fa-f]+)[ \t]+\*?(.+)", re.DOTALL)
_FETCH_LINE = re.compile(r"(\S+)[ \t]+([0-9]{1,19}|-)[ \t]+(.+)", re.DOTALL)
_LINE_END = re.compile("%0(A|D)", re.IGNORECASE)

Opener = Callable[[str], int]  # a file of the bag, by name, as an open descriptor


class BadTagFile(Exception):
    """The text goes on with the name of the file."""

    def __init__(self, line: int, what: str) -> None:
        super().__init__(f"line {line}: {what}" if line else what)


class Version(NamedTuple):
    major: int
    minor: int

    def __str__(self) -> str:
        return f"{self.major}.{self.minor}"


class Fetch(NamedTuple):
    """A payload file that is elsewhere."""

    url: str
    size: int | None
    name: str


def read_declaration(opener: Opener) -> tuple[Version, str]:
    """The version and encoding that bagit.txt declares."""
    lines = [line for _, line in _lines(opener, "bagit.txt", "utf-8") if line.strip()]
    version = _VERSION.fullmatch(lines[0].rstrip()) if lines else None
    encoding = _ENCODING.fullmatch(lines[1].rstrip()) if len(lines) > 1 else None
    if version is None or encoding is None or len(lines) > 2:
        raise BadTagFile(0, "must have two lines, `BagIt-Version: 1.0` and `Tag-File-Character-Encoding: UTF-8`")
    try:
        codec = codecs.lookup(encoding[1]).name
    except LookupError:
        codec = ""
    if codec not in _ENCODINGS:
        raise BadTagFile(0, f"names an encoding that is not known, {encoding[1]!a}")
    return Version(int(version[1]), int(version[2])), codec


def read_manifest(opener: Opener, name: str, encoding: str) -> Iterator[tuple[int, str, str]]:
    """Line, digest in lower case, and name as it is written; of a manifest or a tag manifest."""
    for line, text in _lines(opener, name, encoding):
        if not text.strip():
            continue
        found = _MANIFEST_LINE.fullmatch(text.strip("\n"))
        if found is None:
            raise BadTagFile(line, "must have a digest in hex, a space, and the name of a file")
        yield line, found[1].lower(), found[2]


def read_fetch(opener: Opener, encoding: str) -> Iterator[Fetch]:
    for line, text in _lines(opener, "fetch.txt", encoding):
        if not text.strip():
            continue
        found = _FETCH_LINE.fullmatch(text.strip("\n"))
        if found is None:
            raise BadTagFile(line, "must have a URL, a length or -, and the name of a file")
        yield Fetch(found[1], None if found[2] == "-" else int(found[2]), decoded(found[3]))


def read_info(opener: Opener, encoding: str) -> list[tuple[str, str]]:
    """The elements of bag-info.txt; a line that begins with a space goes on with the one before it."""
    found: list[tuple[str, str]] = []
    for line, text in _lines(opener, "bag-info.txt", encoding):
        if not text.strip():
            continue
        if text[0] in " \t" and found:
            label, value = found.pop()
            found.append((label, f"{value} {text.strip()}"))
            continue
        label, colon, value = text.partition(":")
        if not colon or not label.strip():
            raise BadTagFile(line, "must have a label, a colon and a value")
        found.append((label.strip(), value.strip()))
        if len(found) > MOST_INFO:
            raise BadTagFile(line, f"has more than {MOST_INFO:,} elements")
    return found


def decoded(name: str) -> str:
    """A name as version 1.0 writes it: %0A, %0D and %25 stand for what a line cannot hold, and nothing else is
    encoded.
    """
    return _LINE_END.sub(lambda found: "\n" if found[1] in "Aa" else "\r", name).replace("%25", "%")


def _lines(opener: Opener, name: str, encoding: str) -> Iterator[tuple[int, str]]:
    """Lines with their numbers; they may end with LF, CR or both."""
    with os.fdopen(opener(name), encoding=encoding, newline=None) as file:
        line = 0
        while True:
            line += 1
            try:
                text = file.readline(LONGEST_LINE)
            except UnicodeError:
                raise BadTagFile(
                    line, f"or one soon after it is not {encoding.upper()}, which the bag says it is"
                ) from None
            if not text:
                return
            if len(text) == LONGEST_LINE:
                raise BadTagFile(line, f"is longer than {LONGEST_LINE:,} characters")
            if line == 1 and text.startswith("\ufeff"):
                raise BadTagFile(line, "begins with a byte order mark, which BagIt does not allow")
            yield line, text.rstrip("\n")
