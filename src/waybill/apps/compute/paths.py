"""Names of what is stored: `/account/area/segment/...`, where the area is stor, public, jobs or reports.

A path arrives as the raw bytes of a URL or as a line of a job's input. Runs of slashes count as one and a slash at the
end is ignored; a segment is any UTF-8 text without a zero byte, but not `.` or `..`, so that no name means another.
"""

from __future__ import annotations

import hashlib
import re
from typing import NamedTuple
from urllib.parse import quote, unquote_to_bytes

from waybill.apps.compute.errors import MantaError

AREAS = ("stor", "public", "jobs", "reports")
KNOWN_AREAS = (*AREAS, "uploads", "medusa")  # of the protocol; uploads in parts and terminals are refused
MAX_NAME = 1024  # bytes of one segment
MAX_PATH = 65536  # bytes of all

_ACCOUNT = re.compile(r"[A-Za-z][A-Za-z0-9._@-]{0,62}")


class StoragePath(NamedTuple):
    account: str
    area: str
    segments: tuple[str, ...] = ()

    def __str__(self) -> str:
        return "/".join(("", self.account, self.area, *self.segments))

    @property
    def is_root(self) -> bool:
        return not self.segments

    @property
    def name(self) -> str:
        return self.segments[-1] if self.segments else self.area

    @property
    def parent(self) -> StoragePath:
        return self._replace(segments=self.segments[:-1])

    def child(self, *names: str) -> StoragePath:
        return self._replace(segments=(*self.segments, *names))

    @property
    def job_id(self) -> str:
        """The job below whose directory it is, or empty."""
        return self.segments[0] if self.area == "jobs" and self.segments else ""

    @property
    def folder(self) -> str:
        """The key under which its entries are stored, if it is a directory: as long for every depth."""
        return folder_key(str(self))

    def quoted(self) -> str:
        return quote(str(self))


def folder_key(path: str) -> str:
    return hashlib.blake2b(path.encode(), digest_size=16).hexdigest()


def parse_url_path(raw: bytes) -> StoragePath:
    """The path of a URL. Raises InvalidResource."""
    return parse_path(unquote_to_bytes(raw.partition(b"?")[0]))


def parse_path(data: bytes | str) -> StoragePath:
    if isinstance(data, str):
        data = data.encode("utf-8", "surrogatepass")
    if len(data) > MAX_PATH:
        raise MantaError("InvalidResource", f"A path has {len(data)} bytes; {MAX_PATH} are allowed.")
    try:
        text = data.decode("utf-8")
    except UnicodeDecodeError:
        raise MantaError("InvalidResource", f"{data[:200]!r} is no path: it is not UTF-8.") from None
    if not text.startswith("/"):
        raise MantaError("InvalidResource", f"{text[:200]!r} is no path: it does not begin with a slash.")
    parts = [part for part in text.split("/") if part]
    if len(parts) < 2 or parts[1] not in KNOWN_AREAS or not _ACCOUNT.fullmatch(parts[0]):
        raise MantaError("InvalidResource", f"{text[:200]} is an invalid resource")
    for part in parts[2:]:
        if part in (".", "..") or "\0" in part:
            raise MantaError("InvalidResource", f"{text[:200]!r} is an invalid resource: {part!r} is no name")
        if len(part.encode()) > MAX_NAME:
            raise MantaError("InvalidResource", f"A name has more than {MAX_NAME} bytes.")
    return StoragePath(parts[0], parts[1], tuple(parts[2:]))


def is_account_name(name: str) -> bool:
    return _ACCOUNT.fullmatch(name) is not None
