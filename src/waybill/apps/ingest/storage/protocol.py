"""What a storage service takes and answers, wherever it runs: the nouns and verbs between an ingest and its storage.

A `Deposit` is a storage manifest: which files make the next version of an object, and where each can be fetched. The
service fetches them, checks that they are what was promised, keeps them, and answers with `Stored`: which version it
became and where the **manifest of that version** lies, which lists every file of it. Whoever records the version
afterwards reads nothing else.

    write(deposit)  ->  Stored           once for each request: asked again it gives the same answer and makes no second version
    look(object, request)  ->  Stored    what became of a request that nobody waited for; None while nothing did

Everything here can be said in JSON, so that a service over HTTP can stand where the one in this package stands.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager
from typing import Any, ClassVar, Literal, NamedTuple, Protocol

import msgspec

from waybill.manifests import Reader
from waybill.objects import Body, Data

MANIFEST = "system/storage-manifest.jsonl"  # the path of a version's manifest among its files

Sources = Callable[[str], AbstractContextManager[Data]]  # opens what the source of a file names
Mode = Literal["add", "update"]


class StorageError(Exception):
    """The storage could not do this."""

    permanent: ClassVar[bool] = True

    def __init__(self, message: str | None = None) -> None:
        super().__init__(message or (self.__doc__ or "").strip())


class NotStored(StorageError):
    """There is nothing of this name in the storage."""


class NotStorable(StorageError):
    """This deposit cannot be stored as it is."""


class NoSuchFile(NotStorable):
    """What is to be deleted is not there."""


class Unsound(StorageError):
    """What the storage holds is damaged."""


class Late(StorageError):
    """Someone else has written this object meanwhile."""

    permanent = False


class FileToStore(NamedTuple):
    """One file of a deposit: what it is to be called, what it must turn out to be, and where it can be fetched."""

    path: str
    size: int
    sha256: str
    source: str
    mime: str = ""


class Deposit(msgspec.Struct, frozen=True, kw_only=True):
    """A storage manifest. `add`: the version has these files and no others. `update`: it keeps what it neither
    replaces nor deletes.
    """

    object: str
    request: str  # names this deposit among all of the object; a line of text
    files: Iterable[FileToStore]  # iterated once
    mode: Mode = "add"
    deletions: Sequence[str] = ()
    message: str = ""
    user: str = "waybill"
    address: str = ""  # of the user, a URI: mailto:someone@example.org
    about: Mapping[str, Any] = {}  # what the inventory will want to know; kept in the version's manifest
    damaged: Sequence[str] = ()  # places that audits found damaged: what of them the deposit brings is written again


class Stored(msgspec.Struct, frozen=True, kw_only=True):
    """A version that is at rest: every byte of it was read back and compared."""

    object: str
    version: int
    request: str
    created: str
    place: str  # of the version's manifest
    sha256: str  # of the version's manifest
    size: int  # of the version's manifest


class Version(msgspec.Struct, frozen=True, kw_only=True):
    """What is known of a version without its files."""

    number: int
    created: str
    message: str
    user: str
    request: str


class Finding(msgspec.Struct, frozen=True, kw_only=True):
    """Something that is not as it should be, and where."""

    kind: Literal["changed", "missing", "extra", "inventory", "declaration"]
    place: str
    files: tuple[str, ...] = ()  # the logical files that need it, as `v2 producer/a.txt`; the first few
    words: str


class Recovered(msgspec.Struct, frozen=True, kw_only=True):
    """What a recovery did: places that were written again, and leftovers that were removed."""

    mended: tuple[str, ...] = ()
    removed: tuple[str, ...] = ()
    trouble: str = ""  # why nothing was done


class StorageService(Protocol):
    """The verbs. `place` is the storage's own word for where some bytes lie, opaque to everybody else."""

    def write(self, deposit: Deposit, *, check: Callable[[], None] = ...) -> Stored:
        """Make a version of the deposit; all of it, verified, or none. The caller holds the object's exclusive key.

        `check` is called in long work and right before the version becomes visible, and raises if the caller is no
        longer in charge.
        """

    def look(self, object_id: str, request: str) -> Stored | None:
        """The version that the request made; None if it made none."""

    def versions(self, object_id: str) -> list[Version]:
        """All versions, oldest first; NotStored if there is no such object."""

    def stored(self, object_id: str, number: int = 0) -> Stored:
        """A version, as `write` answered it; by default the newest."""

    def manifest(self, stored: Stored) -> Reader:
        """The manifest of a version: an entry for each file, with its `place` and `mime` as further fields, in the
        order of the paths.
        """

    def read(self, object_id: str, place: str, *, start: int = 0, end: int | None = None) -> Body:
        """The bytes at a place, or a range of them."""

    def open(self, object_id: str, path: str, number: int = 0, *, start: int = 0, end: int | None = None) -> Body:
        """The bytes of a file of a version, by default of the newest."""

    def check(self, object_id: str, place: str, size: int, sha256: str) -> Finding | None:
        """Read one place and compare; None if all is well."""

    def verify(self, object_id: str) -> Iterator[Finding]:
        """Read the whole object and compare it with what it says of itself."""

    def recover(self, object_id: str) -> Recovered:
        """Remove or finish what an interrupted write left. The caller holds the object's exclusive key."""

    def objects(self, after: str = "") -> Iterator[tuple[str, str]]:
        """Every object as (cursor, id), in the storage's own order, from a cursor on; without an id if it is too
        damaged to have one.
        """
