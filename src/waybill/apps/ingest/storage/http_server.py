"""Our storage as an HTTP service, so that one Waybill can store what another one ingests (http_client.py).

The routes are below /api/v1/ingest/storage: readers may use those that only read, operators also those that write.

A deposit arrives in two steps. Its content is staged first, each file as an object named by its SHA-256, in a place of
its own below ingest/staged/. Then the deposit itself is sent; a DepositReceiver stores it as a version and removes what
was staged (waybill.files.staged_content). Two requests for one object are not written at the same time in this process;
two processes are kept apart by the conditional writes of the storage.
"""

from __future__ import annotations

import hashlib
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from itertools import chain
from typing import TYPE_CHECKING, Annotated, Any, Protocol, TypeVar

import msgspec
from fastapi import APIRouter, Query, Request, Response
from fastapi.responses import StreamingResponse

from waybill.apps.ingest.settings import read as read_settings
from waybill.apps.ingest.storage import protocol
from waybill.apps.ingest.storage.ocfl_inventory import DigestAlgorithm
from waybill.apps.ingest.storage.ocfl_storage import OcflStorage
from waybill.apps.ingest.storage.protocol import (
    ConcurrentWrite,
    Deposit,
    FileToStore,
    InvalidDeposit,
    NotInStorage,
    StorageDamaged,
    StorageError,
    StoredVersion,
)
from waybill.files.staged_content import StagedContent
from waybill.objects import (
    ObjectBody,
    ObjectData,
    ObjectNotFound,
    ObjectRequestRefused,
    Objects,
    ObjectsError,
    check_name,
)

if TYPE_CHECKING:
    from waybill.environment import Environment


PREFIX = "/api/v1/ingest/storage"
PAGE_SIZE = 1000
BUFFERED_SIZE = 4 * 1024 * 1024  # bytes; smaller content is verified before it is sent

T = TypeVar("T")
QueryText = Annotated[str, Query(max_length=2000)]
QueryCount = Annotated[int, Query(ge=0, le=2**63 - 1)]

_STAGED_SCHEME = "staged:"


class RequestBodyReader(Protocol):
    """Reads the body of a request in the thread that stores it."""

    async def take(self, request: Request, work: Callable[[Iterator[bytes]], T]) -> T: ...


def build_router(
    environment: Environment,
    body_reader: RequestBodyReader,
    check_access: Callable[[Request, str], None] = lambda http_request, object: None,
    close_object: Callable[[str, str], None] = lambda object, embargo: None,
) -> APIRouter:
    """Build the routes of our storage; none if the settings name another storage service. `check_access` raises
    if the content of an object must not be shown; `close_object` is called before a deposit with an embargo is stored.
    """
    router = APIRouter(prefix=PREFIX, tags=["ingest storage"])
    if read_settings(environment.config.app.get("ingest", {})).storage.url:
        return router
    receivers: list[DepositReceiver] = []
    lock = threading.Lock()

    def get_receiver() -> DepositReceiver:
        with lock:
            if not receivers:
                settings = environment.resources_of("ingest").settings.storage
                receivers.append(
                    DepositReceiver(environment.objects, settings.prefix, settings.algorithm, close_object)
                )
            return receivers[0]

    @router.get("/staged", summary="Content that is staged for a deposit")
    def list_staged(object: QueryText, request: QueryText) -> Response:
        rows = get_receiver().staged_content.list_files(staging_place_of(object, request))
        return _to_lines_response({"sha256": sha256, "size": size} for sha256, size in rows)

    @router.put("/staged", summary="Send the content of a file of a deposit", status_code=201)
    async def stage(
        http_request: Request, object: QueryText, request: QueryText, sha256: QueryText, size: QueryCount
    ) -> Response:
        def store_file(data: Iterator[bytes]) -> Response:
            with _catch_refusals() as refused:
                if not protocol.SHA256_PATTERN.fullmatch(sha256):
                    raise InvalidDeposit("The SHA-256 is 64 digits of lower-case hex.")
                is_new = get_receiver().staged_content.put(staging_place_of(object, request), sha256, size, data)
                return _to_json_response({"sha256": sha256, "size": size}, 201 if is_new else 200)
            return refused[0]

        return await body_reader.take(http_request, store_file)

    @router.post("/versions", summary="Store a deposit whose content is staged")
    async def write(http_request: Request, object: QueryText, request: QueryText) -> Response:
        def store(data: Iterator[bytes]) -> Response:
            return _respond(lambda: get_receiver().write(object, request, data))

        return await body_reader.take(http_request, store)

    @router.get("/request", summary="The version that a request made")
    def find_by_request(object: QueryText, request: QueryText) -> Response:
        def find_version() -> StoredVersion:
            stored = get_receiver().storage.find_by_request(object, request)
            if stored is None:
                raise NotInStorage(f"The request {request!r} made no version of {object}.")
            return stored

        return _respond(find_version)

    @router.get("/versions", summary="All versions of an object")
    def list_versions(object: QueryText) -> Response:
        return _respond(lambda: get_receiver().storage.list_versions(object))

    @router.get("/version", summary="One version, as it was returned when it was stored")
    def get_version(object: QueryText, number: QueryCount = 0) -> Response:
        return _respond(lambda: get_receiver().storage.get_version(object, number))

    @router.get("/bytes", summary="The content at a place")
    def read(
        http_request: Request, object: QueryText, place: QueryText, start: QueryCount = 0, end: QueryCount | None = None
    ) -> Response:
        check_access(http_request, object)
        return _respond_with_body(get_receiver().storage, object, lambda: _check_place(place), start, end)

    @router.get("/file", summary="The content of a file of a version")
    def open_file(
        http_request: Request,
        object: QueryText,
        path: QueryText,
        number: QueryCount = 0,
        start: QueryCount = 0,
        end: QueryCount | None = None,
    ) -> Response:
        check_access(http_request, object)
        storage = get_receiver().storage
        return _respond_with_body(storage, object, lambda: storage.find_place(object, path, number), start, end)

    @router.get("/check", summary="Read a place and compare")
    def check(object: QueryText, place: QueryText, size: QueryCount, sha256: QueryText) -> Response:
        return _respond(lambda: get_receiver().storage.check(object, _check_place(place), size, sha256))

    @router.get("/findings", summary="Read an object and compare it with its inventory")
    def verify(object: QueryText) -> Response:
        with _catch_refusals() as refused:
            findings = get_receiver().storage.verify(object)
            first = list(_take_first(findings))
            return _to_lines_response(chain(first, findings))
        return refused[0]

    @router.post("/recover", summary="Finish or remove what an interrupted write left")
    def recover(object: QueryText) -> Response:
        return _respond(lambda: get_receiver().storage.recover(object))

    @router.get("/objects", summary="Objects, page by page")
    def list_objects(after: QueryText = "", limit: Annotated[int, Query(ge=1, le=PAGE_SIZE)] = PAGE_SIZE) -> Response:
        def list_page() -> Sequence[tuple[str, str]]:
            return [row for row, _ in zip(get_receiver().storage.list_objects(after), range(limit), strict=False)]

        return _respond(list_page)

    return router


def _take_first(found: Iterator[T]) -> Iterator[T]:
    """Yield the first item, so that an unknown object is an error and not an empty response."""
    for one in found:
        yield one
        return


def _check_place(place: str) -> str:
    """Return the place. It comes from a client: it must not lead out of the object."""
    try:
        return check_name(place)
    except ObjectRequestRefused:
        raise InvalidDeposit(f"{place[:100]!a} is not a place.") from None


def _respond(query: Callable[[], Any]) -> Response:
    with _catch_refusals() as refused:
        return _to_json_response(query())
    return refused[0]


def _respond_with_body(
    storage: OcflStorage, object_id: str, find_place: Callable[[], str], start: int, end: int | None
) -> Response:
    """Send content, or a range of it. Small content is compared with its digest first; of larger content the last chunk is
    only sent when all of it has the right digest, so that the client sees that the rest is missing.

    A range of large content is sent as it is: to compare it, all of it would have to be read.
    """
    with _catch_refusals() as refused:
        place = find_place()
        body = storage.read(object_id, place)
        size = body.info.size
        first, last = min(start, size), size if end is None else min(end, size)
        headers = {
            "x-waybill-size": str(size),
            "etag": f'"{body.info.etag}"',
            "x-waybill-modified": body.info.modified.isoformat(),
            "content-length": str(max(0, last - first)),
        }
        if body.info.sha256:
            headers["x-waybill-sha256"] = body.info.sha256
        media_type = "application/octet-stream"
        if size > BUFFERED_SIZE and (first, last) != (0, size):
            body.close()
            chunks: Iterator[bytes] = _read_and_close(storage.read(object_id, place, start=start, end=end))
            return StreamingResponse(chunks, headers=headers, media_type=media_type)
        try:
            verified = _iter_verified(body, storage.find_digest(object_id, place), f"{place} of {object_id}")
            if size <= BUFFERED_SIZE:
                data = b"".join(verified)[first:last]
                body.close()
                return Response(data, headers=headers, media_type=media_type)
        except BaseException:
            body.close()
            raise
        return StreamingResponse(_close_after(verified, body), headers=headers, media_type=media_type)
    return refused[0]


def _iter_verified(body: ObjectBody, expected: tuple[str, str] | None, what: str) -> Iterator[bytes]:
    """Yield the chunks, the last one after the digest was compared. Nothing is expected of what no version refers to."""
    digest, last_chunk = hashlib.new(expected[0] if expected else "sha256"), b""
    for chunk in body:
        digest.update(chunk)
        if last_chunk:
            yield last_chunk
        last_chunk = chunk
    if expected is not None and digest.hexdigest() != expected[1]:
        raise StorageDamaged(
            f"{what} is damaged: its {expected[0]} is {digest.hexdigest()}, and should be {expected[1]}."
        )
    yield last_chunk


def _close_after(chunks: Iterator[bytes], body: ObjectBody) -> Iterator[bytes]:
    with body:
        yield from chunks


def _read_and_close(body: ObjectBody) -> Iterator[bytes]:
    with body:
        yield from body


@contextmanager
def _catch_refusals() -> Iterator[list[Response]]:
    """Turn an error of the storage into a response, which is appended to the list."""
    refused: list[Response] = []
    try:
        yield refused
    except (StorageError, ObjectsError) as error:
        status, view = protocol.describe_error(error)
        refused.append(_to_json_response(view, status))


def _to_json_response(view: Any, status: int = 200) -> Response:
    return Response(msgspec.json.encode(view), status, media_type="application/json")


def _to_lines_response(rows: Any) -> Response:
    return StreamingResponse((msgspec.json.encode(row) + b"\n" for row in rows), media_type="application/jsonl")


def staging_place_of(object_id: str, request: str) -> str:
    """Return where the content of a deposit is staged."""
    identity = msgspec.json.encode((object_id, request))
    return f"{protocol.STAGED_PREFIX}/{hashlib.sha256(identity).hexdigest()[:40]}"


class ObjectWriteLocks:
    """One lock for each object that is being written in this process."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._objects: set[str] = set()

    @contextmanager
    def lock_object(self, object_id: str) -> Iterator[None]:
        with self._lock:
            if object_id in self._objects:
                raise ConcurrentWrite(f"{object_id} is being written by another request now: try again.")
            self._objects.add(object_id)
        try:
            yield
        finally:
            with self._lock:
                self._objects.discard(object_id)


class DepositReceiver:
    """Stores the deposits that clients send."""

    def __init__(
        self,
        objects: Objects,
        prefix: str,
        algorithm: DigestAlgorithm,
        close_object: Callable[[str, str], None] = lambda object, embargo: None,
    ) -> None:
        self.staged_content = StagedContent(objects)
        self._close_object = close_object
        self.storage = OcflStorage(objects, prefix, self.open_source, algorithm=algorithm)
        self._write_locks = ObjectWriteLocks()

    @contextmanager
    def open_source(self, name: str) -> Iterator[ObjectData]:
        if not name.startswith(_STAGED_SCHEME):
            raise InvalidDeposit(f"{name[:100]!r} is not a source of this storage.")
        place, _, sha256 = name.removeprefix(_STAGED_SCHEME).rpartition("/")
        try:
            with self.staged_content.open(place, sha256) as chunks:
                yield chunks
        except ObjectNotFound:
            raise ConcurrentWrite(
                f"The content of SHA-256 {sha256} is not staged, or was removed: send it, then the deposit again."
            ) from None

    def write(self, object_id: str, request: str, chunks: Iterator[bytes]) -> StoredVersion:
        place = staging_place_of(object_id, request)
        with self._write_locks.lock_object(object_id):
            stored = self.storage.find_by_request(object_id, request)
            if stored is None:
                self.staged_content.touch(place)  # keeps it for a day from now; reading it touches it again
                lines = protocol.split_lines(chunks)
                head = protocol.decode_head(next(lines, b""))
                files = self._decode_files(lines, place)
                fields = {name: getattr(head, name) for name in head.__struct_fields__}
                if embargo := head.about.get("embargo"):
                    self._close_object(object_id, str(embargo))
                try:
                    stored = self.storage.write(Deposit(object=object_id, request=request, files=files, **fields))
                except (InvalidDeposit, ConcurrentWrite) as error:
                    # Another process may have finished the same request meanwhile, and removed what this one was reading.
                    stored = self.storage.find_by_request(object_id, request)
                    if stored is None:
                        # refused permanently; a client that tries all the same stages the content again
                        if error.code == "deletion-target-missing":
                            self.staged_content.clear(place)
                        raise
            self.staged_content.clear(place)
            return stored

    def _decode_files(self, lines: Iterator[bytes], place: str) -> Iterator[FileToStore]:
        for number, line in enumerate(lines, start=2):
            yield protocol.decode_file(line, number, f"{_STAGED_SCHEME}{place}/")
