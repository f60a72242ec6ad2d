"""Streams: whatever a caller hands to `put`, as portions of bytes that are measured on their way.

A Stream is iterated once; while it runs it counts and digests, and at its end it raises Damaged if the promised size or
SHA-256 is not what came. So the driver that consumes it needs to do nothing but stop, undone, when an exception passes.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterator

from waybill.objects.protocol import Damaged, Data, Refused

PORTION = 1024 * 1024


def portions(data: Data) -> Iterator[bytes]:
    """The data in portions, none empty and none larger than PORTION unless the caller's own are."""
    if isinstance(data, bytes | bytearray | memoryview):
        view = memoryview(data).cast("B")
        for at in range(0, len(view), PORTION):
            yield bytes(view[at : at + PORTION])
    elif hasattr(data, "read"):
        while portion := data.read(PORTION):
            yield portion
    elif isinstance(data, str):
        raise Refused("An object's data are bytes, not text: encode it first.")
    else:
        for portion in data:
            if portion:
                yield portion


class Stream:
    """Portions of bytes with their size and digest so far, and a check at the end."""

    def __init__(self, data: Data, *, size: int | None = None, sha256: str | None = None) -> None:
        self._portions = portions(data)
        self._digest = hashlib.sha256()
        self._promised_size = size
        self._promised_sha256 = check_sha256(sha256) if sha256 is not None else None
        self.size = 0

    @property
    def sha256(self) -> str:
        return self._digest.hexdigest()

    def __iter__(self) -> Iterator[bytes]:
        for portion in self._portions:
            self.size += len(portion)
            if self._promised_size is not None and self.size > self._promised_size:
                raise Damaged(f"More than the promised {self._promised_size} bytes came.")
            self._digest.update(portion)
            yield portion
        if self._promised_size is not None and self.size != self._promised_size:
            raise Damaged(f"{self.size} bytes came, and {self._promised_size} were promised.")
        if self._promised_sha256 is not None and self.sha256 != self._promised_sha256:
            raise Damaged(f"What came has the SHA-256 {self.sha256}, and {self._promised_sha256} was promised.")


def check_sha256(text: str) -> str:
    """A SHA-256 as 64 lower-case hex digits, or Refused."""
    lowered = text.lower()
    if len(lowered) != 64 or any(letter not in "0123456789abcdef" for letter in lowered):
        raise Refused(f"{text[:80]!r} is not a SHA-256 in hex.")
    return lowered


def check_range(start: int, end: int | None) -> None:
    if start < 0 or (end is not None and end < 0):
        raise Refused("A range counts from the beginning: neither start nor end can be negative.")


def check_conditions(if_absent: bool, if_match: str | None) -> None:
    if if_absent and if_match is not None:
        raise Refused("A put is either for an absent object (if_absent) or for a known version (if_match), not both.")
