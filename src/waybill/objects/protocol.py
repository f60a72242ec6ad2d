"""Objects: named bytes, and the contract that every driver keeps.

The life of an object: `put` makes it whole or not at all; `head`, `get` and `list` see it whole or not at all; `copy`
makes another; `delete` ends it. An object is never changed in place: a second `put` puts another one in its place, and
who was reading the first goes on reading the first. What is too large for one call, or must survive the process that
sends it, goes through `upload`, part by part.

The terms:

    name        text in segments with `/` between them (names.py says which texts are names)
    etag        names the present version of an object; opaque; compare it only with another etag of the same name on the same driver
    condition   `if_absent` or `if_match`: a put that happens only if nothing is there, or only if this version is
    conditions  what such conditions are worth here: a directory keeps them, S3 servers differ (probe.py)

A driver classifies its errors with two questions, `is_not_found` and `is_permanent`; all policy (retry, give up, tell
the user) follows from the answers. All verbs may be called from many threads at once. A conditional put is no lock:
nothing here renews it, and a holder that was paused does not know that it lost it.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from datetime import datetime
from types import TracebackType
from typing import BinaryIO, ClassVar, Literal, Protocol, Self, TypeAlias

Data: TypeAlias = bytes | bytearray | memoryview | BinaryIO | Iterable[bytes]

PART_LEAST = 5 * 1024 * 1024  # bytes of every part of an upload but the last: S3's rule, kept by all drivers
PART_MOST = 10_000  # the highest number of a part: S3's rule as well


class ObjectsError(Exception):
    """The object store failed."""

    permanent: ClassVar[bool] = False

    def __init__(self, message: str | None = None) -> None:
        super().__init__(message or (self.__doc__ or "").strip())


class NotFound(ObjectsError):
    """There is no such object."""

    permanent = True


class AlreadyThere(ObjectsError):
    """An object of this name exists already."""

    permanent = True


class Precondition(ObjectsError):
    """The object has changed since it was looked at."""

    permanent = True


class Refused(ObjectsError):
    """This cannot be asked of an object store."""

    permanent = True


class Damaged(ObjectsError):
    """The bytes are not those that were promised."""

    permanent = True


class NotAllowed(ObjectsError):
    """The object store does not let us do this."""

    permanent = True


class Unsupported(ObjectsError):
    """This object store cannot do this safely."""

    permanent = True


class NoSpace(ObjectsError):
    """There is no space left for the object."""


class Unavailable(ObjectsError):
    """The object store cannot be reached, or did not answer in time."""


def is_not_found(error: BaseException) -> bool:
    """Whether the error says that the object is not there (and not that nobody could look)."""
    return isinstance(error, NotFound)


def is_permanent(error: BaseException) -> bool:
    """Whether asking again, unchanged, is bound to fail again.

    What is not known to be permanent is worth another try.
    """
    return isinstance(error, ObjectsError) and error.permanent


@dataclass(frozen=True, slots=True)
class ObjectInfo:
    """What is known of one version of an object without reading it."""

    name: str
    size: int
    etag: str
    modified: datetime
    sha256: str | None = None  # hex; None where the driver does not know it (S3: after a long stream, and in listings)


@dataclass(frozen=True, slots=True)
class PartInfo:
    """A part of an upload that has arrived."""

    number: int
    size: int
    etag: str


@dataclass(frozen=True, slots=True)
class Swept:
    """What `sweep` removed."""

    files: int = 0
    uploads: int = 0


Worth: TypeAlias = Literal["atomic", "racy", "ignored", "refused", "unknown"]


@dataclass(frozen=True, slots=True)
class Conditions:
    """What conditions are worth on this object store. Only "atomic" is used; everything else is refused with a
    sentence.

    atomic: of any number of writers at once one wins, and the others are told. racy: it is checked, but two can win.
    ignored: it is answered with success, and overwrites. refused: it is answered with an error. unknown: it was not
    looked at.
    """

    create: Worth  # put(if_absent=True)
    swap: Worth  # put(if_match=...)
    complete: Worth  # the same two at the end of an upload
    order: Literal["bytes", "tree"] = "bytes"  # of `list`: by the UTF-8 of the whole name, or folder by folder
    longest_segment: int = 900  # bytes; some servers keep segments as file names


class Body(Protocol):
    """The bytes of one object, or of a range of it: a context manager that is read once, by iterating or like a
    file.
    """

    @property
    def info(self) -> ObjectInfo:
        """Of the whole object, whatever the range."""
        ...

    def __iter__(self) -> Iterator[bytes]:
        """Portions of at most some megabytes. Ends early only by raising: a cut connection is an error, never a
        short object.
        """
        ...

    def read(self, size: int = -1) -> bytes:
        """At most so many bytes, and none only at the end; by default all that is left."""
        ...

    def close(self) -> None: ...

    def __enter__(self) -> Self: ...

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None: ...


class Upload(Protocol):
    """An object on its way, part by part. Nothing is visible under its name before `complete`.

    As a context manager it aborts on the way out unless it was completed, or was opened with `keep=True`: then the
    parts stay, for `upload(name, resume=id)` in this process or another. Parts may arrive in any order and again; the
    last arrival of a number counts.
    """

    @property
    def name(self) -> str: ...

    @property
    def id(self) -> str:
        """What to remember in order to resume."""
        ...

    def parts(self) -> Mapping[int, PartInfo]:
        """What has arrived, by number."""
        ...

    def part(self, number: int, data: bytes) -> PartInfo:
        """Store part `number` (1 to PART_MOST). Every part but the last must have PART_LEAST bytes; `complete`
        refuses otherwise.
        """
        ...

    def complete(
        self, *, if_absent: bool = False, if_match: str | None = None, sha256: str | None = None
    ) -> ObjectInfo:
        """Join the parts in the order of their numbers into the object; atomic, like put.

        A promised `sha256` is Refused where it cannot be checked: in S3, if the parts did not all come through this
        very object, in order.
        """
        ...

    def abort(self) -> None:
        """Drop what has arrived. Safe to repeat."""
        ...

    def __enter__(self) -> Self: ...

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None: ...


class Objects(Protocol):
    """The verbs of an object store."""

    @property
    def conditions(self) -> Conditions:
        """What `if_absent` and `if_match` are worth here; S3 finds out once, by trying."""
        ...

    def put(
        self,
        name: str,
        data: Data,
        *,
        if_absent: bool = False,
        if_match: str | None = None,
        size: int | None = None,
        sha256: str | None = None,
    ) -> ObjectInfo:
        """Store the bytes under the name: all of them, durably, before this returns; or nothing, and it raises.

        A crash leaves the old object, or the new one, or none if there was none. The digest of what was stored is in
        the answer. A `size` or `sha256` that the data turn out not to have: Damaged, and nothing is stored.
        `if_absent`: AlreadyThere if any object has the name. `if_match`: Precondition if the object is another version,
        or is gone. An exception raised by `data` passes through, and nothing is stored.
        """
        ...

    def get(self, name: str, *, start: int = 0, end: int | None = None) -> Body:
        """The bytes from `start` up to and without `end`, as a slice would: what lies beyond the end is empty, not
        an error.

        All of them are of one version, however often the name is written meanwhile. NotFound if there is none.
        """
        ...

    def head(self, name: str) -> ObjectInfo:
        """What is known of the object; NotFound if there is none."""
        ...

    def list(self, prefix: str = "", *, after: str = "", limit: int | None = None) -> Iterator[ObjectInfo]:
        """The objects below a prefix of whole segments (`a/b` has `a/b/c`, and neither `a/b` nor `a/bc`), lazily and
        in order.

        The order is that of `conditions.order`. The next page is `after=` the last name of the one before; a page never
        repeats a name nor leaves out one that was there all the time. Memory does not grow with the number of objects.
        """
        ...

    def delete(self, name: str) -> bool:
        """Remove the object; whether there was one. Safe to repeat. (S3 looks first: with two at once, both may say
        yes.)
        """
        ...

    def copy(self, source: str, target: str, *, if_absent: bool = False) -> ObjectInfo:
        """Put the bytes of one name under another, inside the server where it can. Atomic for the target, like put."""
        ...

    def upload(self, name: str, *, resume: str | None = None, keep: bool = False) -> Upload:
        """Begin an upload, or go on with one: NotFound if the id is not, or no longer, an upload of this name."""
        ...

    def sweep(self, older_than: float) -> Swept:
        """Remove what crashes left behind and nobody has touched for so many seconds: unfinished puts and uploads.

        Never objects.
        """
        ...

    def close(self) -> None: ...

    def __enter__(self) -> Self: ...

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None: ...


def measure(objects: Objects, name: str) -> tuple[int, str]:
    """Size and SHA-256 of an object by reading it back, which is what must be compared before its original may go."""
    digest, size = hashlib.sha256(), 0
    with objects.get(name) as body:
        for portion in body:
            digest.update(portion)
            size += len(portion)
    return size, digest.hexdigest()
