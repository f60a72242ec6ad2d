"""The storage protocol over HTTP: what is said, by the client (http.py) and by the server (served.py).

    GET    /staged    ?object=&request=                         what has come for a deposit, a line for each: {"sha256", "size"}
    PUT    /staged    ?object=&request=&sha256=&size=           the bytes of one file of it; 201, or 200 if they were there
    POST   /versions  ?object=&request=                         the deposit; answers with the version (Stored), the same one each time
    GET    /request   ?object=&request=                         the version that the request made (look)
    GET    /versions  ?object=                                  all versions
    GET    /version   ?object=&number=                          one version (stored); number=0: the newest
    GET    /bytes     ?object=&place=&start=&end=               the bytes at a place (read)
    GET    /file      ?object=&path=&number=&start=&end=        the bytes of a file (open)
    GET    /check     ?object=&place=&size=&sha256=             a Finding, or null
    GET    /findings  ?object=                                  everything that is wrong (verify), a line for each
    POST   /recover   ?object=                                  what was done (Recovered)
    GET    /objects   ?after=&limit=                            a page of objects, as [cursor, id]

The body of a deposit is lines of JSON: first what is said of all of it (Head), then a line for each file: [path, size,
sha256, mime]. It has no source: the bytes were staged before under its SHA-256. What is refused has the house's shape,
and its code names the error.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from typing import Any

import msgspec

from waybill.apps.ingest.storage.protocol import (
    FileToStore,
    Late,
    Mode,
    NoSuchFile,
    NotStorable,
    NotStored,
    StorageError,
    Unsound,
)
from waybill.objects import Damaged, NotFound, ObjectsError

LONGEST = 1024 * 1024  # bytes of one line
STAGED = "ingest/staged"  # where bytes lie that have come, among the objects of the server
SHA256 = re.compile("[0-9a-f]{64}")

ERRORS: dict[str, tuple[int, type[StorageError | ObjectsError]]] = {  # code: status, error
    "not-stored": (404, NotStored),
    "no-bytes": (404, NotFound),
    "no-such-file": (422, NoSuchFile),  # before what it is a kind of
    "not-storable": (422, NotStorable),
    "damaged": (422, Damaged),
    "unsound": (409, Unsound),
    "late": (409, Late),
}


class Head(msgspec.Struct, frozen=True, kw_only=True):
    """What is said of a whole deposit; `Deposit` says what each means."""

    mode: Mode = "add"
    deletions: tuple[str, ...] = ()
    message: str = ""
    user: str = "waybill"
    address: str = ""
    about: dict[str, Any] = {}
    damaged: tuple[str, ...] = ()


_head = msgspec.json.Decoder(Head)
_file = msgspec.json.Decoder(tuple[str, int, str, str])


def lines_of(head: Head, files: Iterable[FileToStore]) -> Iterator[bytes]:
    yield msgspec.json.encode(head) + b"\n"
    for file in files:
        yield msgspec.json.encode((file.path, file.size, file.sha256, file.mime)) + b"\n"


def read_head(line: bytes) -> Head:
    try:
        return _head.decode(line)
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError) as error:
        raise NotStorable(f"The first line of the deposit cannot be read: {error}.") from None


def read_file(line: bytes, number: int, source: str) -> FileToStore:
    """A file of the deposit, whose bytes lie in the source named by this prefix and its SHA-256."""
    try:
        path, size, sha256, mime = _file.decode(line)
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError) as error:
        raise NotStorable(f"Line {number} of the deposit cannot be read: {error}.") from None
    if not SHA256.fullmatch(sha256):
        raise NotStorable(f"Line {number} of the deposit has no SHA-256 in lower-case hex.")
    return FileToStore(path, size, sha256, source + sha256, mime)


def split_lines(portions: Iterable[bytes]) -> Iterator[bytes]:
    """Lines of a body, without their ends; NotStorable for one without end."""
    rest = b""
    for portion in portions:
        *lines, rest = (rest + portion).split(b"\n")
        yield from lines
        if len(rest) > LONGEST:
            raise NotStorable(f"A line of the deposit is longer than {LONGEST} bytes.")
    if rest:
        raise NotStorable("The deposit was cut: it does not end with the end of a line.")
