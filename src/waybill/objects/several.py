"""Several: small objects that belong together, put at once, so that what they share is done once.

    wrong = put_several(objects, [Put("a/1", b"..."), Put("a/2", b"...", if_absent=True)])

Each is put as `put` would put it, and they become visible in their order; when the call returns all of them are
durable. It stops at the first that is refused, and those before it stay: so only things that mean nothing without the
last should be put so. A crash leaves any of them. Each is then **read back** by its name, and those that are not what
was put are answered.

A directory syncs each folder once, after the last of them is in it, and each new folder with it, instead of once for
each object. Any other store puts one after the other.
"""

from __future__ import annotations

import errno
import fcntl
import hashlib
import os
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass, field
from typing import NamedTuple, Protocol

from waybill.objects.files import explained, keep_digest, open_object, write_all
from waybill.objects.folders import At, Folders
from waybill.objects.protocol import NotFound, Objects, measure
from waybill.objects.publishing import LOOK_AGAIN, NEW_FILE, Publisher, check_version


class Put(NamedTuple):
    name: str
    data: bytes
    if_absent: bool = False
    if_match: str | None = None


class _Several(Protocol):
    def put_several(self, puts: Sequence[Put]) -> list[Put]: ...


def put_several(objects: Objects, puts: Sequence[Put]) -> list[Put]:
    """Put all of them, and answer those that do not read back as they were put."""
    together: _Several | None = objects if hasattr(objects, "put_several") else None  # type: ignore[assignment] # just looked
    if together is not None:
        return together.put_several(puts)
    for put in puts:
        objects.put(put.name, put.data, if_absent=put.if_absent, if_match=put.if_match)
    return [put for put in puts if not _reads_back(objects, put)]


def _reads_back(objects: Objects, put: Put) -> bool:
    try:
        return measure(objects, put.name) == (len(put.data), hashlib.sha256(put.data).hexdigest())
    except NotFound:
        return False


@dataclass
class _Written:
    """A put whose bytes are in a file of tmp, until that has got its name."""

    put: Put
    path: list[str]
    fd: int
    entry: str
    sha256: str
    named: bool = False


@dataclass
class Unsynced:
    """Folders to be synced, each once: by identity, an open descriptor and the folders in it that it makes durable."""

    fds: dict[tuple[int, int], int] = field(default_factory=dict)
    inside: dict[tuple[int, int], list[tuple[int, int]]] = field(default_factory=dict)

    def add(self, folder: int, made: tuple[int, int] | None = None) -> None:
        found = os.fstat(folder)
        identity = (found.st_dev, found.st_ino)
        if identity not in self.fds:
            self.fds[identity] = os.dup(folder)
        if made is not None:
            self.inside.setdefault(identity, []).append(made)

    def close(self) -> None:
        while self.fds:
            os.close(self.fds.popitem()[1])


class Together:
    """Several puts into a directory."""

    def __init__(self, folders: Folders, publisher: Publisher, *, at: At, token: Callable[[], str]) -> None:
        self._folders, self._publisher, self._at, self._token = folders, publisher, at, token

    def put(self, puts: Sequence[tuple[Put, list[str]]]) -> list[Put]:
        what = f"write {puts[0][0].name!r} and what belongs to it" if puts else "write nothing"
        with explained(what), self._opened() as (tmp, unsynced, places):
            written: list[_Written] = []
            try:
                for put, path in puts:
                    written.append(self._write(tmp, put, path))
                for one in written:
                    self._folders.sync(one.fd)
                    self._at("temp synced")
                try:
                    for one in written:
                        self._publish(one, tmp, unsynced, places)
                finally:
                    self._sync(unsynced)
            except Exception:
                for one in written:
                    with suppress(FileNotFoundError):
                        if not one.named:
                            os.unlink(one.entry, dir_fd=tmp)
                raise
            finally:
                for one in written:
                    os.close(one.fd)
            return [one.put for one in written if not self._reads_back(one, places)]

    @contextmanager
    def _opened(self) -> Iterator[tuple[int, Unsynced, dict[tuple[str, ...], int]]]:
        """The folder of unfinished files, and the folders that are opened on the way."""
        with ExitStack() as stack:
            tmp = stack.enter_context(self._folders.tmp())
            unsynced, places = Unsynced(), dict[tuple[str, ...], int]()
            stack.callback(unsynced.close)
            stack.callback(_close_all, places)
            yield tmp, unsynced, places

    def _write(self, tmp: int, put: Put, path: list[str]) -> _Written:
        entry = self._token()
        fd = os.open(entry, NEW_FILE, 0o666, dir_fd=tmp)
        try:
            fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)  # sweep leaves alone what is locked
            self._at("temp made")
            write_all(fd, put.data)
            self._at("temp written")
            sha256 = hashlib.sha256(put.data).hexdigest()
            keep_digest(fd, sha256)
            return _Written(put, path, fd, entry, sha256)
        except Exception:
            os.close(fd)
            with suppress(FileNotFoundError):
                os.unlink(entry, dir_fd=tmp)
            raise

    def _publish(self, one: _Written, tmp: int, unsynced: Unsynced, places: dict[tuple[str, ...], int]) -> None:
        put, key = one.put, tuple(one.path[:-1])
        try:
            if key not in places:
                with self._folders.make(one.path[:-1], unsynced) as folder:
                    places[key] = os.dup(folder)
            with self._publisher.place(places[key], one.path[-1]) as (place, entry), self._folders.locked(one.path):
                if put.if_match is not None:
                    check_version(put.name, entry, place, put.if_match)
                if put.if_absent:
                    os.link(one.entry, entry, src_dir_fd=tmp, dst_dir_fd=place, follow_symlinks=False)
                    self._at("linked")
                    os.unlink(one.entry, dir_fd=tmp)
                    self._at("temp dropped")
                else:
                    os.rename(one.entry, entry, src_dir_fd=tmp, dst_dir_fd=place)
                    self._at("renamed")
                unsynced.add(place)
        except OSError as error:
            if error.errno not in (*LOOK_AGAIN, errno.EEXIST):
                raise
            # Something is in the way, or the folder went that moment: what publishes single objects knows what to make
            # of it.
            self._publisher.publish(
                put.name, one.path, one.fd, one.entry, one.sha256, if_absent=put.if_absent, if_match=put.if_match
            )
            if key in places:
                os.close(places.pop(key))
        one.named = True

    def _sync(self, unsynced: Unsynced) -> None:
        for identity, fd in unsynced.fds.items():
            self._folders.sync(fd)
            self._folders.are_durable(unsynced.inside.get(identity, ()))
            self._at("folder synced")
        self._at("published")

    def _reads_back(self, one: _Written, places: dict[tuple[str, ...], int]) -> bool:
        key = tuple(one.path[:-1])
        with ExitStack() as stack:
            try:
                folder = places[key] if key in places else stack.enter_context(self._folders.find(one.path[:-1]))
            except NotFound:
                return False
            fd = open_object(one.path[-1], folder)
        if fd is None:
            return False
        with open(fd, "rb", buffering=0) as file:
            return file.read(len(one.put.data) + 1) == one.put.data


def _close_all(fds: dict[tuple[str, ...], int]) -> None:
    while fds:
        os.close(fds.popitem()[1])
