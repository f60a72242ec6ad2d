"""Bulk puts: small objects that belong together, written in one call, so that folders are synced once.

    wrong = put_several(objects, [ObjectPut("a/1", b"..."), ObjectPut("a/2", b"...", if_absent=True)])

`put_several` puts each object as `put` does, and they become visible in order; when the call returns all of them are
durable. It stops at the first one that is refused, and those before it stay: use it only for objects that mean nothing
without the last one. A crash leaves any of them. Each object is then **read back** by its name, and those that differ
are returned. A directory syncs each folder once, after the last object is in it, and each new folder with it, instead of
once for each object. Any other store puts one after the other.

    done = put_new_folder(objects, "a", [ObjectPut("a/1", b"..."), ObjectPut("a/b/2", b"...")])

`put_new_folder` puts a new folder with everything in it, all at once or not at all. Only a directory can: it writes and
syncs the folder in tmp, reads it back and gives it its name with one rename that replaces nothing.
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

from waybill.objects.directory_files import OPEN_FOLDER_FLAGS, open_object, translate_os_errors, write_all, write_digest
from waybill.objects.directory_folders import FolderTree, SideEffectHook, remove_tree, rename_without_replacing
from waybill.objects.directory_writes import NEW_FILE_FLAGS, RETRY_ERRNOS, FilePublisher, check_etag
from waybill.objects.protocol import ObjectNotFound, ObjectRequestRefused, Objects, measure

_OCCUPIED_ERRNOS = (errno.EEXIST, errno.ENOTEMPTY, errno.ENOENT, errno.ENOTDIR)


class ObjectPut(NamedTuple):
    name: str
    data: bytes
    if_absent: bool = False
    if_match: str | None = None


class _BulkPutStore(Protocol):
    def put_several(self, puts: Sequence[ObjectPut]) -> list[ObjectPut]: ...


def put_several(objects: Objects, puts: Sequence[ObjectPut]) -> list[ObjectPut]:
    """Put all of them and return those that do not read back as they were put."""
    bulk: _BulkPutStore | None = objects if hasattr(objects, "put_several") else None  # type: ignore[assignment] # just checked
    if bulk is not None:
        return bulk.put_several(puts)
    for put in puts:
        objects.put(put.name, put.data, if_absent=put.if_absent, if_match=put.if_match)
    return [put for put in puts if not _is_intact(objects, put)]


def _is_intact(objects: Objects, put: ObjectPut) -> bool:
    try:
        return measure(objects, put.name) == (len(put.data), hashlib.sha256(put.data).hexdigest())
    except ObjectNotFound:
        return False


class _NewFolderStore(Protocol):
    def put_new_folder(self, folder: str, puts: Sequence[ObjectPut]) -> bool: ...


def can_put_new_folder(objects: Objects) -> bool:
    """Whether this store has `put_new_folder`."""
    return hasattr(objects, "put_new_folder")


def put_new_folder(objects: Objects, folder: str, puts: Sequence[ObjectPut]) -> bool:
    """Put all of them as a new folder. Returns False, with nothing stored, if the store cannot or the folder exists."""
    able: _NewFolderStore | None = objects if can_put_new_folder(objects) else None  # type: ignore[assignment] # just checked
    return able is not None and able.put_new_folder(folder, puts)


@dataclass
class _WrittenFile:
    """A put whose data is in a file of tmp, until that is published."""

    put: ObjectPut
    path: list[str]
    fd: int
    entry: str
    sha256: str
    is_published: bool = False


@dataclass
class UnsyncedFolders:
    """Folders to sync, each once: by identity, an open descriptor and the new folders in it that become durable."""

    fds: dict[tuple[int, int], int] = field(default_factory=dict)
    inside: dict[tuple[int, int], list[tuple[int, int]]] = field(default_factory=dict)

    def add(self, folder: int, new_folder: tuple[int, int] | None = None) -> None:
        found = os.fstat(folder)
        identity = (found.st_dev, found.st_ino)
        if identity not in self.fds:
            self.fds[identity] = os.dup(folder)
        if new_folder is not None:
            self.inside.setdefault(identity, []).append(new_folder)

    def close(self) -> None:
        while self.fds:
            os.close(self.fds.popitem()[1])


class BulkPublisher:
    """`put_several` of a directory."""

    def __init__(
        self, folders: FolderTree, publisher: FilePublisher, *, on_side_effect: SideEffectHook, token: Callable[[], str]
    ) -> None:
        self._folders, self._publisher, self._on_side_effect, self._token = folders, publisher, on_side_effect, token

    def put(self, puts: Sequence[tuple[ObjectPut, list[str]]]) -> list[ObjectPut]:
        attempt = f"write {puts[0][0].name!r} and the objects put with it" if puts else "write nothing"
        with translate_os_errors(attempt), self._open_folders() as (tmp, unsynced, places):
            written: list[_WrittenFile] = []
            try:
                for put, path in puts:
                    written.append(self._write(tmp, put, path))
                for file in written:
                    self._folders.sync(file.fd)
                    self._on_side_effect("temp synced")
                try:
                    for file in written:
                        self._publish(file, tmp, unsynced, places)
                finally:
                    self._sync(unsynced)
            except Exception:
                for file in written:
                    with suppress(FileNotFoundError):
                        if not file.is_published:
                            os.unlink(file.entry, dir_fd=tmp)
                raise
            finally:
                for file in written:
                    os.close(file.fd)
            return [file.put for file in written if not self._is_intact(file, places)]

    @contextmanager
    def _open_folders(self) -> Iterator[tuple[int, UnsyncedFolders, dict[tuple[str, ...], int]]]:
        """Yield tmp, the folders to sync, and the open folders of the objects; all are closed at the end."""
        with ExitStack() as stack:
            tmp = stack.enter_context(self._folders.open_tmp())
            unsynced, places = UnsyncedFolders(), dict[tuple[str, ...], int]()
            stack.callback(unsynced.close)
            stack.callback(_close_all, places)
            yield tmp, unsynced, places

    def _write(self, tmp: int, put: ObjectPut, path: list[str]) -> _WrittenFile:
        entry = self._token()
        fd = os.open(entry, NEW_FILE_FLAGS, 0o666, dir_fd=tmp)
        try:
            fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)  # sweep skips what is locked
            self._on_side_effect("temp made")
            write_all(fd, put.data)
            self._on_side_effect("temp written")
            sha256 = hashlib.sha256(put.data).hexdigest()
            write_digest(fd, sha256)
            return _WrittenFile(put, path, fd, entry, sha256)
        except Exception:
            os.close(fd)
            with suppress(FileNotFoundError):
                os.unlink(entry, dir_fd=tmp)
            raise

    def _publish(
        self, file: _WrittenFile, tmp: int, unsynced: UnsyncedFolders, places: dict[tuple[str, ...], int]
    ) -> None:
        put, key = file.put, tuple(file.path[:-1])
        try:
            if key not in places:
                with self._folders.make_folder(file.path[:-1], unsynced) as folder:
                    places[key] = os.dup(folder)
            with (
                self._publisher.open_place(places[key], file.path[-1]) as (place, entry),
                self._folders.lock_path(file.path),
            ):
                if put.if_match is not None:
                    check_etag(put.name, entry, place, put.if_match)
                if put.if_absent:
                    os.link(file.entry, entry, src_dir_fd=tmp, dst_dir_fd=place, follow_symlinks=False)
                    self._on_side_effect("linked")
                    os.unlink(file.entry, dir_fd=tmp)
                    self._on_side_effect("temp dropped")
                else:
                    os.rename(file.entry, entry, src_dir_fd=tmp, dst_dir_fd=place)
                    self._on_side_effect("renamed")
                unsynced.add(place)
        except OSError as error:
            if error.errno not in (*RETRY_ERRNOS, errno.EEXIST):
                raise
            # The name exists, or the folder was removed at that moment: publishing a single object handles both.
            self._publisher.publish(
                put.name, file.path, file.fd, file.entry, file.sha256, if_absent=put.if_absent, if_match=put.if_match
            )
            if key in places:
                os.close(places.pop(key))
        file.is_published = True

    def _sync(self, unsynced: UnsyncedFolders) -> None:
        for identity, fd in unsynced.fds.items():
            self._folders.sync(fd)
            self._folders.mark_durable(unsynced.inside.get(identity, ()))
            self._on_side_effect("folder synced")
        self._on_side_effect("published")

    def _is_intact(self, file: _WrittenFile, places: dict[tuple[str, ...], int]) -> bool:
        key = tuple(file.path[:-1])
        with ExitStack() as stack:
            try:
                folder = (
                    places[key] if key in places else stack.enter_context(self._folders.open_folder(file.path[:-1]))
                )
            except ObjectNotFound:
                return False
            fd = open_object(file.path[-1], folder)
        if fd is None:
            return False
        with open(fd, "rb", buffering=0) as published:
            return published.read(len(file.put.data) + 1) == file.put.data


def _close_all(fds: dict[tuple[str, ...], int]) -> None:
    while fds:
        os.close(fds.popitem()[1])


class NewFolderPublisher:
    """`put_new_folder` of a directory."""

    def __init__(self, folders: FolderTree, *, on_side_effect: SideEffectHook, token: Callable[[], str]) -> None:
        self._folders, self._on_side_effect, self._token = folders, on_side_effect, token

    def put(self, path: list[str], puts: Sequence[tuple[ObjectPut, list[str]]]) -> bool:
        """Put the folder at `path`; each put comes with its path below the folder."""
        with translate_os_errors(f"write {'/'.join(path)!r}"), self._folders.open_tmp() as tmp:
            entry = self._token()
            os.mkdir(entry, dir_fd=tmp)
            fds: dict[tuple[str, ...], int] = {(): os.open(entry, OPEN_FOLDER_FLAGS, dir_fd=tmp)}
            files: list[int] = []
            try:
                fcntl.flock(fds[()], fcntl.LOCK_EX | fcntl.LOCK_NB)  # sweep skips what is locked
                self._on_side_effect("new folder made")
                made = self._write(fds, files, puts) and self._publish(path, tmp, entry, fds)
            except Exception:
                remove_tree(tmp, entry)
                raise
            finally:
                for fd in (*files, *fds.values()):
                    os.close(fd)
            if not made:
                remove_tree(tmp, entry)
            return made

    def _write(
        self, fds: dict[tuple[str, ...], int], files: list[int], puts: Sequence[tuple[ObjectPut, list[str]]]
    ) -> bool:
        """Write and sync all files. Returns whether they read back as they were written."""
        for put, below in puts:
            try:
                fd = os.open(below[-1], NEW_FILE_FLAGS, 0o666, dir_fd=self._open_subfolder(fds, tuple(below[:-1])))
            except FileExistsError:
                return False  # one name is a prefix of another, which this does not handle
            files.append(fd)
            write_all(fd, put.data)
            write_digest(fd, hashlib.sha256(put.data).hexdigest())
            self._on_side_effect("temp written")
        # synced only now, so that the file system writes what they share once
        for fd in (*files, *fds.values()):
            self._folders.sync(fd)
            self._on_side_effect("temp synced")
        return all(os.pread(fd, len(put.data) + 1, 0) == put.data for fd, (put, _) in zip(files, puts, strict=True))

    def _open_subfolder(self, fds: dict[tuple[str, ...], int], below: tuple[str, ...]) -> int:
        if below not in fds:
            above = self._open_subfolder(fds, below[:-1])
            os.mkdir(below[-1], dir_fd=above)
            fds[below] = os.open(below[-1], OPEN_FOLDER_FLAGS, dir_fd=above)
        return fds[below]

    def _publish(self, path: list[str], tmp: int, entry: str, fds: dict[tuple[str, ...], int]) -> bool:
        unsynced = UnsyncedFolders()
        try:
            with self._folders.make_folder(path[:-1], unsynced) as above:
                try:
                    rename_without_replacing(tmp, entry, above, path[-1])
                except OSError as error:
                    if error.errno not in _OCCUPIED_ERRNOS:
                        raise
                    return False  # the name exists, or the parent was removed at that moment
                except ObjectRequestRefused:
                    return False
                self._on_side_effect("renamed")
                unsynced.add(above)
            for identity, fd in unsynced.fds.items():
                self._folders.sync(fd)
                self._folders.mark_durable(unsynced.inside.get(identity, ()))
                self._on_side_effect("folder synced")
        finally:
            unsynced.close()
        # The folders inside were synced before, and their parent now.
        found = [os.fstat(fd) for fd in fds.values()]
        self._folders.mark_durable((each.st_dev, each.st_ino) for each in found)
        self._on_side_effect("published")
        return True
