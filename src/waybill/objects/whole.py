"""Whole: a new folder with everything that belongs into it, which is there all at once or not at all.

    there = put_whole(objects, "ocfl/aa/bb/1", [Put("ocfl/aa/bb/1/v1/a", b"..."), Put("ocfl/aa/bb/1/b", b"...")])

A directory makes the folder in its `tmp`: each file is written under its name, synced and read back, then each folder
is synced; and one rename, which replaces nothing, lets it be the folder that was asked for. A crash before that leaves
a folder in tmp, for `sweep`; after it everything is there. Not made (False) if there is anything at its place, if a
file does not read back, or if the store or its file system has no such rename: then nothing is changed, and
`put_several` may know more.
"""

from __future__ import annotations

import errno
import fcntl
import hashlib
import os
from collections.abc import Callable, Sequence
from typing import Protocol

from waybill.objects.files import OPEN_FOLDER, explained, keep_digest, write_all
from waybill.objects.folders import At, Folders, remove_tree, rename_to_nothing
from waybill.objects.protocol import Objects, Refused
from waybill.objects.publishing import NEW_FILE
from waybill.objects.several import Put, Unsynced

_IN_THE_WAY = (errno.EEXIST, errno.ENOTEMPTY, errno.ENOENT, errno.ENOTDIR)


class _Whole(Protocol):
    def put_whole(self, folder: str, puts: Sequence[Put]) -> bool: ...


def can_put_whole(objects: Objects) -> bool:
    """Whether it is worth the while to ask."""
    return hasattr(objects, "put_whole")


def put_whole(objects: Objects, folder: str, puts: Sequence[Put]) -> bool:
    """Whether all of them are there now, and nothing else is below the folder."""
    able: _Whole | None = objects if can_put_whole(objects) else None  # type: ignore[assignment] # just looked
    return able is not None and able.put_whole(folder, puts)


class WholeFolder:
    """New folders of a directory."""

    def __init__(self, folders: Folders, *, at: At, token: Callable[[], str]) -> None:
        self._folders, self._at, self._token = folders, at, token

    def put(self, path: list[str], puts: Sequence[tuple[Put, list[str]]]) -> bool:
        """`puts` with their paths below the folder."""
        with explained(f"write {'/'.join(path)!r}"), self._folders.tmp() as tmp:
            entry = self._token()
            os.mkdir(entry, dir_fd=tmp)
            fds: dict[tuple[str, ...], int] = {(): os.open(entry, OPEN_FOLDER, dir_fd=tmp)}
            files: list[int] = []
            try:
                fcntl.flock(fds[()], fcntl.LOCK_EX | fcntl.LOCK_NB)  # sweep leaves alone what is locked
                self._at("whole made")
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

    def _write(self, fds: dict[tuple[str, ...], int], files: list[int], puts: Sequence[tuple[Put, list[str]]]) -> bool:
        """Whether all are written, durable, and read back as they were written."""
        for put, below in puts:
            try:
                fd = os.open(below[-1], NEW_FILE, 0o666, dir_fd=self._inside(fds, tuple(below[:-1])))
            except FileExistsError:
                return False  # one of them is a prefix of another, which takes more than a folder
            files.append(fd)
            write_all(fd, put.data)
            keep_digest(fd, hashlib.sha256(put.data).hexdigest())
            self._at("temp written")
        # only now: what a disk keeps of them lies close together, and is written once
        for fd in (*files, *fds.values()):
            self._folders.sync(fd)
            self._at("temp synced")
        return all(os.pread(fd, len(put.data) + 1, 0) == put.data for fd, (put, _) in zip(files, puts, strict=True))

    def _inside(self, fds: dict[tuple[str, ...], int], below: tuple[str, ...]) -> int:
        if below not in fds:
            above = self._inside(fds, below[:-1])
            os.mkdir(below[-1], dir_fd=above)
            fds[below] = os.open(below[-1], OPEN_FOLDER, dir_fd=above)
        return fds[below]

    def _publish(self, path: list[str], tmp: int, entry: str, fds: dict[tuple[str, ...], int]) -> bool:
        unsynced = Unsynced()
        try:
            with self._folders.make(path[:-1], unsynced) as above:
                try:
                    rename_to_nothing(tmp, entry, above, path[-1])
                except OSError as error:
                    if error.errno not in _IN_THE_WAY:
                        raise
                    return False  # another's, or the folder above went that moment
                except Refused:
                    return False
                self._at("renamed")
                unsynced.add(above)
            for identity, fd in unsynced.fds.items():
                self._folders.sync(fd)
                self._folders.are_durable(unsynced.inside.get(identity, ()))
                self._at("folder synced")
        finally:
            unsynced.close()
        # Their folders are synced, and the one above all of them now too.
        found = [os.fstat(fd) for fd in fds.values()]
        self._folders.are_durable((each.st_dev, each.st_ino) for each in found)
        self._at("published")
        return True
