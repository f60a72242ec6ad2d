"""Reads the lines of a manifest, once and in order, into rows or complaints.

The lines are, in order: the declaration, the profile, prefixes and fields, rows, the end. Comments (`#`) and empty
lines may be anywhere. Reading stops when the manifest is too long, or after MAX_COMPLAINTS complaints.

`read_storage_manifest` reads a storage manifest: every file of an object with its SHA-256, its size and a URL.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from typing import Protocol
from urllib.parse import urlsplit

import msgspec

from waybill.apps.ingest.formats.checkm.rows import (
    BadManifest,
    CheckmManifest,
    ManifestComplaint,
    ManifestKind,
    ManifestRow,
    RowObjects,
    columns_of,
    read_row,
)
from waybill.digests import normalize_digests
from waybill.errors import InputError
from waybill.files import names

MANIFEST_LIMIT = 5_000_000  # bytes
MAX_COMPLAINTS = 1000
CHECKM_PREFIX = b"#%checkm_"
MAX_STORAGE_COMPLAINTS = 100

_CHUNK = 64 * 1024
_BOM = b"\xef\xbb\xbf"
_UTF_16 = (b"\xff\xfe", b"\xfe\xff")
_PROFILE = re.compile(r"https?://uc3\.cdlib\.org/registry/(?:ingest/manifest|mrt)/([a-z-]+)")
_DIRECTIVE = re.compile(r"#%([A-Za-z]\w*(?:\.\w+)?)\s*(?:\|\s*(.*))?")
_CONTROL = re.compile(r"[\x00-\x08\x0a-\x1f\x7f]")
_BAR = re.compile(r"\s*\|\s*")
_STORAGE_SIZE = re.compile("[0-9]{1,18}")


class ReadableSource(Protocol):
    def read(self, size: int, /) -> bytes: ...


def read_manifest(
    source: bytes | ReadableSource | Iterable[bytes], *, kind: ManifestKind | None = None, limit: int = MANIFEST_LIMIT
) -> CheckmManifest:
    """Return all rows, or raise BadManifest with all complaints. `kind`: the kind it was submitted as, which the profile
    must match.
    """
    reader = _ManifestReader(kind)
    try:
        for line, text in _iter_lines(source, limit):
            reader.take_line(line, text)
        return reader.finish()
    except _StopReading:
        raise BadManifest(reader.complaints) from None


def detect_kind(head: bytes) -> ManifestKind | None:
    """Return the kind of the manifest that begins with these bytes; None if it is not a manifest."""
    for line in head.removeprefix(_BOM).split(b"\n")[:20]:
        found = _DIRECTIVE.fullmatch(line.decode("utf-8", "replace").strip())
        if found and found[1].lower() == "profile":
            return _kind_of(found[2] or "")
    return None


class _StopReading(BaseException):  # not an Exception: no handler of errors takes it for one
    """The rest need not be read."""


class _ManifestReader:
    """The state of reading one manifest."""

    def __init__(self, kind: ManifestKind | None) -> None:
        self.complaints: list[ManifestComplaint] = []
        self._remarks: list[ManifestComplaint] = []
        self._expected_kind = kind
        self._kind: ManifestKind | None = None
        self._has_profile = False
        self._rows: list[ManifestRow] = []
        self._row_lines = 0
        self._names = names.FileNames()
        self._objects = RowObjects()  # of a batch
        self._has_declaration = False
        self._end_line = 0
        self._last_line = 0
        self._has_crlf = False

    def take_line(self, line: int, raw: bytes) -> None:
        self._last_line = line
        if line == 1:
            raw = self._strip_bom(raw)
        text = self._decode(line, raw)
        if text is None and not raw.startswith(b"#"):
            self._row_lines += 1  # an unreadable row: the manifest is not empty
        if text is None or not text.strip():
            return
        if self._end_line:
            self._complain(line, f"This line is after #%eof in line {self._end_line}.")
            raise _StopReading
        if not self._has_declaration:
            self._has_declaration = True
            if text.strip() != "#%checkm_0.7":
                self._remark(line, "The first line is not #%checkm_0.7.")
        if not text.startswith("#"):
            self._take_row(line, text)
        elif found := _DIRECTIVE.fullmatch(text.strip()):
            self._take_directive(line, found[1].lower(), found[2] or "")

    def finish(self) -> CheckmManifest:
        if not self._last_line:
            self._complain(0, "The manifest is empty.")
        elif not self._end_line:
            self._complain(
                self._last_line, "The manifest ends without #%eof: it is incomplete, or the line is missing."
            )
        if self._last_line and not self._has_profile and not self._row_lines:
            self._complain(0, f"#%profile is missing, so this is not a manifest: write {_describe_profiles()}.")
        if self._last_line and not self._row_lines:
            self._complain(0, "The manifest lists nothing.")
        if self.complaints or self._kind is None:
            raise BadManifest(self.complaints)
        return CheckmManifest(self._kind, self._rows, self._remarks)

    def _strip_bom(self, raw: bytes) -> bytes:
        if raw.startswith(_UTF_16):
            self._complain(0, "The manifest is in UTF-16: save it as UTF-8.")
            raise _StopReading
        if raw.startswith(_BOM):
            self._remark(1, "The manifest begins with a byte order mark, which is not needed.")
            raw = raw.removeprefix(_BOM)
        if raw.startswith((b"PK\x03\x04", b"\x1f\x8b", b"%PDF", b"<", b"{")):
            self._complain(0, "This is not a manifest, but a file of another kind.")
            raise _StopReading
        return raw

    def _decode(self, line: int, raw: bytes) -> str | None:
        if not raw.endswith(b"\n") and raw:
            self._remark(line, "There is no newline at the end.")
        raw = raw.removesuffix(b"\n")
        if raw.endswith(b"\r"):
            raw = raw.removesuffix(b"\r")
            if not self._has_crlf:
                self._has_crlf = True
                self._remark(line, "Lines end with CR LF, as on Windows.")
        try:
            text = raw.decode()
        except UnicodeDecodeError as error:
            self._complain(
                line, f"Byte {error.start + 1} (0x{raw[error.start]:02x}) is not UTF-8: save the manifest as UTF-8."
            )
            return None
        if "\r" in text:
            self._complain(line, "There is a carriage return within the line: lines end with LF or CR LF.")
            return None
        bad = _CONTROL.search(text)
        if bad:
            self._complain(line, f"Character {bad.start() + 1} is a control character ({bad[0]!a}).")
            return None
        damaged = text.find("\ufffd")
        if damaged >= 0:
            self._complain(
                line, f"Character {damaged + 1} is a replacement character: a wrong encoding has damaged the line."
            )
            return None
        return text

    def _take_directive(self, line: int, name: str, value: str) -> None:
        if name == "profile":
            self._take_profile(line, value.strip())
        elif name in ("fields", "columns"):
            self._take_fields(line, value)
        elif name == "eof":
            self._end_line = line

    def _take_profile(self, line: int, value: str) -> None:
        if self._has_profile:
            self._complain(line, "#%profile occurs twice.")
            return
        self._has_profile = True
        self._kind = _kind_of(value)
        if self._kind is None:
            self._complain(
                line, f"{names.quote_text(value)} is not the profile of a manifest: write {_describe_profiles()}."
            )
        elif self._expected_kind not in (None, self._kind):
            self._complain(
                line,
                f"The profile is {self._kind}, but the manifest was sent as {self._expected_kind}: correct one of them.",
            )

    def _take_fields(self, line: int, value: str) -> None:
        if self._kind is None:
            return
        columns = columns_of(self._kind)
        fields = [cell.strip().rpartition(":")[2] for cell in _BAR.split(value.strip().rstrip("|").rstrip())]
        if [each.lower() for each in fields] != [each.lower() for each in columns[: len(fields)]]:
            self._complain(line, f"The columns of this profile have another order: {' | '.join(columns)}.")

    def _take_row(self, line: int, text: str) -> None:
        self._row_lines += 1
        if not self._has_profile:
            self._has_profile = True
            self._complain(line, f"#%profile must come before the first row: write {_describe_profiles()}.")
        if self._kind is None:
            return  # its columns are unknown; there is a complaint already
        row, complaints = read_row(self._kind, line, _BAR.split(text.strip()))
        if self._kind is ManifestKind.OBJECT and row.name:
            clash = self._names.add_file(row.name)
            complaints += [clash] if clash else []
        for each in complaints:
            self._complain(line, each)
        self._rows.append(row if self._kind is ManifestKind.OBJECT else self._link_row(row))

    def _link_row(self, row: ManifestRow) -> ManifestRow:
        """Return the row with the lines that it follows, and remark on it: each row is a deposit of its own."""
        above = self._objects.add(row.line, row.primary_id, row.local_ids)
        if not above:
            return row
        line, name = next(iter(above.items()))
        self._remark(
            row.line,
            f"{names.quote_text(name)} is named in line {line} too: both become versions of one object, in this order, "
            "unless the one above fails or is held.",
        )
        return msgspec.structs.replace(row, follows=tuple(above))

    def _complain(self, line: int, text: str) -> None:
        self.complaints.append(ManifestComplaint(line, text))
        if len(self.complaints) == MAX_COMPLAINTS:
            self.complaints.append(ManifestComplaint(line, f"Reading stopped here after {MAX_COMPLAINTS} complaints."))
            raise _StopReading

    def _remark(self, line: int, text: str) -> None:
        self._remarks.append(ManifestComplaint(line, text))


def _kind_of(profile: str) -> ManifestKind | None:
    found = _PROFILE.fullmatch(profile.strip())
    return ManifestKind(found[1]) if found and found[1] in list(ManifestKind) else None


def _describe_profiles() -> str:
    return f"http://uc3.cdlib.org/registry/ingest/manifest/ and one of {', '.join(ManifestKind)}"


def _iter_lines(source: bytes | ReadableSource | Iterable[bytes], limit: int) -> Iterator[tuple[int, bytes]]:
    """Yield line numbers and lines with their ends."""
    line, rest, size = 0, b"", 0
    for chunk in _iter_chunks(source):
        size += len(chunk)
        if size > limit:
            raise BadManifest(
                [ManifestComplaint(0, f"The manifest is longer than {limit:,} bytes: split it into several.")]
            )
        *complete_lines, rest = (rest + chunk).split(b"\n")
        for each in complete_lines:
            line += 1
            yield line, each + b"\n"
    if rest:
        yield line + 1, rest


def _iter_chunks(source: bytes | ReadableSource | Iterable[bytes]) -> Iterator[bytes]:
    if isinstance(source, bytes):
        yield source
    elif hasattr(source, "read"):
        while chunk := source.read(_CHUNK):
            yield chunk
    else:
        yield from source


def read_storage_manifest(lines: Iterable[bytes]) -> list[ManifestRow]:
    """Return all rows, or raise BadManifest with complaints by line. `lines` are those of a binary file."""
    rows: list[ManifestRow] = []
    complaints: list[ManifestComplaint] = []
    taken_names = names.FileNames()
    ended = False
    for number, line in enumerate(lines, start=1):
        try:
            text = line.decode().strip()
        except UnicodeDecodeError as error:
            complaints.append(ManifestComplaint(number, f"Byte {error.start + 1} is not UTF-8."))
            continue
        if text.startswith("#"):
            ended = ended or text == "#%eof"
        elif text:
            row, faults = _parse_storage_row(number, _BAR.split(text))
            clash = taken_names.add_file(row.name) if not faults else None
            complaints.extend(ManifestComplaint(number, fault) for fault in (*faults, *([clash] if clash else [])))
            rows.append(row)
        if len(complaints) >= MAX_STORAGE_COMPLAINTS:
            break
    if not complaints and not ended:
        complaints.append(ManifestComplaint(0, "The manifest ends without #%eof: it is incomplete."))
    if not complaints and not rows:
        complaints.append(ManifestComplaint(0, "The manifest lists nothing."))
    if complaints:
        raise BadManifest(complaints)
    return rows


def _parse_storage_row(line: int, cells: list[str]) -> tuple[ManifestRow, list[str]]:
    url, algorithm, value, size, modified, name, mime = [*cells, *[""] * 7][:7]
    faults: list[str] = []
    digest = ""
    try:
        plain, digest = normalize_digests({algorithm: value}).popitem()
        if plain != "sha256":
            faults.append("The digest is not a SHA-256, which a storage manifest must have.")
    except InputError as error:
        faults.append(str(error))
    if not _STORAGE_SIZE.fullmatch(size):
        faults.append(f"{names.quote_text(size)} is not a size.")
    if (fault := names.find_fault(name)) is not None:
        faults.append(fault)
    if _scheme_of(url) not in ("http", "https", "file"):
        faults.append(f"{names.quote_text(url)} is not an http, https or file URL.")
    return ManifestRow(line, url, name, "sha256", digest, int(size) if not faults else None, modified, mime), faults


def _scheme_of(url: str) -> str:
    try:
        return urlsplit(url).scheme
    except ValueError:
        return ""
