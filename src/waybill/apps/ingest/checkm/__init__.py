"""Checkm: the manifests in which depositors list their files by URL, and in which storage is told what to keep.

A manifest is text in UTF-8, one row in each line, columns with `|` between them:

    #%checkm_0.7
    #%profile | http://uc3.cdlib.org/registry/ingest/manifest/mrt-ingest-manifest
    #%fields | nfo:fileUrl | nfo:hashAlgorithm | nfo:hashValue | nfo:fileSize | nfo:fileLastModified | nfo:fileName | mrt:mimeType
    https://example.org/a.txt | md5 | 47d321056e60944a06973793c7b5841e | 46 |  | a.txt
    #%eof

The profile says of which kind it is: the files of one object, or objects of a batch (as manifests, as containers, as
single files). Columns count by their place; those at the end may be missing, and only the URL must be there. `#%fields`
may be missing too, but not contradict.

Its life: `read` goes through it once, line by line, and answers with every row, or raises BadManifest with every
complaint, each with its line. What is no fault but worth knowing (Windows line ends, a byte order mark, two rows of one
object) is a remark and stops nothing. Nothing is fetched. `object_manifest` and `storage_manifest` write.
"""

from waybill.apps.ingest.checkm.objects import related
from waybill.apps.ingest.checkm.reading import LIMIT, glance, read
from waybill.apps.ingest.checkm.rows import BadManifest, Complaint, Kind, Manifest, Row
from waybill.apps.ingest.checkm.writing import object_manifest, storage_manifest

__all__ = [
    "LIMIT",
    "BadManifest",
    "Complaint",
    "Kind",
    "Manifest",
    "Row",
    "glance",
    "object_manifest",
    "read",
    "related",
    "storage_manifest",
]
