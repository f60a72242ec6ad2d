"""External storages: where archives are kept, behind one protocol.

protocol.py        the interface, and the life of a batch
errors.py          what a storage answers when it cannot, sorted by what follows
sources.py         what a put sends, and how an interrupted one goes on
archive_folder.py  archives as files: durable when written, read from the disk
directory.py       a folder on a mounted disk
s3.py              a bucket, in parts
ftp.py             a folder on an FTP server, with TLS
tape.py            media that are mounted when a batch is due
transfer_limit.py  at most so many transfers at once
conformance.py     the tests that every driver passes
"""

from waybill.apps.archive.storages.directory import DirectoryStorage, create_storage_folder
from waybill.apps.archive.storages.errors import (
    STORAGE_ERROR_CODES,
    ArchiveNotFound,
    ArchiveNotReady,
    CredentialsRefused,
    ExternalStorageDamaged,
    ExternalStorageError,
    SourceChanged,
    StorageFull,
    StorageRefused,
    StorageUnavailable,
)
from waybill.apps.archive.storages.ftp import FtpSecurity, FtpServer, FtpStorage
from waybill.apps.archive.storages.protocol import (
    ArchiveSource,
    Batch,
    BatchKind,
    BatchStatus,
    SaveCheckpoint,
    Storage,
    StorageTraits,
    StoredArchive,
    UploadCheckpoint,
)
from waybill.apps.archive.storages.s3 import S3Storage
from waybill.apps.archive.storages.sources import BytesSource, FileSource, read_back
from waybill.apps.archive.storages.tape import TapeStorage
from waybill.apps.archive.storages.transfer_limit import LimitedStorage

__all__ = [
    "STORAGE_ERROR_CODES",
    "ArchiveNotFound",
    "ArchiveNotReady",
    "ArchiveSource",
    "Batch",
    "BatchKind",
    "BatchStatus",
    "BytesSource",
    "CredentialsRefused",
    "DirectoryStorage",
    "ExternalStorageDamaged",
    "ExternalStorageError",
    "FileSource",
    "FtpSecurity",
    "FtpServer",
    "FtpStorage",
    "LimitedStorage",
    "S3Storage",
    "SaveCheckpoint",
    "SourceChanged",
    "Storage",
    "StorageFull",
    "StorageRefused",
    "StorageTraits",
    "StorageUnavailable",
    "StoredArchive",
    "TapeStorage",
    "UploadCheckpoint",
    "create_storage_folder",
    "read_back",
]
