"""S3: objects in a bucket, below a prefix, on any server that speaks Amazon's protocol.

Everything goes through obstore (bucket.py), but for uploads in parts (multipart.py). What lies where: the object `a/b`
is the key `<prefix>/a/b`; under `<prefix>/.waybill/` lie the record of what was found out about the server, and for
seconds what it was found out with (probe.py).

**An S3 server is no lock.** A conditional put decides who was first, and nothing else: it does not expire, and it does not fence.
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

from waybill.objects.bucket import Bucket
from waybill.objects.names import LONGEST, RESERVED, check_name, check_prefix
from waybill.objects.probe import Finding, probe
from waybill.objects.protocol import Conditions, Data, NotFound, ObjectInfo, Refused, Swept
from waybill.objects.reading import Reading
from waybill.objects.s3_listing import listed
from waybill.objects.s3_reading import S3Reader
from waybill.objects.s3_uploads import S3Upload
from waybill.objects.s3_writing import S3Writer
from waybill.objects.signing import Credentials
from waybill.objects.streams import Stream, check_conditions, check_range

if TYPE_CHECKING:
    from obstore import ObjectMeta

ONE_COPY = 5 * 1024**3  # S3 copies no more than this by itself


class S3:
    """Objects in a bucket that exists.

    Without credentials those of the environment or of the machine's role are taken.
    """

    def __init__(
        self,
        bucket: str,
        prefix: str = "",
        *,
        endpoint: str | None = None,
        region: str | None = None,
        credentials: Credentials | Callable[[], Credentials] | None = None,
        timeout: float = 30.0,
        tries: int = 5,
        clock: Callable[[], float] = time.time,
        token: Callable[[], str] = lambda: secrets.token_hex(12),
    ) -> None:
        self._prefix = check_prefix(prefix)
        if len(self._prefix.encode()) > 1000 - LONGEST:
            raise Refused(f"The prefix {prefix!r} is too long: {1000 - LONGEST} bytes is the most.")
        self._bucket = Bucket(
            bucket, endpoint=endpoint, region=region, credentials=credentials, timeout=timeout, tries=tries
        )
        self._clock, self._token = clock, token
        self._finding: Finding | None = None
        self._probing = threading.Lock()
        self._reader = S3Reader(self._bucket, self._key)
        self._writer = S3Writer(
            self._bucket, self._key, self._reader, conditions=lambda: self.conditions, now=self._now, token=token
        )

    @property
    def finding(self) -> Finding:
        """What was found out about the server; found out now if it was not before."""
        with self._probing:
            if self._finding is None:
                own = self._key(RESERVED)
                finding = probe(self._bucket, f"{own}/probe-{self._token()}", self._now())
                self._bucket.put(f"{own}/probe.json", finding.to_json())
                self._finding = finding
            return self._finding

    @property
    def conditions(self) -> Conditions:
        return self.finding.conditions

    def put(
        self,
        name: str,
        data: Data,
        *,
        if_absent: bool = False,
        if_match: str | None = None,
        size: int | None = None,
        sha256: str | None = None,
    ) -> ObjectInfo:
        check_conditions(if_absent, if_match)
        stream = Stream(data, size=size, sha256=sha256)
        return self._writer.put(name, stream, if_absent=if_absent, if_match=if_match, size=size, sha256=sha256)

    def get(self, name: str, *, start: int = 0, end: int | None = None) -> Reading:
        check_range(start, end)
        return self._reader.get(name, start, end)

    def head(self, name: str) -> ObjectInfo:
        return self._reader.head(name)

    def list(self, prefix: str = "", *, after: str = "", limit: int | None = None) -> Iterator[ObjectInfo]:
        prefix = check_prefix(prefix)
        order = self.conditions.order if after else "bytes"  # it is only needed in order to go on somewhere
        found = listed(self._bucket, self._key(prefix), self._key(check_name(after)) if after else "", order)
        infos = (self._listed(meta) for meta in found)
        yield from itertools.islice((info for info in infos if info is not None), limit)

    def delete(self, name: str) -> bool:
        try:
            self.head(name)
        except NotFound:
            return False
        self._bucket.delete(self._key(name))
        return True

    def copy(self, source: str, target: str, *, if_absent: bool = False) -> ObjectInfo:
        self._writer.check(target)
        info = self.head(source)
        if if_absent or info.size > ONE_COPY:
            with self.get(source) as body:
                return self.put(target, body, if_absent=if_absent, size=body.info.size, sha256=body.info.sha256)
        self._bucket.copy(self._key(source), self._key(target))
        return self.head(target)

    def upload(self, name: str, *, resume: str | None = None, keep: bool = False) -> S3Upload:
        return self._writer.upload(name, resume=resume, keep=keep)

    def sweep(self, older_than: float) -> Swept:
        before = datetime.fromtimestamp(self._clock() - older_than, UTC)
        uploads, files = 0, 0
        if self._bucket.multipart is not None:
            for left in list(self._bucket.multipart.left(f"{self._prefix}/" if self._prefix else "")):
                if left.begun < before:
                    self._bucket.multipart.abort(left.key, left.upload)
                    uploads += 1
        own = self._key(RESERVED)
        for meta in list(self._bucket.list(own)):
            if meta["last_modified"] < before and meta["path"] != f"{own}/probe.json":
                self._bucket.delete(meta["path"])
                files += 1
        return Swept(files=files, uploads=uploads)

    def close(self) -> None:
        self._bucket.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def __repr__(self) -> str:
        return f"S3('s3://{self._key('')}', endpoint={self._bucket.endpoint or 'Amazon'!r})"

    def _key(self, name: str) -> str:
        return "/".join(part for part in (self._prefix, name) if part)

    def _now(self) -> datetime:
        return datetime.fromtimestamp(self._clock(), UTC)

    def _listed(self, meta: ObjectMeta) -> ObjectInfo | None:
        """The object of a key; None for what is not an object of ours: the driver's own, a key that is no name."""
        name = meta["path"].removeprefix(f"{self._prefix}/" if self._prefix else "")
        try:
            check_name(name)
        except Refused:
            return None
        return ObjectInfo(name, meta["size"], meta["e_tag"] or "", meta["last_modified"])
