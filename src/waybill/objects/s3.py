"""S3Objects: objects in a bucket, below a prefix, on any server that speaks Amazon's protocol.

All requests go through obstore (s3_bucket.py), except uploads in parts (s3_multipart.py). The object `a/b` is the key
`<prefix>/a/b`; under `<prefix>/.waybill/` are the result of the last probe of the server and, for seconds, the keys that
the probe writes (s3_probe.py).

**Do not use an S3 server as a lock.** A conditional put decides who was first and nothing else: it does not expire, and
it does not fence.
"""

from __future__ import annotations

import itertools
import secrets
import threading
import time
from collections.abc import Callable, Iterator
from datetime import UTC, datetime
from types import TracebackType
from typing import TYPE_CHECKING, Self

from waybill.objects.protocol import (
    MAX_NAME_BYTES,
    RESERVED_SEGMENT,
    ObjectData,
    ObjectInfo,
    ObjectNotFound,
    ObjectRequestRefused,
    ObjectStoreCapabilities,
    SweepResult,
    check_name,
    check_prefix,
)
from waybill.objects.s3_bucket import S3Bucket, S3Reader, list_keys
from waybill.objects.s3_probe import ProbeResult, probe_bucket
from waybill.objects.s3_signing import S3Credentials
from waybill.objects.s3_writer import S3Upload, S3Writer
from waybill.objects.streams import CheckedStream, StreamedBody, check_conditions, check_range

if TYPE_CHECKING:
    from obstore import ObjectMeta

MAX_COPY_BYTES = 5 * 1024**3  # the most that S3 copies in one request


class S3Objects:
    """Objects in an existing bucket.

    Without `credentials` those of the environment or of the machine's role are used.
    """

    def __init__(
        self,
        bucket: str,
        prefix: str = "",
        *,
        endpoint: str | None = None,
        region: str | None = None,
        credentials: S3Credentials | Callable[[], S3Credentials] | None = None,
        timeout: float = 30.0,
        tries: int = 5,
        clock: Callable[[], float] = time.time,
        token: Callable[[], str] = lambda: secrets.token_hex(12),
    ) -> None:
        self._prefix = check_prefix(prefix)
        if len(self._prefix.encode()) > 1000 - MAX_NAME_BYTES:
            raise ObjectRequestRefused(f"The prefix {prefix!r} is too long: it may have {1000 - MAX_NAME_BYTES} bytes.")
        self._bucket = S3Bucket(
            bucket, endpoint=endpoint, region=region, credentials=credentials, timeout=timeout, tries=tries
        )
        self._clock, self._token = clock, token
        self._probe_result: ProbeResult | None = None
        self._probe_lock = threading.Lock()
        self._reader = S3Reader(self._bucket, self._key_of)
        self._writer = S3Writer(
            self._bucket, self._key_of, self._reader, capabilities=lambda: self.capabilities, now=self._now, token=token
        )

    @property
    def probe_result(self) -> ProbeResult:
        """What the server guarantees. It is probed on first use."""
        with self._probe_lock:
            if self._probe_result is None:
                own = self._key_of(RESERVED_SEGMENT)
                result = probe_bucket(self._bucket, f"{own}/probe-{self._token()}", self._now())
                self._bucket.put(f"{own}/probe.json", result.to_json())
                self._probe_result = result
            return self._probe_result

    @property
    def capabilities(self) -> ObjectStoreCapabilities:
        return self.probe_result.capabilities

    def put(
        self,
        name: str,
        data: ObjectData,
        *,
        if_absent: bool = False,
        if_match: str | None = None,
        size: int | None = None,
        sha256: str | None = None,
    ) -> ObjectInfo:
        check_conditions(if_absent, if_match)
        stream = CheckedStream(data, size=size, sha256=sha256)
        return self._writer.put(name, stream, if_absent=if_absent, if_match=if_match, size=size, sha256=sha256)

    def get(self, name: str, *, start: int = 0, end: int | None = None) -> StreamedBody:
        check_range(start, end)
        return self._reader.get(name, start, end)

    def head(self, name: str) -> ObjectInfo:
        return self._reader.head(name)

    def list(self, prefix: str = "", *, after: str = "", limit: int | None = None) -> Iterator[ObjectInfo]:
        prefix = check_prefix(prefix)
        order = self.capabilities.order if after else "bytes"  # the order matters only for a start in the middle
        found = list_keys(self._bucket, self._key_of(prefix), self._key_of(check_name(after)) if after else "", order)
        infos = (self._to_object_info(meta) for meta in found)
        yield from itertools.islice((info for info in infos if info is not None), limit)

    def delete(self, name: str) -> bool:
        try:
            self.head(name)
        except ObjectNotFound:
            return False
        self._bucket.delete(self._key_of(name))
        return True

    def copy(self, source: str, target: str, *, if_absent: bool = False) -> ObjectInfo:
        self._writer.check_name_length(target)
        info = self.head(source)
        if if_absent or info.size > MAX_COPY_BYTES:
            with self.get(source) as body:
                return self.put(target, body, if_absent=if_absent, size=body.info.size, sha256=body.info.sha256)
        self._bucket.copy(self._key_of(source), self._key_of(target))
        return self.head(target)

    def upload(self, name: str, *, resume: str | None = None, keep: bool = False) -> S3Upload:
        return self._writer.upload(name, resume=resume, keep=keep)

    def sweep(self, older_than: float) -> SweepResult:
        before = datetime.fromtimestamp(self._clock() - older_than, UTC)
        uploads, files = 0, 0
        if self._bucket.multipart is not None:
            for pending in list(self._bucket.multipart.list_pending(f"{self._prefix}/" if self._prefix else "")):
                if pending.started_at < before:
                    self._bucket.multipart.abort(pending.key, pending.upload_id)
                    uploads += 1
        own = self._key_of(RESERVED_SEGMENT)
        for meta in list(self._bucket.list(own)):
            if meta["last_modified"] < before and meta["path"] != f"{own}/probe.json":
                self._bucket.delete(meta["path"])
                files += 1
        return SweepResult(files=files, uploads=uploads)

    def close(self) -> None:
        self._bucket.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def __repr__(self) -> str:
        return f"S3Objects('s3://{self._key_of('')}', endpoint={self._bucket.endpoint or 'Amazon'!r})"

    def _key_of(self, name: str) -> str:
        return "/".join(part for part in (self._prefix, name) if part)

    def _now(self) -> datetime:
        return datetime.fromtimestamp(self._clock(), UTC)

    def _to_object_info(self, meta: ObjectMeta) -> ObjectInfo | None:
        """Return the object of a key; None for the driver's own keys, and for a key that is not a valid name."""
        name = meta["path"].removeprefix(f"{self._prefix}/" if self._prefix else "")
        try:
            check_name(name)
        except ObjectRequestRefused:
            return None
        return ObjectInfo(name, meta["size"], meta["e_tag"] or "", meta["last_modified"])
