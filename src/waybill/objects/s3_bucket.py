"""One bucket of an S3 server, through obstore, with the errors of protocol.py.

    S3Bucket    requests by key; passes every condition to the server
    list_keys   the keys below a folder and after a key, in the server's own order
    S3Reader    the current version of an object by its name: metadata and content

Time limits: five seconds to connect, `timeout` for a server that is silent, none for a transfer that makes progress.
Requests that failed because of the server or the network are retried by obstore, up to `tries` in all.
"""

from __future__ import annotations

import os
import re
import threading
from collections.abc import Callable, Generator, Iterable, Iterator
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Literal

import obstore
from obstore.exceptions import (
    AlreadyExistsError,
    BaseError,
    InvalidPathError,
    NotSupportedError,
    PermissionDeniedError,
    PreconditionError,
    UnauthenticatedError,
)
from obstore.store import S3Store

from waybill.objects.protocol import (
    ObjectExists,
    ObjectInfo,
    ObjectNotFound,
    ObjectRequestRefused,
    ObjectsError,
    ObjectStoreUnavailable,
    PreconditionFailed,
    UnsupportedObjectOperation,
    check_name,
)
from waybill.objects.s3_multipart import MultipartClient
from waybill.objects.s3_signing import S3Credentials, credentials_from_environment
from waybill.objects.streams import CHUNK_SIZE, ChunkQueue, StreamedBody

if TYPE_CHECKING:
    from obstore import Attributes, GetOptions, GetResult, ObjectMeta, PutMode
    from obstore.store import S3Credential

SHA256_METADATA = "waybill-sha256"  # metadata: the digest of the object, if it was known before it was sent
TOKEN_METADATA = "waybill-put"  # metadata: which put it was


class S3Bucket:
    """Requests to one bucket, by key."""

    def __init__(
        self,
        name: str,
        *,
        endpoint: str | None,
        region: str | None,
        credentials: S3Credentials | Callable[[], S3Credentials] | None,
        timeout: float,
        tries: int,
    ) -> None:
        self.name = name
        self.endpoint = endpoint or os.environ.get("AWS_ENDPOINT_URL_S3") or os.environ.get("AWS_ENDPOINT_URL") or ""
        region = region or os.environ.get("AWS_REGION") or os.environ.get("AWS_DEFAULT_REGION") or "us-east-1"
        found = credentials if credentials is not None else credentials_from_environment()
        provider = found if found is None or callable(found) else _to_provider(found)
        self._store = S3Store(
            name,
            region=region,
            disable_bulk_delete=True,  # not every server has it, and we delete one key at a time
            client_options={
                "allow_http": self.endpoint.startswith("http://"),
                "connect_timeout": timedelta(seconds=5),
                "read_timeout": timedelta(seconds=timeout),
                "timeout": timedelta(days=7),
            },
            retry_config={
                "max_retries": tries - 1,
                "retry_timeout": timedelta(seconds=timeout * tries),
                "backoff": {
                    "init_backoff": timedelta(milliseconds=100),
                    "max_backoff": timedelta(seconds=5),
                    "base": 2,
                },
            },
            config={"endpoint": self.endpoint} if self.endpoint else {},
            credential_provider=_to_obstore_provider(provider, changing=callable(credentials)) if provider else None,
        )
        self.multipart: MultipartClient | None = None
        if provider is not None:
            address = self.endpoint or f"https://s3.{region}.amazonaws.com"
            self.multipart = MultipartClient(address, name, region, provider, timeout=timeout, tries=tries)

    def put(self, key: str, data: bytes, *, metadata: dict[str, str] | None = None, mode: PutMode = "overwrite") -> str:
        """Store in one request and return the etag."""
        attributes: Attributes = dict(metadata or {})
        with translate_s3_errors(f"write {key!r}"):
            return (
                obstore.put(self._store, key, data, attributes=attributes, mode=mode, use_multipart=False)["e_tag"]
                or ""
            )

    def put_stream(self, key: str, chunks: Iterable[bytes], *, part: int, metadata: dict[str, str]) -> str:
        """Store in parts, four at a time, and return the etag. An exception of `chunks` passes through, and nothing is
        stored.
        """
        attributes: Attributes = dict(metadata)
        queue, etags, errors = ChunkQueue(), list[str](), list[BaseException]()

        def send() -> None:
            try:
                with translate_s3_errors(f"write {key!r}"):
                    sent = obstore.put(
                        self._store,
                        key,
                        iter(queue),
                        attributes=attributes,
                        use_multipart=True,
                        chunk_size=part,
                        max_concurrency=4,
                    )
                etags.append(sent["e_tag"] or "")
            except BaseException as error:  # noqa: BLE001 - raised below, in the calling thread
                errors.append(error)
            finally:
                queue.stop_reading()

        # The chunks are produced in the calling thread: obstore would iterate them in a thread in which nothing else of
        # obstore can be called.
        sender = threading.Thread(target=send, name="put to S3", daemon=True)
        sender.start()
        try:
            for chunk in chunks:
                if not queue.put(chunk):
                    break
            queue.finish()
        except BaseException as error:
            queue.finish(error)
            raise
        finally:
            sender.join()
        if errors:
            raise errors[0]
        return etags[0]

    def get(self, key: str, start: int = 0, end: int | None = None, *, head: bool = False) -> GetResult:
        options: GetOptions = {"head": head}
        if end is not None:
            options["range"] = (start, end)
        elif start:
            options["range"] = {"offset": start}
        with translate_s3_errors(f"read {key!r}"):
            return obstore.get(self._store, key, options=options)

    def list(self, prefix: str, after: str | None = None) -> Iterator[ObjectMeta]:
        with translate_s3_errors(f"list {prefix!r}"):
            for page in obstore.list(self._store, prefix or None, offset=after, chunk_size=1000):
                yield from page

    def delete(self, key: str) -> None:
        with translate_s3_errors(f"delete {key!r}"):
            obstore.delete(self._store, key)

    def copy(self, source: str, target: str) -> None:
        with translate_s3_errors(f"copy {source!r}"):
            obstore.copy(self._store, source, target)

    def close(self) -> None:
        if self.multipart is not None:
            self.multipart.close()


def _to_provider(credentials: S3Credentials) -> Callable[[], S3Credentials]:
    return lambda: credentials


def _to_obstore_provider(credentials: Callable[[], S3Credentials], *, changing: bool) -> Callable[[], S3Credential]:
    def provide() -> S3Credential:
        now = credentials()
        # Credentials that may change are requested again soon.
        expires = datetime.now(UTC) + timedelta(minutes=5) if changing else None
        return {
            "access_key_id": now.access_key,
            "secret_access_key": now.secret_key,
            "token": now.token,
            "expires_at": expires,
        }

    return provide


@contextmanager
def translate_s3_errors(attempt: str) -> Iterator[None]:
    """Turn an error of obstore into an ObjectsError that says what failed; the original is its cause."""
    try:
        yield
    except (BaseError, FileNotFoundError, ValueError) as error:
        raise _to_objects_error(error, attempt) from error


def _to_objects_error(error: Exception, attempt: str) -> ObjectsError:
    text = str(error)
    code = re.search(r"<Code>(\w+)</Code>", text)
    status = re.search(r"status code: (\d{3})", text)
    answer = " ".join(found[1] for found in (status, code) if found) or "no answer"
    sentence = f"Could not {attempt} on the S3 server ({answer})."
    if code and code[1] == "NoSuchBucket":
        return ObjectRequestRefused(
            f"Could not {attempt}: there is no such bucket. Create it, or correct the URL; Waybill does not create buckets."
        )
    if isinstance(error, FileNotFoundError):
        return ObjectNotFound(f"Could not {attempt}: there is no such object.")
    if isinstance(error, AlreadyExistsError):
        return ObjectExists(f"Could not {attempt}: it exists already.")
    if isinstance(error, PreconditionError):
        return PreconditionFailed(f"Could not {attempt}: it is another version, or gone.")
    # a listing is refused without an error of its own
    if isinstance(error, PermissionDeniedError | UnauthenticatedError) or (status and status[1] in ("401", "403")):
        return ObjectsError(f"{sentence} Check the credentials and their rights.", code="objects-denied")
    if isinstance(error, NotSupportedError) or (status and status[1] == "501"):
        return UnsupportedObjectOperation(sentence)
    if (status and status[1] == "507") or (
        code and code[1] in ("QuotaExceeded", "InsufficientStorage", "XMinioStorageFull")
    ):
        return ObjectsError(sentence, code="objects-full")
    if isinstance(error, InvalidPathError | ValueError) or (status and status[1] in ("400", "405", "414")):
        return ObjectRequestRefused(sentence)
    return ObjectStoreUnavailable(sentence)


def is_range_error(error: ObjectsError) -> bool:
    """Whether a range was refused because it is outside of the object."""
    return "416" in str(error)


def list_keys(bucket: S3Bucket, folder: str, after: str, order: Literal["bytes", "tree"]) -> Iterator[ObjectMeta]:
    """Yield the keys below a folder (in the whole bucket if empty) that come after a key (all if empty)."""
    if not after or _is_before_all(after, folder, order):
        yield from bucket.list(folder)
    elif _is_below(after, folder):
        if order == "tree":
            yield from bucket.list(after)
        for meta in bucket.list(folder, after):
            if order == "bytes" or not _is_below(meta["path"], after):
                yield meta


def _is_below(key: str, folder: str) -> bool:
    return not folder or key.startswith(f"{folder}/")


def _is_before_all(after: str, folder: str, order: Literal["bytes", "tree"]) -> bool:
    """Whether all keys below the folder come after this key."""
    if _is_below(after, folder):
        return False
    if order == "bytes":
        return after.encode() < f"{folder}/".encode()
    return after.encode().split(b"/") <= folder.encode().split(b"/")


class S3Reader:
    """Reads objects by name; `key` maps a name to its key."""

    def __init__(self, bucket: S3Bucket, key: Callable[[str], str]) -> None:
        self._bucket = bucket
        self._key = key

    def get(self, name: str, start: int, end: int | None) -> StreamedBody:
        if end is None or start < end:
            try:
                got = self._get(name, start, end)
                return StreamedBody(_info_of(name, got), _read_chunks(name, got))
            except ObjectStoreUnavailable as error:
                if not is_range_error(error):
                    raise
        return StreamedBody(self.head(name), _read_nothing())

    def head(self, name: str) -> ObjectInfo:
        return _info_of(name, self._get(name, head=True))

    def find_present(self, name: str) -> tuple[ObjectInfo, str] | None:
        """Return the object and the token of the put that made it; None if there is no object."""
        try:
            got = self._get(name, head=True)
        except ObjectNotFound:
            return None
        return _info_of(name, got), got.attributes.get(TOKEN_METADATA, "")

    def find_own(self, name: str, token: str) -> ObjectInfo | None:
        """Return the object if the put with this token made it."""
        present = self.find_present(name)
        return present[0] if present is not None and present[1] == token else None

    def _get(self, name: str, start: int = 0, end: int | None = None, *, head: bool = False) -> GetResult:
        try:
            return self._bucket.get(self._key(check_name(name)), start, end, head=head)
        except ObjectNotFound as error:
            raise ObjectNotFound(f"There is no object named {name!r}.") from error


def _info_of(name: str, got: GetResult) -> ObjectInfo:
    meta = got.meta
    return ObjectInfo(
        name, meta["size"], meta["e_tag"] or "", meta["last_modified"], got.attributes.get(SHA256_METADATA)
    )


def _read_nothing() -> Generator[bytes]:
    yield from ()


def _read_chunks(name: str, got: GetResult) -> Generator[bytes]:
    start, end = got.range
    received = 0
    with translate_s3_errors(f"read {name!r}"):
        for chunk in got.stream(min_chunk_size=CHUNK_SIZE):
            received += len(chunk)
            yield bytes(chunk)
    if received != end - start:
        raise ObjectStoreUnavailable(f"The S3 server sent {received} bytes of {name!r} instead of {end - start}.")
