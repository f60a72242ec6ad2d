"""Writing to S3: a put as one request or in parts, under a condition only where the server was found to keep it.

Up to ONE_PUT bytes are read ahead; an object that ends there goes in one request, with its SHA-256 in its metadata; a
longer one goes in parts while it is being read, with its SHA-256 only if the caller knew it before.

A conditional put that gets no answer may have happened, and one that is answered "it is there" may have been sent twice
by the client below. Each put carries a token in the metadata, so the object is asked whose it is.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable
from datetime import datetime
from typing import TYPE_CHECKING

from waybill.objects.bucket import Bucket
from waybill.objects.names import check_name
from waybill.objects.protocol import (
    AlreadyThere,
    Conditions,
    ObjectInfo,
    Precondition,
    Refused,
    Unavailable,
    Unsupported,
    Worth,
)
from waybill.objects.s3_reading import SHA256, TOKEN, S3Reader
from waybill.objects.s3_uploads import S3Upload, limited, part_size, pieces
from waybill.objects.streams import Stream, check_conditions

if TYPE_CHECKING:
    from obstore import PutMode

ONE_PUT = 8 * 1024 * 1024  # bytes that are held in memory in order to go in one request
# the same, under a condition that the server keeps for one request and not for parts
ONE_CONDITIONAL_PUT = 64 * 1024 * 1024

_WORTHLESS: dict[Worth, str] = {
    "racy": "checks this condition, but lets two writers win at once",
    "ignored": "answers with success to this condition, and overwrites",
    "refused": "does not know this condition",
    "unknown": "could not be asked about this condition: that needs an access key, in the configuration or in AWS_ACCESS_KEY_ID",
}
_IN_PARTS = f"for what goes in parts (uploads, and puts of more than {ONE_CONDITIONAL_PUT} bytes), "


class S3Writer:
    def __init__(
        self,
        bucket: Bucket,
        key: Callable[[str], str],
        reader: S3Reader,
        *,
        conditions: Callable[[], Conditions],
        now: Callable[[], datetime],
        token: Callable[[], str],
    ) -> None:
        self._bucket, self._key, self._reader = bucket, key, reader
        self._conditions, self._now, self._token = conditions, now, token

    def put(
        self, name: str, stream: Stream, *, if_absent: bool, if_match: str | None, size: int | None, sha256: str | None
    ) -> ObjectInfo:
        self.check(name)
        self._allow(if_absent, if_match, create="create", swap="swap")
        conditional = if_absent or if_match is not None
        portions = iter(stream)
        ahead: list[bytes] = []
        held = 0
        while held <= (ONE_CONDITIONAL_PUT if conditional and self._conditions().complete != "atomic" else ONE_PUT):
            portion = next(portions, None)
            if portion is None:
                return self._put_at_once(name, b"".join(ahead), stream.sha256, if_absent, if_match)
            ahead.append(portion)
            held += len(portion)
        known = {SHA256: sha256.lower()} if sha256 is not None else {}
        part = part_size(size)
        rest = limited(itertools.chain(ahead, portions), part)
        if conditional:
            self._allow(if_absent, if_match, create="complete", swap="complete")
            with self.upload(name, metadata=known) as upload:
                for number, piece in enumerate(pieces(rest, part), start=1):
                    upload.part(number, piece)
                return upload.complete(if_absent=if_absent, if_match=if_match)
        etag = self._bucket.put_stream(self._key(name), rest, part=part, metadata={**known, TOKEN: self._token()})
        return ObjectInfo(name, stream.size, etag, self._now(), stream.sha256)

    def upload(
        self, name: str, *, resume: str | None = None, keep: bool = False, metadata: dict[str, str] | None = None
    ) -> S3Upload:
        self.check(name)
        if self._bucket.multipart is None:
            raise Unsupported(
                "Uploads in parts need an access key, in the configuration or in AWS_ACCESS_KEY_ID; put goes without."
            )
        return S3Upload(
            self._bucket.multipart,
            name,
            self._key(name),
            token=self._token,
            mine=self._reader.mine,
            allowed=lambda if_absent, if_match: self._allow(if_absent, if_match, create="complete", swap="complete"),
            now=self._now,
            resume=resume,
            keep=keep,
            metadata=metadata or {},
        )

    def check(self, name: str) -> None:
        """Refuse a name that cannot be written on this server."""
        longest = max(len(segment.encode(errors="replace")) for segment in check_name(name).split("/"))
        if longest > 255 and longest > self._conditions().longest_segment:
            most = self._conditions().longest_segment
            raise Refused(
                f"{name[:80]!r} is not a name on this S3 server: a segment has {longest} bytes, and {most} is the most."
            )

    def _allow(self, if_absent: bool, if_match: str | None, *, create: str, swap: str) -> None:
        """Refuse a condition that the server does not keep."""
        check_conditions(if_absent, if_match)
        if not if_absent and if_match is None:
            return
        worth: Worth = getattr(self._conditions(), create if if_absent else swap)
        if worth != "atomic":
            option = "if_absent" if if_absent else "if_match"
            scope = _IN_PARTS if create == "complete" else ""
            raise Unsupported(
                f"The S3 server at {self._bucket.endpoint or 'Amazon'} {_WORTHLESS[worth]}; {scope}{option} is refused. "
                "Write to names that nobody else writes to, or use another server."
            )

    def _put_at_once(self, name: str, data: bytes, sha256: str, if_absent: bool, if_match: str | None) -> ObjectInfo:
        token = self._token()
        mode: PutMode = "create" if if_absent else {"e_tag": if_match} if if_match is not None else "overwrite"
        for _ in range(5):
            try:
                etag = self._bucket.put(self._key(name), data, metadata={SHA256: sha256, TOKEN: token}, mode=mode)
                return ObjectInfo(name, len(data), etag, self._now(), sha256)
            except (AlreadyThere, Precondition, Unavailable) as error:
                if mode == "overwrite":
                    raise
                present = self._reader.present(name)
                if present is not None and present[1] == token:
                    return present[0]
                if isinstance(error, Unavailable):
                    raise
                if isinstance(error, Precondition):
                    raise Precondition(f"{name!r} is not, or no longer, version {if_match}.") from error
                if if_absent and present is not None:
                    raise AlreadyThere(f"An object named {name!r} exists already.") from error
                # "Conflict": someone else was writing in that moment, and may yet fail.
        raise Unavailable(f"The S3 server answered five times that someone else was just writing {name!r}.")
