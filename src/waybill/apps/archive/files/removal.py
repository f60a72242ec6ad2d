"""The originals of a MIGRATE are removed: those that were archived and are still the same, and nothing else.

Called when every archive was read back from the storage. Each file is looked at once more, and removed by the descriptor
of its directory. What changed since the lock, is new, or is another file now stays, and is reported.

While the directory of a file is locked, nobody can put another file into its place. Where it is not (the directory above
the first path of a set is nobody's business), the file is moved to a name of ours first and looked at under that name.

A second run finds the rest: what is gone was removed.
"""

from __future__ import annotations

import errno
import os
import stat
from collections.abc import Callable, Iterable
from contextlib import suppress

import msgspec

from waybill.apps.archive.files.entries import FileEntry, FileFailure, FileSet, ReportFailure, to_printable
from waybill.apps.archive.files.errors import FileSetChanged
from waybill.apps.archive.files.locking import lies_below, locked_mode_of
from waybill.apps.archive.files.source_tree import (
    CTIME_DIFFERS,
    PATH_FLAGS,
    SourceTree,
    describe_change,
    open_absolute_folder,
)
from waybill.apps.archive.files.system_calls import rename_without_replacing


class RemovalCounts(msgspec.Struct, frozen=True):
    removed: int  # or gone already
    stayed: int  # each of them was reported


def remove_originals(file_set: FileSet, entries: Iterable[FileEntry], report: ReportFailure) -> RemovalCounts:
    """Remove the files of a MIGRATE whose archives were proven, with their digests as packed, in the order of the listing.

    A directory goes when it is empty. What stays is reported; its owner and mode are given back by `unlock_files`.
    """
    try:
        tree = SourceTree(file_set)
    except FileSetChanged as error:
        if isinstance(error.__cause__, FileNotFoundError):  # an earlier run has removed all, the folder too
            return RemovalCounts(removed=sum(1 for _ in entries), stayed=0)
        raise
    with tree:
        removal = _Removal(file_set, tree, report)
        for entry in entries:
            removal.take(entry)
        removal.leave_all()
    return RemovalCounts(removal.removed, removal.stayed)


class _Removal:
    def __init__(self, file_set: FileSet, tree: SourceTree, report: ReportFailure) -> None:
        self._file_set, self._tree, self._report = file_set, tree, report
        self._directories: list[tuple[FileEntry, int]] = []  # entered, and how many had stayed by then
        self._links: dict[tuple[int, int], int] = {}  # inodes with further links: their ctime after we removed one
        self.removed = self.stayed = 0

    def take(self, entry: FileEntry) -> None:
        while self._directories and not lies_below(entry.path, self._directories[-1][0].path):
            self._leave()
        if entry.kind == "directory":
            self._directories.append((entry, self.stayed))
            self._make_writable(entry)
        else:
            self._attempt(entry, self._remove_file)

    def leave_all(self) -> None:
        while self._directories:
            self._leave()

    def _leave(self) -> None:
        entry, stayed_before = self._directories.pop()
        if self.stayed == stayed_before:
            self._attempt(entry, self._remove_directory)
        else:
            self.stayed += 1  # because of what is in it, which was reported

    def _attempt(self, entry: FileEntry, remove: Callable[[FileEntry], str | None]) -> None:
        try:
            reason = remove(entry)
        except FileNotFoundError:
            reason = None
        except OSError as error:
            reason = f"cannot be removed: {error.strerror}"
        if reason is None:
            self.removed += 1
        else:
            self.stayed += 1
            self._report(FileFailure(to_printable(entry.path), f"It stays: it {reason}."))

    def _make_writable(self, entry: FileEntry) -> None:
        """Not as root: what the lock took from a directory is needed to remove what is in it."""
        if os.geteuid() == 0:
            return
        with suppress(OSError):  # then what is in it cannot be removed, and each says so
            directory = self._tree.open_entry(entry.path, PATH_FLAGS)
            try:
                found = os.fstat(directory)
                if (found.st_dev, found.st_ino) == (entry.device, entry.inode):
                    os.chmod(f"/proc/self/fd/{directory}", stat.S_IMODE(found.st_mode) | 0o300)
            finally:
                os.close(directory)

    def _remove_file(self, entry: FileEntry) -> str | None:
        identity = (entry.device, entry.inode)
        if identity in self._links:
            entry = msgspec.structs.replace(entry, ctime_ns=self._links[identity])
        folder, name = self._tree.folders.locate(entry.path)
        if _is_locked(folder):
            reason = self._tree.find_change(entry)
            if reason == CTIME_DIFFERS and entry.kind == "hardlink":
                reason = _check_ctime(entry, os.stat(name, dir_fd=folder, follow_symlinks=False))
            if reason:
                return _none_if_gone(reason)
            self._unlink(entry, folder, name)
            return None
        return self._remove_aside(entry, folder, name)

    def _remove_aside(self, entry: FileEntry, folder: int, name: str) -> str | None:
        """Move it away first, so that nobody can exchange it between the look and the removal."""
        aside = f".waybill-removed-{entry.device:x}-{entry.inode:x}"
        aside_path = os.path.join(os.path.dirname(entry.path), aside)
        try:
            os.stat(aside, dir_fd=folder, follow_symlinks=False)  # of a run that ended in between
        except FileNotFoundError:
            if reason := self._tree.find_change(entry):
                return _none_if_gone(reason)
            os.rename(name, aside, src_dir_fd=folder, dst_dir_fd=folder)
            moved = os.stat(aside, dir_fd=folder, follow_symlinks=False)  # moving it has changed its ctime
            reason = describe_change(msgspec.structs.replace(entry, ctime_ns=moved.st_ctime_ns), moved)
        else:
            reason = self._tree.find_change(msgspec.structs.replace(entry, path=aside_path))
            if reason == CTIME_DIFFERS:  # from being moved
                reason = _check_ctime(entry, os.stat(aside, dir_fd=folder, follow_symlinks=False))
        if reason is None:
            self._unlink(entry, folder, aside)
            return None
        rename_without_replacing(folder, aside, folder, name)
        return reason

    def _unlink(self, entry: FileEntry, folder: int, name: str) -> None:
        """Removing one of several links changes the ctime of the others, which are compared with it."""
        file = os.open(name, PATH_FLAGS, dir_fd=folder)
        try:
            os.unlink(name, dir_fd=folder)
            left = os.fstat(file)
        finally:
            os.close(file)
        if left.st_nlink and entry.kind != "symlink":
            self._links[entry.device, entry.inode] = left.st_ctime_ns
        else:
            self._links.pop((entry.device, entry.inode), None)

    def _remove_directory(self, entry: FileEntry) -> str | None:
        if entry.path == ".":
            parent = open_absolute_folder(os.path.dirname(self._file_set.folder_bytes))
            try:
                return _remove_empty(entry, parent, os.fsdecode(os.path.basename(self._file_set.folder_bytes)))
            finally:
                os.close(parent)
        return _remove_empty(entry, *self._tree.folders.locate(entry.path))


def _remove_empty(entry: FileEntry, folder: int, name: str) -> str | None:
    if reason := describe_change(entry, os.stat(name, dir_fd=folder, follow_symlinks=False)):
        return reason
    try:
        os.rmdir(name, dir_fd=folder)
    except OSError as error:
        if error.errno in (errno.ENOTEMPTY, errno.EEXIST):
            return "has something in it that was not archived"
        raise
    return None


def _check_ctime(entry: FileEntry, found: os.stat_result) -> str | None:
    """A run that was killed has moved the file, or removed another link of it, which changed its ctime. As root, while the
    file is locked: nobody else can have set its mtime, so that tells of every write.
    """
    is_locked = found.st_uid == 0 and stat.S_IMODE(found.st_mode) == locked_mode_of("file", entry.mode)
    if os.geteuid() == 0 and is_locked and found.st_mtime_ns == entry.mtime_ns:
        return None
    return CTIME_DIFFERS


def _none_if_gone(reason: str) -> str | None:
    return None if reason == "is gone" else reason


def _is_locked(folder: int) -> bool:
    """Whether nobody but this process can exchange the files of a directory."""
    found = os.fstat(folder)
    return found.st_uid == os.geteuid() and not found.st_mode & 0o022
