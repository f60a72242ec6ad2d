"""Folders: walking below a root without ever leaving it, making folders that survive a crash, and moving a file
aside for a folder.

Every step is taken from an open descriptor of the folder above (`dir_fd`) and never through a symbolic link, so that
nothing that is planted below the root, before or meanwhile, leads anywhere else. A folder that was made is durable
before anything is put into it: its parent is synced by whoever uses it first in this process, since the process that
made it may have died before it could.

A name can be an object and a prefix of others. When `a/b` comes while `a` is a file, the file moves into a folder of
its own name (`a/%o`) in one exchange (renameat2 of Linux): readers see it before and after.
"""

from __future__ import annotations

import ctypes
import errno
import fcntl
import hashlib
import os
import stat
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager, suppress
from threading import Lock
from typing import Protocol

from waybill.objects.beneath import open_beneath
from waybill.objects.escape import SELF
from waybill.objects.files import OPEN_FOLDER
from waybill.objects.protocol import NotFound, Refused, Unavailable

_REMEMBERED = 20_000  # folders known to be durable
_NO_REPLACE, _EXCHANGE = 1, 2  # of renameat2
_renameat2 = getattr(ctypes.CDLL(None, use_errno=True), "renameat2", None)  # Linux

At = Callable[[str], None]


class Later(Protocol):
    """Takes note of a folder to be synced, and of the folder in it that is durable then."""

    def add(self, folder: int, made: tuple[int, int] | None = None) -> None: ...


class Folders:
    """The tree below one open root. `at` is told of every side effect; a simulator crashes there."""

    def __init__(self, root: int, *, at: At, fsync: bool, token: Callable[[], str]) -> None:
        self.root = root
        self._at = at
        self._fsync = fsync
        self._token = token
        self._durable: dict[tuple[int, int], None] = {}
        self._guard = Lock()

    def sync(self, fd: int) -> None:
        if self._fsync:
            os.fsync(fd)

    def _open_root(self) -> int:
        # Not a dup: that would share its place in the list of entries with every other thread that reads it.
        return os.open(".", OPEN_FOLDER, dir_fd=self.root)

    @contextmanager
    def tmp(self) -> Iterator[int]:
        """A descriptor of the folder of unfinished things."""
        # One call and not three: what lies in .waybill was made by us, and no name that somebody chose is in this path.
        fd = os.open(f"{OWN[0]}/tmp", OPEN_FOLDER, dir_fd=self.root)
        try:
            yield fd
        finally:
            os.close(fd)

    @contextmanager
    def find(self, path: list[str]) -> Iterator[int]:
        """A descriptor of the folder at the path; NotFound if there is none, or something else lies there."""
        try:
            fd = open_beneath(self.root, "/".join(path) or ".", OPEN_FOLDER)
        except OSError as error:
            if error.errno in (errno.ENOENT, errno.ENOTDIR, errno.ELOOP):
                raise NotFound from None
            raise
        try:
            yield fd
        finally:
            os.close(fd)

    @contextmanager
    def make(self, path: list[str], later: Later | None = None) -> Iterator[int]:
        """The same, and folders that are missing are made, durably; a file that is in the way moves into the folder.

        With `later` the folders that must be synced are noted there, for someone who syncs them all at the end.
        """
        fd = self._open_root()
        try:
            for depth, component in enumerate(path):
                below = self._enter(fd, path[: depth + 1], component)
                try:
                    self._make_durable(fd, below, later)
                finally:
                    os.close(fd)
                    fd = below
            yield fd
        finally:
            os.close(fd)

    def _enter(self, fd: int, path: list[str], component: str) -> int:
        for _ in range(100):  # every turn means that someone else made, removed or replaced it in that moment
            try:
                # most are there, and making one takes a lock on the folder above
                return os.open(component, OPEN_FOLDER, dir_fd=fd)
            except FileNotFoundError:
                with suppress(FileExistsError):
                    os.mkdir(component, dir_fd=fd)
                    self._at("folder made")
            except OSError as error:
                if error.errno not in (errno.ENOTDIR, errno.ELOOP):
                    raise
                self._move_inside(fd, path, component)
        raise Unavailable(f"The folder of {'/'.join(path)!r} changed a hundred times while it was entered.")

    def _make_durable(self, parent: int, fd: int, later: Later | None) -> None:
        found = os.fstat(fd)
        identity = (found.st_dev, found.st_ino)
        if identity in self._durable:
            return
        if later is not None:
            later.add(parent, identity)
            return
        self.sync(parent)
        self._at("folder synced")
        self.are_durable([identity])

    def are_durable(self, identities: Iterable[tuple[int, int]]) -> None:
        """Take note that the folders above these are synced."""
        with self._guard:
            for identity in identities:
                if len(self._durable) >= _REMEMBERED:
                    self._durable.pop(next(iter(self._durable)))
                self._durable[identity] = None

    def _move_inside(self, fd: int, path: list[str], component: str) -> None:
        with self.locked(path):
            try:
                found = os.stat(component, dir_fd=fd, follow_symlinks=False)
            except FileNotFoundError:
                return
            if stat.S_ISDIR(found.st_mode):
                return
            if not stat.S_ISREG(found.st_mode):
                raise Refused(
                    f"{'/'.join(path)!r} in the directory is neither a file nor a folder, and links are not followed."
                )
            with self.tmp() as tmp:
                aside = self._token()
                os.mkdir(aside, dir_fd=tmp)
                self._at("aside made")
                inside = os.open(aside, OPEN_FOLDER, dir_fd=tmp)
                try:
                    os.link(component, SELF, src_dir_fd=fd, dst_dir_fd=inside, follow_symlinks=False)
                    self._at("aside linked")
                    self.sync(inside)
                finally:
                    os.close(inside)
                try:
                    exchange(tmp, aside, fd, component)
                except Exception:
                    remove_tree(tmp, aside)
                    raise
                self._at("aside exchanged")
                self.sync(fd)
                os.unlink(aside, dir_fd=tmp)  # the second name of the file that now lies inside the folder
                self._at("aside dropped")

    def prune(self, path: list[str]) -> None:
        """Remove the folders at the end of the path for as long as they are empty."""
        for depth in range(len(path), 0, -1):
            try:
                with self.find(path[: depth - 1]) as above:
                    found = os.stat(path[depth - 1], dir_fd=above, follow_symlinks=False)
                    os.rmdir(path[depth - 1], dir_fd=above)
                with self._guard:
                    self._durable.pop((found.st_dev, found.st_ino), None)
            except NotFound:
                continue
            except OSError as error:
                if error.errno == errno.ENOENT:
                    continue
                if error.errno in (
                    errno.ENOTEMPTY,
                    errno.EEXIST,
                    errno.ENOTDIR,
                    errno.EBUSY,
                    errno.EACCES,
                    errno.EPERM,
                ):
                    return
                raise
            self._at("folder removed")

    @contextmanager
    def locked(self, path: list[str]) -> Iterator[None]:
        """Alone with the object at this path, among all processes: for the moment between a look at the present
        version and its end.

        It is taken for a few system calls, never for a transfer, and at most one at a time. The kernel drops it with
        the process.
        """
        stripe = f"{OWN[0]}/locks/{hashlib.sha256('/'.join(path).encode()).hexdigest()[:2]}"
        fd = os.open(stripe, os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC, 0o666, dir_fd=self.root)
        try:
            fcntl.flock(fd, fcntl.LOCK_EX)
            yield
        finally:
            os.close(fd)


OWN = [".waybill"]


def exchange(one_fd: int, one: str, other_fd: int, other: str) -> None:
    """Let two entries of a file system change places, atomically."""
    if not _renamed(one_fd, one, other_fd, other, _EXCHANGE):
        raise Refused(
            f"{other!r} is an object, and this file system cannot keep an object whose name is also a prefix of others."
        )


def rename_to_nothing(one_fd: int, one: str, other_fd: int, other: str) -> None:
    """Give an entry another name, at which there must be nothing."""
    if not _renamed(one_fd, one, other_fd, other, _NO_REPLACE):
        raise Refused(f"{other!r} cannot get its name: this file system cannot rename without replacing.")


def _renamed(one_fd: int, one: str, other_fd: int, other: str, flags: int) -> bool:
    """Whether this system has such a rename."""
    if _renameat2 is None:
        return False
    if _renameat2(one_fd, os.fsencode(one), other_fd, os.fsencode(other), flags) == 0:
        return True
    code = ctypes.get_errno()
    if code in (errno.ENOSYS, errno.EINVAL, errno.ENOTSUP):
        return False
    raise OSError(code, os.strerror(code))


def remove_tree(parent: int, entry: str) -> None:
    """Remove an entry and all below it, without following links; what is gone already is fine."""
    with suppress(FileNotFoundError):
        try:
            os.unlink(entry, dir_fd=parent)
            return
        except OSError as error:
            if error.errno not in (errno.EISDIR, errno.EPERM):
                raise
        fd = os.open(entry, OPEN_FOLDER, dir_fd=parent)
        try:
            for below in os.listdir(fd):
                remove_tree(fd, below)
        finally:
            os.close(fd)
        os.rmdir(entry, dir_fd=parent)
