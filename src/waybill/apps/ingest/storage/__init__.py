"""Storage: deposits become versions of objects at rest, in an OCFL 1.1 storage root or behind another service.

protocol.py is the contract between an ingest and its storage; ocfl.py keeps it on the objects layer.
"""

from waybill.apps.ingest.storage.ocfl import OcflStorage
from waybill.apps.ingest.storage.protocol import (
    MANIFEST,
    Deposit,
    FileToStore,
    Finding,
    Late,
    NoSuchFile,
    NotStorable,
    NotStored,
    Recovered,
    Sources,
    StorageError,
    StorageService,
    Stored,
    Unsound,
    Version,
)

__all__ = [
    "MANIFEST",
    "Deposit",
    "FileToStore",
    "Finding",
    "Late",
    "NoSuchFile",
    "NotStorable",
    "NotStored",
    "OcflStorage",
    "Recovered",
    "Sources",
    "StorageError",
    "StorageService",
    "Stored",
    "Unsound",
    "Version",
]
