"""DirectoryObjects: objects as files below one folder. The default, and the reference for other drivers.

On disk (directory_files.py says how a name becomes a path):

    <root>/jobs/42/files.jsonl       the object `jobs/42/files.jsonl`
    <root>/.waybill/layout.json      how names are written here; created first, checked whenever the directory is opened
    <root>/.waybill/tmp/             files that are being written; a crash leaves them there until `sweep`
    <root>/.waybill/uploads/<id>/    stored parts of an upload (directory_writes.py)
    <root>/.waybill/locks/           256 empty files to lock while an object is published

The life of a put: a new file in tmp, locked to show that it is in use; content and digest written; file synced; then
**published** by one system call, `link` for an object that must be absent or `rename` for one that may exist; then its
folder synced. A crash before publishing leaves a file in tmp; after it, the object. A compare-and-swap reads the current
version and publishes under the object's lock, which every other put and delete of that object takes as well.

`on_side_effect` is called with the name of each side effect right after it (SIDE_EFFECTS). A simulator crashes there by
raising something that is not an Exception, so that no clean-up runs that a dead process would not run.
"""

from __future__ import annotations

import errno
import fcntl
import json
import os
import secrets
import stat
import time
import unicodedata
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from pathlib import Path
from types import TracebackType
from typing import Self

from waybill.objects.bulk_puts import BulkPublisher, NewFolderPublisher, ObjectPut
from waybill.objects.directory_files import (
    PathComponents,
    components_of,
    describe_file,
    open_object,
    open_range,
    translate_os_errors,
    write_all,
)
from waybill.objects.directory_folders import OWN_FOLDER, FolderTree, SideEffectHook, remove_tree
from waybill.objects.directory_listing import MAX_SORTED_ENTRIES, DirectoryListing
from waybill.objects.directory_writes import DirectoryUpload, FilePublisher
from waybill.objects.protocol import (
    ObjectData,
    ObjectInfo,
    ObjectNotFound,
    ObjectRequestRefused,
    ObjectStoreCapabilities,
    SweepResult,
    check_name,
    check_prefix,
)
from waybill.objects.streams import CheckedStream, StreamedBody, check_conditions, check_range

_LAYOUT_FILE = "layout.json"

SIDE_EFFECTS = (
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
    "new folder made",
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


class DirectoryObjects:
    """Objects below a folder of a POSIX file system, which is created if it is missing."""

    capabilities = ObjectStoreCapabilities(create="atomic", swap="atomic", complete="atomic")

    def __init__(
        self,
        root: str | os.PathLike[str],
        *,
        fsync: bool = True,
        clock: Callable[[], float] = time.time,
        token: Callable[[], str] = lambda: secrets.token_hex(12),
        on_side_effect: SideEffectHook = lambda point: None,
    ) -> None:
        """`fsync=False` gives up durability after a power failure, for tests. `clock`, `token` and `on_side_effect` are for
        simulators.
        """
        self.root = Path(root).absolute()
        self._clock, self._token, self._on_side_effect = clock, token, on_side_effect
        with translate_os_errors(f"open the directory {self.root}"):
            _make_root(self.root, fsync)
            self._fd = os.open(self.root, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
            self._folders = FolderTree(self._fd, on_side_effect=on_side_effect, fsync=fsync, token=token)
            self._publisher = FilePublisher(self._folders, on_side_effect=on_side_effect, token=token)
            self._bulk_publisher = BulkPublisher(
                self._folders, self._publisher, on_side_effect=on_side_effect, token=token
            )
            self._new_folder_publisher = NewFolderPublisher(self._folders, on_side_effect=on_side_effect, token=token)
            for own in ("tmp", "locks", "uploads"):
                with self._folders.make_folder([*OWN_FOLDER, own]):
                    pass
            self._folding = agree_on_folding(self._folders, self._publisher, token, str(self.root))

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
        check_conditions(if_absent, if_match)
        path = self._path_of(name)
        stream = CheckedStream(data, size=size, sha256=sha256)
        with self._publisher.open_temp(repr(name)) as (fd, temp):
            for chunk in stream:  # an exception of the caller's data passes through unchanged
                with translate_os_errors(f"write {name!r}"):
                    write_all(fd, chunk)
            with translate_os_errors(f"write {name!r}"):
                return self._publisher.publish(
                    name, path, fd, temp, stream.sha256, if_absent=if_absent, if_match=if_match
                )

    def put_several(self, puts: Sequence[ObjectPut]) -> list[ObjectPut]:
        """Put all of them with few syncs; return those that do not read back (bulk_puts.py)."""
        return self._bulk_publisher.put([(put, self._path_of(put.name)) for put in puts])

    def put_new_folder(self, folder: str, puts: Sequence[ObjectPut]) -> bool:
        """Put all of them as a new folder, atomically; return whether it was new (bulk_puts.py)."""
        path, below = self._path_of(folder), f"{folder}/"
        if not all(put.name.startswith(below) for put in puts):
            raise ObjectRequestRefused(f"Not all objects to put are below {folder!r}.")
        return self._new_folder_publisher.put(path, [(put, self._path_of(put.name)[len(path) :]) for put in puts])

    def get(self, name: str, *, start: int = 0, end: int | None = None) -> StreamedBody:
        check_range(start, end)
        fd = self._open_file(name)
        return open_range(describe_file(name, fd), fd, start, end)

    def head(self, name: str) -> ObjectInfo:
        fd = self._open_file(name)
        try:
            return describe_file(name, fd)
        finally:
            os.close(fd)

    def list(self, prefix: str = "", *, after: str = "", limit: int | None = None) -> Iterator[ObjectInfo]:
        prefix = check_prefix(prefix)
        listing = DirectoryListing(self._folders, after, MAX_SORTED_ENTRIES if limit is None else limit, self._folding)
        with translate_os_errors(f"list {prefix!r}"):
            found = listing.list_below(
                components_of(prefix, folding=self._folding) if prefix else [], f"{prefix}/" if prefix else ""
            )
            for count, info in enumerate(found):
                if limit is not None and count >= limit:
                    return
                yield info

    def delete(self, name: str) -> bool:
        path = self._path_of(name)
        with translate_os_errors(f"delete {name!r}"), suppress(ObjectNotFound, FileNotFoundError):
            with (
                self._folders.open_folder(path[:-1]) as folder,
                self._publisher.open_place(folder, path[-1]) as (place, entry),
            ):
                with self._folders.lock_path(path):
                    if not stat.S_ISREG(os.stat(entry, dir_fd=place, follow_symlinks=False).st_mode):
                        return False  # a link or a pipe is not an object
                    os.unlink(entry, dir_fd=place)
                    self._on_side_effect("deleted")
                self._folders.sync(place)
                self._on_side_effect("delete synced")
            self._folders.prune(path)
            return True
        return False

    def copy(self, source: str, target: str, *, if_absent: bool = False) -> ObjectInfo:
        # Not a hard link: a copy must survive damage of the original's blocks. Reading it also checks its digest.
        with self.get(source) as body:
            return self.put(target, body, if_absent=if_absent, size=body.info.size, sha256=body.info.sha256)

    def upload(self, name: str, *, resume: str | None = None, keep: bool = False) -> DirectoryUpload:
        path = self._path_of(name)
        return DirectoryUpload(
            self._folders,
            self._publisher,
            name,
            path,
            token=self._token,
            on_side_effect=self._on_side_effect,
            resume=resume,
            keep=keep,
        )

    def sweep(self, older_than: float) -> SweepResult:
        before = self._clock() - older_than
        removed = {"tmp": 0, "uploads": 0}
        with translate_os_errors("sweep"):
            for own in removed:
                with self._folders.open_folder([*OWN_FOLDER, own]) as folder:
                    for entry in os.listdir(folder):
                        if _is_abandoned(entry, folder, before):
                            remove_tree(folder, entry)
                            self._on_side_effect("swept")
                            removed[own] += 1
        return SweepResult(files=removed["tmp"], uploads=removed["uploads"])

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
        return f"DirectoryObjects({str(self.root)!r})"

    def _path_of(self, name: str) -> PathComponents:
        return components_of(check_name(name), folding=self._folding)

    def _open_file(self, name: str) -> int:
        path = self._path_of(name)
        fd = None
        with (
            translate_os_errors(f"read {name!r}"),
            suppress(ObjectNotFound),
            self._folders.open_folder(path[:-1]) as folder,
        ):
            fd = open_object(path[-1], folder)
        if fd is None:
            raise ObjectNotFound(f"There is no object named {name!r}.")
        return fd


def _make_root(root: Path, fsync: bool) -> None:
    if root.exists() and not root.is_dir():
        raise ObjectRequestRefused(f"{root} is not a folder, so it cannot hold objects.")
    missing = [folder for folder in (root, *root.parents) if not folder.exists()]
    root.mkdir(parents=True, exist_ok=True)
    for folder in missing if fsync else ():
        fd = os.open(folder.parent, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        try:
            os.fsync(fd)
        finally:
            os.close(fd)


def agree_on_folding(folders: FolderTree, publisher: FilePublisher, token: Callable[[], str], root: str) -> bool:
    """Return whether names are escaped for a file system that folds them, as the process that first opened the
    directory wrote in its layout.
    """
    with folders.open_folder([*OWN_FOLDER, "tmp"]) as tmp, folders.open_folder(OWN_FOLDER) as own:
        stored = _read_layout(own)
        try:
            folds = _is_folding(tmp, token())
        except OSError as error:
            if stored is None or error.errno not in (errno.EACCES, errno.EPERM, errno.EROFS):
                raise
            folds = False  # cannot be tested on a read-only file system, which can still be read
        if stored is None:
            with publisher.open_temp("the layout") as (fd, temp):
                write_all(fd, json.dumps({"waybill": "objects", "v": 1, "folding": folds}).encode() + b"\n")
                folders.sync(fd)
                with suppress(FileExistsError):  # another process was first
                    os.link(temp, _LAYOUT_FILE, src_dir_fd=tmp, dst_dir_fd=own, follow_symlinks=False)
                folders.sync(own)
                os.unlink(temp, dir_fd=tmp)
            stored = _read_layout(own)
    try:
        layout = json.loads(stored or b"")
        kind, version, folding = layout["waybill"], layout["v"], bool(layout["folding"])
    except (ValueError, TypeError, KeyError):
        kind, version, folding = None, None, False
    if (kind, version) != ("objects", 1):
        raise ObjectRequestRefused(
            f"{root}/.waybill/{_LAYOUT_FILE} was not written by this version of Waybill: the directory is not used."
        )
    if folds and not folding:
        raise ObjectRequestRefused(
            f"{root} was written on a file system that distinguishes names that this one takes for the same: copy it with Waybill instead."
        )
    return folding


def _read_layout(own: int) -> bytes | None:
    fd = open_object(_LAYOUT_FILE, own)
    if fd is None:
        return None
    with os.fdopen(fd, "rb") as file:
        return file.read(10_000)


def _is_folding(tmp: int, token: str) -> bool:
    """Whether the file system ignores case, or the form of accents."""
    written = f"{token}-Aé"
    os.close(os.open(written, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o666, dir_fd=tmp))
    try:
        return any(_has_entry(other, tmp) for other in (written.lower(), unicodedata.normalize("NFD", written)))
    finally:
        os.unlink(written, dir_fd=tmp)


def _has_entry(entry: str, folder: int) -> bool:
    try:
        os.stat(entry, dir_fd=folder, follow_symlinks=False)
    except FileNotFoundError:
        return False
    return True


def _is_abandoned(entry: str, folder: int, before: float) -> bool:
    """Whether this file or folder was not modified since and is not locked by a writer."""
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
