"""Objects, directories, snap links and listings.

What a PUT is, its content type says: a directory, a link to an object, or an object. HEAD and GET of a directory have the
content type by which clients know one.
"""

from __future__ import annotations

import base64
import binascii
import re
from collections.abc import Iterator
from datetime import datetime
from typing import NamedTuple
from urllib.parse import unquote

import msgspec

from waybill.apps.compute.access import check_access
from waybill.apps.compute.entries import MAX_LIMIT, Entry
from waybill.apps.compute.errors import MantaError
from waybill.apps.compute.paths import parse_path
from waybill.apps.compute.protocol.requests import DIRECTORY_TYPE, Reply, StorageRequest
from waybill.apps.compute.storage import Conditions, Storage, http_date, iso_time, read_object_headers

DEFAULT_LIMIT = 256
SMALL = 1024 * 1024  # bytes of a body that is sent in one piece
TOKEN_HEADER = "page-token"


class StorageCalls:
    def __init__(self, storage: Storage) -> None:
        self._storage = storage

    # --- writing

    def put(self, request: StorageRequest, *, make_parents: bool = False) -> Reply:
        """`make_parents`: the directories above are made, as for what a task puts into the storage of its job."""
        path = request.path
        check_access(request.caller, path, "write")
        if make_parents and not path.is_root:
            self._storage.make_directories(path.parent)
        content_type = request.headers.get("content-type", "").replace(" ", "").lower()
        if "metadata" in request.query:
            return self._put_metadata(request)
        if content_type.startswith("application/json") and "type=directory" in content_type:
            return self._put_directory(request)
        if content_type.startswith("application/json") and "type=link" in content_type:
            return self._put_link(request)
        return self._put_object(request)

    def _put_object(self, request: StorageRequest) -> Reply:
        path, conditions = request.path, Conditions.from_headers(request.headers.get)
        about = read_object_headers(request.headers.items())
        size, md5 = request.body_size, _read_md5(request)
        if size is not None and "content-length" not in request.headers:
            raise MantaError("ContentLengthRequired", "content-length or transfer-encoding: chunked is required")
        max_size = request.headers.get("max-content-length", "")
        if max_size and not max_size.isdigit():
            raise MantaError("InvalidParameter", f"max-content-length is {max_size[:40]!r}, which is no number")
        if max_size and size is not None and size > int(max_size):
            raise MantaError("MaxContentLengthExceeded", f"request has exceeded {max_size} bytes")
        self._storage.check_put(path, conditions)
        limit = int(max_size) if max_size else None
        entry = self._storage.put(path, request.iter_body(), about, conditions, md5=md5, size=size, max_size=limit)
        return Reply(204, {"Etag": entry.etag, "Last-Modified": http_date(entry.mtime), "Computed-MD5": entry.md5})

    def _put_directory(self, request: StorageRequest) -> Reply:
        about = read_object_headers(request.headers.items())
        self._storage.put_directory(request.path, about)
        return Reply(204, {"Last-Modified": http_date(_mtime_of(self._storage.find(request.path)))})

    def _put_link(self, request: StorageRequest) -> Reply:
        location = request.headers.get("location", "")
        if not location:
            raise MantaError("LocationRequired", "An HTTP Location header must be specified")
        try:
            source = parse_path(unquote(location))
        except MantaError as error:
            raise MantaError("InvalidLink", f"{location[:200]} is an invalid link") from error
        check_access(request.caller, source, "read")
        entry = self._storage.put_link(request.path, source, Conditions.from_headers(request.headers.get))
        return Reply(204, {"Etag": entry.etag, "Last-Modified": http_date(entry.mtime)})

    def _put_metadata(self, request: StorageRequest) -> Reply:
        for name in ("content-md5", "durability-level", "x-durability-level"):
            if name in request.headers:
                raise MantaError("InvalidUpdate", f"overwriting '{name}' is forbidden")
        if request.body_size:
            raise MantaError("InvalidUpdate", "overwriting 'content-length' is forbidden")
        request.read_body(0, "InvalidUpdate")
        about = read_object_headers(request.headers.items())
        conditions = Conditions.from_headers(request.headers.get)
        entry = self._storage.put_metadata(request.path, about, conditions, has_type="content-type" in request.headers)
        return Reply(204, {"Etag": entry.etag, "Last-Modified": http_date(entry.mtime)})

    def delete(self, request: StorageRequest) -> Reply:
        check_access(request.caller, request.path, "delete")
        self._storage.delete(request.path, Conditions.from_headers(request.headers.get))
        return Reply(204)

    # --- reading

    def get(self, request: StorageRequest) -> Reply:
        check_access(request.caller, request.path, "read")
        entry = self._storage.get(request.path)
        return self.list(request, entry) if entry.is_directory else self._get_object(request, entry)

    def _get_object(self, request: StorageRequest, entry: Entry) -> Reply:
        headers = {
            "Etag": entry.etag,
            "Last-Modified": http_date(entry.mtime),
            "Content-Type": entry.content_type,
            "Durability-Level": str(entry.durability),
            "Accept-Ranges": "bytes",
            **entry.headers,
        }
        if Conditions.from_headers(request.headers.get).is_unmodified(entry):
            return Reply(304, headers)
        if not _is_acceptable(request.headers.get("accept", "*/*"), entry.content_type):
            raise MantaError(
                "NotAcceptable", f"{request.path} is {entry.content_type}, which the client does not accept"
            )
        wanted = _read_range(request.headers.get("range", ""), entry)
        if wanted is None:
            headers |= {"Content-MD5": entry.md5, "Content-Length": str(entry.size)}
            return Reply(200, headers, b"" if request.method == "HEAD" else self._read(entry, 0, entry.size))
        headers |= {
            "Content-Range": f"bytes {wanted.start}-{wanted.end - 1}/{entry.size}",
            "Content-Length": str(wanted.end - wanted.start),
        }
        return Reply(206, headers, b"" if request.method == "HEAD" else self._read(entry, wanted.start, wanted.end))

    def _read(self, entry: Entry, start: int, end: int) -> bytes | Iterator[bytes]:
        body = self._storage.open(entry, start, end)
        if end - start > SMALL:
            return iter_and_close(body)
        with body:
            return b"".join(body)

    def list(self, request: StorageRequest, entry: Entry) -> Reply:
        query = ListingQuery.read(request.query)
        headers = {"Content-Type": DIRECTORY_TYPE, **entry.headers}
        page = self._storage.list(request.path, marker=query.marker, mtime=query.mtime, by_mtime=query.by_mtime,
                                  is_reverse=query.is_reverse, type=query.type,
                                  limit=0 if request.method == "HEAD" else query.limit)  # fmt: skip
        headers["Result-Set-Size"] = str(page.total)
        if page.next is not None:
            headers[TOKEN_HEADER] = make_page_token(page.next, by_mtime=query.by_mtime)
        return Reply(200, headers, b"".join(line_of(each) for each in page.entries))


def iter_and_close(body: object) -> Iterator[bytes]:
    with body as pieces:  # type: ignore[attr-defined] # an ObjectBody
        yield from pieces


def _mtime_of(entry: Entry | None) -> int:
    return entry.mtime if entry is not None else 0


def line_of(entry: Entry) -> bytes:
    if entry.is_directory:
        shown: dict[str, object] = {"name": entry.name, "type": "directory", "mtime": iso_time(entry.mtime)}
    else:
        shown = {
            "name": entry.name, "etag": entry.etag, "size": entry.size, "type": "object", "contentType": entry.content_type,
            "contentMD5": entry.md5, "durability": entry.durability, "mtime": iso_time(entry.mtime),
        }  # fmt: skip
    return msgspec.json.encode(shown) + b"\n"


class ListingQuery(NamedTuple):
    marker: str = ""
    mtime: int | None = None
    by_mtime: bool = False
    is_reverse: bool = False
    type: str = ""
    limit: int = DEFAULT_LIMIT

    @classmethod
    def read(cls, query: dict[str, str]) -> ListingQuery:
        text = query.get("limit", str(DEFAULT_LIMIT))
        if not text.isascii() or not text.isdigit() or not 1 <= int(text) <= MAX_LIMIT:
            raise MantaError("InvalidArgument", f"limit={text[:40]} is invalid: must be between [1, {MAX_LIMIT}]")
        sort, order = query.get("sort", "name"), query.get("sort_order", "")
        if sort not in ("name", "mtime", "none"):
            raise MantaError("InvalidParameter", f"sort={sort[:40]} is invalid: must be mtime or name")
        if order not in ("", "reverse"):
            raise MantaError("InvalidParameter", f"sort_order={order[:40]} is invalid: must be reverse")
        type = "directory" if "dir" in query else "object" if query.keys() & {"obj", "object"} else ""
        marker, mtime = query.get("marker", ""), None
        if marker.startswith("/"):
            marker, mtime = read_page_token(marker)
        elif marker and sort == "mtime":
            marker, mtime = "", _read_time(marker)
        if "\0" in marker:
            raise MantaError("InvalidParameter", "marker holds a zero byte")
        return cls(marker, mtime, sort == "mtime", order == "reverse", type, int(text))


def make_page_token(entry: Entry, *, by_mtime: bool) -> str:
    """A marker that names the entry, also when it is gone. No name begins with a slash."""
    text = f"{entry.mtime if by_mtime else ''} {entry.name}"
    return "/" + base64.urlsafe_b64encode(text.encode()).decode().rstrip("=")


def read_page_token(token: str) -> tuple[str, int | None]:
    try:
        text = base64.b64decode(token[1:] + "=" * (-len(token[1:]) % 4), altchars=b"-_", validate=True).decode()
        mtime, _, name = text.partition(" ")
        if not name:
            raise ValueError
        return name, int(mtime) if mtime else None
    except (ValueError, binascii.Error):
        raise MantaError("InvalidParameter", f"marker={token[:100]} is no page token of this server") from None


def _read_time(text: str) -> int:
    try:
        return int(datetime.fromisoformat(text).timestamp() * 1000)
    except ValueError:
        raise MantaError("InvalidParameter", f"marker={text[:100]} is invalid: must be an ISO 8601 date") from None


def _read_md5(request: StorageRequest) -> str:
    given = request.headers.get("content-md5", "")
    if given:
        try:
            if len(base64.b64decode(given, validate=True)) != 16:
                raise ValueError
        except ValueError:
            raise MantaError("BadRequest", f"Content-MD5 {given[:60]!r} is not the base64 form of an MD5") from None
    return given


class ByteRange(NamedTuple):
    start: int
    end: int


def _read_range(header: str, entry: Entry) -> ByteRange | None:
    """None: the whole object, as for a header that is no range of bytes, and for an empty object."""
    if not header or not entry.size:
        return None
    if header.startswith("bytes=") and "," in header:
        raise MantaError("NotImplemented", "multi-range requests are not supported")
    match = re.fullmatch(r"bytes=(\d{0,18})-(\d{0,18})", header.strip(), re.ASCII)
    if match is None or not (match[1] or match[2]):
        return None
    size = entry.size
    if match[1]:
        start, end = int(match[1]), min(int(match[2]) + 1, size) if match[2] else size
    else:
        start, end = max(0, size - int(match[2])), size
    if start >= size or end <= start:
        raise MantaError("RequestedRangeNotSatisfiable", f"{header[:60]} is not within the {size} bytes of the object",
                         headers={"Content-Range": f"bytes */{size}"})  # fmt: skip
    return ByteRange(start, end)


def _is_acceptable(accept: str, content_type: str) -> bool:
    kind = content_type.partition(";")[0].strip().lower()
    for each in accept.lower().split(","):
        wanted = each.partition(";")[0].strip()
        if wanted in ("*/*", "*", "", kind) or (wanted.endswith("/*") and kind.startswith(wanted[:-1])):
            return True
    return False
