"""Writes object manifests, which list the files of an object for ingest, and storage manifests.

A storage manifest (`system/mrt-manifest.txt`) lists every file of an object's `producer/` and `system/` folders with
its SHA-256 and a URL from which storage can read it. Its columns are in `#%columns`, as storage services expect.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator

from waybill.apps.ingest.formats.checkm.rows import ManifestRow
from waybill.errors import FormatError
from waybill.files import names

_NFO = "http://www.semanticdesktop.org/ontologies/2007/03/22/nfo#"
_NIE = "http://www.semanticdesktop.org/ontologies/2007/01/19/nie/#"
_MRT = "http://merritt.cdlib.org/terms#"
_OBJECT_HEADER = (
    "#%checkm_0.7",
    "#%profile | http://uc3.cdlib.org/registry/ingest/manifest/mrt-ingest-manifest",
    f"#%prefix | mrt: | {_MRT}",
    f"#%prefix | nfo: | {_NFO}",
    "#%fields | nfo:fileUrl | nfo:hashAlgorithm | nfo:hashValue | nfo:fileSize | nfo:fileLastModified | nfo:fileName | mrt:mimeType",
)
_STORAGE_HEADER = (
    "#%checkm_0.7",
    "#%profile | http://uc3.cdlib.org/registry/store/manifest/mrt-add-manifest",
    f"#%prefix | nfo:<{_NFO}>",
    f"#%prefix | nie:<{_NIE}>",
    f"#%prefix | mrt:<{_MRT}>",
    "#%columns | nfo:fileURL | nfo:hashAlgorithm | nfo:hashValue | nfo:fileSize | nfo:fileLastModified | nfo:fileName | nie:mimeType",
)
_ALGORITHM_NAMES = {
    "sha1": "sha-1",
    "sha224": "sha-224",
    "sha256": "sha-256",
    "sha384": "sha-384",
    "sha512": "sha-512",
    "crc32": "crc-32",
}
_UNFIT = re.compile("[|\x00-\x1f\x7f\ud800-\udfff]")


def write_object_manifest(rows: Iterable[ManifestRow]) -> Iterator[bytes]:
    """Yield the lines of an object manifest."""
    return _write_lines(_OBJECT_HEADER, rows)


def write_storage_manifest(rows: Iterable[ManifestRow]) -> Iterator[bytes]:
    """Yield the lines of a storage manifest; each row needs a size and a SHA-256."""
    return _write_lines(_STORAGE_HEADER, (_require_sha256(row) for row in rows))


def _write_lines(head: Iterable[str], rows: Iterable[ManifestRow]) -> Iterator[bytes]:
    for line in head:
        yield line.encode() + b"\n"
    for row in rows:
        yield _format_row(row).encode() + b"\n"
    yield b"#%eof\n"


def _require_sha256(row: ManifestRow) -> ManifestRow:
    if row.algorithm != "sha256" or row.size is None:
        raise FormatError(f"{names.quote_text(row.name)} has no SHA-256 or no size, and storage needs both.")
    return row


def _format_row(row: ManifestRow) -> str:
    algorithm = _ALGORITHM_NAMES.get(row.algorithm, row.algorithm)
    size = "" if row.size is None else str(row.size)
    cells = [row.url, algorithm, row.digest, size, row.modified, row.name, row.mime]
    for cell in cells:
        if _UNFIT.search(cell) or cell != cell.strip():
            raise FormatError(
                f"{names.quote_text(cell)} cannot be written in a manifest of this format: it contains a |, begins or ends with a space,"
                " or has a control character or half of a surrogate pair."
            )
    return " | ".join(cells).rstrip(" |")
