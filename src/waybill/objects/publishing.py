"""Publishing: from a file that is being written to an object that is there, in one system call.

Opened by `temp` (a new file in `.waybill/tmp`, locked for as long as someone writes to it, gone if the writer fails),
ended by `publish`: digest kept, file synced, `link` or `rename`, folder synced. Whatever the two meet at the object's
place (a folder made or removed, a file turned into a folder in that moment) sends them back to look again.
"""

from __future__ import annotations

import errno
import fcntl
import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import replace

from waybill.objects.escape import SELF
from waybill.objects.files import OPEN_FOLDER, describe, explained, keep_digest, open_object
from waybill.objects.folders import At, Folders
from waybill.objects.protocol import AlreadyThere, NotFound, ObjectInfo, Precondition, Unavailable

NEW_FILE = os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
LOOK_AGAIN = {errno.ENOENT, errno.EISDIR, errno.ENOTDIR, errno.ENOTEMPTY}


class Publisher:
    def __init__(self, folders: Folders, *, at: At, token: Callable[[], str]) -> None:
        self._folders = folders
        self._at = at
        self._token = token

    @contextmanager
    def temp(self, what: str) -> Iterator[tuple[int, str]]:
        """A new file to write to, and its entry in tmp. Removed if an Exception passes; a crash leaves it to
        `sweep`.
        """
        entry = self._token()
        with explained(f"write {what}"), self._folders.tmp() as tmp:
            fd = os.open(entry, NEW_FILE, 0o666, dir_fd=tmp)
            fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)  # sweep leaves alone what is locked
            self._at("temp made")
        try:
            yield fd, entry
        except Exception:
            with self._folders.tmp() as tmp, suppress(FileNotFoundError):
                os.unlink(entry, dir_fd=tmp)
            raise
        finally:
            os.close(fd)

    def publish(
        self, name: str, path: list[str], fd: int, temp: str, sha256: str, *, if_absent: bool, if_match: str | None
    ) -> ObjectInfo:
        """Let the written file be the object."""
        self._at("temp written")
        keep_digest(fd, sha256)
        self._folders.sync(fd)
        self._at("temp synced")
        for _ in range(100):
            try:
                with self._folders.make(path[:-1]) as folder, self.place(folder, path[-1]) as (place, entry):
                    with self._folders.locked(path), self._folders.tmp() as tmp:
                        if if_match is not None:
                            check_version(name, entry, place, if_match)
                        if if_absent:
                            os.link(temp, entry, src_dir_fd=tmp, dst_dir_fd=place, follow_symlinks=False)
                            self._at("linked")
                            os.unlink(temp, dir_fd=tmp)
                            self._at("temp dropped")
                        else:
                            os.rename(temp, entry, src_dir_fd=tmp, dst_dir_fd=place)
                            self._at("renamed")
                    self._folders.sync(place)
                    self._at("published")
                    return replace(describe(name, fd), sha256=sha256)  # known even where it cannot be kept
            except FileExistsError:
                if self._is_there(path):
                    raise AlreadyThere(f"An object named {name!r} exists already.") from None
            except OSError as error:
                if error.errno not in LOOK_AGAIN:
                    raise
                self._still_there(temp, name)
        raise Unavailable(f"The place of {name!r} changed a hundred times while it was being published.")

    @contextmanager
    def place(self, folder: int, entry: str) -> Iterator[tuple[int, str]]:
        """Where the object of this entry lies or would lie: here, or inside the folder of the same name."""
        try:
            inside = os.open(entry, OPEN_FOLDER, dir_fd=folder)
        except OSError as error:
            if error.errno not in (errno.ENOENT, errno.ENOTDIR, errno.ELOOP):
                raise
            yield folder, entry
            return
        try:
            yield inside, SELF
        finally:
            os.close(inside)

    def _is_there(self, path: list[str]) -> bool:
        """Whether what was in the way is an object (or a link, a pipe ...) rather than a folder made in that moment."""
        with (
            suppress(NotFound),
            self._folders.find(path[:-1]) as folder,
            self.place(folder, path[-1]) as (place, entry),
        ):
            with suppress(FileNotFoundError):
                os.stat(entry, dir_fd=place, follow_symlinks=False)
                return True
        return False

    def _still_there(self, temp: str, name: str) -> None:
        with self._folders.tmp() as tmp:
            try:
                os.stat(temp, dir_fd=tmp, follow_symlinks=False)
            except FileNotFoundError:
                raise Unavailable(f"The unfinished file of {name!r} was removed by someone else.") from None


def check_version(name: str, entry: str, place: int, etag: str) -> None:
    fd = open_object(entry, place)
    if fd is None:
        raise Precondition(f"{name!r} is gone: it was to be replaced only as version {etag}.")
    try:
        present = describe(name, fd).etag
    finally:
        os.close(fd)
    if present != etag:
        raise Precondition(f"{name!r} is now version {present}, and was to be replaced only as version {etag}.")
