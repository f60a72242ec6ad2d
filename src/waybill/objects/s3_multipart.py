"""The six requests of multipart uploads in S3.

obstore can stream one object in parts, but cannot send a part by number, resume an upload, complete it under a
condition, or find it after a crash. This module does: begin, send a part, list the parts, complete, abort, and list
pending uploads. A request is retried after a broken connection, a timeout or a 5xx response, up to `tries` times.
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
    ObjectExists,
    ObjectNotFound,
    ObjectRequestRefused,
    ObjectsError,
    ObjectStoreUnavailable,
    PartInfo,
    PreconditionFailed,
    UnsupportedObjectOperation,
)
from waybill.objects.s3_signing import S3Credentials, path_of, query_of, sign_request

_MAX_XML_BYTES = 16 * 1024 * 1024


class PendingUpload(NamedTuple):
    """An upload that is neither completed nor aborted."""

    key: str
    upload_id: str
    started_at: datetime


class MultipartClient:
    """Sends signed requests about uploads of one bucket."""

    def __init__(
        self,
        endpoint: str,
        bucket: str,
        region: str,
        credentials: Callable[[], S3Credentials],
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
        answer = self._request("POST", key, [("uploads", "")], headers=headers)
        return _text_of(_parse_xml(answer), "UploadId")

    def send_part(self, key: str, upload_id: str, number: int, data: bytes) -> PartInfo:
        answer = self._request("PUT", key, [("partNumber", str(number)), ("uploadId", upload_id)], data)
        return PartInfo(number, len(data), answer.headers.get("etag", ""))

    def list_parts(self, key: str, upload_id: str) -> dict[int, PartInfo]:
        found: dict[int, PartInfo] = {}
        marker = ""
        while True:
            pairs = [("uploadId", upload_id)] + ([("part-number-marker", marker)] if marker else [])
            answer = _parse_xml(self._request("GET", key, pairs))
            for part in _find_all(answer, "Part"):
                number = int(_text_of(part, "PartNumber"))
                found[number] = PartInfo(number, int(_text_of(part, "Size")), _text_of(part, "ETag"))
            following = _text_of(answer, "NextPartNumberMarker", "")
            if _text_of(answer, "IsTruncated", "false") != "true" or following == marker:
                return dict(sorted(found.items()))
            marker = following

    def complete(
        self,
        key: str,
        upload_id: str,
        parts: dict[int, PartInfo],
        *,
        if_absent: bool = False,
        if_match: str | None = None,
    ) -> str:
        """Complete the upload and return the etag of the object. Raises ObjectExists or PreconditionFailed if the
        condition does not hold; the parts stay then.
        """
        headers = {"if-none-match": "*"} if if_absent else {"if-match": if_match} if if_match is not None else {}
        request = ElementTree.Element("CompleteMultipartUpload")
        for number, part in sorted(parts.items()):
            element = ElementTree.SubElement(request, "Part")
            ElementTree.SubElement(element, "PartNumber").text = str(number)
            ElementTree.SubElement(element, "ETag").text = part.etag
        answer = self._request("POST", key, [("uploadId", upload_id)], ElementTree.tostring(request), headers=headers)
        return _text_of(_parse_xml(answer), "ETag", "")

    def abort(self, key: str, upload_id: str) -> None:
        self._request("DELETE", key, [("uploadId", upload_id)])

    def list_pending(self, prefix: str) -> Iterator[PendingUpload]:
        """Yield the pending uploads of keys that start with the prefix."""
        markers: list[tuple[str, str]] = []
        while True:
            answer = _parse_xml(self._request("GET", "", [("uploads", ""), ("prefix", prefix), *markers]))
            for upload in _find_all(answer, "Upload"):
                started_at = datetime.fromisoformat(_text_of(upload, "Initiated").replace("Z", "+00:00"))
                yield PendingUpload(_text_of(upload, "Key"), _text_of(upload, "UploadId"), started_at)
            following = [
                ("key-marker", _text_of(answer, "NextKeyMarker", "")),
                ("upload-id-marker", _text_of(answer, "NextUploadIdMarker", "")),
            ]
            if _text_of(answer, "IsTruncated", "false") != "true" or following == markers:
                return
            markers = following

    def _request(
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
        for attempt in range(1, self._tries + 1):
            signed = sign_request(
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
                if attempt == self._tries:
                    raise ObjectStoreUnavailable(
                        f"The S3 server at {self._endpoint} did not answer: {type(error).__name__}."
                    ) from error
            else:
                code = _error_code_of(answer)
                if answer.is_success and not code:
                    return answer
                # A completion may return 200 and still fail: the error is in the body.
                if attempt == self._tries or not (
                    answer.status_code >= 500 or answer.is_success or code in _RETRY_CODES
                ):
                    raise _to_objects_error(answer.status_code, code, key, method)
            self._pause(min(0.1 * 2**attempt, 5.0))
        raise AssertionError("unreachable")


_RETRY_CODES = {"SlowDown", "RequestTimeout", "OperationAborted", "ConditionalRequestConflict", "InternalError"}


def _to_objects_error(status: int, code: str, key: str, method: str) -> ObjectsError:
    message = f"The S3 server answered {status} {code} to a {method} for {key!r}."
    if code in ("NoSuchUpload", "NoSuchKey") or (status == 404 and not code):
        return ObjectNotFound(message)
    if code == "PreconditionFailed" or status == 412:
        return PreconditionFailed(message)
    if code == "EntityAlreadyExists":
        return ObjectExists(message)
    if status in (401, 403):
        return ObjectsError(message, code="objects-denied")
    if status == 501 or code == "NotImplemented":
        return UnsupportedObjectOperation(message)
    if status == 507 or code in ("QuotaExceeded", "InsufficientStorage", "XMinioStorageFull"):
        return ObjectsError(message, code="objects-full")
    if 400 <= status < 500 and status not in (408, 409, 429):
        return ObjectRequestRefused(message)
    return ObjectStoreUnavailable(message)


def _error_code_of(answer: httpx2.Response) -> str:
    """Return the error code in the body; empty if there is none."""
    if b"<Error>" not in answer.content[:1000]:
        return ""
    try:
        return _text_of(_parse_xml(answer), "Code", "")
    except ObjectStoreUnavailable:
        return "unreadable"


def _parse_xml(answer: httpx2.Response) -> ElementTree.Element:
    if len(answer.content) > _MAX_XML_BYTES or b"<!DOCTYPE" in answer.content or b"<!ENTITY" in answer.content:
        raise ObjectStoreUnavailable("The S3 server answered with XML that is too large or has a document type.")
    try:
        return ElementTree.fromstring(answer.content)
    except ElementTree.ParseError as error:
        raise ObjectStoreUnavailable("The S3 server answered with something that is not XML.") from error


def _find_all(element: ElementTree.Element, name: str) -> list[ElementTree.Element]:
    return element.findall(f"{{*}}{name}")


def _text_of(element: ElementTree.Element, name: str, default: str | None = None) -> str:
    found = element.find(f"{{*}}{name}")
    if found is not None and found.text is not None:
        return found.text
    if default is None:
        raise ObjectStoreUnavailable(f"The S3 server's answer lacks {name}.")
    return default
