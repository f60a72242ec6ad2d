"""Where objects are: URIs of datasets and manifests, and the stores that have them.

    orders/                    a name in the object store of Waybill
    s3://bucket/orders/        a bucket; file:///srv/orders/ a folder of the host

An object of Waybill's own store is named by the URI under which other programs find it too: `s3://bucket/prefix/name` or
`file:///data/objects/name`. Folders of others are read as plain files and nothing is ever written there; what is written
into a folder, the sink of an arc, is written as an object store.
"""

from __future__ import annotations

import os
import stat
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, datetime
from pathlib import Path
from typing import NamedTuple
from urllib.parse import quote, unquote, urlsplit

from waybill.errors import InputError
from waybill.objects import ObjectNotFound, Objects, open_objects

CHUNK = 1024 * 1024


class Location(NamedTuple):
    """An object, or a folder of them, in a store."""

    objects: Objects
    name: str


class FoundObject(NamedTuple):
    """An object of a listing, with what a listing tells of it."""

    uri: str
    size: int
    modified: datetime


class Locations:
    """`address`: of Waybill's own object store, as the settings have it. Safe to use from several threads."""

    def __init__(self, objects: Objects, address: str) -> None:
        self._objects = objects
        bare = address.partition("?")[0].rstrip("/")
        self._query = urlsplit(address).query if "://" in address else ""
        self.base = bare if "://" in bare else f"file://{quote(str(Path(bare).absolute()))}"
        self._lock = threading.Lock()
        self._opened: dict[str, Objects] = {}

    def uri_of(self, name: str) -> str:
        """Return the URI of a name in Waybill's own store."""
        return f"{self.base}/{quote(name) if self.base.startswith('file:') else name}"

    @staticmethod
    def quote_below(root: str, name: str) -> str:
        """Return a name as it stands in a URI below this one."""
        return quote(name) if root.startswith("file:") else name

    def absolute(self, path: str) -> str:
        """Return the URI of a dataset's path."""
        return path if "://" in path else self.uri_of(path)

    def find(self, uri: str) -> Location:
        """Return the store and the name of what is written to a URI."""
        if (own := self.find_own(uri)) is not None:
            return own
        parts = urlsplit(uri)
        if parts.scheme == "s3":
            key = uri.partition("://")[2].partition("/")[2]
            return Location(self._open(f"s3://{parts.netloc}" + (f"?{self._query}" if self._query else "")), key)
        raise InputError(f"{uri} cannot be opened here: objects are in Waybill's own store or in a bucket (s3://…).")

    def find_folder(self, path: str) -> Location:
        """Return the store whose objects a dataset's path has, and the prefix of their names there."""
        if (own := self.find_own(path)) is not None:
            return Location(own.objects, own.name.rstrip("/"))
        parts = urlsplit(path)
        if parts.scheme == "file":
            return Location(self._open(unquote(parts.path).rstrip("/")), "")
        found = self.find(path)
        return Location(found.objects, found.name.rstrip("/"))

    def find_own(self, uri: str) -> Location | None:
        """Return the name of what is in Waybill's own store; None: it is elsewhere."""
        if "://" not in uri:
            return Location(self._objects, uri)
        if uri.startswith(f"{self.base}/"):
            rest = uri[len(self.base) + 1 :]
            return Location(self._objects, unquote(rest) if self.base.startswith("file:") else rest)
        return None

    def _open(self, address: str) -> Objects:
        with self._lock:
            if address not in self._opened:
                self._opened[address] = open_objects(address, probe=False)
            return self._opened[address]

    # --- reading

    @contextmanager
    def read(self, uri: str) -> Iterator[Iterator[bytes]]:
        """Yield the bytes of an object in chunks. Raises ObjectNotFound."""
        if (path := self._plain_file_of(uri)) is not None:
            try:
                fd = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_CLOEXEC)
            except (FileNotFoundError, NotADirectoryError) as error:
                raise ObjectNotFound(f"There is no file {path}.") from error
            with os.fdopen(fd, "rb") as file:
                if not stat.S_ISREG(os.fstat(fd).st_mode):
                    raise ObjectNotFound(f"{path} is no plain file.")
                yield iter(lambda: file.read(CHUNK), b"")
            return
        place = self.find(uri)
        with place.objects.get(place.name) as body:
            yield iter(body)

    def head(self, uri: str) -> FoundObject | None:
        """Return what is known of an object; None: there is none."""
        if (path := self._plain_file_of(uri)) is not None:
            try:
                info = os.lstat(path)
            except (FileNotFoundError, NotADirectoryError):
                return None
            return FoundObject(uri, info.st_size, _instant(info.st_mtime)) if stat.S_ISREG(info.st_mode) else None
        place = self.find(uri)
        try:
            found = place.objects.head(place.name)
        except ObjectNotFound:
            return None
        return FoundObject(uri, found.size, found.modified)

    def list(self, uri: str) -> Iterator[FoundObject]:
        """Yield each object below a folder. It ends early only by raising: a listing that ends is complete."""
        base = uri if uri.endswith("/") else f"{uri}/"
        if (path := self._plain_file_of(base)) is not None:
            yield from _walk(path.rstrip("/"), base)
            return
        place = self.find(base)
        prefix, is_file = place.name.rstrip("/"), base.startswith("file:")
        for info in place.objects.list(prefix):
            below = info.name[len(prefix) + 1 :] if prefix else info.name
            yield FoundObject(f"{base}{quote(below) if is_file else below}", info.size, info.modified)

    def _plain_file_of(self, uri: str) -> str | None:
        """The path of a file that is in nobody's object store."""
        if not uri.startswith("file://") or uri.startswith(f"{self.base}/"):
            return None
        return unquote(urlsplit(uri).path)

    def close(self) -> None:
        with self._lock:
            opened, self._opened = list(self._opened.values()), {}
        for each in opened:
            each.close()


def _instant(seconds: float) -> datetime:
    return datetime.fromtimestamp(seconds, UTC)


def _walk(folder: str, base: str) -> Iterator[FoundObject]:
    """Yield the plain files below a folder, in order; links are not followed. A folder that cannot be read is an error:
    what it has is not known to be nothing.
    """
    with os.scandir(folder) as entries:
        found = sorted(entries, key=lambda entry: entry.name)
    for entry in found:
        if entry.name == ".waybill":  # of an object store of ours
            continue
        if entry.is_dir(follow_symlinks=False):
            yield from _walk(entry.path, f"{base}{quote(entry.name)}/")
        elif entry.is_file(follow_symlinks=False):
            try:
                info = entry.stat(follow_symlinks=False)
            except FileNotFoundError:
                continue  # moved away since the folder was read
            yield FoundObject(f"{base}{quote(entry.name)}", info.st_size, _instant(info.st_mtime))
