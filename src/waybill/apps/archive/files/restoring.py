"""What is done when all archives of a restore are unpacked: hard links across archives, owners, and directories.

A directory that the restore has made has the mode 1700 until this is done, which is how a second run knows it: one that
was there before keeps its owner, mode and times. Directories are finished after all that is in them, so their times are
those of the set, and one that nobody may write to is filled before.

With the user's rights: links, groups that the user is a member of, modes, ACLs, times. As root, by descriptors that the
user's process has opened: owners, and then setuid bits, where the options allow it. What is not given is reported.

Before root gives a setuid bit, the file belongs to its new owner, no process has it open for writing, and its content is
compared with its digest once more: until then it was the user's, who could have put anything into it.
"""

from __future__ import annotations

import errno
import hashlib
import os
import stat
from collections.abc import Callable, Iterable, Iterator
from contextlib import suppress
from typing import Literal, TypeAlias

import msgspec

from waybill.apps.archive.files.entries import FileEntry, FileFailure, FileSet, ReportFailure, to_printable
from waybill.apps.archive.files.errors import AccessRefused
from waybill.apps.archive.files.locking import is_open_for_writing, lies_below
from waybill.apps.archive.files.selection import Selection
from waybill.apps.archive.files.source_tree import FolderDescriptors, open_absolute_folder, open_file_set

OwnerPolicy: TypeAlias = Literal["drop", "keep"]

UNFINISHED_MODE = 0o1700  # of a directory that the restore has made
_IMPLIED_MODE = 0o755  # of a directory above the set's own, which no entry describes
_SETUID_BITS = stat.S_ISUID | stat.S_ISGID
_ROOT_XATTRS = ("trusted.", "security.")


class RestoreOptions(msgspec.Struct, frozen=True):
    """What is restored, and how."""

    globs: tuple[str, ...] = ()  # as Selection takes them
    regexes: tuple[str, ...] = ()
    paths: tuple[str, ...] = ()
    link_sources: dict[str, str] = {}  # of find_link_sources
    overwrite: bool = False  # replace files that exist; directories are always shared
    foreign_owners: OwnerPolicy = "drop"  # as root: give files to owners other than the user
    setuid: OwnerPolicy = "drop"  # setuid and setgid bits of files, and capabilities
    token: str = "restore"  # names unfinished files: the same for every run of one restore, another for another one

    def make_selection(self) -> Selection:
        return Selection(globs=self.globs, regexes=self.regexes, paths=self.paths)


class UnpackedCounts(msgspec.Struct, frozen=True):
    """What one archive has given."""

    files: int  # and links
    bytes: int
    failed: int  # each of them was reported


def make_target(path: str) -> FileSet:
    """Make the folder to restore into, whose parent must exist, or find it. A second run finds it."""
    raw = os.fsencode(path)
    name = to_printable(path)
    if not raw.startswith(b"/") or b"\0" in raw:
        raise AccessRefused(f"{name} is not an absolute path.")
    folder = os.path.realpath(raw)
    try:
        os.mkdir(folder, UNFINISHED_MODE)
    except FileExistsError:
        pass  # made by an earlier run, or the user's own
    except OSError as error:
        raise AccessRefused(f"The target {name} cannot be made: {error.strerror}.") from None
    try:
        descriptor = open_absolute_folder(folder)
    except OSError as error:
        raise AccessRefused(f"The target {name} cannot be used: {error.strerror}.") from None
    try:
        found = os.fstat(descriptor)
        if not os.access(f"/proc/self/fd/{descriptor}", os.W_OK | os.X_OK):
            raise AccessRefused(f"The user may not write to the target {name}.")
    finally:
        os.close(descriptor)
    return FileSet(folder, found.st_dev, found.st_ino)


class FileForRoot(msgspec.Struct, frozen=True):
    """What root does to a file of which it gets a descriptor."""

    entry: FileEntry
    is_setuid_kept: bool
    is_owner_kept: bool


GiveToRoot: TypeAlias = Callable[[FileForRoot, int], None]  # takes over the descriptor


class RestoreFinisher:
    """Finishes what the entries name, in the order of the listing. With the rights of the user."""

    def __init__(
        self, target: FileSet, options: RestoreOptions, report: ReportFailure, give_to_root: GiveToRoot | None
    ) -> None:
        self._folders = FolderDescriptors(open_file_set(target))
        self._sources = FolderDescriptors(os.dup(self._folders.root))
        self._options, self._selection = options, options.make_selection()
        self._report, self._give_to_root = report, give_to_root
        self._directories: list[FileEntry] = []
        self._implied: set[str] = set()
        self.finished = 0

    def take(self, entry: FileEntry) -> None:
        while self._directories and not lies_below(entry.path, self._directories[-1].path):
            self._attempt(self._directories.pop(), self._finish_directory)
        if not self._directories:
            parent = os.path.dirname(entry.path)
            while parent and parent not in self._implied:
                self._implied.add(parent)
                parent = os.path.dirname(parent)
        if entry.kind == "directory":
            self._directories.append(entry)
        elif self._is_selected(entry):
            self._attempt(entry, self._finish_file)

    def finish(self) -> int:
        while self._directories:
            self._attempt(self._directories.pop(), self._finish_directory)
        for path in sorted(self._implied, reverse=True):
            with suppress(OSError):  # it is not there, or is the user's: then it stays as it is
                folder, name = self._folders.locate(path)
                if _is_unfinished(os.stat(name, dir_fd=folder, follow_symlinks=False)):
                    file = os.open(name, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW, dir_fd=folder)
                    try:
                        os.fchmod(file, _IMPLIED_MODE)
                    finally:
                        os.close(file)
        return self.finished

    def close(self) -> None:
        self._folders.close()
        self._sources.close()

    def _is_selected(self, entry: FileEntry) -> bool:
        return self._selection.has_path(entry.path)

    def _attempt(self, entry: FileEntry, finish: Callable[[FileEntry], bool]) -> None:
        try:
            self.finished += finish(entry)
        except (FileNotFoundError, NotADirectoryError):
            if self._is_selected(entry) and entry.kind != "directory":
                self._fail(entry, "It is not there: it was not unpacked, or was removed since.")
        except OSError as error:
            self._fail(entry, f"Its owner, mode or times are not restored: {error.strerror}.")

    def _fail(self, entry: FileEntry, reason: str) -> None:
        self._report(FileFailure(to_printable(entry.path), reason))

    def _remark(self, entry: FileEntry, reason: str) -> None:
        self._report(FileFailure(to_printable(entry.path), reason, is_remark=True))

    def _finish_file(self, entry: FileEntry) -> bool:
        folder, name = self._folders.locate(entry.path)
        if entry.kind == "hardlink":
            self._make_missing_link(entry, folder, name)
        if entry.kind == "symlink":
            return self._finish_symlink(entry, folder, name)
        found = os.stat(name, dir_fd=folder, follow_symlinks=False)
        if not stat.S_ISREG(found.st_mode):
            self._fail(entry, "It is another kind of file now: its owner and mode stay as they are.")
            return False
        wants_bits = entry.mode & _SETUID_BITS & ~found.st_mode and entry.kind == "file"
        wants_owner = (found.st_uid, found.st_gid) != (entry.uid, entry.gid) and entry.kind == "file"
        has_root_xattrs = any(name.startswith(_ROOT_XATTRS) for name in entry.xattrs or ())
        if wants_owner or wants_bits or has_root_xattrs:
            file = os.open(name, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC, dir_fd=folder)
            self._give(entry, file, found, bool(wants_owner), bool(wants_bits or has_root_xattrs))
        return True

    def _finish_symlink(self, entry: FileEntry, folder: int, name: str) -> bool:
        found = os.stat(name, dir_fd=folder, follow_symlinks=False)
        if stat.S_ISLNK(found.st_mode) and (found.st_uid, found.st_gid) != (entry.uid, entry.gid):
            file = os.open(name, os.O_PATH | os.O_NOFOLLOW | os.O_CLOEXEC, dir_fd=folder)
            self._give(entry, file, found, True, False)
        return True

    def _make_missing_link(self, entry: FileEntry, folder: int, name: str) -> None:
        """Link to the content where another archive held it. A link that is there already stays."""
        source_path = self._options.link_sources.get(entry.target, entry.target)
        if source_path == entry.path:
            return
        source_folder, source_name = self._sources.locate(source_path)
        with suppress(FileExistsError):
            os.link(source_name, name, src_dir_fd=source_folder, dst_dir_fd=folder, follow_symlinks=False)

    def _finish_directory(self, entry: FileEntry) -> bool:
        folder, name = self._folders.locate(entry.path)
        file = os.open(name, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC, dir_fd=folder)
        is_given = False
        try:
            found = os.fstat(file)
            if not _is_unfinished(found):
                return False
            set_acls(file, entry)
            os.utime(file, ns=(entry.mtime_ns, entry.mtime_ns))
            os.fchmod(file, entry.mode)  # the last of the user: from now on it is finished
            set_acls(file, entry)
            if (found.st_uid, found.st_gid) != (entry.uid, entry.gid):
                is_given = True
                self._give(entry, file, found, True, False)
            return True
        finally:
            if not is_given:
                os.close(file)

    def _give(self, entry: FileEntry, file: int, found: os.stat_result, wants_owner: bool, wants_bits: bool) -> None:
        """Restore owner and setuid bits as far as the user's own rights go, and hand the rest to root. Takes `file`."""
        is_given = False
        try:
            if wants_owner and found.st_uid == entry.uid:
                with suppress(PermissionError):  # a group that the user is not a member of
                    os.chown(f"/proc/self/fd/{file}", -1, entry.gid)
                    wants_owner = False
                    if entry.kind == "directory":
                        os.fchmod(file, entry.mode)
            keeps_owner = wants_owner and self._options.foreign_owners == "keep" and self._give_to_root is not None
            keeps_bits = wants_bits and self._options.setuid == "keep" and (keeps_owner or not wants_owner)
            if wants_owner and not keeps_owner:
                reason = f"Its owner {entry.uid}:{entry.gid} is not restored: it belongs to the user now."
                if found.st_uid == entry.uid:
                    reason = f"Its group {entry.gid} is not restored: the user is not a member of it."
                self._remark(entry, reason)
            if wants_bits and not keeps_bits:
                self._remark(entry, "Its setuid and setgid bits, or capabilities, are not restored.")
            if keeps_owner or keeps_bits:
                if self._give_to_root is None:
                    os.fchmod(file, entry.mode)  # the user's own program
                else:
                    is_given = True
                    self._give_to_root(FileForRoot(entry, keeps_bits, keeps_owner), file)
        finally:
            if not is_given:
                os.close(file)


def _is_unfinished(found: os.stat_result) -> bool:
    return stat.S_ISDIR(found.st_mode) and found.st_mode & 0o1777 == UNFINISHED_MODE and found.st_uid == os.geteuid()


def finish_as_root(work: FileForRoot, file: int, user: int) -> str | None:
    """Set owner and setuid bits of a file that the user's process has opened. Returns what cannot be done.

    A second run finds owner and bits set, and the user's process asks for nothing.
    """
    entry = work.entry
    by_descriptor = f"/proc/self/fd/{file}"
    found = os.fstat(file)
    if found.st_uid != user:
        return "Its owner is not restored: it is not the user's file any more."
    if entry.kind == "file" and not stat.S_ISREG(found.st_mode):
        return "Its owner is not restored: it is another kind of file now."
    if work.is_owner_kept:
        if stat.S_ISREG(found.st_mode):
            os.fchmod(file, stat.S_IMODE(found.st_mode) & ~_SETUID_BITS)
        os.chown(by_descriptor, entry.uid, entry.gid)
    if entry.kind == "symlink":
        return None
    if entry.kind == "directory":
        os.fchmod(file, entry.mode)
        return None
    if not work.is_setuid_kept:
        return None
    os.fchmod(file, entry.mode & 0o555)
    if not work.is_owner_kept:
        os.fchown(file, 0, -1)  # nobody else may open it for writing while it is compared
    reason = None
    try:
        if is_open_for_writing(file):
            reason = "Its setuid bits are not restored: a program has it open for writing."
        elif not _has_digest(file, entry):
            reason = "Its setuid bits are not restored: its content is not what was archived."
        if reason is None:
            for name, value in (entry.xattrs or {}).items():
                if name.startswith(_ROOT_XATTRS):
                    os.setxattr(file, name, value)
    finally:
        if not work.is_owner_kept:
            os.fchown(file, found.st_uid, found.st_gid)
        os.fchmod(file, entry.mode if reason is None else entry.mode & ~_SETUID_BITS)
    return reason


def _has_digest(file: int, entry: FileEntry) -> bool:
    with os.fdopen(os.dup(file), "rb", buffering=0) as stream:
        stream.seek(0)
        return hashlib.file_digest(stream, "sha256").hexdigest() == entry.sha256


def set_acls(file: int, entry: FileEntry) -> None:
    """Set the attributes that the file's owner may set, ACLs among them. What the file system lacks is left out."""
    for name, value in (entry.xattrs or {}).items():
        if not name.startswith(_ROOT_XATTRS):
            try:
                os.setxattr(file, name, value)
            except OSError as error:
                if error.errno not in (errno.ENOTSUP, errno.EPERM):
                    raise


def finish_restore(
    target: FileSet, entries: Iterable[FileEntry], options: RestoreOptions, report: ReportFailure
) -> int:
    """Finish as this process itself."""
    user = os.geteuid()

    def give_to_self(work: FileForRoot, file: int) -> None:
        try:
            if reason := finish_as_root(work, file, user):
                report(FileFailure(to_printable(work.entry.path), reason))
        finally:
            os.close(file)

    finisher = RestoreFinisher(target, options, report, give_to_self if user == 0 else None)
    try:
        for entry in entries:
            finisher.take(entry)
        return finisher.finish()
    finally:
        finisher.close()


def iter_blocks(entries: Iterable[FileEntry], size: int) -> Iterator[list[FileEntry]]:
    """Cut a stream of entries into lists."""
    block: list[FileEntry] = []
    for entry in entries:
        block.append(entry)
        if len(block) >= size:
            yield block
            block = []
    if block:
        yield block
