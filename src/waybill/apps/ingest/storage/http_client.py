"""HttpStorage: the client of a storage service over HTTP (protocol.py, http_server.py).

    storage = HttpStorage("https://store.example.org/api/v1/ingest/storage", token, sources)

A write stages the content first, each file under its SHA-256, only files that are not staged yet; then it sends the
deposit. A lost response loses nothing: when the request is repeated, the service returns the version that it made. A
service that cannot be reached raises TransferError, which is worth a retry.
"""

from __future__ import annotations

import tempfile
from collections.abc import Callable, Generator, Iterator
from contextlib import closing, contextmanager
from datetime import UTC, datetime
from typing import Any, BinaryIO, TypeVar, cast
from urllib.parse import urlsplit

import httpx2
import msgspec

from waybill.apps.ingest.storage import protocol
from waybill.apps.ingest.storage.protocol import (
    Deposit,
    FileToStore,
    InvalidDeposit,
    NotInStorage,
    RecoveryResult,
    SourceOpener,
    StorageFinding,
    StoredVersion,
    VersionSummary,
)
from waybill.manifests import ManifestReader
from waybill.objects import CheckedStream, ObjectBody, ObjectInfo, StreamedBody, iter_chunks
from waybill.transfer import TransferError

TOKEN_VARIABLE = "WAYBILL_INGEST_STORAGE_TOKEN"  # the environment variable

_LOOPBACK_HOSTS = {"127.0.0.1", "::1", "localhost"}
_MAX_IN_MEMORY_BYTES = 1024 * 1024
_MAX_REFUSAL_BYTES = 100_000

T = TypeVar("T")


class HttpStorage:
    """A client. Safe for several threads."""

    def __init__(
        self,
        url: str,
        token: str,
        sources: SourceOpener,
        *,
        timeout: float = 60.0,
        write_timeout: float = 3600.0,
        transport: httpx2.BaseTransport | None = None,
    ) -> None:
        """`timeout` for a response; `write_timeout` for that of a write, which comes after the service has stored and
        verified everything.

        `transport` replaces the network.
        """
        parts = urlsplit(url)
        if parts.scheme not in ("http", "https") or not parts.hostname or "@" in parts.netloc:
            raise InvalidDeposit("The URL of the storage service is http or https, without user name and password.")
        if token and parts.scheme == "http" and parts.hostname not in _LOOPBACK_HOSTS:
            raise InvalidDeposit(
                "The URL of the storage service must begin with https://, since a token is sent to it."
            )
        self._url = url.rstrip("/")
        self._sources = sources
        self._timeout, self._write_timeout = timeout, write_timeout
        headers = {"authorization": f"Bearer {token}"} if token else {}
        self._client = httpx2.Client(timeout=timeout, follow_redirects=False, headers=headers, transport=transport)

    def close(self) -> None:
        self._client.close()

    def write(self, deposit: Deposit, *, check: Callable[[], None] = lambda: None) -> StoredVersion:
        existing = self.find_by_request(deposit.object, deposit.request)
        if existing is not None:
            return existing
        query = {"object": deposit.object, "request": deposit.request}
        staged = {(row["sha256"], row["size"]) for row in self._request_rows("/staged", query, dict[str, Any])}
        with tempfile.SpooledTemporaryFile(_MAX_IN_MEMORY_BYTES) as spooled:
            lines = cast(BinaryIO, spooled)
            head = protocol.DepositHead(
                mode=deposit.mode,
                deletions=tuple(deposit.deletions),
                message=deposit.message,
                user=deposit.user,
                address=deposit.address,
                about=dict(deposit.about),
                damaged_places=tuple(deposit.damaged_places),
            )
            for line in protocol.encode_deposit(head, self._send_files(deposit, query, staged, check)):
                lines.write(line)
            check()
            size = lines.tell()
            lines.seek(0)
            # Safe to repeat: the service makes one version per request.
            stored: StoredVersion = self._request(
                "POST",
                "/versions",
                query,
                StoredVersion,
                content=iter_chunks(lines),
                size=size,
                timeout=self._write_timeout,
            )
            return stored

    def find_by_request(self, object_id: str, request: str) -> StoredVersion | None:
        try:
            stored: StoredVersion = self._request(
                "GET", "/request", {"object": object_id, "request": request}, StoredVersion
            )
        except NotInStorage:
            return None
        return stored

    def list_versions(self, object_id: str) -> list[VersionSummary]:
        versions: list[VersionSummary] = self._request("GET", "/versions", {"object": object_id}, list[VersionSummary])
        return versions

    def get_version(self, object_id: str, number: int = 0) -> StoredVersion:
        stored: StoredVersion = self._request("GET", "/version", {"object": object_id, "number": number}, StoredVersion)
        return stored

    def open_manifest(self, stored: StoredVersion) -> ManifestReader:
        body = self.read(stored.object, stored.place)
        try:
            return ManifestReader(body, body.close)
        except BaseException:
            body.close()
            raise

    def read(self, object_id: str, place: str, *, start: int = 0, end: int | None = None) -> ObjectBody:
        return self._open_body("/bytes", place, {"object": object_id, "place": place, **_to_range_query(start, end)})

    def open_file(
        self, object_id: str, path: str, number: int = 0, *, start: int = 0, end: int | None = None
    ) -> ObjectBody:
        return self._open_body(
            "/file", path, {"object": object_id, "path": path, "number": number, **_to_range_query(start, end)}
        )

    def check(self, object_id: str, place: str, size: int, sha256: str) -> StorageFinding | None:
        query = {"object": object_id, "place": place, "size": size, "sha256": sha256}
        finding: StorageFinding | None = self._request(
            "GET", "/check", query, StorageFinding | None, timeout=self._write_timeout
        )
        return finding

    def verify(self, object_id: str) -> Iterator[StorageFinding]:
        return self._request_rows("/findings", {"object": object_id}, StorageFinding, timeout=self._write_timeout)

    def recover(self, object_id: str) -> RecoveryResult:
        recovered: RecoveryResult = self._request(
            "POST", "/recover", {"object": object_id}, RecoveryResult, timeout=self._write_timeout
        )
        return recovered

    def list_objects(self, after: str = "") -> Iterator[tuple[str, str]]:
        while page := self._request("GET", "/objects", {"after": after}, list[tuple[str, str]]):
            yield from page
            after = page[-1][0]

    def _send_files(
        self, deposit: Deposit, query: dict[str, Any], staged: set[tuple[str, int]], check: Callable[[], None]
    ) -> Iterator[FileToStore]:
        """Yield the files of the deposit, each after its content is staged."""
        for file in deposit.files:
            if (file.sha256, file.size) not in staged:
                check()
                with self._sources(file.source) as data:
                    file_query = {**query, "sha256": file.sha256, "size": file.size}
                    # raises ContentMismatch if the source has changed
                    stream = iter(CheckedStream(data, size=file.size, sha256=file.sha256))
                    self._request(
                        "PUT", "/staged", file_query, Any, content=stream, size=file.size, timeout=self._write_timeout
                    )
                staged.add((file.sha256, file.size))
            yield file

    def _request(
        self,
        method: str,
        path: str,
        query: dict[str, Any],
        kind: Any,
        *,
        content: Iterator[bytes] | None = None,
        size: int = 0,
        timeout: float | None = None,
    ) -> Any:
        headers = {"content-length": str(size)} if content is not None else {}
        with (
            _translate_http_errors(),
            closing(self._send_request(method, path, query, timeout, content=content, headers=headers)) as response,
        ):
            return _decode_response(_read_response(response), kind)

    def _request_rows(
        self, path: str, query: dict[str, Any], kind: type[T], timeout: float | None = None
    ) -> Iterator[T]:
        with _translate_http_errors(), closing(self._send_request("GET", path, query, timeout)) as response:
            try:
                for line in protocol.split_lines(response.iter_bytes()):
                    yield cast(T, _decode_response(line, kind))
            except InvalidDeposit as error:
                raise TransferError("The response of the storage service was cut.") from error

    def _open_body(self, path: str, name: str, query: dict[str, Any]) -> ObjectBody:
        with _translate_http_errors():
            response = self._send_request("GET", path, query, None)

        def read_chunks() -> Generator[bytes]:
            with _translate_http_errors():
                yield from response.iter_bytes()

        headers = response.headers
        try:
            info = ObjectInfo(
                name=name,
                size=int(headers["x-waybill-size"]),
                etag=headers["etag"].strip('"'),
                sha256=headers.get("x-waybill-sha256"),
                modified=datetime.fromisoformat(headers["x-waybill-modified"]).astimezone(UTC),
            )
        except (KeyError, ValueError) as error:
            response.close()
            raise TransferError("The response is not that of a storage service: is its URL right?") from error
        return StreamedBody(info, read_chunks(), response.close)

    def _send_request(
        self, method: str, path: str, query: dict[str, Any], timeout: float | None, **more: Any
    ) -> httpx2.Response:
        """Return the response, with its body unread, for the caller to close. Raises the error that the service returned."""
        wait = httpx2.Timeout(self._timeout, read=timeout or self._timeout)
        request = self._client.build_request(method, self._url + path, params=query, timeout=wait, **more)
        try:
            response = self._client.send(request, stream=True)
        except (httpx2.ReadError, httpx2.WriteError, httpx2.RemoteProtocolError):
            if method != "GET":
                raise
            # a connection that was kept open too long: a GET can be repeated
            response = self._client.send(request, stream=True)
        if response.status_code in (200, 201):
            return response
        with closing(response):
            raise _to_error(response)


def _to_error(response: httpx2.Response) -> Exception:
    if response.status_code in (401, 403):
        return TransferError(
            f"The storage service does not accept our token ({response.status_code}): set {TOKEN_VARIABLE}."
        )
    try:
        refusal = msgspec.json.decode(_read_response(response, _MAX_REFUSAL_BYTES))["error"]
        code, message = str(refusal["code"]), str(refusal["message"])
    except (msgspec.MsgspecError, UnicodeDecodeError, KeyError, TypeError):
        return TransferError(f"The storage service answered {response.status_code}: is its URL right?")
    if code in protocol.ERROR_TYPES:
        return protocol.ERROR_TYPES[code](message, code=code)
    return TransferError(f"The storage service answered {response.status_code}: {message}")


def _read_response(response: httpx2.Response, max_bytes: int = 100_000_000) -> bytes:
    data = bytearray()
    for chunk in response.iter_bytes():
        data += chunk
        if len(data) > max_bytes:
            raise TransferError("The response of the storage service is too long.")
    return bytes(data)


def _decode_response(data: bytes, kind: Any) -> Any:
    try:
        return msgspec.json.decode(data, type=kind)
    except (msgspec.MsgspecError, UnicodeDecodeError) as error:
        raise TransferError(
            f"The response of the storage service cannot be read ({error}): is its URL right?"
        ) from None


def _to_range_query(start: int, end: int | None) -> dict[str, int]:
    return {"start": start, **({} if end is None else {"end": end})}


@contextmanager
def _translate_http_errors() -> Iterator[None]:
    try:
        yield
    except httpx2.HTTPError as error:
        raise TransferError(f"The storage service cannot be reached: {error or type(error).__name__}") from error
