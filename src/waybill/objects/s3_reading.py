"""Reading from S3: the present version of a name, what is known of it, and its bytes.

A read is one request, so all its bytes are of one version; obstore takes it up again after a cut, of the same version
or not at all.
"""

from __future__ import annotations

from collections.abc import Callable, Generator
from typing import TYPE_CHECKING

from waybill.objects.bucket import PORTION, Bucket, is_beyond_the_end, translated
from waybill.objects.names import check_name
from waybill.objects.protocol import NotFound, ObjectInfo, Unavailable
from waybill.objects.reading import Reading

if TYPE_CHECKING:
    from obstore import GetResult

SHA256 = "waybill-sha256"  # metadata: the digest of the object, where it was known before it was sent
TOKEN = "waybill-put"  # metadata: which put it was


class S3Reader:
    def __init__(self, bucket: Bucket, key: Callable[[str], str]) -> None:
        self._bucket = bucket
        self._key = key

    def get(self, name: str, start: int, end: int | None) -> Reading:
        if end is None or start < end:
            try:
                got = self._get(name, start, end)
                return Reading(_info(name, got), _portions(name, got))
            except Unavailable as error:
                if not is_beyond_the_end(error):
                    raise
        return Reading(self.head(name), _nothing())

    def head(self, name: str) -> ObjectInfo:
        return _info(name, self._get(name, head=True))

    def present(self, name: str) -> tuple[ObjectInfo, str] | None:
        """The object and the token of the put that made it; None if there is no object."""
        try:
            got = self._get(name, head=True)
        except NotFound:
            return None
        return _info(name, got), got.attributes.get(TOKEN, "")

    def mine(self, name: str, token: str) -> ObjectInfo | None:
        """The object, if the put with this token made it."""
        present = self.present(name)
        return present[0] if present is not None and present[1] == token else None

    def _get(self, name: str, start: int = 0, end: int | None = None, *, head: bool = False) -> GetResult:
        try:
            return self._bucket.get(self._key(check_name(name)), start, end, head=head)
        except NotFound as error:
            raise NotFound(f"There is no object named {name!r}.") from error


def _info(name: str, got: GetResult) -> ObjectInfo:
    meta = got.meta
    return ObjectInfo(name, meta["size"], meta["e_tag"] or "", meta["last_modified"], got.attributes.get(SHA256))


def _nothing() -> Generator[bytes]:
    yield from ()


def _portions(name: str, got: GetResult) -> Generator[bytes]:
    start, end = got.range
    came = 0
    with translated(f"read {name!r}"):
        for portion in got.stream(min_chunk_size=PORTION):
            came += len(portion)
            yield bytes(portion)
    if came != end - start:
        raise Unavailable(f"The S3 server sent {came} bytes of {name!r} instead of {end - start}.")
