"""Storage manifests read: every file of an object with its SHA-256, its size, and a URL from which its bytes can be
had.

They are written by ingest for storage (`storage_manifest`), and by storage services for whoever records what they keep.
Unlike a depositor's manifest they may name `file:` URLs: what of them may be read is the reader's business.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from urllib.parse import urlsplit

from waybill.apps.ingest import names
from waybill.apps.ingest.checkm.rows import BadManifest, Complaint, Row
from waybill.digests import UnknownDigest, promised

BEGINS = b"#%checkm_"
MOST_COMPLAINTS = 100

_BAR = re.compile(r"\s*\|\s*")
_SIZE = re.compile("[0-9]{1,18}")


def read_storage_manifest(lines: Iterable[bytes]) -> list[Row]:
    """All rows, or BadManifest with what is wrong, line by line. `lines` are as a file has them."""
    rows: list[Row] = []
    wrong: list[Complaint] = []
    taken = names.Names()
    ended = False
    for number, line in enumerate(lines, start=1):
        try:
            text = line.decode().strip()
        except UnicodeDecodeError as error:
            wrong.append(Complaint(number, f"Byte {error.start + 1} is not UTF-8."))
            continue
        if text.startswith("#"):
            ended = ended or text == "#%eof"
        elif text:
            row, faults = _row(number, _BAR.split(text))
            clash = taken.take(row.name) if not faults else None
            wrong.extend(Complaint(number, fault) for fault in (*faults, *([clash] if clash else [])))
            rows.append(row)
        if len(wrong) >= MOST_COMPLAINTS:
            break
    if not wrong and not ended:
        wrong.append(Complaint(0, "The manifest ends without #%eof: it is not whole."))
    if not wrong and not rows:
        wrong.append(Complaint(0, "The manifest lists nothing."))
    if wrong:
        raise BadManifest(wrong)
    return rows


def _row(line: int, cells: list[str]) -> tuple[Row, list[str]]:
    url, algorithm, value, size, modified, name, mime = [*cells, *[""] * 7][:7]
    faults: list[str] = []
    digest = ""
    try:
        plain, digest = promised({algorithm: value}).popitem()
        if plain != "sha256":
            faults.append("The digest is not a SHA-256, which a storage manifest must have.")
    except UnknownDigest as error:
        faults.append(str(error))
    if not _SIZE.fullmatch(size):
        faults.append(f"{names.shown(size)} is not a size.")
    if (fault := names.fault(name)) is not None:
        faults.append(fault)
    if _scheme(url) not in ("http", "https", "file"):
        faults.append(f"{names.shown(url)} is not an http, https or file URL.")
    return Row(line, url, name, "sha256", digest, int(size) if not faults else None, modified, mime), faults


def _scheme(url: str) -> str:
    try:
        return urlsplit(url).scheme
    except ValueError:
        return ""
