"""Writes to S3: a put in one request or in parts, and uploads; conditions only if the probe found them atomic.

Up to MAX_SINGLE_PUT bytes are read ahead; an object that ends there is sent in one request, with its SHA-256 in its
metadata; a longer one is sent in parts while it is read, with its SHA-256 only if the caller passed it.

A conditional put without a response may have succeeded, and one that is answered "already exists" may have been sent
twice by the client library. Each put has a token in the object's metadata, so that the stored object tells whether it
is this put's.

The server stores the parts of an upload until it is completed or aborted.
"""

from __future__ import annotations

import hashlib
import itertools
from collections.abc import Callable, Iterator, Mapping
from contextlib import suppress
from datetime import datetime
from types import TracebackType
from typing import TYPE_CHECKING, Self

from waybill.objects.protocol import (
    MAX_PART_NUMBER,
    ConditionSupport,
    ContentMismatch,
    ObjectExists,
    ObjectInfo,
    ObjectNotFound,
    ObjectRequestRefused,
    ObjectsError,
    ObjectStoreCapabilities,
    ObjectStoreUnavailable,
    PartInfo,
    PreconditionFailed,
    UnsupportedObjectOperation,
    check_name,
    check_part,
    check_parts,
)
from waybill.objects.s3_bucket import SHA256_METADATA, TOKEN_METADATA, S3Bucket, S3Reader
from waybill.objects.s3_multipart import MultipartClient
from waybill.objects.streams import CheckedStream, check_conditions, check_sha256

if TYPE_CHECKING:
    from obstore import PutMode


_DEFAULT_PART_SIZE = 16 * 1024 * 1024  # of a stream whose size is unknown; 10,000 such parts are 156 GiB
MAX_SINGLE_PUT = 8 * 1024 * 1024  # bytes buffer in memory to be sent in one request
# the same, under a condition that the server guarantees for one request and not for parts
MAX_CONDITIONAL_PUT = 64 * 1024 * 1024

_UNSUPPORTED_REASONS: dict[ConditionSupport, str] = {
    "racy": "checks this condition, but lets two writers win at once",
    "ignored": "ignores this condition and overwrites",
    "refused": "does not support this condition",
    "unknown": "was not probed for this condition: that needs an access key, in the configuration or in AWS_ACCESS_KEY_ID",
}
_IN_PARTS_SCOPE = f"for data sent in parts (uploads, and puts of more than {MAX_CONDITIONAL_PUT} bytes), "


class S3Writer:
    """Puts and uploads of one bucket."""

    def __init__(
        self,
        bucket: S3Bucket,
        key: Callable[[str], str],
        reader: S3Reader,
        *,
        capabilities: Callable[[], ObjectStoreCapabilities],
        now: Callable[[], datetime],
        token: Callable[[], str],
    ) -> None:
        self._bucket, self._key, self._reader = bucket, key, reader
        self._capabilities, self._now, self._token = capabilities, now, token

    def put(
        self,
        name: str,
        stream: CheckedStream,
        *,
        if_absent: bool,
        if_match: str | None,
        size: int | None,
        sha256: str | None,
    ) -> ObjectInfo:
        self.check_name_length(name)
        self._check_support(if_absent, if_match, create="create", swap="swap")
        conditional = if_absent or if_match is not None
        chunks = iter(stream)
        ahead: list[bytes] = []
        buffered = 0
        while buffered <= (
            MAX_CONDITIONAL_PUT if conditional and self._capabilities().complete != "atomic" else MAX_SINGLE_PUT
        ):
            chunk = next(chunks, None)
            if chunk is None:
                return self._put_in_one_request(name, b"".join(ahead), stream.sha256, if_absent, if_match)
            ahead.append(chunk)
            buffered += len(chunk)
        known = {SHA256_METADATA: sha256.lower()} if sha256 is not None else {}
        part = choose_part_size(size)
        rest = limit_size(itertools.chain(ahead, chunks), part)
        if conditional:
            self._check_support(if_absent, if_match, create="complete", swap="complete")
            with self.upload(name, metadata=known) as upload:
                for number, data in enumerate(split_parts(rest, part), start=1):
                    upload.put_part(number, data)
                return upload.complete(if_absent=if_absent, if_match=if_match)
        etag = self._bucket.put_stream(
            self._key(name), rest, part=part, metadata={**known, TOKEN_METADATA: self._token()}
        )
        return ObjectInfo(name, stream.size, etag, self._now(), stream.sha256)

    def upload(
        self, name: str, *, resume: str | None = None, keep: bool = False, metadata: dict[str, str] | None = None
    ) -> S3Upload:
        self.check_name_length(name)
        if self._bucket.multipart is None:
            raise UnsupportedObjectOperation(
                "Uploads in parts need an access key, in the configuration or in AWS_ACCESS_KEY_ID; put works without one."
            )
        return S3Upload(
            self._bucket.multipart,
            name,
            self._key(name),
            token=self._token,
            find_own=self._reader.find_own,
            check_support=lambda if_absent, if_match: self._check_support(
                if_absent, if_match, create="complete", swap="complete"
            ),
            now=self._now,
            resume=resume,
            keep=keep,
            metadata=metadata or {},
        )

    def check_name_length(self, name: str) -> None:
        """Refuse a name with a segment that is too long for this server."""
        longest = max(len(segment.encode(errors="replace")) for segment in check_name(name).split("/"))
        if longest > 255 and longest > self._capabilities().longest_segment:
            most = self._capabilities().longest_segment
            raise ObjectRequestRefused(
                f"{name[:80]!r} is not a name on this S3 server: a segment has {longest} bytes, and may have {most}."
            )

    def _check_support(self, if_absent: bool, if_match: str | None, *, create: str, swap: str) -> None:
        """Refuse a condition that the server does not guarantee."""
        check_conditions(if_absent, if_match)
        if not if_absent and if_match is None:
            return
        support: ConditionSupport = getattr(self._capabilities(), create if if_absent else swap)
        if support != "atomic":
            option = "if_absent" if if_absent else "if_match"
            scope = _IN_PARTS_SCOPE if create == "complete" else ""
            raise UnsupportedObjectOperation(
                f"The S3 server at {self._bucket.endpoint or 'Amazon'} {_UNSUPPORTED_REASONS[support]}; {scope}{option} is refused. "
                "Use names that nobody else writes to, or another server."
            )

    def _put_in_one_request(
        self, name: str, data: bytes, sha256: str, if_absent: bool, if_match: str | None
    ) -> ObjectInfo:
        token = self._token()
        mode: PutMode = "create" if if_absent else {"e_tag": if_match} if if_match is not None else "overwrite"
        for _ in range(5):
            try:
                etag = self._bucket.put(
                    self._key(name), data, metadata={SHA256_METADATA: sha256, TOKEN_METADATA: token}, mode=mode
                )
                return ObjectInfo(name, len(data), etag, self._now(), sha256)
            except (ObjectExists, PreconditionFailed, ObjectStoreUnavailable) as error:
                if mode == "overwrite":
                    raise
                present = self._reader.find_present(name)
                if present is not None and present[1] == token:
                    return present[0]
                if isinstance(error, ObjectStoreUnavailable):
                    raise
                if isinstance(error, PreconditionFailed):
                    raise PreconditionFailed(f"{name!r} is not, or no longer, version {if_match}.") from error
                if if_absent and present is not None:
                    raise ObjectExists(f"An object named {name!r} exists already.") from error
                # "Conflict": another client was writing at that moment, and may yet fail.
        raise ObjectStoreUnavailable(
            f"The S3 server answered five times that another client was just writing {name!r}."
        )


class S3Upload:
    """An ObjectUpload in S3. `find_own(name, token)` returns the object if this upload made it; `check_support` refuses
    conditions that the server does not guarantee.
    """

    def __init__(
        self,
        multipart: MultipartClient,
        name: str,
        key: str,
        *,
        token: Callable[[], str],
        find_own: Callable[[str, str], ObjectInfo | None],
        check_support: Callable[[bool, str | None], None],
        now: Callable[[], datetime],
        resume: str | None,
        keep: bool,
        metadata: Mapping[str, str],
    ) -> None:
        self._multipart, self._key, self._find_own, self._check_support, self._now, self._keep = (
            multipart,
            key,
            find_own,
            check_support,
            now,
            keep,
        )
        self.name = name
        self._is_open = True
        self._digest: hashlib._Hash | None = None
        self._next_number = 1
        self._sent: dict[int, PartInfo] = {}
        if resume is None:
            self._token = token()
            self._upload_id = multipart.begin(key, {**metadata, TOKEN_METADATA: self._token})
            self._digest = hashlib.sha256()
        else:
            self._token, _, self._upload_id = resume.partition(".")
            self.list_parts()

    @property
    def id(self) -> str:
        return f"{self._token}.{self._upload_id}"

    def list_parts(self) -> Mapping[int, PartInfo]:
        try:
            if self._upload_id:
                return dict(sorted({**self._multipart.list_parts(self._key, self._upload_id), **self._sent}.items()))
        except (ObjectNotFound, ObjectRequestRefused):  # some servers refuse an id that cannot be one of theirs
            pass
        raise ObjectNotFound(f"There is no upload {self.id!r} of {self.name!r}: it was completed, aborted or swept.")

    def put_part(self, number: int, data: bytes) -> PartInfo:
        check_part(number, data)
        # The digest of the object is only known if every part is sent once, in order, through this instance.
        if self._digest is not None and number == self._next_number:
            self._digest.update(data)
            self._next_number += 1
        else:
            self._digest = None
        self._sent[number] = self._multipart.send_part(self._key, self._upload_id, number, data)
        return self._sent[number]

    def complete(
        self, *, if_absent: bool = False, if_match: str | None = None, sha256: str | None = None
    ) -> ObjectInfo:
        self._check_support(if_absent, if_match)
        digest = self._digest.hexdigest() if self._digest is not None else None
        if sha256 is not None:
            if digest is None:
                raise ObjectRequestRefused(
                    f"The SHA-256 of {self.name!r} cannot be checked: its parts were sent out of order, or by several processes."
                )
            if digest != check_sha256(sha256):
                raise ContentMismatch(f"The parts of {self.name!r} have the SHA-256 {digest}, expected was {sha256}.")
        parts = dict(self.list_parts())
        check_parts(self.name, parts)
        size = sum(part.size for part in parts.values())
        try:
            etag = self._multipart.complete(self._key, self._upload_id, parts, if_absent=if_absent, if_match=if_match)
        except ObjectsError as error:
            own = self._find_own(self.name, self._token)
            if own is None:
                if isinstance(error, PreconditionFailed) and if_absent:
                    raise ObjectExists(f"An object named {self.name!r} exists already.") from error
                raise
            etag = own.etag
        self._is_open = False
        return ObjectInfo(self.name, size, etag, self._now(), digest)

    def abort(self) -> None:
        self._is_open = False
        with suppress(ObjectNotFound):  # completed, aborted or swept before
            self._multipart.abort(self._key, self._upload_id)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._is_open and not self._keep and (kind is None or issubclass(kind, Exception)):
            self.abort()


def choose_part_size(size: int | None) -> int:
    """Return a part size with which an object of this size has no more parts than S3 accepts."""
    return _DEFAULT_PART_SIZE if size is None else max(_DEFAULT_PART_SIZE, -(-size // MAX_PART_NUMBER))


def limit_size(chunks: Iterator[bytes], part_size: int) -> Iterator[bytes]:
    """Yield the chunks. Raises ObjectRequestRefused if they are more than S3 accepts in parts of this size."""
    total = 0
    for chunk in chunks:
        total += len(chunk)
        if total > part_size * MAX_PART_NUMBER:
            raise ObjectRequestRefused(
                f"The stream has more than {part_size * MAX_PART_NUMBER} bytes: pass its size, so that its parts can be larger."
            )
        yield chunk


def split_parts(chunks: Iterator[bytes], size: int) -> Iterator[bytes]:
    """Yield the data in parts of exactly this size, except the last."""
    buffer = bytearray()
    for chunk in chunks:
        buffer += chunk
        while len(buffer) >= size:
            yield bytes(buffer[:size])
            del buffer[:size]
    if buffer:
        yield bytes(buffer)
