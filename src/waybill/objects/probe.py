"""Probe: what the conditional writes of an S3 server are worth, found out by trying.

Servers differ, and they do not say so: of eight that were tried three answer 200 to `If-None-Match: *` and overwrite,
one checks the condition without being atomic, one never matches `If-Match` and ignores conditions when an upload in
parts is completed; SeaweedFS keeps them for a put, and lets two win when uploads are completed. So before the first
conditional write this happens, once, in a folder of its own that is removed again:

    create     create twice: the second must be refused. Then several at once, some rounds: one may win, and its bytes must be there.
    swap       replace by the right etag: must succeed; by an old one, or what is not there: must be refused. Then several at once.
    complete   the same two at the end of an upload in parts.
    order      whether `x!` is listed before `x/b` (by bytes) or after it (folder by folder).
    segment    whether a segment of a key may have more than 255 bytes.

What was found is logged and stored as `.waybill/probe.json`, so that a person can look at it; it is found anew at every
start, since a server can be replaced. A race that was not lost proves nothing for ever: a server that never checks is
found for certain, one that checks without being atomic with high probability. Therefore a lock is never taken from S3
alone.
"""

from __future__ import annotations

import json
import logging
import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import asdict, dataclass
from datetime import datetime
from typing import Literal, TypeAlias

from waybill.objects.bucket import Bucket
from waybill.objects.multipart import Multipart
from waybill.objects.names import LONGEST
from waybill.objects.protocol import (
    AlreadyThere,
    Conditions,
    NotFound,
    ObjectsError,
    Precondition,
    Refused,
    Unavailable,
    Unsupported,
    Worth,
)

RACERS = 6
ROUNDS = 4

_Strike: TypeAlias = Callable[[], object]  # the last request of a write, which decides
_Create: TypeAlias = Callable[[str, bytes], _Strike]  # key, data: prepares a write under If-None-Match
_Swap: TypeAlias = Callable[[str, bytes, str], _Strike]  # key, data, etag: prepares one under If-Match
_LOST = (AlreadyThere, Precondition)
_log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class Finding:
    """What was found out about a server, and when."""

    endpoint: str
    bucket: str
    found: datetime
    conditions: Conditions
    v: int = 1

    def to_json(self) -> bytes:
        return json.dumps({"waybill": "probe", **asdict(self)}, default=str, indent=1).encode() + b"\n"


def probe(bucket: Bucket, folder: str, now: datetime) -> Finding:
    """Find out, in this folder of the bucket (a prefix that nobody else uses)."""
    tried = _Probe(bucket, folder)
    try:
        # All at once, since a server may let writers of one key wait for seconds.
        with ThreadPoolExecutor(5) as pool:
            create, swap, complete = (pool.submit(find) for find in (tried.create, tried.swap, tried.complete))
            order, segment = pool.submit(tried.order), pool.submit(tried.segment)
        conditions = Conditions(create.result(), swap.result(), complete.result(), order.result(), segment.result())
    finally:
        tried.tidy_up()
    finding = Finding(bucket.endpoint or "Amazon", bucket.name, now, conditions)
    level = logging.INFO if {conditions.create, conditions.swap, conditions.complete} == {"atomic"} else logging.WARNING
    _log.log(
        level, "Conditional writes of the S3 server at %s, bucket %s: %s", finding.endpoint, finding.bucket, conditions
    )
    return finding


class _Probe:
    def __init__(self, bucket: Bucket, folder: str) -> None:
        self._bucket = bucket
        self._folder = folder

    def create(self) -> Worth:
        return self._create_with("create", lambda key, data: lambda: self._bucket.put(key, data, mode="create"))

    def swap(self) -> Worth:
        return self._swap_with(
            "swap", lambda key, data, etag: lambda: self._bucket.put(key, data, mode={"e_tag": etag})
        )

    def complete(self) -> Worth:
        """The worse of the two conditions."""
        multipart = self._bucket.multipart
        if multipart is None:
            return "unknown"
        created = self._create_with("complete", lambda key, data: _upload(multipart, key, data, if_absent=True))
        if created != "atomic":
            return created
        return self._swap_with("complete-swap", lambda key, data, etag: _upload(multipart, key, data, if_match=etag))

    def order(self) -> Literal["bytes", "tree"]:
        below, beside = self._key("order/x/b"), self._key("order/x!")
        for key in (below, beside):
            self._bucket.put(key, b"")
        listed = [meta["path"] for meta in self._bucket.list(self._key("order"))]
        return "bytes" if listed.index(beside) < listed.index(below) else "tree"

    def segment(self) -> int:
        key = self._key("s" * 300)
        try:
            self._bucket.put(key, b"long")
            kept = bytes(self._bucket.get(key).bytes()) == b"long"
        except (Refused, NotFound, Unavailable):
            kept = False
        return LONGEST if kept else 255

    def tidy_up(self) -> None:
        try:
            for key in [meta["path"] for meta in self._bucket.list(self._folder)]:
                self._bucket.delete(key)
        except ObjectsError as error:
            _log.warning("Could not remove what the S3 server was probed with, below %s: %s", self._folder, error)

    def _create_with(self, name: str, create: _Create) -> Worth:
        key = self._key(name)
        try:
            create(key, b"first")()
        except (Unsupported, Refused, *_LOST):
            return "refused"
        try:
            create(key, b"second")()
            return "ignored"
        except _LOST:
            pass
        except (Unsupported, Refused):
            return "refused"
        contested = [self._key(f"{name}-{turn}") for turn in range(ROUNDS)]
        return self._race(contested, create)

    def _swap_with(self, name: str, swap: _Swap) -> Worth:
        key = self._key(name)
        old = self._bucket.put(key, b"first")
        try:
            swap(key, b"second", old)()
        except (Unsupported, Refused, *_LOST):
            return "refused"
        for victim in (key, self._key(f"{name}-missing")):
            try:
                swap(victim, b"third", old)()
                return "ignored"
            except (*_LOST, NotFound):
                pass
            except (Unsupported, Refused):
                return "refused"
        contested = [self._key(f"{name}-{turn}") for turn in range(ROUNDS)]
        etags = {key: self._bucket.put(key, b"start") for key in contested}
        return self._race(contested, lambda key, data: swap(key, data, etags[key]))

    def _race(self, keys: list[str], prepare: _Create) -> Worth:
        """Several write each key at the same moment: of each at most one may be told that it won, and its bytes must
        be there.
        """
        gate = threading.Barrier(RACERS * len(keys))

        def run(racer: int, key: str) -> bytes | None:
            data = f"racer {racer}".encode()
            try:
                strike = prepare(key, data)
            finally:
                gate.wait(60)
            try:
                strike()
            except (*_LOST, NotFound, Unavailable):  # Unavailable: some servers tell the losers to come again
                return None
            return data

        with ThreadPoolExecutor(RACERS * len(keys)) as pool:
            runs = {key: [pool.submit(run, racer, key) for racer in range(RACERS)] for key in keys}
        for key, racers in runs.items():
            won = [data for racer in racers if (data := racer.result()) is not None]
            if len(won) > 1 or (won and bytes(self._bucket.get(key).bytes()) != won[0]):
                return "racy"
        return "atomic"

    def _key(self, name: str) -> str:
        return f"{self._folder}/{name}"


def _upload(
    multipart: Multipart, key: str, data: bytes, *, if_absent: bool = False, if_match: str | None = None
) -> _Strike:
    upload = multipart.begin(key, {})
    part = multipart.send(key, upload, 1, data)

    def complete() -> None:
        try:
            multipart.complete(key, upload, {1: part}, if_absent=if_absent, if_match=if_match)
        except ObjectsError:
            with suppress(NotFound):  # completed, or dropped by the server with its refusal
                multipart.abort(key, upload)
            raise

    return complete
