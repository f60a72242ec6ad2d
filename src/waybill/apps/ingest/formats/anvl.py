"""ANVL: `label: value` lines for short descriptions; and the three files that ingest reads and writes in it.

    mrt-erc.txt        who made it, its title, when, and where it is: an electronic resource citation
    mrt-embargo.txt    until when it is under embargo: `embargoEndDate: 2031-01-01T00:00:00Z`, or `none`
    mrt-delete.txt     names of files that an update deletes, one per line, without labels

A line that begins with a space continues the value before it; `#` begins a comment; empty lines are ignored. In these
files `%` is a normal character. In messages (EZID) `%` escapes what a line cannot hold: read and write with `escaped`.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from datetime import UTC, datetime
from typing import NamedTuple
from urllib.parse import unquote

import msgspec

from waybill.errors import FormatError
from waybill.files import names

MISSING = "(:unas)"  # the code for "unassigned"
MAX_BYTES = 1_000_000  # bytes

_WHITESPACE = re.compile(r"\s+")
_ESCAPES = {"%": "%25", "\n": "%0A", "\r": "%0D"}


class AnvlElement(NamedTuple):
    label: str
    value: str


class Erc(msgspec.Struct, frozen=True):
    """A citation. Unknown values are empty; several authors are one text, separated by `; `."""

    who: str = ""
    what: str = ""
    when: str = ""
    where: tuple[str, ...] = ()  # the ARK first, then local ids


def read(data: bytes, *, escaped: bool = False) -> list[AnvlElement]:
    """Return the elements in order."""
    elements: list[AnvlElement] = []
    for line, text in _read_lines(data):
        if not text.strip() or text.startswith("#"):
            continue
        if text[0].isspace():
            if not elements:
                raise FormatError("It continues a value, but there is none before it.", line)
            label, value = elements.pop()
            elements.append(AnvlElement(label, f"{value} {text.strip()}".strip()))
            continue
        label, colon, value = text.partition(":")
        if not colon or not label.strip():
            raise FormatError(f"There is no label before a colon: {names.quote_text(text)}.", line)
        elements.append(AnvlElement(label.strip(), value.strip()))
    return [AnvlElement(_unescape(label), _unescape(value)) for label, value in elements] if escaped else elements


def write(elements: Iterable[AnvlElement], *, escaped: bool = False) -> bytes:
    """Write each element in one line; without escapes, a line break in a value becomes a space."""
    lines: list[str] = []
    for label, value in elements:
        if escaped:
            lines.append(f"{escape(label, ':')}: {escape(value)}\n")
        else:
            lines.append(f"{_check_label(label)}: {to_one_line(value)}".rstrip() + "\n")
    return _encode("".join(lines))


def escape(text: str, extra: str = "") -> str:
    """Escape `%`, line breaks and the characters of `extra` as `%` and two hex digits."""
    for letter, code in _ESCAPES.items():
        text = text.replace(letter, code)
    for letter in extra:
        text = text.replace(letter, f"%{ord(letter):02X}")
    return text


def to_one_line(text: str) -> str:
    """Replace line breaks and repeated spaces by one space."""
    return _WHITESPACE.sub(" ", text).strip()


def read_erc(data: bytes) -> Erc:
    """Read a citation; unknown labels are ignored."""
    values_by_label: dict[str, list[str]] = {"who": [], "what": [], "when": [], "where": []}
    for label, value in read(data):
        if label.lower() == "erc" and "|" in value:  # the short form: all four in one line
            for name, part in zip(values_by_label, value.split("|"), strict=False):
                values_by_label[name].append(part.strip())
        elif label.lower() in values_by_label:
            values_by_label[label.lower()].append(value)
    known = {
        label: list(dict.fromkeys(value for value in values if value not in ("", MISSING)))
        for label, values in values_by_label.items()
    }
    return Erc("; ".join(known["who"]), "; ".join(known["what"]), "; ".join(known["when"]), tuple(known["where"]))


def write_erc(erc: Erc) -> bytes:
    """Write a citation, with `(:unas)` for missing values."""
    where = [place for place in erc.where if to_one_line(place)] or [MISSING]
    known = [("who", erc.who), ("what", erc.what), ("when", erc.when), *(("where", place) for place in where)]
    return write(
        [AnvlElement("erc", ""), *(AnvlElement(label, to_one_line(value) or MISSING) for label, value in known)]
    )


def read_embargo(data: bytes) -> datetime | None:
    """Return the end of the embargo; None if there is none."""
    for label, value in read(data):
        if label.lower() == "embargoenddate":
            if value.lower() in ("", "none"):
                return None
            try:
                until = datetime.fromisoformat(value)
                return until.astimezone(UTC) if until.tzinfo else until.replace(tzinfo=UTC)
            except (ValueError, OverflowError):
                raise FormatError(
                    f"{names.quote_text(value)} is not the end of an embargo: write 2031-12-31T00:00:00Z, or none."
                ) from None
    raise FormatError(
        "The embargo has no end: write `embargoEndDate: 2031-12-31T00:00:00Z`, or `embargoEndDate: none`."
    )


def read_deletions(data: bytes) -> list[str]:
    """Return the names of the files to delete, each once."""
    found: dict[str, None] = {}
    for line, name in _read_lines(data):
        if not name.strip():
            continue
        fault = names.find_fault(name)
        if fault:
            raise FormatError(fault, line)
        found[name] = None
    return list(found)


def write_deletions(files: Iterable[str]) -> bytes:
    return _encode("".join(f"{name}\n" for name in files))


def _read_lines(data: bytes) -> Iterator[tuple[int, str]]:
    if len(data) > MAX_BYTES:
        raise FormatError(f"It is longer than {MAX_BYTES:,} bytes.")
    for line, raw in enumerate(data.removeprefix(b"\xef\xbb\xbf").split(b"\n"), start=1):
        try:
            yield line, raw.removesuffix(b"\r").decode()
        except UnicodeDecodeError as error:
            raise FormatError(f"Byte {error.start + 1} is not UTF-8: save the file as UTF-8.", line) from None


def _unescape(text: str) -> str:
    return unquote(text, errors="replace")


def _check_label(label: str) -> str:
    if not label.strip() or ":" in label or label != to_one_line(label) or label.startswith("#"):
        raise FormatError(f"{names.quote_text(label)} is not a label.")
    return label


def _encode(text: str) -> bytes:
    try:
        return text.encode()
    except UnicodeEncodeError:
        raise FormatError("A text contains half of a surrogate pair, which UTF-8 cannot express.") from None
