"""The side node: what a record is beyond its status, one node per record, rewritten with every commit.

It remembers which status it belongs to (`seen`, a checksum, and `at`, the version of the status node). A service that
knows nothing of Waybill writes the status alone: then the checksum differs, the side node is stale, and the move is
noted as "seen from outside" by whoever writes the record next. A claim rewrites the status with the same bytes, so it
makes nothing stale.

Documents of up to INLINE bytes that have no node of their own lie inside; larger ones are children of the side node.
"""

from __future__ import annotations

import msgspec

from waybill.record import Line

INLINE = 4096  # bytes of a document
LINES = 50  # of history: a node is rewritten whole, so it must stay small
OUTSIDE = "seen from outside"


class Side(msgspec.Struct, omit_defaults=True, kw_only=True):
    seq: int = 0
    turn: int = 0
    # how far the record's version is ahead of seq + the status node's version: deaths of workers, moves from outside
    lift: int = 0
    at: int = 0  # the version of the status node that this was written with
    seen: int = 0  # the checksum of that status
    state: str = ""  # the state in that status
    session: str | None = None  # who held the record when this was written
    parent: tuple[str, str] | None = None
    owner: str = ""
    priority: int = 5
    last_done: str | None = None
    retries: int = 0
    tries: int = 0
    keys: tuple[str, ...] = ()
    holds: tuple[str, ...] = ()  # those of `keys` whose nodes are ours
    gates: tuple[str, ...] = ()
    parked: str | None = None
    wake_at: float = 0.0
    spot: str = ""  # parked on a key: the name of its place among the waiters
    open: bool = True
    host: str = ""
    request: str | None = None
    created: float = 0.0
    updated: float = 0.0
    docs: dict[str, str] = {}
    far: tuple[str, ...] = ()  # documents that are children of this node
    # others made it or led it into its state: nobody has reckoned which keys and marks it needs there
    unfitted: bool = False
    fill: tuple[str, ...] = ()  # nodes under the home that nobody wrote: they hold a filler
    lines: list[Line] = []


_decoder = msgspec.json.Decoder(Side)
_encode = msgspec.json.Encoder().encode


def encode(side: Side) -> bytes:
    return _encode(side)


def decode(data: bytes) -> Side | None:
    """None for a node that is no side node."""
    try:
        return _decoder.decode(data)
    except msgspec.DecodeError:
        return None
