"""HttpStorage: a storage service elsewhere, asked over HTTP (wire.py says how). It stands where our own storage
would stand.

    storage = HttpStorage("https://store.example.org/api/v1/ingest/storage", token, sources)

A write sends the bytes first, each file under its SHA-256, those only that have not come before; then the deposit. An
answer that is lost loses nothing: asked again, the service answers with the version that it made. What cannot be
reached is Away, and worth another try.
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

from waybill.apps.ingest.storage import wire
from waybill.apps.ingest.storage.protocol import (
    Deposit,
    FileToStore,
    Finding,
    NotStorable,
    NotStored,
    Recovered,
    Sources,
    Stored,
    Version,
)
from waybill.manifests import Reader
from waybill.objects import Body, ObjectInfo
from waybill.objects.reading import Reading
from waybill.objects.streams import Stream, portions

TOKEN = "WAYBILL_INGEST_STORAGE_TOKEN"  # the variable of the environment

_LOOPBACK = {"127.0.0.1", "::1", "localhost"}
_IN_MEMORY = 1024 * 1024
_LONGEST_REFUSAL = 100_000

T = TypeVar("T")


class Away(Exception):
    """The storage service cannot be reached, or cannot answer now."""

    permanent = False


class HttpStorage:
    """A client; may be used from many threads."""

    def __init__(
        self,
        url: str,
        token: str,
        sources: Sources,
        *,
        timeout: float = 60.0,
        patience: float = 3600.0,
        transport: httpx2.BaseTransport | None = None,
    ) -> None:
        """`timeout` for an answer; `patience` for that of a write, which comes when the service has stored and
        verified all of it.

        `transport` takes requests where they go by another way than the network.
        """
        parts = urlsplit(url)
        if parts.scheme not in ("http", "https") or not parts.hostname or "@" in parts.netloc:
            raise NotStorable("The URL of the storage service is http or https, without user name and password.")
        if token and parts.scheme == "http" and parts.hostname not in _LOOPBACK:
            raise NotStorable("The URL of the storage service must begin with https://, since a token is sent to it.")
        self._url = url.rstrip("/")
        self._sources = sources
        self._timeout, self._patience = timeout, patience
        headers = {"authorization": f"Bearer {token}"} if token else {}
        self._client = httpx2.Client(timeout=timeout, follow_redirects=False, headers=headers, transport=transport)

    def close(self) -> None:
        self._client.close()

    # --- the verbs

    def write(self, deposit: Deposit, *, check: Callable[[], None] = lambda: None) -> Stored:
        there = self.look(deposit.object, deposit.request)
        if there is not None:
            return there
        of = {"object": deposit.object, "request": deposit.request}
        came = {(row["sha256"], row["size"]) for row in self._rows("/staged", of, dict[str, Any])}
        with tempfile.SpooledTemporaryFile(_IN_MEMORY) as spooled:
            lines = cast(BinaryIO, spooled)
            head = wire.Head(
                mode=deposit.mode,
                deletions=tuple(deposit.deletions),
                message=deposit.message,
                user=deposit.user,
                address=deposit.address,
                about=dict(deposit.about),
                damaged=tuple(deposit.damaged),
            )
            for line in wire.lines_of(head, self._sent(deposit, of, came, check)):
                lines.write(line)
            check()
            size = lines.tell()
            lines.seek(0)
            # Safe to repeat: the service makes one version of a request.
            stored: Stored = self._ask(
                "POST", "/versions", of, Stored, content=portions(lines), size=size, timeout=self._patience
            )
            return stored

    def look(self, object_id: str, request: str) -> Stored | None:
        try:
            stored: Stored = self._ask("GET", "/request", {"object": object_id, "request": request}, Stored)
        except NotStored:
            return None
        return stored

    def versions(self, object_id: str) -> list[Version]:
        versions: list[Version] = self._ask("GET", "/versions", {"object": object_id}, list[Version])
        return versions

    def stored(self, object_id: str, number: int = 0) -> Stored:
        stored: Stored = self._ask("GET", "/version", {"object": object_id, "number": number}, Stored)
        return stored

    def manifest(self, stored: Stored) -> Reader:
        body = self.read(stored.object, stored.place)
        try:
            return Reader(body, body.close)
        except BaseException:
            body.close()
            raise

    def read(self, object_id: str, place: str, *, start: int = 0, end: int | None = None) -> Body:
        return self._body("/bytes", place, {"object": object_id, "place": place, **_range(start, end)})

    def open(self, object_id: str, path: str, number: int = 0, *, start: int = 0, end: int | None = None) -> Body:
        return self._body("/file", path, {"object": object_id, "path": path, "number": number, **_range(start, end)})

    def check(self, object_id: str, place: str, size: int, sha256: str) -> Finding | None:
        asked = {"object": object_id, "place": place, "size": size, "sha256": sha256}
        finding: Finding | None = self._ask("GET", "/check", asked, Finding | None, timeout=self._patience)
        return finding

    def verify(self, object_id: str) -> Iterator[Finding]:
        return self._rows("/findings", {"object": object_id}, Finding, timeout=self._patience)

    def recover(self, object_id: str) -> Recovered:
        recovered: Recovered = self._ask("POST", "/recover", {"object": object_id}, Recovered, timeout=self._patience)
        return recovered

    def objects(self, after: str = "") -> Iterator[tuple[str, str]]:
        while page := self._ask("GET", "/objects", {"after": after}, list[tuple[str, str]]):
            yield from page
            after = page[-1][0]

    # --- asking

    def _sent(
        self, deposit: Deposit, of: dict[str, Any], came: set[tuple[str, int]], check: Callable[[], None]
    ) -> Iterator[FileToStore]:
        """The files of the deposit, each after its bytes have gone."""
        for file in deposit.files:
            if (file.sha256, file.size) not in came:
                check()
                with self._sources(file.source) as data:
                    asked = {**of, "sha256": file.sha256, "size": file.size}
                    # Damaged, if it is not what was promised
                    stream = iter(Stream(data, size=file.size, sha256=file.sha256))
                    self._ask("PUT", "/staged", asked, Any, content=stream, size=file.size, timeout=self._patience)
                came.add((file.sha256, file.size))
            yield file

    def _ask(
        self,
        method: str,
        path: str,
        asked: dict[str, Any],
        kind: Any,
        *,
        content: Iterator[bytes] | None = None,
        size: int = 0,
        timeout: float | None = None,
    ) -> Any:
        headers = {"content-length": str(size)} if content is not None else {}
        with (
            _explained(),
            closing(self._answer(method, path, asked, timeout, content=content, headers=headers)) as answer,
        ):
            return _decoded(_read(answer), kind)

    def _rows(self, path: str, asked: dict[str, Any], kind: type[T], timeout: float | None = None) -> Iterator[T]:
        with _explained(), closing(self._answer("GET", path, asked, timeout)) as answer:
            try:
                for line in wire.split_lines(answer.iter_bytes()):
                    yield cast(T, _decoded(line, kind))
            except NotStorable as error:
                raise Away("The answer of the storage service was cut.") from error

    def _body(self, path: str, name: str, asked: dict[str, Any]) -> Body:
        with _explained():
            answer = self._answer("GET", path, asked, None)

        def passed() -> Generator[bytes]:
            with _explained():
                yield from answer.iter_bytes()

        told = answer.headers
        try:
            info = ObjectInfo(
                name=name,
                size=int(told["x-waybill-size"]),
                etag=told["etag"].strip('"'),
                sha256=told.get("x-waybill-sha256"),
                modified=datetime.fromisoformat(told["x-waybill-modified"]).astimezone(UTC),
            )
        except (KeyError, ValueError) as error:
            answer.close()
            raise Away("The storage service does not answer as one: is its URL right?") from error
        return Reading(info, passed(), answer.close)

    def _answer(
        self, method: str, path: str, asked: dict[str, Any], timeout: float | None, **more: Any
    ) -> httpx2.Response:
        """The answer, with its body unread, for the caller to close; or what the service refused it with."""
        wait = httpx2.Timeout(self._timeout, read=timeout or self._timeout)
        request = self._client.build_request(method, self._url + path, params=asked, timeout=wait, **more)
        try:
            answer = self._client.send(request, stream=True)
        except (httpx2.ReadError, httpx2.WriteError, httpx2.RemoteProtocolError):
            if method != "GET":
                raise
            # a connection that was kept open too long: looking twice does no harm
            answer = self._client.send(request, stream=True)
        if answer.status_code in (200, 201):
            return answer
        with closing(answer):
            raise _refused(answer)


def _refused(answer: httpx2.Response) -> Exception:
    if answer.status_code in (401, 403):
        return Away(f"The storage service does not take our token ({answer.status_code}): set {TOKEN}.")
    try:
        told = msgspec.json.decode(_read(answer, _LONGEST_REFUSAL))["error"]
        code, words = str(told["code"]), str(told["message"])
    except (msgspec.MsgspecError, UnicodeDecodeError, KeyError, TypeError):
        return Away(f"The storage service answered {answer.status_code}: is its URL right?")
    if code in wire.ERRORS:
        return wire.ERRORS[code][1](words)
    return Away(f"The storage service answered {answer.status_code}: {words}")


def _read(answer: httpx2.Response, most: int = 100_000_000) -> bytes:
    came = bytearray()
    for portion in answer.iter_bytes():
        came += portion
        if len(came) > most:
            raise Away("The answer of the storage service has no end.")
    return bytes(came)


def _decoded(data: bytes, kind: Any) -> Any:
    try:
        return msgspec.json.decode(data, type=kind)
    except (msgspec.MsgspecError, UnicodeDecodeError) as error:
        raise Away(f"The answer of the storage service cannot be read ({error}): is its URL right?") from None


def _range(start: int, end: int | None) -> dict[str, int]:
    return {"start": start, **({} if end is None else {"end": end})}


@contextmanager
def _explained() -> Iterator[None]:
    try:
        yield
    except httpx2.HTTPError as error:
        raise Away(f"The storage service cannot be reached: {error or type(error).__name__}") from error
