"""Entries: the name and the bytes of one entry of an old queue."""

from __future__ import annotations

import re
from datetime import UTC, datetime, timedelta
from enum import Enum, StrEnum
from typing import Any

import msgspec

from waybill.apps.ingest.legacy.payloads import LegacyError, read_payload
from waybill.apps.ingest.names import shown

__all__ = ["Entry", "LegacyError", "Queue", "Status", "decode"]

_HEAD = 9
_NAME = re.compile(r"mrtQ-([0-9]{10,40})")
_NUMBER = 10  # digits that ZooKeeper adds
_BEFORE_MILLISECONDS = 10**11  # as seconds the year 5138, as milliseconds 1973
_LAST = 253_402_300_800_000  # the year 10000, in milliseconds
_BEGINNING = datetime(1970, 1, 1, tzinfo=UTC)


class Queue(StrEnum):
    INGEST = "/ingest"
    INVENTORY = "/mrt.inventory.full"
    ACCESS_SMALL = "/accessSmall.1"
    ACCESS_LARGE = "/accessLarge.1"


class Status(Enum):
    """What the first byte says."""

    Pending = 0
    Consumed = 1  # a worker had taken it
    Deleted = 2
    Failed = 3
    Completed = 4
    Held = 5


class Entry(msgspec.Struct, frozen=True):
    queue: Queue
    name: str
    priority: int | None  # from the name; None if it has none
    worker: str
    number: int
    status: Status
    written: datetime | None
    said: dict[str, Any]


def decode(path: str, data: bytes | None) -> Entry:
    """The entry at a path: `/ingest/mrtQ-02100000000003`; LegacyError if it is none."""
    folder, _, name = path.rpartition("/")
    queue = next((each for each in Queue if folder == each or folder.endswith(str(each))), None)
    found = _NAME.fullmatch(name)
    if queue is None or found is None:
        raise LegacyError(f"{shown(path)} is not an entry of an old queue.")
    if data is None or len(data) < _HEAD:
        raise LegacyError(
            f"{shown(path)} has {len(data or b'')} bytes, and an entry begins with {_HEAD}: status and time."
        )
    try:
        status = Status(data[0])
    except ValueError:
        raise LegacyError(f"{shown(path)} has the status {data[0]}, and there are 0 to {len(Status) - 1}.") from None
    try:
        said = read_payload(data[_HEAD:])
    except LegacyError as error:
        raise LegacyError(f"{shown(path)} cannot be read: {error}") from None
    before = found[1][:-_NUMBER]
    return Entry(
        queue=queue,
        name=name,
        priority=int(before[:2]) if len(before) >= 2 else None,
        worker=before[2:],
        number=int(found[1][-_NUMBER:]),
        status=status,
        written=_time(int.from_bytes(data[1:_HEAD], signed=True)),
        said=said,
    )


def _time(number: int) -> datetime | None:
    """None for 0, and for what can be neither seconds nor milliseconds of our times."""
    milliseconds = number * 1000 if 0 < number < _BEFORE_MILLISECONDS else number
    return _BEGINNING + timedelta(milliseconds=milliseconds) if 0 < milliseconds < _LAST else None
