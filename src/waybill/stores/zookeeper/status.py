"""The status node: where a record is, in the bytes that Merritt's services read and write.

    {"status":"Pending","last_successful_status":null,"retry_count":0,"last_modified":"2026-11-15 17:49:29
    +0000","message":""}

A batch's and an assembly's have no `last_successful_status` and no `retry_count`. `message` is always there. What
others wrote may lack any field but `status`.
"""

from __future__ import annotations

from datetime import datetime
from functools import lru_cache
from time import gmtime, strftime

import msgspec


class Status(msgspec.Struct, frozen=True):
    status: str
    last_successful_status: str | None = None
    retry_count: int = 0
    last_modified: str = ""
    message: str = ""

    @property
    def modified(self) -> float | None:
        """When, to the second; None if it does not say."""
        try:
            return datetime.strptime(self.last_modified, "%Y-%m-%d %H:%M:%S %z").timestamp()
        except ValueError:
            return None


class BriefStatus(msgspec.Struct, frozen=True):
    status: str
    last_modified: str
    message: str


LONGEST = 4096  # characters of a message

_decoder = msgspec.json.Decoder(Status, strict=False)
_encode = msgspec.json.Encoder().encode


@lru_cache(16)
def _written(second: int) -> str:
    return strftime("%Y-%m-%d %H:%M:%S +0000", gmtime(second))


def encode(state: str, last_done: str | None, retries: int, message: str, now: float, brief: bool) -> bytes:
    when = _written(int(now))
    return (
        _encode(BriefStatus(state, when, message))
        if brief
        else _encode(Status(state, last_done, retries, when, message))
    )


def decode(data: bytes) -> Status | None:
    """None for a node that says no state."""
    try:
        found = _decoder.decode(data)
    except msgspec.DecodeError:
        pass
    else:
        said = _kept(found.message)
        return found if said == found.message else msgspec.structs.replace(found, message=said)
    try:
        loose = msgspec.json.decode(data)
    except msgspec.DecodeError:
        return None
    if not isinstance(loose, dict) or not isinstance(loose.get("status"), str) or not loose["status"]:
        return None
    last, retries = loose.get("last_successful_status"), loose.get("retry_count")
    return Status(
        loose["status"],
        last if isinstance(last, str) else None,
        retries if isinstance(retries, int) else 0,
        str(loose.get("last_modified") or ""),
        _kept(str(loose.get("message") or "")),
    )


def _kept(message: str) -> str:
    """As much of what others wrote as can be written again: a step that ends hands the message on."""
    return message[:LONGEST].replace("\0", "")
