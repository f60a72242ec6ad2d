"""Objects: named bytes, and the interface that every driver implements.

The life of an object: `put` creates it completely or not at all; `head`, `get` and `list` show it completely or not at
all; `copy` creates another; `delete` removes it. An object is never changed in place: a second `put` replaces it, and a
reader of the first version keeps reading the first version. Data that is too large for one call, or that must survive
the process that sends it, goes through `upload`, part by part.

Terms:

    name          text in segments separated by `/` (see `check_name`)
    etag          identifies the current version of an object; opaque; compare it only with an etag of the same name on the same driver
    condition     `if_absent` or `if_match`: put only if there is no object, or only if it is this version
    capabilities  which conditions this store guarantees: a directory all of them, S3 servers differ (s3_probe.py)

All errors are classified by two functions, `is_not_found` and `is_permanent`; callers decide by them whether to retry,
give up or report. All methods may be called from several threads. A conditional put is not a lock: nothing renews it,
and a process that was paused does not learn that it lost it.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from datetime import datetime
from types import TracebackType
from typing import BinaryIO, Literal, Protocol, Self, TypeAlias

from waybill.errors import WaybillError

ObjectData: TypeAlias = bytes | bytearray | memoryview | BinaryIO | Iterable[bytes]

MIN_PART_SIZE = 5 * 1024 * 1024  # bytes of every part of an upload but the last: S3's rule, enforced by all drivers
MAX_PART_NUMBER = 10_000  # S3's rule as well
MAX_NAME_BYTES = 900  # of UTF-8; with the longest prefix of the S3 driver it stays below the 1,024 of S3
RESERVED_SEGMENT = ".waybill"  # the first segment of the names that belong to the drivers

_FORBIDDEN = re.compile("[\x00-\x1f\x7f\\\\\ufffe\uffff]")


class ObjectsError(WaybillError):
    """The object store failed."""

    code = "objects"


class ObjectNotFound(ObjectsError):
    """There is no such object."""

    code = "object-not-found"


class ObjectExists(ObjectsError):
    """An object of this name exists already."""

    code = "object-exists"


class PreconditionFailed(ObjectsError):
    """The object has changed since it was read."""

    code = "object-changed"


class ObjectRequestRefused(ObjectsError):
    """The object store does not accept this request."""

    code = "objects-refused"


class ContentMismatch(ObjectsError):
    """The data does not have the expected size or SHA-256."""

    code = "content-mismatch"


class UnsupportedObjectOperation(ObjectsError):
    """This object store cannot do this safely."""

    code = "objects-unsupported"


class ObjectStoreUnavailable(ObjectsError):
    """The object store cannot be reached, or did not answer in time."""

    code = "objects-unavailable"


def is_not_found(error: BaseException) -> bool:
    """Whether the object does not exist, as opposed to a store that could not be asked."""
    return isinstance(error, ObjectNotFound)


def is_permanent(error: BaseException) -> bool:
    """Whether the same request is bound to fail again.

    An error that is not known to be permanent is worth a retry.
    """
    return isinstance(error, ObjectsError) and not error.is_retryable


@dataclass(frozen=True, slots=True)
class ObjectInfo:
    """The metadata of one version of an object."""

    name: str
    size: int
    etag: str
    modified: datetime
    sha256: str | None = None  # hex; None if the driver does not know it (S3: after a long stream, and in listings)


@dataclass(frozen=True, slots=True)
class PartInfo:
    """A part of an upload that is stored."""

    number: int
    size: int
    etag: str


@dataclass(frozen=True, slots=True)
class SweepResult:
    """The number of leftovers that `sweep` removed."""

    files: int = 0
    uploads: int = 0


ConditionSupport: TypeAlias = Literal["atomic", "racy", "ignored", "refused", "unknown"]


@dataclass(frozen=True, slots=True)
class ObjectStoreCapabilities:
    """Which conditions this object store guarantees. Only "atomic" conditions are used; the others are refused with an
    error.

    atomic: of any number of concurrent writers one wins, and the others get an error. racy: checked, but two can win.
    ignored: reports success and overwrites. refused: returns an error. unknown: was not tested.
    """

    create: ConditionSupport  # put(if_absent=True)
    swap: ConditionSupport  # put(if_match=...)
    complete: ConditionSupport  # the same two at the end of an upload
    order: Literal["bytes", "tree"] = "bytes"  # of `list`: by the UTF-8 of the whole name, or folder by folder
    longest_segment: int = 900  # bytes; some servers store segments as file names


class ObjectBody(Protocol):
    """The content of one object, or of a range of it: a context manager that is read once, by iterating or like a
    file.
    """

    @property
    def info(self) -> ObjectInfo:
        """The metadata of the whole object, whatever the range."""
        ...

    def __iter__(self) -> Iterator[bytes]:
        """Yield chunks of at most a few megabytes. Ends early only by raising: a broken connection is an error, never
        a short object.
        """
        ...

    def read(self, size: int = -1) -> bytes:
        """Return at most `size` bytes, empty only at the end; by default everything that is left."""
        ...

    def close(self) -> None: ...

    def __enter__(self) -> Self: ...

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None: ...


class ObjectUpload(Protocol):
    """An object that is sent part by part. Nothing is visible under its name before `complete`.

    As a context manager it aborts on exit unless it was completed, or was opened with `keep=True`: then the parts stay,
    for `upload(name, resume=id)` in this process or another. Parts may be sent in any order and repeatedly; the last
    one sent under a number counts.
    """

    @property
    def name(self) -> str: ...

    @property
    def id(self) -> str:
        """The id with which the upload is resumed."""
        ...

    def list_parts(self) -> Mapping[int, PartInfo]:
        """The parts that are stored, by number."""
        ...

    def put_part(self, number: int, data: bytes) -> PartInfo:
        """Store part `number` (1 to MAX_PART_NUMBER). Every part but the last must have MIN_PART_SIZE bytes;
        `complete` refuses otherwise.
        """
        ...

    def complete(
        self, *, if_absent: bool = False, if_match: str | None = None, sha256: str | None = None
    ) -> ObjectInfo:
        """Join the parts into the object, in the order of their numbers; atomic, like put.

        An expected `sha256` raises ObjectRequestRefused if it cannot be checked: in S3, unless all parts were sent
        through this ObjectUpload, in order.
        """
        ...

    def abort(self) -> None:
        """Remove the stored parts. Safe to repeat."""
        ...

    def __enter__(self) -> Self: ...

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None: ...


class Objects(Protocol):
    """An object store."""

    @property
    def capabilities(self) -> ObjectStoreCapabilities:
        """What `if_absent` and `if_match` guarantee here; S3 probes the server once."""
        ...

    def put(
        self,
        name: str,
        data: ObjectData,
        *,
        if_absent: bool = False,
        if_match: str | None = None,
        size: int | None = None,
        sha256: str | None = None,
    ) -> ObjectInfo:
        """Store the data under the name: all of it, durably, before this returns; or nothing, and it raises.

        A crash leaves the old object, or the new one, or none if there was none. The result has the digest of what was
        stored. If the data does not have the expected `size` or `sha256`, raises ContentMismatch and stores nothing.
        `if_absent` raises ObjectExists if any object has the name. `if_match` raises PreconditionFailed if the object
        has another version or is gone. An exception raised by `data` passes through, and nothing is stored.
        """
        ...

    def get(self, name: str, *, start: int = 0, end: int | None = None) -> ObjectBody:
        """Open the bytes from `start` up to but not including `end`, like a slice: a range beyond the end is empty,
        not an error.

        All bytes are of one version, however often the name is written meanwhile. Raises ObjectNotFound.
        """
        ...

    def head(self, name: str) -> ObjectInfo:
        """Return the metadata of the object. Raises ObjectNotFound."""
        ...

    def list(self, prefix: str = "", *, after: str = "", limit: int | None = None) -> Iterator[ObjectInfo]:
        """Yield the objects below a prefix of whole segments (`a/b` has `a/b/c`, but neither `a/b` nor `a/bc`), lazily
        and in order.

        The order is `capabilities.order`. The next page is `after=` the last name of the previous one; pages never
        repeat a name and never skip one that existed all the time. Memory does not grow with the number of objects.
        """
        ...

    def delete(self, name: str) -> bool:
        """Remove the object and return whether it existed. Safe to repeat. (S3 checks first: of two concurrent calls
        both may return True.)
        """
        ...

    def copy(self, source: str, target: str, *, if_absent: bool = False) -> ObjectInfo:
        """Copy an object, inside the server if it can. Atomic for the target, like put."""
        ...

    def upload(self, name: str, *, resume: str | None = None, keep: bool = False) -> ObjectUpload:
        """Start an upload, or resume one. Raises ObjectNotFound if the id is not, or no longer, an upload of this name."""
        ...

    def sweep(self, older_than: float) -> SweepResult:
        """Remove unfinished puts and uploads that a crash left and that are older than so many seconds.

        Never removes objects.
        """
        ...

    def close(self) -> None: ...

    def __enter__(self) -> Self: ...

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None: ...


def measure(objects: Objects, name: str) -> tuple[int, str]:
    """Read the object back and return its size and SHA-256, to be compared before its original may be deleted."""
    digest, size = hashlib.sha256(), 0
    with objects.get(name) as body:
        for chunk in body:
            digest.update(chunk)
            size += len(chunk)
    return size, digest.hexdigest()


def check_name(name: str) -> str:
    """Return the name, the same rules for every driver. Raises ObjectRequestRefused, saying what is wrong with it."""
    shown = ascii(name if len(name) <= 80 else name[:77] + "...")
    if not name:
        raise ObjectRequestRefused("An object's name cannot be empty.")
    try:
        length = len(name.encode())
    except UnicodeEncodeError:
        raise ObjectRequestRefused(
            f"{shown} is not a name: it holds half of a surrogate pair, which UTF-8 cannot express."
        ) from None
    if length > MAX_NAME_BYTES:
        raise ObjectRequestRefused(
            f"{shown} is too long for a name: {length} bytes of UTF-8, where {MAX_NAME_BYTES} is the most."
        )
    bad = _FORBIDDEN.search(name)
    if bad:
        raise ObjectRequestRefused(
            f"{shown} is not a name: {bad[0]!a} at position {bad.start()} is not stored correctly by every object store."
        )
    segments = name.split("/")
    if "" in segments:
        raise ObjectRequestRefused(f"{shown} is not a name: it starts or ends with a slash, or has two in a row.")
    if "." in segments or ".." in segments:
        raise ObjectRequestRefused(f"{shown} is not a name: a segment is '.' or '..'.")
    if segments[0] == RESERVED_SEGMENT:
        raise ObjectRequestRefused(
            f"{shown} is not a name: names under {RESERVED_SEGMENT}/ belong to the object store itself."
        )
    return name


def check_prefix(prefix: str) -> str:
    """Return a prefix of whole segments without its final slash; empty for all objects."""
    return check_name(prefix.removesuffix("/")) if prefix else ""


def check_part(number: int, data: bytes) -> None:
    if not 1 <= number <= MAX_PART_NUMBER:
        raise ObjectRequestRefused(f"The parts of an upload are numbered from 1 to {MAX_PART_NUMBER}, not {number}.")
    if not data:
        raise ObjectRequestRefused(f"Part {number} is empty.")


def check_parts(name: str, parts: Mapping[int, PartInfo]) -> None:
    """Check S3's rules, on every driver, so that an upload that works in a directory works in S3."""
    if not parts:
        raise ObjectRequestRefused(f"No part of {name!r} was sent: use put for an empty object.")
    last = max(parts)
    for part in parts.values():
        if part.number != last and part.size < MIN_PART_SIZE:
            raise ObjectRequestRefused(
                f"Part {part.number} of {name!r} has {part.size} bytes: every part but the last must have {MIN_PART_SIZE}."
            )
