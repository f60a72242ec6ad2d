"""Multipart: the six requests by which S3 takes an object in parts.

obstore streams one object in parts by itself, but neither lets a part be sent by number, nor an upload be resumed,
completed under a condition, or found again after a crash. So these are ours: begin, send a part, look at the parts,
complete, abort, and look for uploads that were left behind. A request is sent again after a broken connection, a
time-out or an answer of 5xx, up to `tries` times.
"""

from __future__ import annotations

import hashlib
import time
from collections.abc import Callable, Iterator
from datetime import UTC, datetime
from typing import NamedTuple
from xml.etree import ElementTree

import httpx2

from waybill.objects.protocol import (
    AlreadyThere,
    NoSpace,
    NotAllowed,
    NotFound,
    ObjectsError,
    PartInfo,
    Precondition,
    Refused,
    Unavailable,
    Unsupported,
)
from waybill.objects.signing import Credentials, path_of, query_of, sign

_MOST_XML = 16 * 1024 * 1024


class Left(NamedTuple):
    """An upload that nobody has completed or aborted yet."""

    key: str
    upload: str
    begun: datetime


class Multipart:
    def __init__(
        self,
        endpoint: str,
        bucket: str,
        region: str,
        credentials: Callable[[], Credentials],
        *,
        timeout: float,
        tries: int,
        pause: Callable[[float], None] = time.sleep,
    ) -> None:
        self._endpoint = endpoint.rstrip("/")
        self._bucket = bucket
        self._region = region
        self._credentials = credentials
        self._tries = tries
        self._pause = pause
        self._client = httpx2.Client(timeout=httpx2.Timeout(timeout, connect=5.0), follow_redirects=False)

    def close(self) -> None:
        self._client.close()

    def begin(self, key: str, metadata: dict[str, str]) -> str:
        headers = {f"x-amz-meta-{name}": value for name, value in metadata.items()}
        answer = self._ask("POST", key, [("uploads", "")], headers=headers)
        return _text(_xml(answer), "UploadId")

    def send(self, key: str, upload: str, number: int, data: bytes) -> PartInfo:
        answer = self._ask("PUT", key, [("partNumber", str(number)), ("uploadId", upload)], data)
        return PartInfo(number, len(data), answer.headers.get("etag", ""))

    def parts(self, key: str, upload: str) -> dict[int, PartInfo]:
        found: dict[int, PartInfo] = {}
        marker = ""
        while True:
            pairs = [("uploadId", upload)] + ([("part-number-marker", marker)] if marker else [])
            answer = _xml(self._ask("GET", key, pairs))
            for part in _all(answer, "Part"):
                number = int(_text(part, "PartNumber"))
                found[number] = PartInfo(number, int(_text(part, "Size")), _text(part, "ETag"))
            following = _text(answer, "NextPartNumberMarker", "")
            if _text(answer, "IsTruncated", "false") != "true" or following == marker:
                return dict(sorted(found.items()))
            marker = following

    def complete(
        self, key: str, upload: str, parts: dict[int, PartInfo], *, if_absent: bool = False, if_match: str | None = None
    ) -> str:
        """The etag of the object. AlreadyThere or Precondition if the condition does not hold; the parts are still
        there then.
        """
        headers = {"if-none-match": "*"} if if_absent else {"if-match": if_match} if if_match is not None else {}
        wanted = ElementTree.Element("CompleteMultipartUpload")
        for number, part in sorted(parts.items()):
            element = ElementTree.SubElement(wanted, "Part")
            ElementTree.SubElement(element, "PartNumber").text = str(number)
            ElementTree.SubElement(element, "ETag").text = part.etag
        answer = self._ask("POST", key, [("uploadId", upload)], ElementTree.tostring(wanted), headers=headers)
        return _text(_xml(answer), "ETag", "")

    def abort(self, key: str, upload: str) -> None:
        self._ask("DELETE", key, [("uploadId", upload)])

    def left(self, prefix: str) -> Iterator[Left]:
        """Uploads of keys that begin with the prefix."""
        markers: list[tuple[str, str]] = []
        while True:
            answer = _xml(self._ask("GET", "", [("uploads", ""), ("prefix", prefix), *markers]))
            for upload in _all(answer, "Upload"):
                begun = datetime.fromisoformat(_text(upload, "Initiated").replace("Z", "+00:00"))
                yield Left(_text(upload, "Key"), _text(upload, "UploadId"), begun)
            following = [
                ("key-marker", _text(answer, "NextKeyMarker", "")),
                ("upload-id-marker", _text(answer, "NextUploadIdMarker", "")),
            ]
            if _text(answer, "IsTruncated", "false") != "true" or following == markers:
                return
            markers = following

    def _ask(
        self,
        method: str,
        key: str,
        pairs: list[tuple[str, str]],
        body: bytes = b"",
        *,
        headers: dict[str, str] | None = None,
    ) -> httpx2.Response:
        path, query = path_of(self._bucket, key), query_of(pairs)
        url = httpx2.URL(f"{self._endpoint}{path}?{query}")
        host = url.netloc.decode()
        for tried in range(1, self._tries + 1):
            signed = sign(
                method,
                path,
                query,
                {"host": host, **(headers or {})},
                hashlib.sha256(body).hexdigest(),
                credentials=self._credentials(),
                region=self._region,
                now=datetime.now(UTC),
            )
            try:
                answer = self._client.request(method, url, headers=signed, content=body)
            except httpx2.HTTPError as error:
                if tried == self._tries:
                    raise Unavailable(
                        f"The S3 server at {self._endpoint} did not answer: {type(error).__name__}."
                    ) from error
            else:
                code = _code(answer)
                if answer.is_success and not code:
                    return answer
                # A completion may answer 200 and still fail: the error stands in the body.
                if tried == self._tries or not (answer.status_code >= 500 or answer.is_success or code in _LATER):
                    raise _refusal(answer.status_code, code, key, method)
            self._pause(min(0.1 * 2**tried, 5.0))
        raise AssertionError("unreachable")


_LATER = {"SlowDown", "RequestTimeout", "OperationAborted", "ConditionalRequestConflict", "InternalError"}


def _refusal(status: int, code: str, key: str, method: str) -> ObjectsError:
    said = f"The S3 server answered {status} {code} to a {method} for {key!r}."
    if code in ("NoSuchUpload", "NoSuchKey") or (status == 404 and not code):
        return NotFound(said)
    if code == "PreconditionFailed" or status == 412:
        return Precondition(said)
    if code == "EntityAlreadyExists":
        return AlreadyThere(said)
    if status in (401, 403):
        return NotAllowed(said)
    if status == 501 or code == "NotImplemented":
        return Unsupported(said)
    if status == 507 or code in ("QuotaExceeded", "InsufficientStorage", "XMinioStorageFull"):
        return NoSpace(said)
    if 400 <= status < 500 and status not in (408, 409, 429):
        return Refused(said)
    return Unavailable(said)


def _code(answer: httpx2.Response) -> str:
    """The code of the error that stands in the body, or nothing."""
    if b"<Error>" not in answer.content[:1000]:
        return ""
    try:
        return _text(_xml(answer), "Code", "")
    except Unavailable:
        return "unreadable"


def _xml(answer: httpx2.Response) -> ElementTree.Element:
    if len(answer.content) > _MOST_XML or b"<!DOCTYPE" in answer.content or b"<!ENTITY" in answer.content:
        raise Unavailable("The S3 server answered with XML that no S3 server has reason to send.")
    try:
        return ElementTree.fromstring(answer.content)
    except ElementTree.ParseError as error:
        raise Unavailable("The S3 server answered with something that is not XML.") from error


def _all(element: ElementTree.Element, name: str) -> list[ElementTree.Element]:
    return element.findall(f"{{*}}{name}")


def _text(element: ElementTree.Element, name: str, default: str | None = None) -> str:
    found = element.find(f"{{*}}{name}")
    if found is not None and found.text is not None:
        return found.text
    if default is None:
        raise Unavailable(f"The S3 server's answer lacks {name}.")
    return default
