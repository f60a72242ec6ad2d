"""Storage: deposits become stored versions of objects, in an OCFL 1.1 storage root or in another storage service.

protocol.py is the interface between ingest and its storage; ocfl_storage.py implements it on an object store,
http_client.py with a service over HTTP, which http_server.py serves.
"""

from waybill.apps.ingest.storage.ocfl_storage import OcflStorage
from waybill.apps.ingest.storage.protocol import (
    MANIFEST_PATH,
    ConcurrentWrite,
    Deposit,
    FileToStore,
    InvalidDeposit,
    NotInStorage,
    RecoveryResult,
    SourceOpener,
    StorageDamaged,
    StorageError,
    StorageFinding,
    StorageService,
    StoredVersion,
    VersionSummary,
)

__all__ = [
    "MANIFEST_PATH",
    "ConcurrentWrite",
    "Deposit",
    "FileToStore",
    "InvalidDeposit",
    "NotInStorage",
    "OcflStorage",
    "RecoveryResult",
    "SourceOpener",
    "StorageDamaged",
    "StorageError",
    "StorageFinding",
    "StorageService",
    "StoredVersion",
    "VersionSummary",
]
