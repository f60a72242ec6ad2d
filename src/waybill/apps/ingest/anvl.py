"""ANVL: `label: value` lines, as depositors and archives keep short descriptions in; and the three files that ingest
reads and writes so.

    mrt-erc.txt        who made it, what it is called, when, and where to find it: an electronic resource citation
    mrt-embargo.txt    until when it is not to be shown: `embargoEndDate: 2031-01-01T00:00:00Z`, or `none`
    mrt-delete.txt     names of files that an update takes away, one in each line, without labels

A line that begins with a space goes on with the value before it; `#` begins a comment; empty lines mean nothing. In
these files `%` stands for itself. Where ANVL travels as a message (EZID), `%` escapes what a line cannot hold: read and
write with `escaped`.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from datetime import UTC, datetime
from typing import NamedTuple
from urllib.parse import unquote

import msgspec

from waybill.apps.ingest import names

MISSING = "(:unas)"  # the code for "unassigned"
LIMIT = 1_000_000  # bytes

_BLANK = re.compile(r"\s+")
_ESCAPES = {"%": "%25", "\n": "%0A", "\r": "%0D"}


class BadAnvl(Exception):
    """The text is not what it should be."""

    permanent = True

    def __init__(self, line: int, what: str) -> None:
        super().__init__(f"Line {line}: {what}" if line else what)
        self.line = line


class Element(NamedTuple):
    label: str
    value: str


class Erc(msgspec.Struct, frozen=True):
    """A citation. What is not known is empty; several authors stand in one text, with `; ` between them."""

    who: str = ""
    what: str = ""
    when: str = ""
    where: tuple[str, ...] = ()  # the ARK first, then local ids


def read(data: bytes, *, escaped: bool = False) -> list[Element]:
    """The elements in their order."""
    found: list[Element] = []
    for line, text in _lines(data):
        if not text.strip() or text.startswith("#"):
            continue
        if text[0].isspace():
            if not found:
                raise BadAnvl(line, "It goes on with a value, and there is none before it.")
            label, value = found.pop()
            found.append(Element(label, f"{value} {text.strip()}".strip()))
            continue
        label, colon, value = text.partition(":")
        if not colon or not label.strip():
            raise BadAnvl(line, f"There is no label before a colon: {names.shown(text)}.")
        found.append(Element(label.strip(), value.strip()))
    return [Element(_plain(label), _plain(value)) for label, value in found] if escaped else found


def write(elements: Iterable[Element], *, escaped: bool = False) -> bytes:
    """The elements, each in one line: without escapes, a line break in a value becomes a space."""
    lines: list[str] = []
    for label, value in elements:
        if escaped:
            lines.append(f"{escape(label, ':')}: {escape(value)}\n")
        else:
            lines.append(f"{_label(label)}: {one_line(value)}".rstrip() + "\n")
    return _encoded("".join(lines))


def escape(text: str, also: str = "") -> str:
    """A text as one line of a message: `%`, line breaks, and what else is named, as `%` and two digits."""
    for letter, code in _ESCAPES.items():
        text = text.replace(letter, code)
    for letter in also:
        text = text.replace(letter, f"%{ord(letter):02X}")
    return text


def one_line(text: str) -> str:
    """A text without line breaks, and with one space where there were several."""
    return _BLANK.sub(" ", text).strip()


def read_erc(data: bytes) -> Erc:
    """A citation; labels it does not know are passed over."""
    said: dict[str, list[str]] = {"who": [], "what": [], "when": [], "where": []}
    for label, value in read(data):
        if label.lower() == "erc" and "|" in value:  # the short form: all four in one line
            for name, part in zip(said, value.split("|"), strict=False):
                said[name].append(part.strip())
        elif label.lower() in said:
            said[label.lower()].append(value)
    known = {
        label: list(dict.fromkeys(value for value in values if value not in ("", MISSING)))
        for label, values in said.items()
    }
    return Erc("; ".join(known["who"]), "; ".join(known["what"]), "; ".join(known["when"]), tuple(known["where"]))


def write_erc(erc: Erc) -> bytes:
    """The citation, with `(:unas)` for what is missing."""
    where = [place for place in erc.where if one_line(place)] or [MISSING]
    known = [("who", erc.who), ("what", erc.what), ("when", erc.when), *(("where", place) for place in where)]
    return write([Element("erc", ""), *(Element(label, one_line(value) or MISSING) for label, value in known)])


def read_embargo(data: bytes) -> datetime | None:
    """Until when the object is not to be shown; None if there is no embargo."""
    for label, value in read(data):
        if label.lower() == "embargoenddate":
            if value.lower() in ("", "none"):
                return None
            try:
                until = datetime.fromisoformat(value)
                return until.astimezone(UTC) if until.tzinfo else until.replace(tzinfo=UTC)
            except (ValueError, OverflowError):
                raise BadAnvl(
                    0, f"{names.shown(value)} is not the end of an embargo: write 2031-12-31T00:00:00Z, or none."
                ) from None
    raise BadAnvl(0, "The embargo has no end: write `embargoEndDate: 2031-12-31T00:00:00Z`, or `embargoEndDate: none`.")


def read_deletions(data: bytes) -> list[str]:
    """The names of the files to be taken away, each once."""
    found: dict[str, None] = {}
    for line, name in _lines(data):
        if not name.strip():
            continue
        fault = names.fault(name)
        if fault:
            raise BadAnvl(line, fault)
        found[name] = None
    return list(found)


def write_deletions(files: Iterable[str]) -> bytes:
    return _encoded("".join(f"{name}\n" for name in files))


def _lines(data: bytes) -> Iterator[tuple[int, str]]:
    if len(data) > LIMIT:
        raise BadAnvl(0, f"It is longer than {LIMIT:,} bytes.")
    for line, raw in enumerate(data.removeprefix(b"\xef\xbb\xbf").split(b"\n"), start=1):
        try:
            yield line, raw.removesuffix(b"\r").decode()
        except UnicodeDecodeError as error:
            raise BadAnvl(line, f"Byte {error.start + 1} is not UTF-8: save the file as UTF-8.") from None


def _plain(text: str) -> str:
    return unquote(text, errors="replace")


def _label(label: str) -> str:
    if not label.strip() or ":" in label or label != one_line(label) or label.startswith("#"):
        raise BadAnvl(0, f"{names.shown(label)} is not a label.")
    return label


def _encoded(text: str) -> bytes:
    try:
        return text.encode()
    except UnicodeEncodeError:
        raise BadAnvl(0, "A text holds half of a surrogate pair, which UTF-8 cannot express.") from None
