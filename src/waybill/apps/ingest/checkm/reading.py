"""Reading: a manifest's lines, once and in order, into rows or complaints.

What a line may be, in order: the declaration, the profile, prefixes and fields, rows, the end. Comments (`#`) and empty
lines may stand anywhere. Of a manifest that is too long only as much is read as is needed to know it, and after a
thousand complaints nobody reads on.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from typing import Protocol

import msgspec

from waybill.apps.ingest import names
from waybill.apps.ingest.checkm.objects import Objects
from waybill.apps.ingest.checkm.rows import BadManifest, Complaint, Kind, Manifest, Row, columns, read_row

LIMIT = 5_000_000  # bytes
MOST_COMPLAINTS = 1000

_PORTION = 64 * 1024
_MARK = b"\xef\xbb\xbf"
_UTF_16 = (b"\xff\xfe", b"\xfe\xff")
_PROFILE = re.compile(r"https?://uc3\.cdlib\.org/registry/(?:ingest/manifest|mrt)/([a-z-]+)")
_DIRECTIVE = re.compile(r"#%([A-Za-z]\w*(?:\.\w+)?)\s*(?:\|\s*(.*))?")
_CONTROL = re.compile(r"[\x00-\x08\x0a-\x1f\x7f]")
_BAR = re.compile(r"\s*\|\s*")


class Readable(Protocol):
    def read(self, size: int, /) -> bytes: ...


def read(source: bytes | Readable | Iterable[bytes], *, kind: Kind | None = None, limit: int = LIMIT) -> Manifest:
    """All rows, or BadManifest with all complaints. `kind`: what it was sent as, if that was said; the profile must
    agree.
    """
    reading = _Reading(kind)
    try:
        for line, text in _lines(source, limit):
            reading.take(line, text)
        return reading.result()
    except _Enough:
        raise BadManifest(reading.complaints) from None


def glance(head: bytes) -> Kind | None:
    """Of which kind the manifest is that begins with these bytes; None if they do not begin one."""
    for line in head.removeprefix(_MARK).split(b"\n")[:20]:
        found = _DIRECTIVE.fullmatch(line.decode("utf-8", "replace").strip())
        if found and found[1].lower() == "profile":
            return _kind_of(found[2] or "")
    return None


class _Enough(Exception):
    """Nothing more needs to be read."""


class _Reading:
    """A manifest, as far as it has been read."""

    def __init__(self, kind: Kind | None) -> None:
        self.complaints: list[Complaint] = []
        self._remarks: list[Complaint] = []
        self._sent_as = kind
        self._kind: Kind | None = None
        self._said_profile = False
        self._rows: list[Row] = []
        self._row_lines = 0
        self._names = names.Names()
        self._objects = Objects()  # of a batch
        self._declared = False
        self._ended = 0
        self._last = 0
        self._crlf = False

    def take(self, line: int, raw: bytes) -> None:
        self._last = line
        if line == 1:
            raw = self._without_mark(raw)
        text = self._decoded(line, raw)
        if text is None and not raw.startswith(b"#"):
            self._row_lines += 1  # a row, though it cannot be read: the manifest lists something
        if text is None or not text.strip():
            return
        if self._ended:
            self._complain(line, f"This comes after #%eof in line {self._ended}, which is the end.")
            raise _Enough
        if not self._declared:
            self._declared = True
            if text.strip() != "#%checkm_0.7":
                self._remark(line, "The first line is not #%checkm_0.7.")
        if not text.startswith("#"):
            self._take_row(line, text)
        elif found := _DIRECTIVE.fullmatch(text.strip()):
            self._take_directive(line, found[1].lower(), found[2] or "")

    def result(self) -> Manifest:
        if not self._last:
            self._complain(0, "The manifest is empty.")
        elif not self._ended:
            self._complain(self._last, "The manifest ends without #%eof: it is not whole, or the line was forgotten.")
        if self._last and not self._said_profile and not self._row_lines:
            self._complain(0, f"#%profile is missing, so this is no manifest: write {_profiles()}.")
        if self._last and not self._row_lines:
            self._complain(0, "The manifest lists nothing.")
        if self.complaints or self._kind is None:
            raise BadManifest(self.complaints)
        return Manifest(self._kind, self._rows, self._remarks)

    def _without_mark(self, raw: bytes) -> bytes:
        if raw.startswith(_UTF_16):
            self._complain(0, "The manifest is in UTF-16: save it as UTF-8.")
            raise _Enough
        if raw.startswith(_MARK):
            self._remark(1, "The manifest begins with a byte order mark, which is not needed.")
            raw = raw.removeprefix(_MARK)
        if raw.startswith((b"PK\x03\x04", b"\x1f\x8b", b"%PDF", b"<", b"{")):
            self._complain(0, "This is no manifest, but a file of another kind.")
            raise _Enough
        return raw

    def _decoded(self, line: int, raw: bytes) -> str | None:
        if not raw.endswith(b"\n") and raw:
            self._remark(line, "There is no newline at the end.")
        raw = raw.removesuffix(b"\n")
        if raw.endswith(b"\r"):
            raw = raw.removesuffix(b"\r")
            if not self._crlf:
                self._crlf = True
                self._remark(line, "Lines end as on Windows (CR LF).")
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
            self._ended = line

    def _take_profile(self, line: int, value: str) -> None:
        if self._said_profile:
            self._complain(line, "#%profile is there twice.")
            return
        self._said_profile = True
        self._kind = _kind_of(value)
        if self._kind is None:
            self._complain(line, f"{names.shown(value)} is not the profile of a manifest: write {_profiles()}.")
        elif self._sent_as not in (None, self._kind):
            self._complain(
                line, f"The profile is {self._kind}, and the manifest was sent as {self._sent_as}: correct one of them."
            )

    def _take_fields(self, line: int, value: str) -> None:
        if self._kind is None:
            return
        wanted = columns(self._kind)
        said = [cell.strip().rpartition(":")[2] for cell in _BAR.split(value.strip().rstrip("|").rstrip())]
        if [each.lower() for each in said] != [each.lower() for each in wanted[: len(said)]]:
            self._complain(line, f"The columns of this profile have another order: {' | '.join(wanted)}.")

    def _take_row(self, line: int, text: str) -> None:
        self._row_lines += 1
        if not self._said_profile:
            self._said_profile = True
            self._complain(line, f"#%profile must come before the first row: write {_profiles()}.")
        if self._kind is None:
            return  # what its columns mean is not known, and that has been said
        row, wrong = read_row(self._kind, line, _BAR.split(text.strip()))
        if self._kind is Kind.OBJECT and row.name:
            clash = self._names.take(row.name)
            wrong += [clash] if clash else []
        for each in wrong:
            self._complain(line, each)
        self._rows.append(row if self._kind is Kind.OBJECT else self._in_order(row))

    def _in_order(self, row: Row) -> Row:
        """The row with the lines that it follows. No fault, since each row is a deposit by itself; but worth a
        remark.
        """
        above = self._objects.take(row.line, row.primary_id, row.local_ids)
        if not above:
            return row
        line, name = next(iter(above.items()))
        self._remark(
            row.line,
            f"{names.shown(name)} is named in line {line} too: both become versions of one object, in this order, "
            "unless the one above fails or is held.",
        )
        return msgspec.structs.replace(row, follows=tuple(above))

    def _complain(self, line: int, text: str) -> None:
        self.complaints.append(Complaint(line, text))
        if len(self.complaints) == MOST_COMPLAINTS:
            self.complaints.append(
                Complaint(
                    line, f"Nothing after this line was looked at: there are {MOST_COMPLAINTS} complaints already."
                )
            )
            raise _Enough

    def _remark(self, line: int, text: str) -> None:
        self._remarks.append(Complaint(line, text))


def _kind_of(profile: str) -> Kind | None:
    found = _PROFILE.fullmatch(profile.strip())
    return Kind(found[1]) if found and found[1] in list(Kind) else None


def _profiles() -> str:
    return f"http://uc3.cdlib.org/registry/ingest/manifest/ and one of {', '.join(Kind)}"


def _lines(source: bytes | Readable | Iterable[bytes], limit: int) -> Iterator[tuple[int, bytes]]:
    """Numbered lines, each with its end."""
    line, rest, came = 0, b"", 0
    for portion in _portions(source):
        came += len(portion)
        if came > limit:
            raise BadManifest([Complaint(0, f"The manifest is longer than {limit:,} bytes: split it into several.")])
        *whole, rest = (rest + portion).split(b"\n")
        for each in whole:
            line += 1
            yield line, each + b"\n"
    if rest:
        yield line + 1, rest


def _portions(source: bytes | Readable | Iterable[bytes]) -> Iterator[bytes]:
    if isinstance(source, bytes):
        yield source
    elif hasattr(source, "read"):
        while portion := source.read(_PORTION):
            yield portion
    else:
        yield from source
