"""The errors of a store and of documents. The docstring of an error is its default message, a sentence for the person who sees it."""

from __future__ import annotations

from waybill.errors import WaybillError


class StoreError(WaybillError):
    """The store refused; nothing was written."""

    code = "refused"


class RecordNotFound(StoreError):
    """There is no such record."""

    code = "not-found"


class Conflict(StoreError):
    """The record has changed since it was read. Read it again, then decide again."""

    code = "conflict"


class ClaimLost(Conflict):
    """The claim has ended; another worker may have claimed the record."""

    code = "claim-lost"


class LockUnavailable(StoreError):
    """Another record owns a lock that this needs, or waits for it before this one."""

    code = "lock-unavailable"

    def __init__(self, message: str | None = None, lock: str = "") -> None:
        super().__init__(message)
        self.lock = lock


class RecordBusy(Conflict):
    """Others keep changing the record, or requested another action of it that is not answered yet. Try again."""

    code = "busy-record"

    def __init__(self, message: str | None = None, *, is_contended: bool = False) -> None:
        super().__init__(message)
        self.is_contended = is_contended  # others keep changing it, so that the next try may succeed at once


class ParentClosed(StoreError):
    """The parent is closed or gone, and takes no more children."""

    code = "parent-closed"


class RecordExists(StoreError):
    """A record of this kind and id exists already."""

    code = "exists"


class SessionLost(StoreError):
    """This session has ended, and its claims with it. Open a new one."""

    code = "session-lost"


class CommitOutcomeUnknown(StoreError):
    """The connection was lost while writing: the commit may or may not have been written. Read the store to find out."""

    code = "outcome-unknown"


class StoreUnavailable(StoreError):
    """The store cannot be reached or cannot write now; nothing was written. It is safe to try again."""

    code = "unavailable"


class CommitTooLarge(StoreError):
    """More than a store takes in one commit. Put bulk into a manifest in object storage and name that instead."""

    code = "too-large"


class BadStore(StoreError):
    """The store cannot be opened as it is."""

    code = "bad-store"


class DocumentError(WaybillError):
    """A document is missing, damaged or of a version that this release does not read. Retrying cannot help."""

    code = "damaged-document"
