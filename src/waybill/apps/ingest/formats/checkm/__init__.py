"""Checkm: manifests in which depositors list files by URL, and storage manifests.

A manifest is UTF-8 text with one row per line and columns separated by `|`:

    #%checkm_0.7
    #%profile | http://uc3.cdlib.org/registry/ingest/manifest/mrt-ingest-manifest
    #%fields | nfo:fileUrl | nfo:hashAlgorithm | nfo:hashValue | nfo:fileSize | nfo:fileLastModified | nfo:fileName | mrt:mimeType
    https://example.org/a.txt | md5 | 47d321056e60944a06973793c7b5841e | 46 |  | a.txt
    #%eof

The profile is its kind: the files of one object, or the objects of a batch (as manifests, containers or single files).
Columns are identified by position; trailing ones may be missing, and only the URL is required. `#%fields` may be
missing too, but must not contradict.

`read_manifest` reads it once, line by line, and returns all rows, or raises BadManifest with all complaints, each with
its line. Harmless oddities (Windows line ends, a byte order mark, two rows of one object) are remarks. Nothing is
fetched. `write_object_manifest` and `write_storage_manifest` write.

rows.py   the rows, checked cell by cell, and which rows belong to one object      reader.py   line by line      writer.py
"""

from waybill.apps.ingest.formats.checkm.reader import MANIFEST_LIMIT, detect_kind, read_manifest
from waybill.apps.ingest.formats.checkm.rows import (
    BadManifest,
    CheckmManifest,
    ManifestComplaint,
    ManifestKind,
    ManifestRow,
    link_rows,
)
from waybill.apps.ingest.formats.checkm.writer import write_object_manifest, write_storage_manifest

__all__ = [
    "MANIFEST_LIMIT",
    "BadManifest",
    "CheckmManifest",
    "ManifestComplaint",
    "ManifestKind",
    "ManifestRow",
    "detect_kind",
    "link_rows",
    "read_manifest",
    "write_object_manifest",
    "write_storage_manifest",
]
