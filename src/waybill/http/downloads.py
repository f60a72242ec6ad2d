"""Downloads of stored content, whole or a range, verified while they are sent.

    return send_content(request, DownloadContent(open, size, sha256, mime, name, description))

    ETag          the SHA-256, so that a client can combine ranges of the same content
    Repr-Digest   the SHA-256 of the whole content, also in the response to a range

Content of up to BUFFERED_SIZE is read and verified before the first byte is sent, also for a range. Larger content is
verified while it is sent: if it is damaged, its last chunk is never sent, so the client sees that the response is
incomplete. Only a range of large content is sent without verification; clients that combine ranges compare the result
with `Repr-Digest`.
"""

from __future__ import annotations

import base64
import hashlib
import re
from collections.abc import AsyncIterator, Callable, Iterator
from typing import NamedTuple
from urllib.parse import quote

from fastapi import Request, Response
from fastapi.concurrency import run_in_threadpool
from fastapi.responses import StreamingResponse

from waybill.http.errors import HttpProblem
from waybill.objects import ContentMismatch, ObjectBody, ObjectNotFound

BUFFERED_SIZE = 4 * 1024 * 1024  # bytes; smaller content is verified before it is sent

_RANGE = re.compile(r"\s*bytes\s*=\s*([0-9]{0,19})\s*-\s*([0-9]{0,19})\s*")
_MIME = re.compile(r"[A-Za-z0-9!#$&^_.+-]{1,100}/[A-Za-z0-9!#$&^_.+-]{1,100}")


class DownloadContent(NamedTuple):
    """Content to send: how to open a range of it, its size and its digest."""

    open: Callable[[int, int], ObjectBody]
    size: int
    sha256: str
    mime: str
    name: str
    description: str  # for error messages
    damage_hint: str = "Tell the server's operator."


def send_content(request: Request, content: DownloadContent) -> Response:
    headers = {
        "Accept-Ranges": "bytes",
        "ETag": f'"{content.sha256}"',
        "Repr-Digest": f"sha-256=:{base64.b64encode(bytes.fromhex(content.sha256)).decode()}:",
        "Content-Disposition": _to_attachment_header(content.name),
    }
    mime = content.mime if _MIME.fullmatch(content.mime) else "application/octet-stream"
    if headers["ETag"] in [
        tag.strip().removeprefix("W/") for tag in request.headers.get("if-none-match", "").split(",")
    ]:
        return Response(None, 304, headers)
    wanted = _parse_range(request, content, headers["ETag"])
    if wanted is None:
        raise HttpProblem(
            "bad-range",
            f"{content.description} has {content.size} bytes; this range is outside of it.",
            "Request a range inside of it.",
            {**headers, "Content-Range": f"bytes */{content.size}"},
        )
    start, end, status = wanted
    if status == 206:
        headers["Content-Range"] = f"bytes {start}-{end - 1}/{content.size}"
    headers["Content-Length"] = str(end - start)
    if request.method == "HEAD":
        return Response(None, status, headers, media_type=mime)
    try:
        if content.size <= BUFFERED_SIZE:
            return Response(_read_checked(content)[start:end], status, headers, media_type=mime)
        body = content.open(start, end)
    except ObjectNotFound:
        raise HttpProblem("damaged", f"{content.description} is missing in storage.", content.damage_hint) from None
    except ContentMismatch as error:
        raise HttpProblem("damaged", str(error), content.damage_hint) from None
    return StreamingResponse(_stream_chunks(body, content if status == 200 else None), status, headers, media_type=mime)


def _parse_range(request: Request, content: DownloadContent, tag: str) -> tuple[int, int, int] | None:
    """Return start, end and status; None if the range is outside of the content.

    Anything but a single range is ignored.
    """
    whole = (0, content.size, 200)
    match = _RANGE.fullmatch(request.headers.get("range", ""))
    if match is None or match[0].count("-") != 1 or not (match[1] or match[2]):
        return whole
    if request.headers.get("if-range", tag) != tag:
        return whole
    if not match[1]:
        start, end = max(0, content.size - int(match[2])), content.size
    else:
        start, end = int(match[1]), min(content.size, int(match[2]) + 1) if match[2] else content.size
        if match[2] and int(match[2]) < start:
            return whole
    return (start, end, 206) if start < end else None


def _read_checked(content: DownloadContent) -> bytes:
    with content.open(0, content.size) as body:
        data = b"".join(body)
        _compare(content, body.info.size, hashlib.sha256(data).hexdigest())
    return data


def _compare(content: DownloadContent, size: int, sha256: str) -> None:
    if (size, sha256) != (content.size, content.sha256):
        raise ContentMismatch(
            f"{content.description} is damaged: it has {size} bytes of SHA-256 {sha256}; it should have {content.size} of {content.sha256}."
        )


async def _stream_chunks(body: ObjectBody, whole: DownloadContent | None) -> AsyncIterator[bytes]:
    """Yield the chunks; of the whole content, the last one only after everything is verified."""
    chunks: Iterator[bytes] = _iter_verified(body, whole) if whole is not None else iter(body)
    try:
        while (chunk := await run_in_threadpool(next, chunks, None)) is not None:
            yield chunk
    finally:
        body.close()


def _iter_verified(body: ObjectBody, content: DownloadContent) -> Iterator[bytes]:
    digest, last_chunk = hashlib.sha256(), b""
    for chunk in body:
        digest.update(chunk)
        if last_chunk:
            yield last_chunk
        last_chunk = chunk
    _compare(content, body.info.size, digest.hexdigest())
    yield last_chunk


def _to_attachment_header(name: str) -> str:
    """Return a Content-Disposition that makes browsers save depositors' files instead of showing them as ours."""
    plain = re.sub(r"[^A-Za-z0-9._ -]", "_", name) or "file"
    return f"attachment; filename=\"{plain}\"; filename*=UTF-8''{quote(name, safe='')}"
