"""A folder by descriptors: what was recorded of it is found again, whatever somebody does to its paths meanwhile.

The folder of a set is opened once, component by component, without following links, and compared with the recorded
device and inode. Everything in it is reached from that descriptor, one component at a time: a directory that somebody
replaces by a link is an error, never a way out. `FolderDescriptors` keeps the descriptors of the directories it is in,
because the entries of a set come in the order of its tree.

A file is unchanged when device, inode, size, mtime in nanoseconds and the ctime taken after the lock are the recorded
ones. When nothing but the ctime differs (an owner or mode was set, another link removed), its digest decides.
"""

from __future__ import annotations

import hashlib
import os
import stat
from collections.abc import Iterable, Iterator
from types import TracebackType
from typing import Self

from waybill.apps.archive.files.entries import FileEntry, FileFailure, FileSet, to_printable
from waybill.apps.archive.files.errors import AccessRefused, FileSetChanged

MAX_DEPTH = 200  # of directories below the folder of a set: each is an open descriptor

_FOLDER_FLAGS = os.O_PATH | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
READ_FLAGS = (
    os.O_RDONLY | os.O_NOFOLLOW | os.O_CLOEXEC | os.O_NONBLOCK | os.O_NOCTTY
)  # a fifo put in its place blocks nobody
PATH_FLAGS = os.O_PATH | os.O_NOFOLLOW | os.O_CLOEXEC


def open_absolute_folder(folder: bytes) -> int:
    """Open a folder by its absolute path, of which no component may be a link. Raises OSError."""
    descriptor = os.open(b"/", _FOLDER_FLAGS)
    try:
        for name in folder.split(b"/"):
            if name:
                below = os.open(name, _FOLDER_FLAGS, dir_fd=descriptor)
                os.close(descriptor)
                descriptor = below
    except BaseException:
        os.close(descriptor)
        raise
    return descriptor


def open_file_set(file_set: FileSet) -> int:
    """Open the folder of a set. Raises FileSetChanged if it is gone, or another one."""
    name = to_printable(file_set.folder)
    try:
        descriptor = open_absolute_folder(file_set.folder_bytes)
    except OSError as error:
        raise FileSetChanged(f"The folder {name} cannot be opened: {error.strerror}.") from error
    found = os.fstat(descriptor)
    if (found.st_dev, found.st_ino) != (file_set.device, file_set.inode):
        os.close(descriptor)
        raise FileSetChanged(f"{name} is not the folder that it was: it was moved or replaced.")
    return descriptor


class FolderDescriptors:
    """Descriptors of the directories on the way to the last path that was asked for. It owns `root`."""

    def __init__(self, root: int) -> None:
        self.root = root
        self._stack: list[tuple[str, int]] = []
        self._parent, self._parent_descriptor = "", root

    def locate(self, path: str) -> tuple[int, str]:
        """Return the descriptor of the directory that a path lies in, and its name there. Raises OSError.

        The descriptor is valid until the next path is asked for.
        """
        parent, _, name = path.rpartition("/")
        if parent != self._parent:
            self._enter(parent)
        return self._parent_descriptor, name

    def _enter(self, parent: str) -> None:
        names = parent.split("/") if parent else []
        if len(names) > MAX_DEPTH:
            raise AccessRefused(f"{to_printable(parent)} lies more than {MAX_DEPTH} directories deep.")
        common = 0
        for (known, _), name in zip(self._stack, names, strict=False):
            if known != name:
                break
            common += 1
        self._parent = "\0"  # no path, should an error leave us in between
        while len(self._stack) > common:
            os.close(self._stack.pop()[1])
        for name in names[common:]:
            above = self._stack[-1][1] if self._stack else self.root
            check_name(name)
            self._stack.append((name, os.open(name, _FOLDER_FLAGS, dir_fd=above)))
        self._parent_descriptor = self._stack[-1][1] if self._stack else self.root
        self._parent = parent

    def close(self) -> None:
        for _, descriptor in self._stack:
            os.close(descriptor)
        self._stack.clear()
        if self.root >= 0:
            os.close(self.root)
        self.root = -1


def check_name(name: str) -> None:
    """Refuse what is no name of an entry of a directory."""
    if name in ("", ".", "..") or "/" in name or "\0" in name:
        raise AccessRefused(f"{to_printable(name)!r} is not a name of a file.")


def kind_of(mode: int) -> str:
    if stat.S_ISREG(mode):
        return "file"
    if stat.S_ISDIR(mode):
        return "directory"
    if stat.S_ISLNK(mode):
        return "symlink"
    for test, name in (
        (stat.S_ISFIFO, "a named pipe"),
        (stat.S_ISSOCK, "a socket"),
        (stat.S_ISCHR, "a character device"),
        (stat.S_ISBLK, "a block device"),
    ):
        if test(mode):
            return name
    return "of an unknown kind"


class SourceTree:
    """A file set by descriptors. A context manager; raises FileSetChanged if its folder is gone or another one."""

    def __init__(self, file_set: FileSet) -> None:
        self.folders = FolderDescriptors(open_file_set(file_set))

    def open_entry(self, path: str, flags: int = READ_FLAGS) -> int:
        """Open what lies at a path, without following links. Raises OSError."""
        folder, name = self.folders.locate(path)
        return os.open(name, flags, dir_fd=folder)

    def stat_entry(self, path: str) -> os.stat_result:
        folder, name = self.folders.locate(path)
        return os.stat(name, dir_fd=folder, follow_symlinks=False)

    def find_change(self, entry: FileEntry) -> str | None:
        """Say how a file differs from its entry; None if it does not. What is gone has changed."""
        try:
            found = self.stat_entry(entry.path)
            reason = describe_change(entry, found)
            if reason is None and entry.kind == "symlink":
                folder, name = self.folders.locate(entry.path)
                if os.readlink(name, dir_fd=folder) != entry.target:
                    reason = "points elsewhere now"
            if reason == CTIME_DIFFERS and entry.sha256:
                reason = self._compare_content(entry)
        except FileNotFoundError:
            return "is gone"
        except OSError as error:
            return f"cannot be looked at: {error.strerror}"
        return reason

    def _compare_content(self, entry: FileEntry) -> str | None:
        file = self.open_entry(entry.path)
        with os.fdopen(file, "rb", buffering=0) as stream:
            before = os.fstat(file)
            digest = hashlib.file_digest(stream, "sha256").hexdigest()
            after = os.fstat(file)
        if (before.st_ctime_ns, before.st_size) != (after.st_ctime_ns, after.st_size):
            return "changed while it was compared"
        reason = describe_change(entry, after)
        if reason not in (None, CTIME_DIFFERS):
            return reason
        return None if digest == entry.sha256 else "has another content now"

    def close(self) -> None:
        self.folders.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()


CTIME_DIFFERS = "was changed after it was locked"


def describe_change(entry: FileEntry, found: os.stat_result) -> str | None:
    """Compare an entry with what stat says; a directory or a link is only compared by what it is."""
    kind = "file" if entry.kind == "hardlink" else entry.kind
    if kind_of(found.st_mode) != kind:
        return f"is {_article(kind_of(found.st_mode))} now"
    if (found.st_dev, found.st_ino) != (entry.device, entry.inode):
        return "was replaced by another one"
    if kind != "file":
        return None
    if entry.kind == "file" and found.st_size != entry.size:
        return f"had {entry.size} bytes and has {found.st_size} now"
    if found.st_mtime_ns != entry.mtime_ns:
        return "was written to"
    return CTIME_DIFFERS if found.st_ctime_ns != entry.ctime_ns else None


def _article(kind: str) -> str:
    return f"a {kind}" if " " not in kind else kind


def find_changed(file_set: FileSet, entries: Iterable[FileEntry]) -> Iterator[FileFailure]:
    """Yield what is not as its entry says, and why."""
    with SourceTree(file_set) as tree:
        for entry in entries:
            if reason := tree.find_change(entry):
                yield FileFailure(to_printable(entry.path), f"It {reason}.")
