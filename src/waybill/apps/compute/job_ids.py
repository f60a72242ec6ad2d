"""Ids of jobs: UUIDs of version 7, each greater than all before it in its store, so that their order is that of creation."""

from __future__ import annotations

import os
import re
import uuid

_PATTERN = re.compile(r"[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}")
_RANDOM_BITS = 74


def make_job_id(now_ms: int, last: str) -> str:
    """The id of a job that is made now, after `last`."""
    made = _assemble(now_ms, int.from_bytes(os.urandom(10), "big") & ((1 << _RANDOM_BITS) - 1))
    if made > last:
        return made
    number = uuid.UUID(last).int  # the clock went back, or two in one millisecond
    ms, random = number >> 80, ((number >> 64 & 0xFFF) << 62) | (number & ((1 << 62) - 1))
    random += 1
    return _assemble(ms + (random >> _RANDOM_BITS), random & ((1 << _RANDOM_BITS) - 1))


def _assemble(ms: int, random: int) -> str:
    return str(uuid.UUID(int=ms << 80 | 7 << 76 | (random >> 62) << 64 | 2 << 62 | random & ((1 << 62) - 1)))


def is_job_id(text: str) -> bool:
    return _PATTERN.fullmatch(text) is not None
