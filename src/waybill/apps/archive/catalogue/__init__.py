"""The catalogue of archive: migrations, their archives and files, labels and tags, live paths, findings. It is the truth of
what it holds, so it is durable.

    tables.py    what is done with it
    paths.py     paths as text that every database takes

A step writes its rows before the commit that says that they are there, under the number of its migration, and a second run
writes the same ones. One connection is for one thread at a time; `CatalogueConnections` keeps a few.
"""

from waybill.apps.archive.catalogue.connections import CATALOGUE, CatalogueConnections
from waybill.apps.archive.catalogue.paths import decode_path, encode_path
from waybill.apps.archive.catalogue.tables import ArchiveRow, ArchiveTables, FileRow, MigrationRow

__all__ = [
    "CATALOGUE",
    "ArchiveRow",
    "ArchiveTables",
    "CatalogueConnections",
    "FileRow",
    "MigrationRow",
    "decode_path",
    "encode_path",
]
