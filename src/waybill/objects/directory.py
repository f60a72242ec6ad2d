"""Directory: objects as files below one folder. The default, and the driver that others are measured by.

What lies where (escape.py says how a name becomes a path):

    <root>/jobs/42/files.jsonl       the object `jobs/42/files.jsonl`
    <root>/.waybill/layout.json      how names are written here; made first, checked by whoever opens the directory
    <root>/.waybill/tmp/             objects that are being written; left over after a crash until `sweep`
    <root>/.waybill/uploads/<id>/    parts that have arrived (uploads.py)
    <root>/.waybill/locks/           256 empty files to lock for the moment of publishing

The life of a put: a new file in tmp, locked to show that it is in use; bytes and their digest written; file synced;
then **published** by one system call, `link` for an object that must be absent or `rename` for one that may be there;
then its folder synced. Before publishing a crash leaves a file in tmp; after it, the object. A compare-and-swap looks
at the present version and publishes under the object's lock, which every other put and delete of that object takes as
well.

`at` is called with the name of each side effect right after it (POINTS). A simulator crashes there; what it raises
should not be an Exception, so that no clean-up runs that a dead process would not have run.
"""

from __future__ import annotations

import fcntl
import os
import secrets
import stat
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from pathlib import Path
from types import TracebackType
from typing import Self

from waybill.objects.escape import Components, components
from waybill.objects.files import describe, explained, open_object, read_file, write_all
from waybill.objects.folders import OWN, At, Folders, remove_tree
from waybill.objects.layout import agreed_folding
from waybill.objects.listing import PAGE, Listing
from waybill.objects.names import check_name, check_prefix
from waybill.objects.protocol import Conditions, Data, NotFound, ObjectInfo, Refused, Swept
from waybill.objects.publishing import Publisher
from waybill.objects.reading import Reading
from waybill.objects.several import Put, Together
from waybill.objects.streams import Stream, check_conditions, check_range
from waybill.objects.uploads import DirectoryUpload
from waybill.objects.whole import WholeFolder

POINTS = (
    "folder made",
    "folder synced",
    "folder removed",
    "temp made",
    "temp written",
    "temp synced",
    "linked",
    "renamed",
    "published",
    "temp dropped",
    "whole made",
    "deleted",
    "delete synced",
    "aside made",
    "aside linked",
    "aside exchanged",
    "aside dropped",
    "upload made",
    "upload dropped",
    "swept",
)


class Directory:
    """Objects below a folder of a POSIX file system, made if it is not there."""

    conditions = Conditions(create="atomic", swap="atomic", complete="atomic")

    def __init__(
        self,
        root: str | os.PathLike[str],
        *,
        fsync: bool = True,
        clock: Callable[[], float] = time.time,
        token: Callable[[], str] = lambda: secrets.token_hex(12),
        at: At = lambda point: None,
    ) -> None:
        """`fsync=False` gives up durability at a power cut, for tests. Clock, token and at are for simulators."""
        self.root = Path(root).absolute()
        self._clock, self._token, self._at = clock, token, at
        with explained(f"open the directory {self.root}"):
            _make_root(self.root, fsync)
            self._fd = os.open(self.root, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
            self._folders = Folders(self._fd, at=at, fsync=fsync, token=token)
            self._publisher = Publisher(self._folders, at=at, token=token)
            self._together = Together(self._folders, self._publisher, at=at, token=token)
            self._whole = WholeFolder(self._folders, at=at, token=token)
            for own in ("tmp", "locks", "uploads"):
                with self._folders.make([*OWN, own]):
                    pass
            self._folding = agreed_folding(self._folders, self._publisher, token, str(self.root))

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
        check_conditions(if_absent, if_match)
        path = self._path(name)
        stream = Stream(data, size=size, sha256=sha256)
        with self._publisher.temp(repr(name)) as (fd, temp):
            for portion in stream:  # what the caller's data raise is the caller's, and passes as it is
                with explained(f"write {name!r}"):
                    write_all(fd, portion)
            with explained(f"write {name!r}"):
                return self._publisher.publish(
                    name, path, fd, temp, stream.sha256, if_absent=if_absent, if_match=if_match
                )

    def put_several(self, puts: Sequence[Put]) -> list[Put]:
        """Put all of them, with few syncs; which of them do not read back (several.py)."""
        return self._together.put([(put, self._path(put.name)) for put in puts])

    def put_whole(self, folder: str, puts: Sequence[Put]) -> bool:
        """Put all of them into a new folder, at once; whether it was new (whole.py)."""
        path, below = self._path(folder), f"{folder}/"
        if not all(put.name.startswith(below) for put in puts):
            raise Refused(f"Not everything that was to be put is below {folder!r}.")
        return self._whole.put(path, [(put, self._path(put.name)[len(path) :]) for put in puts])

    def get(self, name: str, *, start: int = 0, end: int | None = None) -> Reading:
        check_range(start, end)
        fd = self._open(name)
        return read_file(describe(name, fd), fd, start, end)

    def head(self, name: str) -> ObjectInfo:
        fd = self._open(name)
        try:
            return describe(name, fd)
        finally:
            os.close(fd)

    def list(self, prefix: str = "", *, after: str = "", limit: int | None = None) -> Iterator[ObjectInfo]:
        prefix = check_prefix(prefix)
        listing = Listing(self._folders, after, PAGE if limit is None else limit, self._folding)
        with explained(f"list {prefix!r}"):
            found = listing.below(
                components(prefix, folding=self._folding) if prefix else [], f"{prefix}/" if prefix else ""
            )
            for count, info in enumerate(found):
                if limit is not None and count >= limit:
                    return
                yield info

    def delete(self, name: str) -> bool:
        path = self._path(name)
        with explained(f"delete {name!r}"), suppress(NotFound, FileNotFoundError):
            with self._folders.find(path[:-1]) as folder, self._publisher.place(folder, path[-1]) as (place, entry):
                with self._folders.locked(path):
                    if not stat.S_ISREG(os.stat(entry, dir_fd=place, follow_symlinks=False).st_mode):
                        return False  # a link or a pipe that someone put here is not ours
                    os.unlink(entry, dir_fd=place)
                    self._at("deleted")
                self._folders.sync(place)
                self._at("delete synced")
            self._folders.prune(path)
            return True
        return False

    def copy(self, source: str, target: str, *, if_absent: bool = False) -> ObjectInfo:
        # Not a hard link: a copy is there for the day when the other's blocks go bad. Reading it all also checks its
        # digest.
        with self.get(source) as body:
            return self.put(target, body, if_absent=if_absent, size=body.info.size, sha256=body.info.sha256)

    def upload(self, name: str, *, resume: str | None = None, keep: bool = False) -> DirectoryUpload:
        path = self._path(name)
        return DirectoryUpload(
            self._folders, self._publisher, name, path, token=self._token, at=self._at, resume=resume, keep=keep
        )

    def sweep(self, older_than: float) -> Swept:
        before = self._clock() - older_than
        removed = {"tmp": 0, "uploads": 0}
        with explained("sweep"):
            for own in removed:
                with self._folders.find([*OWN, own]) as folder:
                    for entry in os.listdir(folder):
                        if _left_behind(entry, folder, before):
                            remove_tree(folder, entry)
                            self._at("swept")
                            removed[own] += 1
        return Swept(files=removed["tmp"], uploads=removed["uploads"])

    def close(self) -> None:
        if self._fd >= 0:
            os.close(self._fd)
            self._fd = -1

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def __repr__(self) -> str:
        return f"Directory({str(self.root)!r})"

    def _path(self, name: str) -> Components:
        return components(check_name(name), folding=self._folding)

    def _open(self, name: str) -> int:
        path = self._path(name)
        fd = None
        with explained(f"read {name!r}"), suppress(NotFound), self._folders.find(path[:-1]) as folder:
            fd = open_object(path[-1], folder)
        if fd is None:
            raise NotFound(f"There is no object named {name!r}.")
        return fd


def _make_root(root: Path, fsync: bool) -> None:
    if root.exists() and not root.is_dir():
        raise Refused(f"{root} is not a folder, so it cannot hold objects.")
    missing = [folder for folder in (root, *root.parents) if not folder.exists()]
    root.mkdir(parents=True, exist_ok=True)
    for folder in missing if fsync else ():
        fd = os.open(folder.parent, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        try:
            os.fsync(fd)
        finally:
            os.close(fd)


def _left_behind(entry: str, folder: int, before: float) -> bool:
    """Whether nobody has touched this file or folder since, and nobody is writing to it."""
    try:
        if os.stat(entry, dir_fd=folder, follow_symlinks=False).st_mtime >= before:
            return False
        fd = os.open(entry, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC, dir_fd=folder)
    except FileNotFoundError:
        return False
    try:
        fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    finally:
        os.close(fd)
    return True
