"""Sending bytes at rest: whole and verified on the way, or a range of them; with a tag and a digest by which
receivers can check.

    ETag          the SHA-256, so that parts of one and the same content can be put together
    Repr-Digest   the SHA-256 of the whole, also with a range of it

A short content is read and compared before the first byte goes out, also for a range. A long one is compared while it
goes out, and if it is not what it should be, its last portion is never sent: the receiver sees that something is
missing. Only a range of a long content goes out unread as a whole; who puts ranges together compares the result with
`Repr-Digest`.
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

from waybill.apps.ingest.routes.answers import refusal
from waybill.objects import Body, Damaged, NotFound

SHORT = 4 * 1024 * 1024  # bytes of a content that is read before it is sent

_RANGE = re.compile(r"\s*bytes\s*=\s*([0-9]{0,19})\s*-\s*([0-9]{0,19})\s*")
_MIME = re.compile(r"[A-Za-z0-9!#$&^_.+-]{1,100}/[A-Za-z0-9!#$&^_.+-]{1,100}")


class Sent(NamedTuple):
    """What is sent: how to open a range of it, how large it is and what it must be."""

    open: Callable[[int, int], Body]
    size: int
    sha256: str
    mime: str
    name: str
    words: str  # what it is, for a sentence


def send(request: Request, sent: Sent) -> Response:
    headers = {
        "Accept-Ranges": "bytes",
        "ETag": f'"{sent.sha256}"',
        "Repr-Digest": f"sha-256=:{base64.b64encode(bytes.fromhex(sent.sha256)).decode()}:",
        "Content-Disposition": _attachment(sent.name),
    }
    mime = sent.mime if _MIME.fullmatch(sent.mime) else "application/octet-stream"
    if headers["ETag"] in [
        tag.strip().removeprefix("W/") for tag in request.headers.get("if-none-match", "").split(",")
    ]:
        return Response(None, 304, headers)
    wanted = _range(request, sent, headers["ETag"])
    if wanted is None:
        told = {**headers, "Content-Range": f"bytes */{sent.size}"}
        return refusal(
            416,
            "bad-range",
            f"{sent.words} has {sent.size} bytes; there is nothing in this range.",
            "Ask for less.",
            told,
        )
    start, end, status = wanted
    if status == 206:
        headers["Content-Range"] = f"bytes {start}-{end - 1}/{sent.size}"
    headers["Content-Length"] = str(end - start)
    if request.method == "HEAD":
        return Response(None, status, headers, media_type=mime)
    try:
        if sent.size <= SHORT:
            return Response(_checked(sent)[start:end], status, headers, media_type=mime)
        body = sent.open(start, end)
    except NotFound:
        return refusal(
            500,
            "damaged",
            f"{sent.words} is missing in storage.",
            "Tell the server's operator: `waybill ingest audit`.",
        )
    except Damaged as error:
        return refusal(500, "damaged", str(error), "Tell the server's operator: `waybill ingest audit`.")
    return StreamingResponse(_portions(body, sent if status == 200 else None), status, headers, media_type=mime)


def _range(request: Request, sent: Sent, tag: str) -> tuple[int, int, int] | None:
    """From where up to where, and with which status; None: nothing of it can be had.

    What is no single range is not looked at.
    """
    whole = (0, sent.size, 200)
    match = _RANGE.fullmatch(request.headers.get("range", ""))
    if match is None or match[0].count("-") != 1 or not (match[1] or match[2]):
        return whole
    if request.headers.get("if-range", tag) != tag:
        return whole
    if not match[1]:
        start, end = max(0, sent.size - int(match[2])), sent.size
    else:
        start, end = int(match[1]), min(sent.size, int(match[2]) + 1) if match[2] else sent.size
        if match[2] and int(match[2]) < start:
            return whole
    return (start, end, 206) if start < end else None


def _checked(sent: Sent) -> bytes:
    with sent.open(0, sent.size) as body:
        data = b"".join(body)
        _compare(sent, body.info.size, hashlib.sha256(data).hexdigest())
    return data


def _compare(sent: Sent, size: int, sha256: str) -> None:
    if (size, sha256) != (sent.size, sent.sha256):
        raise Damaged(
            f"{sent.words} is damaged: it has {size} bytes of SHA-256 {sha256}; it should have {sent.size} of {sent.sha256}."
        )


async def _portions(body: Body, whole: Sent | None) -> AsyncIterator[bytes]:
    """The portions; of the whole, the last one only when all of it is as it should be."""
    portions: Iterator[bytes] = _held_back(body, whole) if whole is not None else iter(body)
    try:
        while (portion := await run_in_threadpool(next, portions, None)) is not None:
            yield portion
    finally:
        body.close()


def _held_back(body: Body, sent: Sent) -> Iterator[bytes]:
    digest, held = hashlib.sha256(), b""
    for portion in body:
        digest.update(portion)
        if held:
            yield held
        held = portion
    _compare(sent, body.info.size, digest.hexdigest())
    yield held


def _attachment(name: str) -> str:
    """Never shown by a browser in our name: what depositors send is not ours."""
    plain = re.sub(r"[^A-Za-z0-9._ -]", "_", name) or "file"
    return f"attachment; filename=\"{plain}\"; filename*=UTF-8''{quote(name, safe='')}"
