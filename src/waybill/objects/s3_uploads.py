"""Uploads of S3: parts that the server keeps until they are completed or aborted.

The id of an upload is `<token>.<the server's own id>`; the token is in the metadata of the object to be, so that one
who gets no answer to `complete` can ask the object whether it is his.

Of a part that was sent twice SeaweedFS keeps both and lists either, but completes by the etag that it is told. So what
was sent through here is remembered and counts; the server's list counts for what another process sent.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterator, Mapping
from contextlib import suppress
from datetime import datetime
from types import TracebackType
from typing import Self

from waybill.objects.multipart import Multipart
from waybill.objects.protocol import (
    PART_MOST,
    AlreadyThere,
    Damaged,
    NotFound,
    ObjectInfo,
    ObjectsError,
    PartInfo,
    Precondition,
    Refused,
)
from waybill.objects.s3_reading import TOKEN
from waybill.objects.streams import check_sha256
from waybill.objects.uploads import check_part, check_parts

_PART = 16 * 1024 * 1024  # bytes of a part of a stream whose size is not known; 10,000 of them are 156 GiB


class S3Upload:
    """`mine(name, token)` is the object if this upload made it; `allowed` refuses conditions that the server does
    not keep.
    """

    def __init__(
        self,
        multipart: Multipart,
        name: str,
        key: str,
        *,
        token: Callable[[], str],
        mine: Callable[[str, str], ObjectInfo | None],
        allowed: Callable[[bool, str | None], None],
        now: Callable[[], datetime],
        resume: str | None,
        keep: bool,
        metadata: Mapping[str, str],
    ) -> None:
        self._multipart, self._key, self._mine, self._allowed, self._now, self._keep = (
            multipart,
            key,
            mine,
            allowed,
            now,
            keep,
        )
        self.name = name
        self._open = True
        self._digest: hashlib._Hash | None = None
        self._next = 1
        self._sent: dict[int, PartInfo] = {}
        if resume is None:
            self._token = token()
            self._upload = multipart.begin(key, {**metadata, TOKEN: self._token})
            self._digest = hashlib.sha256()
        else:
            self._token, _, self._upload = resume.partition(".")
            self.parts()

    @property
    def id(self) -> str:
        return f"{self._token}.{self._upload}"

    def parts(self) -> Mapping[int, PartInfo]:
        try:
            if self._upload:
                return dict(sorted({**self._multipart.parts(self._key, self._upload), **self._sent}.items()))
        except (NotFound, Refused):  # some servers refuse an id that cannot be one of theirs
            pass
        raise NotFound(f"There is no upload {self.id!r} of {self.name!r}: it was completed, aborted or swept.")

    def part(self, number: int, data: bytes) -> PartInfo:
        check_part(number, data)
        # The digest of the whole is only known if every part came once, in order, through here.
        if self._digest is not None and number == self._next:
            self._digest.update(data)
            self._next += 1
        else:
            self._digest = None
        self._sent[number] = self._multipart.send(self._key, self._upload, number, data)
        return self._sent[number]

    def complete(
        self, *, if_absent: bool = False, if_match: str | None = None, sha256: str | None = None
    ) -> ObjectInfo:
        self._allowed(if_absent, if_match)
        digest = self._digest.hexdigest() if self._digest is not None else None
        if sha256 is not None:
            if digest is None:
                raise Refused(
                    f"The SHA-256 of {self.name!r} cannot be checked: its parts came out of order, or from several processes."
                )
            if digest != check_sha256(sha256):
                raise Damaged(f"The parts of {self.name!r} have the SHA-256 {digest}, and {sha256} was promised.")
        parts = dict(self.parts())
        check_parts(self.name, parts)
        size = sum(part.size for part in parts.values())
        try:
            etag = self._multipart.complete(self._key, self._upload, parts, if_absent=if_absent, if_match=if_match)
        except ObjectsError as error:
            ours = self._mine(self.name, self._token)
            if ours is None:
                if isinstance(error, Precondition) and if_absent:
                    raise AlreadyThere(f"An object named {self.name!r} exists already.") from error
                raise
            etag = ours.etag
        self._open = False
        return ObjectInfo(self.name, size, etag, self._now(), digest)

    def abort(self) -> None:
        self._open = False
        with suppress(NotFound):  # completed, aborted or swept before
            self._multipart.abort(self._key, self._upload)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._open and not self._keep and (kind is None or issubclass(kind, Exception)):
            self.abort()


def part_size(size: int | None) -> int:
    """Bytes of a part, so that an object of this size has no more parts than S3 takes."""
    return _PART if size is None else max(_PART, -(-size // PART_MOST))


def limited(portions: Iterator[bytes], part: int) -> Iterator[bytes]:
    """The portions; Refused if they come to more than S3 takes in parts of this size."""
    came = 0
    for portion in portions:
        came += len(portion)
        if came > part * PART_MOST:
            raise Refused(
                f"A stream of more than {part * PART_MOST} bytes came: say its size beforehand, so that its parts can be larger."
            )
        yield portion


def pieces(portions: Iterator[bytes], size: int) -> Iterator[bytes]:
    """The portions in pieces of exactly this size, but for the last."""
    held = bytearray()
    for portion in portions:
        held += portion
        while len(held) >= size:
            yield bytes(held[:size])
            del held[:size]
    if held:
        yield bytes(held)
