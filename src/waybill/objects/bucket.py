"""Bucket: one bucket of one S3 server through obstore, with our errors. It knows keys, not names, and takes every
condition as it comes.

Time limits: five seconds to connect, `timeout` for a server that stays silent, none for a transfer that moves. Requests
that failed for the server's or the network's reasons are sent again by obstore, up to `tries` in all.
"""

from __future__ import annotations

import os
import re
import threading
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING

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

from waybill.objects.handing import Line
from waybill.objects.multipart import Multipart
from waybill.objects.protocol import (
    AlreadyThere,
    NoSpace,
    NotAllowed,
    NotFound,
    ObjectsError,
    Precondition,
    Refused,
    Unavailable,
    Unsupported,
)
from waybill.objects.signing import Credentials, credentials_of_environment

if TYPE_CHECKING:
    from obstore import Attributes, GetOptions, GetResult, ObjectMeta, PutMode
    from obstore.store import S3Credential

PORTION = 1024 * 1024


class Bucket:
    def __init__(
        self,
        name: str,
        *,
        endpoint: str | None,
        region: str | None,
        credentials: Credentials | Callable[[], Credentials] | None,
        timeout: float,
        tries: int,
    ) -> None:
        self.name = name
        self.endpoint = endpoint or os.environ.get("AWS_ENDPOINT_URL_S3") or os.environ.get("AWS_ENDPOINT_URL") or ""
        region = region or os.environ.get("AWS_REGION") or os.environ.get("AWS_DEFAULT_REGION") or "us-east-1"
        found = credentials if credentials is not None else credentials_of_environment()
        provider = found if found is None or callable(found) else _always(found)
        self._store = S3Store(
            name,
            region=region,
            disable_bulk_delete=True,  # not every server has it, and one key is deleted at a time
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
            credential_provider=_provider(provider, changing=callable(credentials)) if provider else None,
        )
        self.multipart: Multipart | None = None
        if provider is not None:
            address = self.endpoint or f"https://s3.{region}.amazonaws.com"
            self.multipart = Multipart(address, name, region, provider, timeout=timeout, tries=tries)

    def put(self, key: str, data: bytes, *, metadata: dict[str, str] | None = None, mode: PutMode = "overwrite") -> str:
        """Store in one request; the etag."""
        attributes: Attributes = dict(metadata or {})
        with translated(f"write {key!r}"):
            return (
                obstore.put(self._store, key, data, attributes=attributes, mode=mode, use_multipart=False)["e_tag"]
                or ""
            )

    def put_stream(self, key: str, portions: Iterable[bytes], *, part: int, metadata: dict[str, str]) -> str:
        """Store in parts, four at a time. What the portions raise passes as it is, and nothing is stored."""
        attributes: Attributes = dict(metadata)
        line, put, problem = Line(), list[str](), list[BaseException]()

        def send() -> None:
            try:
                with translated(f"write {key!r}"):
                    sent = obstore.put(
                        self._store,
                        key,
                        iter(line),
                        attributes=attributes,
                        use_multipart=True,
                        chunk_size=part,
                        max_concurrency=4,
                    )
                put.append(sent["e_tag"] or "")
            except BaseException as error:  # noqa: BLE001 - raised below, in the thread that asked
                problem.append(error)
            finally:
                line.leave()

        # The portions are made here, where whoever asked is: obstore calls them in a thread in which nothing else of
        # obstore can be called.
        sender = threading.Thread(target=send, name="put to S3", daemon=True)
        sender.start()
        try:
            for portion in portions:
                if not line.give(portion):
                    break
            line.end()
        except BaseException as error:
            line.end(error)
            raise
        finally:
            sender.join()
        if problem:
            raise problem[0]
        return put[0]

    def get(self, key: str, start: int = 0, end: int | None = None, *, head: bool = False) -> GetResult:
        options: GetOptions = {"head": head}
        if end is not None:
            options["range"] = (start, end)
        elif start:
            options["range"] = {"offset": start}
        with translated(f"read {key!r}"):
            return obstore.get(self._store, key, options=options)

    def list(self, prefix: str, after: str | None = None) -> Iterator[ObjectMeta]:
        with translated(f"list {prefix!r}"):
            for page in obstore.list(self._store, prefix or None, offset=after, chunk_size=1000):
                yield from page

    def delete(self, key: str) -> None:
        with translated(f"delete {key!r}"):
            obstore.delete(self._store, key)

    def copy(self, source: str, target: str) -> None:
        with translated(f"copy {source!r}"):
            obstore.copy(self._store, source, target)

    def close(self) -> None:
        if self.multipart is not None:
            self.multipart.close()


def _always(credentials: Credentials) -> Callable[[], Credentials]:
    return lambda: credentials


def _provider(credentials: Callable[[], Credentials], *, changing: bool) -> Callable[[], S3Credential]:
    def provide() -> S3Credential:
        now = credentials()
        # Those that may change are asked for again before long.
        expires = datetime.now(UTC) + timedelta(minutes=5) if changing else None
        return {
            "access_key_id": now.access_key,
            "secret_access_key": now.secret_key,
            "token": now.token,
            "expires_at": expires,
        }

    return provide


@contextmanager
def translated(what: str) -> Iterator[None]:
    """Turn what obstore raises into an error of ours, with a sentence; the server's own words are the cause."""
    try:
        yield
    except (BaseError, FileNotFoundError, ValueError) as error:
        raise _ours(error, what) from error


def _ours(error: Exception, what: str) -> ObjectsError:
    said = str(error)
    code = re.search(r"<Code>(\w+)</Code>", said)
    status = re.search(r"status code: (\d{3})", said)
    answer = " ".join(found[1] for found in (status, code) if found) or "no answer"
    sentence = f"Could not {what} on the S3 server ({answer})."
    if code and code[1] == "NoSuchBucket":
        return Refused(f"Could not {what}: there is no such bucket. Waybill makes none; create it, or correct the URL.")
    if isinstance(error, FileNotFoundError):
        return NotFound(f"Could not {what}: there is no such object.")
    if isinstance(error, AlreadyExistsError):
        return AlreadyThere(f"Could not {what}: it is there already.")
    if isinstance(error, PreconditionError):
        return Precondition(f"Could not {what}: it is another version, or gone.")
    if isinstance(error, PermissionDeniedError | UnauthenticatedError):
        return NotAllowed(f"{sentence} Check the credentials and their rights.")
    if isinstance(error, NotSupportedError) or (status and status[1] == "501"):
        return Unsupported(sentence)
    if (status and status[1] == "507") or (
        code and code[1] in ("QuotaExceeded", "InsufficientStorage", "XMinioStorageFull")
    ):
        return NoSpace(sentence)
    if isinstance(error, InvalidPathError | ValueError) or (status and status[1] in ("400", "405", "414")):
        return Refused(sentence)
    return Unavailable(sentence)


def is_beyond_the_end(error: ObjectsError) -> bool:
    """Whether a range was refused because it lies outside of the object."""
    return "416" in str(error)
