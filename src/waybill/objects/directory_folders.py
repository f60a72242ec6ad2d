"""The folders of a directory: opening paths without leaving the root, creating durable folders, and moving a file into
a folder of its own name.

Every step starts from an open descriptor of the parent (`dir_fd`) and never follows a symbolic link or `..`, so that
nothing placed below the root, before or meanwhile, leads outside. Linux opens a path so in one call (openat2); elsewhere
it is opened step by step. A new folder is durable before anything is put into it: the process that uses it first syncs
its parent, since the process that created it may have died before it could.

A name can be an object and a prefix of others. When `a/b` is put while `a` is a file, the file moves into a folder of
its own name (`a/%o`) in one exchange (renameat2 of Linux): readers find it before and after.
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

from waybill.objects.directory_files import OPEN_FOLDER_FLAGS, SELF_ENTRY
from waybill.objects.protocol import ObjectNotFound, ObjectRequestRefused, ObjectStoreUnavailable

OWN_FOLDER = [".waybill"]

_OPENAT2 = 437  # the same number on every architecture but Alpha
_MAX_TRIES = 100
_RESOLVE_BENEATH, _RESOLVE_NO_SYMLINKS = 0x08, 0x04  # of `resolve`
_MAX_DURABLE_FOLDERS = 20_000  # remembered in this process
_NO_REPLACE, _EXCHANGE = 1, 2  # of renameat2
_renameat2 = getattr(ctypes.CDLL(None, use_errno=True), "renameat2", None)  # Linux
_syscall = ctypes.CDLL(None, use_errno=True).syscall if hasattr(ctypes.CDLL(None), "syscall") else None

SideEffectHook = Callable[[str], None]


class _OpenHow(ctypes.Structure):
    _fields_ = (("flags", ctypes.c_uint64), ("mode", ctypes.c_uint64), ("resolve", ctypes.c_uint64))


def open_beneath(folder: int, path: str, flags: int) -> int:
    """Open an existing entry below a folder. Raises OSError like `os.open`, with ELOOP for a symbolic link on the path."""
    if HAS_OPENAT2 and _syscall is not None:
        how = _OpenHow(flags | os.O_CLOEXEC, 0, _RESOLVE_BENEATH | _RESOLVE_NO_SYMLINKS)
        code = 0
        for _ in range(_MAX_TRIES):
            fd = _syscall(_OPENAT2, folder, os.fsencode(path), ctypes.byref(how), ctypes.sizeof(how))
            if fd >= 0:
                return int(fd)
            code = ctypes.get_errno()
            # a signal; or an entry was renamed meanwhile, or has a lease
            if code not in (errno.EINTR, errno.EAGAIN):
                break
        raise OSError(code, os.strerror(code))
    return open_stepwise(folder, path, flags)


def open_stepwise(folder: int, path: str, flags: int) -> int:
    """Do the same as `open_beneath`, one entry at a time."""
    *above, last = path.split("/")
    if ".." in above or last == "..":
        raise OSError(errno.EXDEV, os.strerror(errno.EXDEV))
    fd = folder
    try:
        for component in above:
            below = os.open(component, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC, dir_fd=fd)
            if fd != folder:
                os.close(fd)
            fd = below
        return os.open(last, flags | os.O_NOFOLLOW | os.O_CLOEXEC, dir_fd=fd)
    finally:
        if fd != folder:
            os.close(fd)


def _has_openat2() -> bool:
    if _syscall is None:
        return False
    how = _OpenHow(os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC, 0, 0)
    fd = _syscall(_OPENAT2, -100, b"/", ctypes.byref(how), ctypes.sizeof(how))  # -100: AT_FDCWD
    if fd >= 0:
        os.close(fd)
    return bool(fd >= 0)


HAS_OPENAT2 = _has_openat2()


class FolderSyncQueue(Protocol):
    """Collects folders to sync later, each with the new folder in it that becomes durable then."""

    def add(self, folder: int, new_folder: tuple[int, int] | None = None) -> None: ...


class FolderTree:
    """The folders below one open root. `on_side_effect` is called after each side effect; a simulator crashes there."""

    def __init__(self, root: int, *, on_side_effect: SideEffectHook, fsync: bool, token: Callable[[], str]) -> None:
        self.root = root
        self._on_side_effect = on_side_effect
        self._fsync = fsync
        self._token = token
        self._durable: dict[tuple[int, int], None] = {}
        self._lock = Lock()

    def sync(self, fd: int) -> None:
        if self._fsync:
            os.fsync(fd)

    def _open_root(self) -> int:
        # Not a dup: that would share the position in the list of entries with every other thread that reads it.
        return os.open(".", OPEN_FOLDER_FLAGS, dir_fd=self.root)

    @contextmanager
    def open_tmp(self) -> Iterator[int]:
        """Open the folder of unfinished files."""
        # One plain call: .waybill was created by us, and no part of this path comes from a caller.
        fd = os.open(f"{OWN_FOLDER[0]}/tmp", OPEN_FOLDER_FLAGS, dir_fd=self.root)
        try:
            yield fd
        finally:
            os.close(fd)

    @contextmanager
    def open_folder(self, path: list[str]) -> Iterator[int]:
        """Open the folder at the path. Raises ObjectNotFound if there is none, or something else is there."""
        try:
            fd = open_beneath(self.root, "/".join(path) or ".", OPEN_FOLDER_FLAGS)
        except OSError as error:
            if error.errno in (errno.ENOENT, errno.ENOTDIR, errno.ELOOP):
                raise ObjectNotFound from None
            raise
        try:
            yield fd
        finally:
            os.close(fd)

    @contextmanager
    def make_folder(self, path: list[str], sync_queue: FolderSyncQueue | None = None) -> Iterator[int]:
        """Open the folder at the path, creating missing folders durably; a file on the path moves into its folder.

        With `sync_queue` the folders to sync are added to it, for a caller that syncs them all at the end.
        """
        fd = self._open_root()
        try:
            for depth, component in enumerate(path):
                below = self._enter(fd, path[: depth + 1], component)
                try:
                    self._make_durable(fd, below, sync_queue)
                finally:
                    os.close(fd)
                    fd = below
            yield fd
        finally:
            os.close(fd)

    def _enter(self, fd: int, path: list[str], component: str) -> int:
        for _ in range(100):  # each round: another process created, removed or replaced it at that moment
            try:
                # most exist already, and mkdir locks the parent
                return os.open(component, OPEN_FOLDER_FLAGS, dir_fd=fd)
            except FileNotFoundError:
                with suppress(FileExistsError):
                    os.mkdir(component, dir_fd=fd)
                    self._on_side_effect("folder made")
            except OSError as error:
                if error.errno not in (errno.ENOTDIR, errno.ELOOP):
                    raise
                self._move_inside(fd, path, component)
        raise ObjectStoreUnavailable(f"The folder of {'/'.join(path)!r} changed a hundred times while it was opened.")

    def _make_durable(self, parent: int, fd: int, sync_queue: FolderSyncQueue | None) -> None:
        found = os.fstat(fd)
        identity = (found.st_dev, found.st_ino)
        if identity in self._durable:
            return
        if sync_queue is not None:
            sync_queue.add(parent, identity)
            return
        self.sync(parent)
        self._on_side_effect("folder synced")
        self.mark_durable([identity])

    def mark_durable(self, identities: Iterable[tuple[int, int]]) -> None:
        """Remember that the parents of these folders are synced."""
        with self._lock:
            for identity in identities:
                if len(self._durable) >= _MAX_DURABLE_FOLDERS:
                    self._durable.pop(next(iter(self._durable)))
                self._durable[identity] = None

    def _move_inside(self, fd: int, path: list[str], component: str) -> None:
        with self.lock_path(path):
            try:
                found = os.stat(component, dir_fd=fd, follow_symlinks=False)
            except FileNotFoundError:
                return
            if stat.S_ISDIR(found.st_mode):
                return
            if not stat.S_ISREG(found.st_mode):
                raise ObjectRequestRefused(
                    f"{'/'.join(path)!r} in the directory is neither a file nor a folder, and links are not followed."
                )
            with self.open_tmp() as tmp:
                aside = self._token()
                os.mkdir(aside, dir_fd=tmp)
                self._on_side_effect("aside made")
                inside = os.open(aside, OPEN_FOLDER_FLAGS, dir_fd=tmp)
                try:
                    os.link(component, SELF_ENTRY, src_dir_fd=fd, dst_dir_fd=inside, follow_symlinks=False)
                    self._on_side_effect("aside linked")
                    self.sync(inside)
                finally:
                    os.close(inside)
                try:
                    exchange_entries(tmp, aside, fd, component)
                except Exception:
                    remove_tree(tmp, aside)
                    raise
                self._on_side_effect("aside exchanged")
                self.sync(fd)
                os.unlink(aside, dir_fd=tmp)  # the second link to the file that is now inside the folder
                self._on_side_effect("aside dropped")

    def prune(self, path: list[str]) -> None:
        """Remove the folders at the end of the path while they are empty."""
        for depth in range(len(path), 0, -1):
            try:
                with self.open_folder(path[: depth - 1]) as above:
                    found = os.stat(path[depth - 1], dir_fd=above, follow_symlinks=False)
                    os.rmdir(path[depth - 1], dir_fd=above)
                with self._lock:
                    self._durable.pop((found.st_dev, found.st_ino), None)
            except ObjectNotFound:
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
            self._on_side_effect("folder removed")

    @contextmanager
    def lock_path(self, path: list[str]) -> Iterator[None]:
        """Hold the exclusive lock of the object at this path, among all processes, between reading its version and
        replacing it.

        It is held for a few system calls, never during a transfer, and at most one at a time. The kernel releases it
        when the process ends.
        """
        stripe = f"{OWN_FOLDER[0]}/locks/{hashlib.sha256('/'.join(path).encode()).hexdigest()[:2]}"
        fd = os.open(stripe, os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC, 0o666, dir_fd=self.root)
        try:
            fcntl.flock(fd, fcntl.LOCK_EX)
            yield
        finally:
            os.close(fd)


def exchange_entries(one_fd: int, one: str, other_fd: int, other: str) -> None:
    """Exchange two entries of a file system, atomically."""
    if not _try_rename(one_fd, one, other_fd, other, _EXCHANGE):
        raise ObjectRequestRefused(
            f"{other!r} is an object, and this file system cannot store an object whose name is also a prefix of others."
        )


def rename_without_replacing(one_fd: int, one: str, other_fd: int, other: str) -> None:
    """Rename an entry. Raises FileExistsError if the new name exists."""
    if not _try_rename(one_fd, one, other_fd, other, _NO_REPLACE):
        raise ObjectRequestRefused(f"{other!r} cannot be renamed: this file system cannot rename without replacing.")


def _try_rename(one_fd: int, one: str, other_fd: int, other: str, flags: int) -> bool:
    """Rename with flags. Returns False if this system does not support them."""
    if _renameat2 is None:
        return False
    if _renameat2(one_fd, os.fsencode(one), other_fd, os.fsencode(other), flags) == 0:
        return True
    code = ctypes.get_errno()
    if code in (errno.ENOSYS, errno.EINVAL, errno.ENOTSUP):
        return False
    raise OSError(code, os.strerror(code))


def remove_tree(parent: int, entry: str) -> None:
    """Remove an entry and everything below it, without following links. Safe to repeat."""
    with suppress(FileNotFoundError):
        try:
            os.unlink(entry, dir_fd=parent)
            return
        except OSError as error:
            if error.errno not in (errno.EISDIR, errno.EPERM):
                raise
        fd = os.open(entry, OPEN_FOLDER_FLAGS, dir_fd=parent)
        try:
            for below in os.listdir(fd):
                remove_tree(fd, below)
        finally:
            os.close(fd)
        os.rmdir(entry, dir_fd=parent)
