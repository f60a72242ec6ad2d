"""What a storage answers when it cannot do something, sorted by what follows.

StorageUnavailable    wait and try again: it is down, slow, full, or another process is at the same batch
CredentialsRefused    wait for other credentials, then try again
StorageRefused        it will never do this: say so and stop
ArchiveNotFound       it has no such archive; ExternalStorageDamaged: it has another one than was put
SourceChanged         not the storage's fault: what was to be sent is not what was planned
"""

from __future__ import annotations

from waybill.errors import FAILED, MISSING, STORE, ErrorCode, WaybillError

STORAGE_ERROR_CODES = {
    "storage-unavailable": ErrorCode(
        503, STORE, "The external storage is unavailable.", "Nothing is lost; it is tried again.", "", 30
    ),
    "storage-full": ErrorCode(
        503, STORE, "The external storage is full.", "It is tried again; ask its operator for space.", "", 60
    ),
    "storage-credentials": ErrorCode(
        403, FAILED, "The external storage does not accept the credentials.", "Send others; the request goes on."
    ),
    "storage-refused": ErrorCode(422, FAILED, "The external storage does not accept this.", "Correct the request."),
    "archive-not-found": ErrorCode(404, MISSING, "The external storage has no such archive.", "Check the name."),
    "archive-not-ready": ErrorCode(
        503, STORE, "The archive has not been brought back from its medium yet.", "Poll the batch.", "", 30
    ),
    "archive-damaged": ErrorCode(
        500, FAILED, "An archive on the external storage is not what was put there.", "Tell the server's operator."
    ),
    "source-changed": ErrorCode(409, FAILED, "A file changed while it was being archived.", "Send the request again."),
}


class ExternalStorageError(WaybillError):
    """The external storage failed."""

    code = "storage-unavailable"


class StorageUnavailable(ExternalStorageError):
    """The external storage is unavailable."""


class StorageFull(StorageUnavailable):
    """The external storage is full."""

    code = "storage-full"


class ArchiveNotReady(StorageUnavailable):
    """The archive has not been brought back from its medium yet: poll the batch."""

    code = "archive-not-ready"


class CredentialsRefused(ExternalStorageError):
    """The external storage does not accept the credentials, or no longer."""

    code = "storage-credentials"


class StorageRefused(ExternalStorageError):
    """The external storage does not accept this, now or later."""

    code = "storage-refused"


class ArchiveNotFound(ExternalStorageError):
    """The external storage has no such archive."""

    code = "archive-not-found"


class ExternalStorageDamaged(ExternalStorageError):
    """An archive on the external storage is not what was put there."""

    code = "archive-damaged"


class SourceChanged(WaybillError):
    """What was to be sent is not what was planned."""

    code = "source-changed"
