"""What a store refuses with: an error's docstring is its message, a sentence for the person who will see it."""

from __future__ import annotations

from typing import ClassVar


class StoreError(Exception):
    """The store refused; nothing was written."""

    code: ClassVar[str] = "refused"

    def __init__(self, message: str | None = None) -> None:
        super().__init__(message or (self.__doc__ or "").strip())


class NotFound(StoreError):
    """There is no such record."""

    code = "not-found"

    def __init__(self, message: str | None = None, hint: str = "") -> None:
        super().__init__(message)
        self.hint = hint  # what to do, where it is no record that is missing


class Conflict(StoreError):
    """The record moved on since it was read. Read it again, then decide again."""

    code = "conflict"


class ClaimLost(Conflict):
    """The claim ended; perhaps another worker has the record now."""

    code = "claim-lost"


class Taken(StoreError):
    """A key that this needs is held by another record."""

    code = "taken"

    def __init__(self, message: str | None = None, key: str = "") -> None:
        super().__init__(message)
        self.key = key


class Exists(StoreError):
    """A record of this kind and id exists already."""

    code = "exists"


class SessionLost(StoreError):
    """This session has ended. Open a new one; the claims of the old one are free or with others."""

    code = "session-lost"


class Unknown(StoreError):
    """The connection was lost while writing: it may or may not have been written. The truth is in the store."""

    code = "unknown"


class Unavailable(StoreError):
    """The store cannot be reached or cannot write now; nothing was written. It is safe to try again."""

    code = "unavailable"


class TooLarge(StoreError):
    """More than a store takes at once. Put bulk into a manifest in object storage and name that instead."""

    code = "too-large"


class BadStore(StoreError):
    """The store cannot be opened as it is."""

    code = "bad-store"
