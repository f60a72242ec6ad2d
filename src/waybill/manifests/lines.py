"""The lines of a manifest: entries, first and last line, to canonical bytes and back.

A block of lines is decoded and encoded again as a whole; if that gives the same bytes, every line is canonical (except
for the order of further fields, which is checked). Only a block with a fault is decoded line by line, to find the line.

Names of files are bytes. In memory a uri is a string as `os.fsdecode` makes it, in which a byte that is not UTF-8 is a
character from U+DC80 to U+DCFF. In the line of a loose manifest such a uri is `"uri_base64"`, all of its bytes.
"""

from __future__ import annotations

import base64
import binascii
import itertools
import re
from collections.abc import Sequence
from typing import Annotated, Any

import msgspec

from waybill.errors import WaybillError

LONGEST_LINE = 1024 * 1024  # bytes, with the end of the line

_MAX_INT = 2**63 - 1
_MAX_DEPTH = 20
_HEX = re.compile("[0-9a-f]*")
_REQUIRED_FIELDS = ["uri", "size", "sha256"]
_RESERVED_FIELDS = (*_REQUIRED_FIELDS, "uri_base64")

# lower-case hex is checked for many digests at once
HexDigest = Annotated[str, msgspec.Meta(min_length=64, max_length=64)]
NonNegativeInt = Annotated[int, msgspec.Meta(ge=0, le=_MAX_INT)]


class ManifestError(WaybillError):
    """A manifest, or a list of rows, is not valid."""

    code = "bad-manifest"

    def __init__(self, message: str, line: int = 0) -> None:
        super().__init__(message)
        self.line = line  # the line that is wrong; 0: the one at the end


def line_error(line: int, problem: str) -> ManifestError:
    """The error of one line of a manifest; 0 is the line at the end."""
    return ManifestError(f"{f'Line {line}' if line else 'The line at the end'} of the manifest {problem}", line)


class ManifestEntry(msgspec.Struct, frozen=True):
    """One object: its uri, size and SHA-256, and any further fields."""

    uri: str
    size: int
    sha256: str = ""  # "": not known, in a loose manifest only
    extra: dict[str, Any] = {}


class ManifestHeader(msgspec.Struct, frozen=True):
    """The first line: whether the uris are ascending, and a description for people.

    `loose`: lines may lack a SHA-256, and uris may hold bytes that are not UTF-8.
    """

    ordered: bool = False
    about: dict[str, Any] = {}
    loose: bool = False


class ManifestTotals(msgspec.Struct, frozen=True):
    """The last line: the number of objects, the sum of their sizes, the digest of their lines and that of the first
    line.
    """

    count: NonNegativeInt
    bytes: NonNegativeInt
    sha256: HexDigest
    header: HexDigest


class _PlainEntry(msgspec.Struct):
    uri: Annotated[str, msgspec.Meta(min_length=1)]
    size: NonNegativeInt
    sha256: HexDigest


class _LoosePlainEntry(_PlainEntry, omit_defaults=True):
    sha256: HexDigest = ""


class _FirstLine(msgspec.Struct, tag_field="waybill", tag="manifest", omit_defaults=True):
    v: int
    order: str = ""
    loose: bool = False
    about: dict[str, Any] = {}


class _LastLine(ManifestTotals, frozen=True, tag_field="waybill", tag="end"):
    pass


_canonical_encoder = msgspec.json.Encoder(order="deterministic")
_unsorted_encoder = msgspec.json.Encoder()
_plain_decoder = msgspec.json.Decoder(_PlainEntry)
_loose_plain_decoder = msgspec.json.Decoder(_LoosePlainEntry)
_first_line_decoder = msgspec.json.Decoder(_FirstLine)
_last_line_decoder = msgspec.json.Decoder(_LastLine)
_any_decoder = msgspec.json.Decoder()
_DECODE_ERRORS = (msgspec.MsgspecError, UnicodeDecodeError, RecursionError)


def encode_entries(entries: Sequence[ManifestEntry], first: int, *, loose: bool = False) -> bytes:
    """Return the canonical lines of entries; the first one will be line `first`."""
    return b"".join([_encode_entry(entry, number, loose) for number, entry in enumerate(entries, start=first)])


def decode_entries(block: bytes, first: int, *, loose: bool = False) -> list[ManifestEntry]:
    """Return the entries of complete lines; the first one is line `first`."""
    try:
        plain = (_loose_plain_decoder if loose else _plain_decoder).decode_lines(block)
        if _canonical_encoder.encode_lines(plain) == block and _HEX.fullmatch("".join([line.sha256 for line in plain])):
            return [ManifestEntry(line.uri, line.size, line.sha256) for line in plain]
        found = _any_decoder.decode_lines(block)
        if _unsorted_encoder.encode_lines(found) == block:
            entries = [_entry_of(line, loose) for line in found]
            if None not in entries:
                return entries  # type: ignore[return-value] # just checked
    except _DECODE_ERRORS:
        pass  # the loop below finds the line and raises
    return [_decode_entry(line, number, loose) for number, line in enumerate(block.split(b"\n")[:-1], start=first)]


def encode_header(header: ManifestHeader) -> bytes:
    fault = _find_value_fault(header.about, 0)
    if fault:
        raise line_error(1, f"cannot be written: `about` {fault}.")
    line = _canonical_encoder.encode(_FirstLine(1, "uri" if header.ordered else "", header.loose, header.about)) + b"\n"
    if len(line) > LONGEST_LINE:
        raise line_error(1, f"would be longer than {LONGEST_LINE} bytes.")
    return line


def decode_header(line: bytes) -> ManifestHeader:
    try:
        first = _first_line_decoder.decode(line)
    except _DECODE_ERRORS:
        raise line_error(1, "is not the first line of a manifest.") from None
    if first.v != 1:
        raise line_error(1, f"has version {first.v}, and this Waybill reads version 1.")
    if first.order not in ("", "uri"):
        raise line_error(1, f"declares an unknown order: {first.order!r}.")
    header = ManifestHeader(first.order == "uri", first.about, first.loose)
    if _find_value_fault(first.about, 0) or encode_header(header) != line:
        raise line_error(1, "is not in canonical form.")
    return header


def encode_totals(totals: ManifestTotals) -> bytes:
    return _canonical_encoder.encode(_LastLine(totals.count, totals.bytes, totals.sha256, totals.header)) + b"\n"


def decode_totals(line: bytes, number: int) -> ManifestTotals:
    try:
        last = _last_line_decoder.decode(line)
    except _DECODE_ERRORS:
        raise line_error(number, "is not the last line of a manifest.") from None
    totals = ManifestTotals(last.count, last.bytes, last.sha256, last.header)
    if encode_totals(totals) != line:
        raise line_error(number, "is not in canonical form.")
    return totals


def _encode_entry(entry: ManifestEntry, number: int, loose: bool) -> bytes:
    fault = _find_fault(entry, loose)
    if fault:
        raise line_error(number, f"cannot be written: {fault}.")
    try:
        if loose and (escaped := _escape_uri(entry.uri)):
            line = (
                _canonical_encoder.encode({"uri_base64": escaped})[:-1]
                + b","
                + (_canonical_encoder.encode(_LoosePlainEntry("-", entry.size, entry.sha256))[len(b'{"uri":"-",') :])
            )
        elif entry.sha256:
            line = _canonical_encoder.encode(_PlainEntry(entry.uri, entry.size, entry.sha256))
        else:
            line = _canonical_encoder.encode(_LoosePlainEntry(entry.uri, entry.size))
        if entry.extra:
            line = line[:-1] + b"," + _canonical_encoder.encode(entry.extra)[1:]
    except UnicodeEncodeError:
        raise line_error(
            number, "cannot be written: a string holds half of a surrogate pair, which UTF-8 cannot express."
        ) from None
    if len(line) >= LONGEST_LINE:
        raise line_error(number, f"would be longer than {LONGEST_LINE} bytes.")
    return line + b"\n"


def _entry_of(found: object, loose: bool) -> ManifestEntry | None:
    """Return the entry of a line that is canonical except perhaps for the order of its fields; None if it is not valid."""
    if not isinstance(found, dict):
        return None
    uri_field = "uri_base64" if loose and "uri_base64" in found else "uri"
    names = [uri_field, "size", "sha256"] if "sha256" in found or not loose else [uri_field, "size"]
    if list(itertools.islice(found, len(names))) != names:
        return None
    entry = _pop_entry(found, uri_field)
    return None if entry is None or _find_fault(entry, loose) or not _is_sorted(found) else entry


def _pop_entry(found: dict[str, Any], uri_field: str) -> ManifestEntry | None:
    """Take the fields of an entry out of a line, the rest of which are its further fields."""
    uri = found.pop(uri_field)
    if uri_field == "uri_base64":
        try:
            uri = base64.b64decode(uri, validate=True).decode("utf-8", "surrogateescape")
        except (TypeError, ValueError, binascii.Error):
            return None
        if not _escape_uri(uri):
            return None  # it is UTF-8, and belongs into `uri`
    if found.get("sha256") == "":
        found["sha256"] = None  # a digest that is there must be one: the empty text is not the same as none
    return ManifestEntry(uri, found.pop("size"), found.pop("sha256", ""), found)


def _escape_uri(uri: str) -> str:
    """Return the uri in base64 if it holds bytes that are not UTF-8; otherwise an empty text."""
    try:
        uri.encode()
    except UnicodeEncodeError:
        return base64.b64encode(uri.encode("utf-8", "surrogateescape")).decode()
    return ""


def _is_sorted(value: object) -> bool:
    if type(value) is dict:
        names = list(value)
        return (len(names) < 2 or names == sorted(names)) and all(map(_is_sorted, value.values()))
    return all(map(_is_sorted, value)) if type(value) is list else True


def _is_fs_decoded(uri: str) -> bool:
    try:
        return uri.encode("utf-8", "surrogateescape").decode("utf-8", "surrogateescape") == uri
    except UnicodeEncodeError:
        return False


def _decode_entry(line: bytes, number: int, loose: bool) -> ManifestEntry:
    try:
        found = _any_decoder.decode(line)
    except _DECODE_ERRORS:
        raise line_error(number, "is not JSON.") from None
    if not isinstance(found, dict):
        raise line_error(number, "is not an entry: it lacks uri, size or sha256.")
    uri_field = "uri_base64" if loose and "uri_base64" in found else "uri"
    if uri_field not in found or "size" not in found or ("sha256" not in found and not loose):
        raise line_error(number, "is not an entry: it lacks uri, size or sha256.")
    entry = _pop_entry(found, uri_field)
    if entry is None:
        raise line_error(number, "is wrong: its uri_base64 is not the base64 of bytes that are not UTF-8.")
    fault = _find_fault(entry, loose)
    if fault:
        raise line_error(number, f"is wrong: {fault}.")
    if _encode_entry(entry, number, loose) != line + b"\n":
        raise line_error(number, "is not in canonical form.")
    return entry


def _find_fault(entry: ManifestEntry, loose: bool) -> str | None:
    if type(entry.uri) is not str or not entry.uri:
        return "its uri is not a string, or is empty"
    if loose and not entry.uri.isascii() and not _is_fs_decoded(entry.uri):
        return (
            "its uri is not as os.fsdecode makes it: it holds half of a surrogate pair, or escapes bytes that are UTF-8"
        )
    if type(entry.size) is not int or not 0 <= entry.size <= _MAX_INT:
        return "its size is not an integer of 0 or more"
    if entry.sha256 == "" and loose:
        pass
    elif type(entry.sha256) is not str or len(entry.sha256) != 64 or not _HEX.fullmatch(entry.sha256):
        return "its sha256 is not 64 lower-case hex digits"
    if entry.extra:
        if not entry.extra.keys().isdisjoint(_RESERVED_FIELDS):
            return "a further field has the name of one of the first three"
        if set(map(type, entry.extra.values())) == {str} == set(map(type, entry.extra)):
            return None  # the common case, checked quickly
        fault = _find_value_fault(entry.extra, 0)
        return f"a further field {fault}" if fault else None
    return None


def _find_value_fault(value: object, depth: int) -> str | None:
    if value is None or type(value) is str or type(value) is bool:
        return None
    if type(value) is int:
        return None if -_MAX_INT - 1 <= value <= _MAX_INT else "has a number that does not fit into 64 bits"
    if depth > _MAX_DEPTH:
        return f"is nested more than {_MAX_DEPTH} deep"
    if type(value) is list:
        return next((fault for item in value if (fault := _find_value_fault(item, depth + 1))), None)
    if type(value) is dict and all(type(name) is str for name in value):
        return next((fault for item in value.values() if (fault := _find_value_fault(item, depth + 1))), None)
    return f"is neither a string, an integer, true, false, null, nor a list or object of these: {type(value).__name__}"
