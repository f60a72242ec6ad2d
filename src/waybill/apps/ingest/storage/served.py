"""Served: our own storage for others, over HTTP. One Waybill stores what another takes in.

What wire.py says is answered below /api/v1/ingest/storage: to readers what only looks, to operators what writes
(counter.py).
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Annotated, Any, Protocol, TypeVar

import msgspec
from fastapi import APIRouter, Query, Request, Response
from fastapi.responses import StreamingResponse

from waybill.apps.ingest.settings import read as read_settings
from waybill.apps.ingest.storage import wire
from waybill.apps.ingest.storage.counter import Counter, place_of
from waybill.apps.ingest.storage.protocol import NotStorable, NotStored, Stored
from waybill.objects import Body

if TYPE_CHECKING:
    from waybill.depot import Depot

PREFIX = "/api/v1/ingest/storage"
PAGE = 1000

T = TypeVar("T")
Text = Annotated[str, Query(max_length=2000)]
Count = Annotated[int, Query(ge=0, le=2**63 - 1)]


class Arriving(Protocol):
    """Reads the body of a request in the thread that keeps it."""

    async def take(self, request: Request, work: Callable[[Iterator[bytes]], T]) -> T: ...


def routes(
    depot: Depot, arriving: Arriving, closed: Callable[[Request, str], Response | None] = lambda asked, object: None
) -> APIRouter:
    """What serves our own storage; nothing where storage is another service's. `closed`: why an object's bytes are
    refused, if they are.
    """
    router = APIRouter(prefix=PREFIX, tags=["ingest storage"])
    if read_settings(depot.config.app.get("ingest", {})).storage.url:
        return router
    made: list[Counter] = []
    lock = threading.Lock()

    def counter() -> Counter:
        with lock:
            if not made:
                told = depot.outfit("job").settings.storage
                made.append(Counter(depot.objects, told.prefix, told.algorithm))
            return made[0]

    @router.get("/staged", summary="What has come for a deposit")
    def staged(object: Text, request: Text) -> Response:
        rows = counter().staged.listed(place_of(object, request))
        return _lines({"sha256": sha256, "size": size} for sha256, size in rows)

    @router.put("/staged", summary="Send the bytes of a file of a deposit", status_code=201)
    async def stage(asked: Request, object: Text, request: Text, sha256: Text, size: Count) -> Response:
        def keep(data: Iterator[bytes]) -> Response:
            with _refusals() as refused:
                if not wire.SHA256.fullmatch(sha256):
                    raise NotStorable("The SHA-256 is 64 digits of lower-case hex.")
                new = counter().staged.put(place_of(object, request), sha256, size, data)
                return _json({"sha256": sha256, "size": size}, 201 if new else 200)
            return refused[0]

        return await arriving.take(asked, keep)

    @router.post("/versions", summary="Store a deposit whose bytes have come")
    async def write(asked: Request, object: Text, request: Text) -> Response:
        def store(data: Iterator[bytes]) -> Response:
            return _told(lambda: counter().write(object, request, data))

        return await arriving.take(asked, store)

    @router.get("/request", summary="The version that a request made")
    def look(object: Text, request: Text) -> Response:
        def found() -> Stored:
            there = counter().storage.look(object, request)
            if there is None:
                raise NotStored(f"The request {request!r} made no version of {object}.")
            return there

        return _told(found)

    @router.get("/versions", summary="All versions of an object")
    def versions(object: Text) -> Response:
        return _told(lambda: counter().storage.versions(object))

    @router.get("/version", summary="One version, as it was answered when it was made")
    def version(object: Text, number: Count = 0) -> Response:
        return _told(lambda: counter().storage.stored(object, number))

    @router.get("/bytes", summary="The bytes at a place")
    def read(asked: Request, object: Text, place: Text, start: Count = 0, end: Count | None = None) -> Response:
        return closed(asked, object) or _body(
            lambda: counter().storage.read(object, _checked(place), start=start, end=end)
        )

    @router.get("/file", summary="The bytes of a file of a version")
    def open(
        asked: Request, object: Text, path: Text, number: Count = 0, start: Count = 0, end: Count | None = None
    ) -> Response:
        return closed(asked, object) or _body(
            lambda: counter().storage.open(object, path, number, start=start, end=end)
        )

    @router.get("/check", summary="Read a place and compare")
    def check(object: Text, place: Text, size: Count, sha256: Text) -> Response:
        return _told(lambda: counter().storage.check(object, _checked(place), size, sha256))

    @router.get("/findings", summary="Read an object and compare it with what it says of itself")
    def verify(object: Text) -> Response:
        with _refusals() as refused:
            findings = counter().storage.verify(object)
            first = list(_first(findings))
            return _lines(finding for portion in (first, findings) for finding in portion)
        return refused[0]

    @router.post("/recover", summary="Finish or remove what an interrupted write left")
    def recover(object: Text) -> Response:
        return _told(lambda: counter().storage.recover(object))

    @router.get("/objects", summary="Objects, page by page")
    def objects(after: Text = "", limit: Annotated[int, Query(ge=1, le=PAGE)] = PAGE) -> Response:
        def page() -> Sequence[tuple[str, str]]:
            return [row for row, _ in zip(counter().storage.objects(after), range(limit), strict=False)]

        return _told(page)

    return router


def _first(found: Iterator[T]) -> Iterator[T]:
    """The first of them, so that an object that is not there is refused and not an empty answer."""
    for one in found:
        yield one
        return


def _checked(place: str) -> str:
    """A place comes from a stranger here: it must not lead out of the object."""
    if any(part in ("", ".", "..") for part in place.split("/")):
        raise NotStorable(f"{place[:100]!r} is no place.")
    return place


def _told(question: Callable[[], Any]) -> Response:
    with _refusals() as refused:
        return _json(question())
    return refused[0]


def _body(question: Callable[[], Body]) -> Response:
    with _refusals() as refused:
        body = question()
        headers = {
            "x-waybill-size": str(body.info.size),
            "etag": f'"{body.info.etag}"',
            "x-waybill-modified": body.info.modified.isoformat(),
        }
        if body.info.sha256:
            headers["x-waybill-sha256"] = body.info.sha256
        return StreamingResponse(_sent(body), headers=headers, media_type="application/octet-stream")
    return refused[0]


def _sent(body: Body) -> Iterator[bytes]:
    with body:
        yield from body


@contextmanager
def _refusals() -> Iterator[list[Response]]:
    """What the storage refuses becomes the answer, left in the list."""
    refused: list[Response] = []
    try:
        yield refused
    except tuple(error for _, error in wire.ERRORS.values()) as error:
        code, status = next((code, status) for code, (status, kind) in wire.ERRORS.items() if isinstance(error, kind))
        words = str(error).encode("utf-8", "replace").decode()
        refused.append(_json({"error": {"code": code, "message": words, "hint": ""}}, status))


def _json(view: Any, status: int = 200) -> Response:
    return Response(msgspec.json.encode(view), status, media_type="application/json")


def _lines(rows: Any) -> Response:
    return StreamingResponse((msgspec.json.encode(row) + b"\n" for row in rows), media_type="application/jsonl")


__all__ = ["PREFIX", "routes"]
