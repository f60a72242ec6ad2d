"""Storage: objects with directories over the objects layer, as callers of every protocol use it.

    bytes streamed into an object of their own name, synced -> the entry that names them, in one transaction -> read by others

An object is replaced by naming other bytes, so a reader of the old ones keeps reading them. A crash between the two
leaves bytes that no entry names; `maintenance` removes them.
"""

from __future__ import annotations

import base64
import hashlib
import time
import uuid
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import UTC, datetime
from email.utils import format_datetime, parsedate_to_datetime
from typing import TYPE_CHECKING

import msgspec

from waybill.apps.compute.catalogue import CatalogueConnections
from waybill.apps.compute.entries import Entries, Entry, ListedPage
from waybill.apps.compute.errors import MantaError
from waybill.apps.compute.paths import StoragePath

if TYPE_CHECKING:
    from waybill.objects import ObjectBody, Objects

CONTENT_PREFIX = "compute/content"
DEFAULT_TYPE = "application/octet-stream"
MAX_METADATA = 4096  # bytes of all m- headers
KEPT_HEADERS = (
    "cache-control",
    "content-disposition",
    "content-encoding",
    "content-language",
    "role-tag",
    "surrogate-key",
)


def now_ms() -> int:
    return int(time.time() * 1000)


@dataclass(frozen=True)
class ObjectHeaders:
    """What a request says about the object that it writes."""

    content_type: str = DEFAULT_TYPE
    durability: int = 2
    headers: dict[str, str] = field(default_factory=dict)


def read_object_headers(headers: Iterable[tuple[str, str]]) -> ObjectHeaders:
    """From the headers of a request, whose names are in lower case."""
    given = dict(headers)
    durability = given.get("durability-level") or given.get("x-durability-level") or "2"
    if not durability.isdigit() or not 1 <= int(durability) <= 9:
        raise MantaError("InvalidDurabilityLevel", f"durability-level is {durability[:20]!r}; it must be from 1 to 9")
    kept = {
        name: value
        for name, value in given.items()
        if (name.startswith(("m-", "access-control-")) and not name.startswith("access-control-request"))
        or name in KEPT_HEADERS
    }
    size = sum(len(name) + len(value) for name, value in kept.items() if name.startswith("m-"))
    if size > MAX_METADATA:
        raise MantaError("RequestEntityTooLarge", f"The m- headers have {size} bytes; {MAX_METADATA} are allowed.")
    return ObjectHeaders(given.get("content-type") or DEFAULT_TYPE, int(durability), kept)


@dataclass(frozen=True)
class Conditions:
    """The conditions of a request: empty when it has none."""

    match: str = ""
    none_match: str = ""
    modified_since: str = ""
    unmodified_since: str = ""

    @classmethod
    def from_headers(cls, headers: Callable[[str], str | None]) -> Conditions:
        return cls(
            *(headers(name) or "" for name in ("if-match", "if-none-match", "if-modified-since", "if-unmodified-since"))
        )

    def check_write(self, entry: Entry | None) -> None:
        """Raise PreconditionFailed when they do not allow replacing this entry."""
        present = entry is not None and not entry.is_directory
        if self.match and not (present and entry is not None and _has_etag(self.match, entry.etag)):
            raise MantaError("PreconditionFailed", f"if-match '{self.match}' didn't match etag '{_etag(entry)}'")
        if self.none_match and present and entry is not None and _has_etag(self.none_match, entry.etag):
            raise MantaError("PreconditionFailed", f"if-none-match '{self.none_match}' matched etag '{entry.etag}'")
        if present and entry is not None:
            self._check_times(entry)

    def _check_times(self, entry: Entry) -> None:
        if (
            self.unmodified_since
            and (since := _seconds(self.unmodified_since)) is not None
            and entry.mtime // 1000 > since
        ):
            raise MantaError(
                "PreconditionFailed",
                f"object was modified at '{http_date(entry.mtime)}'; if-unmodified-since '{self.unmodified_since}'",
            )
        if (
            self.modified_since
            and (since := _seconds(self.modified_since)) is not None
            and entry.mtime // 1000 <= since
        ):
            raise MantaError(
                "PreconditionFailed",
                f"object was modified at '{http_date(entry.mtime)}'; if-modified-since '{self.modified_since}'",
            )

    def is_unmodified(self, entry: Entry) -> bool:
        """Whether a reader has this version already. Raises PreconditionFailed."""
        if self.match and not _has_etag(self.match, entry.etag):
            raise MantaError("PreconditionFailed", f"if-match '{self.match}' didn't match etag '{entry.etag}'")
        since = _seconds(self.unmodified_since) if self.unmodified_since and not self.match else None
        if since is not None and entry.mtime // 1000 > since:
            raise MantaError("PreconditionFailed", f"object was modified at '{http_date(entry.mtime)}'")
        if self.none_match:
            return _has_etag(self.none_match, entry.etag)
        since = _seconds(self.modified_since) if self.modified_since else None
        return since is not None and entry.mtime // 1000 <= since


def _etag(entry: Entry | None) -> str:
    return entry.etag if entry is not None else ""


def _has_etag(header: str, etag: str) -> bool:
    wanted = [part.strip().removeprefix("W/").strip('"') for part in header.split(",")]
    return "*" in wanted or etag in wanted


def _seconds(date: str) -> int | None:
    """None: no date, which a condition ignores."""
    try:
        found = parsedate_to_datetime(date)
    except ValueError:
        return None
    return int(found.replace(tzinfo=found.tzinfo or UTC).timestamp())


def http_date(mtime: int) -> str:
    return format_datetime(datetime.fromtimestamp(mtime // 1000, UTC), usegmt=True)


def iso_time(ms: float) -> str:
    return datetime.fromtimestamp(ms / 1000, UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")


@dataclass
class StoredContent:
    """Bytes that are stored, and that no entry names yet."""

    name: str
    size: int
    md5: str
    start: int = 0


class _MeasuredStream:
    """The chunks of a body, counted and hashed on the way."""

    def __init__(self, chunks: Iterable[bytes], max_size: int | None) -> None:
        self._chunks, self._max_size = chunks, max_size
        self.size = 0
        self._md5 = hashlib.md5(usedforsecurity=False)

    def __iter__(self) -> Iterator[bytes]:
        for chunk in self._chunks:
            self.size += len(chunk)
            if self._max_size is not None and self.size > self._max_size:
                raise MantaError("MaxContentLengthExceeded", f"request has exceeded {self._max_size} bytes")
            self._md5.update(chunk)
            yield chunk

    @property
    def md5(self) -> str:
        return base64.b64encode(self._md5.digest()).decode()


class Storage:
    """All calls block; they may come from many threads."""

    def __init__(self, objects: Objects, connections: CatalogueConnections, prefix: str = CONTENT_PREFIX) -> None:
        self.objects = objects
        self._connections = connections
        self.prefix = prefix

    @contextmanager
    def open_entries(self) -> Iterator[Entries]:
        with self._connections.open() as tables:
            yield Entries(tables)

    # --- reading

    def get(self, path: StoragePath) -> Entry:
        with self.open_entries() as entries:
            return entries.get(path)

    def find(self, path: StoragePath) -> Entry | None:
        with self.open_entries() as entries:
            return entries.find(path)

    def open(self, entry: Entry, start: int = 0, end: int | None = None) -> ObjectBody:
        stop = entry.size if end is None else end
        return self.objects.get(entry.content, start=entry.start + start, end=entry.start + stop)

    def list(self, path: StoragePath, **options: object) -> ListedPage:
        with self.open_entries() as entries:
            return entries.list(path, **options)  # type: ignore[arg-type] # Entries.list has the types

    # --- writing

    def check_put(self, path: StoragePath, conditions: Conditions = Conditions()) -> None:  # noqa: B008 - frozen
        """Raise what a put of an object would be refused for, before any of its bytes are read."""
        if path.is_root:
            raise MantaError("OperationNotAllowedOnRootDirectory", f"PUT is not allowed on {path}")
        with self.open_entries() as entries:
            entries.check_parent(path)
            self._check_replaceable(path, entries.find(path), conditions)

    def _check_replaceable(self, path: StoragePath, before: Entry | None, conditions: Conditions) -> None:
        if before is not None and before.is_directory:
            raise MantaError("OperationNotAllowedOnDirectory", f"PUT is not allowed on the directory {path}")
        conditions.check_write(before)

    def put(
        self,
        path: StoragePath,
        chunks: Iterable[bytes],
        about: ObjectHeaders,
        conditions: Conditions = Conditions(),  # noqa: B008 - frozen
        *,
        md5: str = "",
        size: int | None = None,
        max_size: int | None = None,
    ) -> Entry:
        """Store an object. `check_put` comes first: what it refuses must not be read."""
        content = self.store(chunks, md5=md5, size=size, max_size=max_size)
        try:
            return self.name(path, content, about, conditions)
        except MantaError:
            self.objects.delete(content.name)  # nobody can have named it: the name is ours alone
            raise

    def store(
        self, chunks: Iterable[bytes], *, md5: str = "", size: int | None = None, max_size: int | None = None
    ) -> StoredContent:
        """Write bytes under a name of their own. A crash leaves them without an entry, to be swept."""
        stream = _MeasuredStream(chunks, size if max_size is None else max_size)
        identity = uuid.uuid4().hex
        name = f"{self.prefix}/{identity[:2]}/{identity}"
        info = self.objects.put(name, stream)
        if (size is not None and stream.size != size) or (md5 and stream.md5 != md5):
            self.objects.delete(name)
            if size is not None and stream.size != size:
                raise MantaError("BadRequest", f"content-length is {size}, and {stream.size} bytes were sent")
            raise MantaError("ContentMD5Mismatch", f"Content-MD5 expected to be {md5}, but was {stream.md5}")
        return StoredContent(name, info.size, stream.md5)

    def name(
        self,
        path: StoragePath,
        content: StoredContent,
        about: ObjectHeaders,
        conditions: Conditions = Conditions(),  # noqa: B008 - frozen
    ) -> Entry:
        now, etag = now_ms(), str(uuid.uuid4())

        def make(before: Entry | None) -> Entry:
            self._check_replaceable(path, before, conditions)
            return Entry(path.name, "object", content.name, content.start, etag, content.size, content.md5,
                         about.content_type, about.durability, about.headers, now)  # fmt: skip

        with self.open_entries() as entries:
            return entries.put(path, make, now=now)

    def put_metadata(self, path: StoragePath, about: ObjectHeaders, conditions: Conditions, *, has_type: bool) -> Entry:
        """Replace the headers of an object or a directory; its bytes stay."""
        now = now_ms()

        def make(before: Entry | None) -> Entry:
            if before is None:
                raise MantaError("ResourceNotFound", f"{path} was not found")
            conditions.check_write(before)
            content_type = about.content_type if has_type and not before.is_directory else before.content_type
            return msgspec.structs.replace(
                before,
                headers=about.headers,
                content_type=content_type,
                mtime=now,
                etag=before.etag and str(uuid.uuid4()),
            )

        if path.is_root:
            raise MantaError("OperationNotAllowedOnRootDirectory", f"PUT is not allowed on {path}")
        with self.open_entries() as entries:
            return entries.put(path, make, now=now)

    def put_directory(self, path: StoragePath, about: ObjectHeaders) -> None:
        if path.is_root:
            return
        with self.open_entries() as entries:
            entries.put_directory(path, about.headers, now=now_ms())

    def make_directories(self, path: StoragePath) -> None:
        """Make a directory and those above that are missing."""
        missing = path
        while not missing.is_root and self.find(missing) is None:
            missing = missing.parent
        for depth in range(len(missing.segments) + 1, len(path.segments) + 1):
            self.put_directory(path._replace(segments=path.segments[:depth]), ObjectHeaders())

    def put_link(self, path: StoragePath, source: StoragePath, conditions: Conditions) -> Entry:
        """Give the bytes of an object a second name. What happens to either afterwards does not change the other."""
        if path.is_root:
            raise MantaError("OperationNotAllowedOnRootDirectory", f"PUT is not allowed on {path}")
        with self.open_entries() as entries:

            def make(before: Entry | None) -> Entry:
                self._check_replaceable(path, before, conditions)
                found = entries.find(source)
                if found is None:
                    raise MantaError("SourceObjectNotFound", f"{source} was not found")
                if found.is_directory:
                    raise MantaError("LinkNotObject", f"{source} is not an object")
                return msgspec.structs.replace(found, name=path.name)

            return entries.put(path, make, now=now_ms())

    def delete(self, path: StoragePath, conditions: Conditions = Conditions()) -> Entry:  # noqa: B008 - frozen
        if path.is_root:
            raise MantaError("OperationNotAllowedOnRootDirectory", f"DELETE is not allowed on {path}")
        with self.open_entries() as entries:
            return entries.remove(path, conditions.check_write, now=now_ms())

    def delete_tree(self, path: StoragePath) -> None:
        """Remove a directory with everything in it; safe to repeat."""
        with self.open_entries() as entries:
            if entries.find(path) is None:
                return
            for below, _ in entries.iter_below(path):
                entries.remove(below, now=now_ms())
            entries.remove(path, now=now_ms())
