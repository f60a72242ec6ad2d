"""Probe of an S3 server: which conditional writes it guarantees, tested by using them.

Servers differ and do not document it: of eight that were tested three return 200 to `If-None-Match: *` and overwrite,
one checks the condition but not atomically, one never matches `If-Match` and ignores conditions when a multipart upload
is completed; SeaweedFS guarantees them for a put, but lets two win when uploads are completed. So before the first
conditional write this is tested, once, in a folder of its own that is removed afterwards:

    create     create twice: the second must be refused. Then several at once, some rounds: one may win, and its data must be stored.
    swap       replace with the right etag: must succeed; with an old one, or a missing object: must be refused. Then several at once.
    complete   both at the end of a multipart upload.
    order      whether `x!` is listed before `x/b` (by bytes) or after it (folder by folder).
    segment    whether a segment of a key may have more than 255 bytes.

The result is logged and stored as `.waybill/probe.json` for inspection; the probe is repeated at every start, since a
server can be replaced. A race that nobody lost is no proof: a server that never checks is detected for certain, one that
checks without being atomic with high probability. Therefore no lock relies on S3 alone.
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

from waybill.objects.protocol import (
    MAX_NAME_BYTES,
    ConditionSupport,
    ObjectExists,
    ObjectNotFound,
    ObjectRequestRefused,
    ObjectsError,
    ObjectStoreCapabilities,
    ObjectStoreUnavailable,
    PreconditionFailed,
    UnsupportedObjectOperation,
)
from waybill.objects.s3_bucket import S3Bucket
from waybill.objects.s3_multipart import MultipartClient

RACERS = 6
ROUNDS = 4

_FinalRequest: TypeAlias = Callable[[], object]  # the last request of a write, which decides
_PrepareCreate: TypeAlias = Callable[[str, bytes], _FinalRequest]  # key, data: prepares a write under If-None-Match
_PrepareSwap: TypeAlias = Callable[[str, bytes, str], _FinalRequest]  # key, data, etag: prepares one under If-Match
_CONFLICTS = (ObjectExists, PreconditionFailed)
_log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class ProbeResult:
    """What a server guarantees, and when it was probed."""

    endpoint: str
    bucket: str
    probed_at: datetime
    capabilities: ObjectStoreCapabilities
    v: int = 1

    def to_json(self) -> bytes:
        return json.dumps({"waybill": "probe", **asdict(self)}, default=str, indent=1).encode() + b"\n"


def probe_bucket(bucket: S3Bucket, folder: str, now: datetime) -> ProbeResult:
    """Probe the server, in this folder of the bucket (a prefix that nobody else uses)."""
    probe = _BucketProbe(bucket, folder)
    try:
        # In parallel, since a server may let writers of one key wait for seconds.
        with ThreadPoolExecutor(5) as pool:
            create, swap, complete = (
                pool.submit(find) for find in (probe.probe_create, probe.probe_swap, probe.probe_complete)
            )
            order, segment = pool.submit(probe.probe_order), pool.submit(probe.probe_segment)
        capabilities = ObjectStoreCapabilities(
            create.result(), swap.result(), complete.result(), order.result(), segment.result()
        )
    finally:
        probe.tidy_up()
    result = ProbeResult(bucket.endpoint or "Amazon", bucket.name, now, capabilities)
    level = (
        logging.INFO
        if {capabilities.create, capabilities.swap, capabilities.complete} == {"atomic"}
        else logging.WARNING
    )
    _log.log(
        level, "Conditional writes of the S3 server at %s, bucket %s: %s", result.endpoint, result.bucket, capabilities
    )
    return result


class _BucketProbe:
    def __init__(self, bucket: S3Bucket, folder: str) -> None:
        self._bucket = bucket
        self._folder = folder

    def probe_create(self) -> ConditionSupport:
        return self._probe_create_with("create", lambda key, data: lambda: self._bucket.put(key, data, mode="create"))

    def probe_swap(self) -> ConditionSupport:
        return self._probe_swap_with(
            "swap", lambda key, data, etag: lambda: self._bucket.put(key, data, mode={"e_tag": etag})
        )

    def probe_complete(self) -> ConditionSupport:
        """Return the weaker of the two capabilities."""
        multipart = self._bucket.multipart
        if multipart is None:
            return "unknown"
        created = self._probe_create_with(
            "complete", lambda key, data: _prepare_upload(multipart, key, data, if_absent=True)
        )
        if created != "atomic":
            return created
        return self._probe_swap_with(
            "complete-swap", lambda key, data, etag: _prepare_upload(multipart, key, data, if_match=etag)
        )

    def probe_order(self) -> Literal["bytes", "tree"]:
        below, beside = self._key_of("order/x/b"), self._key_of("order/x!")
        for key in (below, beside):
            self._bucket.put(key, b"")
        listed = [meta["path"] for meta in self._bucket.list(self._key_of("order"))]
        return "bytes" if listed.index(beside) < listed.index(below) else "tree"

    def probe_segment(self) -> int:
        key = self._key_of("s" * 300)
        try:
            self._bucket.put(key, b"long")
            is_stored = bytes(self._bucket.get(key).bytes()) == b"long"
        except (ObjectRequestRefused, ObjectNotFound, ObjectStoreUnavailable):
            is_stored = False
        return MAX_NAME_BYTES if is_stored else 255

    def tidy_up(self) -> None:
        try:
            for key in [meta["path"] for meta in self._bucket.list(self._folder)]:
                self._bucket.delete(key)
        except ObjectsError as error:
            _log.warning("Could not remove the keys of the S3 probe below %s: %s", self._folder, error)

    def _probe_create_with(self, name: str, create: _PrepareCreate) -> ConditionSupport:
        key = self._key_of(name)
        try:
            create(key, b"first")()
        except (UnsupportedObjectOperation, ObjectRequestRefused, *_CONFLICTS):
            return "refused"
        try:
            create(key, b"second")()
            return "ignored"
        except _CONFLICTS:
            pass
        except (UnsupportedObjectOperation, ObjectRequestRefused):
            return "refused"
        contested = [self._key_of(f"{name}-{number}") for number in range(ROUNDS)]
        return self._race(contested, create)

    def _probe_swap_with(self, name: str, swap: _PrepareSwap) -> ConditionSupport:
        key = self._key_of(name)
        old = self._bucket.put(key, b"first")
        try:
            swap(key, b"second", old)()
        except (UnsupportedObjectOperation, ObjectRequestRefused, *_CONFLICTS):
            return "refused"
        for victim in (key, self._key_of(f"{name}-missing")):
            try:
                swap(victim, b"third", old)()
                return "ignored"
            except (*_CONFLICTS, ObjectNotFound):
                pass
            except (UnsupportedObjectOperation, ObjectRequestRefused):
                return "refused"
        contested = [self._key_of(f"{name}-{number}") for number in range(ROUNDS)]
        etags = {key: self._bucket.put(key, b"start") for key in contested}
        return self._race(contested, lambda key, data: swap(key, data, etags[key]))

    def _race(self, keys: list[str], prepare: _PrepareCreate) -> ConditionSupport:
        """Let several clients write each key at the same moment: at most one per key may succeed, and its data must be
        stored.
        """
        barrier = threading.Barrier(RACERS * len(keys))

        def run(racer: int, key: str) -> bytes | None:
            data = f"racer {racer}".encode()
            try:
                send = prepare(key, data)
            finally:
                barrier.wait(60)
            try:
                send()
            except (*_CONFLICTS, ObjectNotFound, ObjectStoreUnavailable):
                return None  # unavailable: some servers ask the losers to retry
            return data

        with ThreadPoolExecutor(RACERS * len(keys)) as pool:
            runs = {key: [pool.submit(run, racer, key) for racer in range(RACERS)] for key in keys}
        for key, racers in runs.items():
            won = [data for racer in racers if (data := racer.result()) is not None]
            if len(won) > 1 or (won and bytes(self._bucket.get(key).bytes()) != won[0]):
                return "racy"
        return "atomic"

    def _key_of(self, name: str) -> str:
        return f"{self._folder}/{name}"


def _prepare_upload(
    multipart: MultipartClient, key: str, data: bytes, *, if_absent: bool = False, if_match: str | None = None
) -> _FinalRequest:
    upload = multipart.begin(key, {})
    part = multipart.send_part(key, upload, 1, data)

    def complete() -> None:
        try:
            multipart.complete(key, upload, {1: part}, if_absent=if_absent, if_match=if_match)
        except ObjectsError:
            with suppress(ObjectNotFound):  # completed, or dropped by the server with its refusal
                multipart.abort(key, upload)
            raise

    return complete
