"""Writing: the manifest of an object's files for whoever will ingest it, and the one that tells storage what to keep.

The storage manifest (`system/mrt-manifest.txt`) lists every file of an object's `producer/` and `system/` folders with
its SHA-256 and a URL that storage can read it from. Its columns are announced by `#%columns`, as storage services
expect.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator

from waybill.apps.ingest import names
from waybill.apps.ingest.checkm.rows import Row

_NFO = "http://www.semanticdesktop.org/ontologies/2007/03/22/nfo#"
_NIE = "http://www.semanticdesktop.org/ontologies/2007/01/19/nie/#"
_MRT = "http://merritt.cdlib.org/terms#"
_OBJECT = (
    "#%checkm_0.7",
    "#%profile | http://uc3.cdlib.org/registry/ingest/manifest/mrt-ingest-manifest",
    f"#%prefix | mrt: | {_MRT}",
    f"#%prefix | nfo: | {_NFO}",
    "#%fields | nfo:fileUrl | nfo:hashAlgorithm | nfo:hashValue | nfo:fileSize | nfo:fileLastModified | nfo:fileName | mrt:mimeType",
)
_STORAGE = (
    "#%checkm_0.7",
    "#%profile | http://uc3.cdlib.org/registry/store/manifest/mrt-add-manifest",
    f"#%prefix | nfo:<{_NFO}>",
    f"#%prefix | nie:<{_NIE}>",
    f"#%prefix | mrt:<{_MRT}>",
    "#%columns | nfo:fileURL | nfo:hashAlgorithm | nfo:hashValue | nfo:fileSize | nfo:fileLastModified | nfo:fileName | nie:mimeType",
)
_WRITTEN_AS = {
    "sha1": "sha-1",
    "sha224": "sha-224",
    "sha256": "sha-256",
    "sha384": "sha-384",
    "sha512": "sha-512",
    "crc32": "crc-32",
}
_UNFIT = re.compile("[|\x00-\x1f\x7f\ud800-\udfff]")


class CannotWrite(Exception):
    """A row cannot be written in this format."""

    permanent = True


def object_manifest(rows: Iterable[Row]) -> Iterator[bytes]:
    """The lines of an object manifest."""
    return _manifest(_OBJECT, rows)


def storage_manifest(rows: Iterable[Row]) -> Iterator[bytes]:
    """The lines of a storage manifest; each row needs its size and its SHA-256."""
    return _manifest(_STORAGE, (_complete(row) for row in rows))


def _manifest(head: Iterable[str], rows: Iterable[Row]) -> Iterator[bytes]:
    for line in head:
        yield line.encode() + b"\n"
    for row in rows:
        yield _line(row).encode() + b"\n"
    yield b"#%eof\n"


def _complete(row: Row) -> Row:
    if row.algorithm != "sha256" or row.size is None:
        raise CannotWrite(f"{names.shown(row.name)} has no SHA-256 or no size, and storage must have both.")
    return row


def _line(row: Row) -> str:
    algorithm = _WRITTEN_AS.get(row.algorithm, row.algorithm)
    size = "" if row.size is None else str(row.size)
    cells = [row.url, algorithm, row.digest, size, row.modified, row.name, row.mime]
    for cell in cells:
        if _UNFIT.search(cell) or cell != cell.strip():
            raise CannotWrite(
                f"{names.shown(cell)} cannot be written in a manifest of this format: it holds a |, begins or ends with a space,"
                " or has a control character or half of a surrogate pair."
            )
    return " | ".join(cells).rstrip(" |")
