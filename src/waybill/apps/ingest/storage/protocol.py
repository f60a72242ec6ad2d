"""The interface between ingest and a storage service, in this process or over HTTP.

A `Deposit` is a storage manifest: which files make the next version of an object, and where each can be read. The
service reads them, checks size and SHA-256, stores them, and returns a `StoredVersion`: the number of the version and
the place of the **manifest of that version**, which lists all its files. Recording the version afterwards needs nothing
else.

    write(deposit)  ->  StoredVersion                     once for each request: repeated, it returns the same version
    find_by_request(object, request)  ->  StoredVersion   the version that a request made; None if it made none

Over HTTP (http_client.py, http_server.py) the content is sent first, each file under its SHA-256; then the deposit as
JSON lines: first a DepositHead, then [path, size, sha256, mime] for each file. Errors have the codes of ERROR_TYPES.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager
from typing import Any, Literal, NamedTuple, Protocol

import msgspec

from waybill.apps.ingest.errors import ERROR_CODES
from waybill.errors import WaybillError
from waybill.manifests import ManifestReader
from waybill.objects import ContentMismatch, ObjectBody, ObjectData, ObjectNotFound, ObjectsError

MANIFEST_PATH = "system/storage-manifest.jsonl"  # the path of a version's manifest among its files
MAX_LINE_BYTES = 1024 * 1024  # of one line of a deposit over HTTP
STAGED_PREFIX = "ingest/staged"  # of the content that was sent to a server, among its objects
SHA256_PATTERN = re.compile("[0-9a-f]{64}")

SourceOpener = Callable[[str], AbstractContextManager[ObjectData]]  # opens the source of a file
DepositMode = Literal["add", "update"]


class StorageError(WaybillError):
    """The storage service could not do this."""

    code = "storage-failed"


class NotInStorage(StorageError):
    """The storage has no such object, version or file."""

    code = "not-in-storage"


class InvalidDeposit(StorageError):
    """This deposit is not valid."""

    code = "invalid-deposit"


class StorageDamaged(StorageError):
    """The stored data is damaged."""

    code = "storage-damaged"


class ConcurrentWrite(StorageError):
    """Another writer has written this object meanwhile."""

    code = "concurrent-write"


class FileToStore(NamedTuple):
    """One file of a deposit: its path, the size and SHA-256 it must have, and its source."""

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
    request: str  # identifies this deposit among those of the object; one line of text
    files: Iterable[FileToStore]  # iterated once
    mode: DepositMode = "add"
    deletions: Sequence[str] = ()
    message: str = ""
    user: str = "waybill"
    address: str = ""  # of the user, a URI: mailto:someone@example.org
    about: Mapping[str, Any] = {}  # the description for the inventory; stored in the version's manifest
    # places that audits found damaged: those whose content is in the deposit are written again
    damaged_places: Sequence[str] = ()


class StoredVersion(msgspec.Struct, frozen=True, kw_only=True):
    """A version in storage: every byte of it was read back and compared."""

    object: str
    version: int
    request: str
    created: str
    place: str  # of the version's manifest
    sha256: str  # of the version's manifest
    size: int  # of the version's manifest


class VersionSummary(msgspec.Struct, frozen=True, kw_only=True):
    """A version without its files."""

    number: int
    created: str
    message: str
    user: str
    request: str


class StorageFinding(msgspec.Struct, frozen=True, kw_only=True):
    """Damage, and where it is."""

    kind: Literal["changed", "missing", "extra", "inventory", "declaration"]
    place: str
    files: tuple[str, ...] = ()  # the logical files that need this content, as `v2 producer/a.txt`; the first few
    message: str


class RecoveryResult(msgspec.Struct, frozen=True, kw_only=True):
    """What a recovery did: places that were written again, and leftovers that were removed."""

    repaired_places: tuple[str, ...] = ()
    removed_places: tuple[str, ...] = ()
    error: str = ""  # why nothing was done


class StorageService(Protocol):
    """A storage service. A `place` locates content inside an object; it is opaque to callers."""

    def write(self, deposit: Deposit, *, check: Callable[[], None] = ...) -> StoredVersion:
        """Store the deposit as a version: all of it, verified, or nothing. The caller owns the object's lock.

        `check` is called during long work and right before the version becomes visible, and raises if the caller has
        lost its claim.
        """

    def find_by_request(self, object_id: str, request: str) -> StoredVersion | None:
        """Return the version that the request made; None if it made none."""

    def list_versions(self, object_id: str) -> list[VersionSummary]:
        """Return all versions, oldest first. Raises NotInStorage."""

    def get_version(self, object_id: str, number: int = 0) -> StoredVersion:
        """Return a version as `write` returned it; by default the newest."""

    def open_manifest(self, stored: StoredVersion) -> ManifestReader:
        """Open the manifest of a version: an entry for each file, with `place` and `mime` as further fields, ordered
        by path.
        """

    def read(self, object_id: str, place: str, *, start: int = 0, end: int | None = None) -> ObjectBody:
        """Open the content at a place, or a range of it."""

    def open_file(
        self, object_id: str, path: str, number: int = 0, *, start: int = 0, end: int | None = None
    ) -> ObjectBody:
        """Open a file of a version, by default of the newest."""

    def check(self, object_id: str, place: str, size: int, sha256: str) -> StorageFinding | None:
        """Read one place and compare; None if it is intact."""

    def verify(self, object_id: str) -> Iterator[StorageFinding]:
        """Read the whole object and compare it with its inventory; yield all damage."""

    def recover(self, object_id: str) -> RecoveryResult:
        """Finish or remove what an interrupted write left. The caller owns the object's lock."""

    def list_objects(self, after: str = "") -> Iterator[tuple[str, str]]:
        """Yield every object as (cursor, id), in the storage's own order, after a cursor; with an empty id if its
        inventory is damaged.
        """


# The errors that a service sends to its client, by their codes.
ERROR_TYPES: dict[str, type[StorageError | ObjectsError]] = {
    "not-in-storage": NotInStorage,
    "object-not-found": ObjectNotFound,
    "deletion-target-missing": InvalidDeposit,
    "invalid-deposit": InvalidDeposit,
    "content-mismatch": ContentMismatch,
    "storage-damaged": StorageDamaged,
    "concurrent-write": ConcurrentWrite,
}


def describe_error(error: StorageError | ObjectsError) -> tuple[int, dict[str, Any]]:
    """Status and body of the response to an error; raises those that are not sent."""
    if error.code not in ERROR_TYPES:
        raise error
    message = str(error).encode("utf-8", "replace").decode()
    status = ERROR_CODES[error.code].status if error.code in ERROR_CODES else 422
    return status, {"error": {"code": error.code, "message": message, "hint": ""}}


class DepositHead(msgspec.Struct, frozen=True, kw_only=True):
    """The first line of a deposit over HTTP; the fields are those of Deposit."""

    mode: DepositMode = "add"
    deletions: tuple[str, ...] = ()
    message: str = ""
    user: str = "waybill"
    address: str = ""
    about: dict[str, Any] = {}
    damaged_places: tuple[str, ...] = ()


_head_decoder = msgspec.json.Decoder(DepositHead)
_file_decoder = msgspec.json.Decoder(tuple[str, int, str, str])


def encode_deposit(head: DepositHead, files: Iterable[FileToStore]) -> Iterator[bytes]:
    yield msgspec.json.encode(head) + b"\n"
    for file in files:
        yield msgspec.json.encode((file.path, file.size, file.sha256, file.mime)) + b"\n"


def decode_head(line: bytes) -> DepositHead:
    try:
        return _head_decoder.decode(line)
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError) as error:
        raise InvalidDeposit(f"The first line of the deposit cannot be read: {error}.") from None


def decode_file(line: bytes, number: int, source: str) -> FileToStore:
    """Decode a file of the deposit; its source is this prefix and its SHA-256."""
    try:
        path, size, sha256, mime = _file_decoder.decode(line)
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError) as error:
        raise InvalidDeposit(f"Line {number} of the deposit cannot be read: {error}.") from None
    if not SHA256_PATTERN.fullmatch(sha256):
        raise InvalidDeposit(f"Line {number} of the deposit has no SHA-256 in lower-case hex.")
    return FileToStore(path, size, sha256, source + sha256, mime)


def split_lines(chunks: Iterable[bytes]) -> Iterator[bytes]:
    """Yield the lines of a body. Raises InvalidDeposit for a line that is too long."""
    rest = b""
    for chunk in chunks:
        *lines, rest = (rest + chunk).split(b"\n")
        yield from lines
        if len(rest) > MAX_LINE_BYTES:
            raise InvalidDeposit(f"A line of the deposit is longer than {MAX_LINE_BYTES} bytes.")
    if rest:
        raise InvalidDeposit("The deposit is cut: it does not end with a newline.")
