"""Lines of manifests: entries, first and last line, as canonical bytes and back.

A block of lines is decoded and encoded again at once; if that gives the same bytes, each line was canonical (but for
the order of further fields, which is looked at). Only a block with a fault is looked at line by line, to say where.
"""

from __future__ import annotations

import itertools
import re
from collections.abc import Sequence
from typing import Annotated, Any

import msgspec

LONGEST_LINE = 1024 * 1024  # bytes, with the end of the line

_MOST = 2**63 - 1
_DEEPEST = 20
_HEX = re.compile("[0-9a-f]*")
_OWN = ["uri", "size", "sha256"]

# and lower-case hex, which is looked at for many at once
Digest = Annotated[str, msgspec.Meta(min_length=64, max_length=64)]
Count = Annotated[int, msgspec.Meta(ge=0, le=_MOST)]


class ManifestError(Exception):
    """The manifest is not what it should be."""

    permanent = True

    def __init__(self, line: int, what: str) -> None:
        super().__init__(f"{f'Line {line}' if line else 'The line at the end'} of the manifest {what}")
        self.line = line


class Entry(msgspec.Struct, frozen=True):
    """One object: where it is, how long it is, what its digest must be; and whatever else is said of it."""

    uri: str
    size: int
    sha256: str
    extra: dict[str, Any] = {}


class Header(msgspec.Struct, frozen=True):
    """The first line: whether the uris are promised to rise, and what people should know."""

    ordered: bool = False
    about: dict[str, Any] = {}


class Totals(msgspec.Struct, frozen=True):
    """The last line: how many objects, how many bytes they have, the digest of their lines, and that of the first
    line.
    """

    count: Count
    bytes: Count
    sha256: Digest
    header: Digest


class _Plain(msgspec.Struct):
    uri: Annotated[str, msgspec.Meta(min_length=1)]
    size: Count
    sha256: Digest


class _First(msgspec.Struct, tag_field="waybill", tag="manifest", omit_defaults=True):
    v: int
    order: str = ""
    about: dict[str, Any] = {}


class _Last(Totals, frozen=True, tag_field="waybill", tag="end"):
    pass


_encoder = msgspec.json.Encoder(order="deterministic")
_as_it_comes = msgspec.json.Encoder()
_plain = msgspec.json.Decoder(_Plain)
_first = msgspec.json.Decoder(_First)
_last = msgspec.json.Decoder(_Last)
_anything = msgspec.json.Decoder()
_UNREADABLE = (msgspec.MsgspecError, UnicodeDecodeError, RecursionError)


def encode_entries(entries: Sequence[Entry], first: int) -> bytes:
    """The canonical lines of some entries; the first of them will be line `first`."""
    return b"".join([_encode(entry, number) for number, entry in enumerate(entries, start=first)])


def decode_entries(block: bytes, first: int) -> list[Entry]:
    """The entries of whole lines; the first of them is line `first`."""
    try:
        plain = _plain.decode_lines(block)
        if _encoder.encode_lines(plain) == block and _HEX.fullmatch("".join([line.sha256 for line in plain])):
            return [Entry(line.uri, line.size, line.sha256) for line in plain]
        found = _anything.decode_lines(block)
        if _as_it_comes.encode_lines(found) == block:
            entries = [_with_extra(line) for line in found]
            if None not in entries:
                return entries  # type: ignore[return-value] # just looked
    except _UNREADABLE:
        pass  # the loop below finds the line, and says what is wrong with it
    return [_decode(line, number) for number, line in enumerate(block.split(b"\n")[:-1], start=first)]


def encode_header(header: Header) -> bytes:
    fault = _fault_of_value(header.about, 0)
    if fault:
        raise ManifestError(1, f"cannot be written: `about` {fault}.")
    line = _encoder.encode(_First(1, "uri" if header.ordered else "", header.about)) + b"\n"
    if len(line) > LONGEST_LINE:
        raise ManifestError(1, f"would be longer than {LONGEST_LINE} bytes.")
    return line


def decode_header(line: bytes) -> Header:
    try:
        first = _first.decode(line)
    except _UNREADABLE:
        raise ManifestError(1, "is not the first line of a manifest.") from None
    if first.v != 1:
        raise ManifestError(1, f"says that it is of version {first.v}, and this Waybill reads version 1.")
    if first.order not in ("", "uri"):
        raise ManifestError(1, f"promises an order that is not known: {first.order!r}.")
    header = Header(first.order == "uri", first.about)
    if _fault_of_value(first.about, 0) or encode_header(header) != line:
        raise ManifestError(1, "is not in canonical form.")
    return header


def encode_totals(totals: Totals) -> bytes:
    return _encoder.encode(_Last(totals.count, totals.bytes, totals.sha256, totals.header)) + b"\n"


def decode_totals(line: bytes, number: int) -> Totals:
    try:
        last = _last.decode(line)
    except _UNREADABLE:
        raise ManifestError(number, "is not the last line of a manifest.") from None
    totals = Totals(last.count, last.bytes, last.sha256, last.header)
    if encode_totals(totals) != line:
        raise ManifestError(number, "is not in canonical form.")
    return totals


def _encode(entry: Entry, number: int) -> bytes:
    fault = _fault(entry)
    if fault:
        raise ManifestError(number, f"cannot be written: {fault}.")
    try:
        line = _encoder.encode(_Plain(entry.uri, entry.size, entry.sha256))
        if entry.extra:
            line = line[:-1] + b"," + _encoder.encode(entry.extra)[1:]
    except UnicodeEncodeError:
        raise ManifestError(
            number, "cannot be written: a text holds half of a surrogate pair, which UTF-8 cannot express."
        ) from None
    if len(line) >= LONGEST_LINE:
        raise ManifestError(number, f"would be longer than {LONGEST_LINE} bytes.")
    return line + b"\n"


def _with_extra(found: object) -> Entry | None:
    """The entry of a line that is canonical but perhaps for the order of its fields; None if anything is wrong."""
    if not isinstance(found, dict):
        return None
    if list(itertools.islice(found, 3)) != _OWN:
        return None
    entry = Entry(found.pop("uri"), found.pop("size"), found.pop("sha256"), found)
    return None if _fault(entry) or not _is_sorted(found) else entry


def _is_sorted(value: object) -> bool:
    if type(value) is dict:
        names = list(value)
        return (len(names) < 2 or names == sorted(names)) and all(map(_is_sorted, value.values()))
    return all(map(_is_sorted, value)) if type(value) is list else True


def _decode(line: bytes, number: int) -> Entry:
    try:
        found = _anything.decode(line)
    except _UNREADABLE:
        raise ManifestError(number, "is not JSON.") from None
    if not isinstance(found, dict) or any(name not in found for name in _OWN):
        raise ManifestError(number, "is not an entry: it lacks uri, size or sha256.")
    uri, size, sha256 = (found.pop(name) for name in _OWN)
    entry = Entry(uri, size, sha256, found)
    fault = _fault(entry)
    if fault:
        raise ManifestError(number, f"is wrong: {fault}.")
    if _encode(entry, number) != line + b"\n":
        raise ManifestError(number, "is not in canonical form.")
    return entry


def _fault(entry: Entry) -> str | None:
    if type(entry.uri) is not str or not entry.uri:
        return "its uri is not a text, or is empty"
    if type(entry.size) is not int or not 0 <= entry.size <= _MOST:
        return "its size is not a whole number of bytes"
    if type(entry.sha256) is not str or len(entry.sha256) != 64 or not _HEX.fullmatch(entry.sha256):
        return "its sha256 is not 64 lower-case hex digits"
    if entry.extra:
        if not entry.extra.keys().isdisjoint(_OWN):
            return "a further field has the name of one of the first three"
        if set(map(type, entry.extra.values())) == {str} == set(map(type, entry.extra)):
            return None  # the usual case, without a walk
        fault = _fault_of_value(entry.extra, 0)
        return f"a further field {fault}" if fault else None
    return None


def _fault_of_value(value: object, depth: int) -> str | None:
    if value is None or type(value) is str or type(value) is bool:
        return None
    if type(value) is int:
        return None if -_MOST - 1 <= value <= _MOST else "has a number that does not fit into 64 bits"
    if depth > _DEEPEST:
        return f"is nested more than {_DEEPEST} deep"
    if type(value) is list:
        return next((fault for item in value if (fault := _fault_of_value(item, depth + 1))), None)
    if type(value) is dict and all(type(name) is str for name in value):
        return next((fault for item in value.values() if (fault := _fault_of_value(item, depth + 1))), None)
    return f"is neither text, whole number, true, false, null, nor a list or object of such: {type(value).__name__}"
