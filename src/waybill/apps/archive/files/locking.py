"""The files of a set while they are archived: nobody can change them, and what was taken is given back exactly.

    list          owner and mode of everything are written down durably: the list of entries
    lock_file     by a descriptor that was opened with the user's rights: write bits and setuid go, then as root the owner
    unlock_files  from the list that was written down, to the recorded device and inode only

A file that some process has open for writing can still change: it is refused, where the kernel can say so (a lease).
Not as root only write bits are taken, and only from files of this process's own user: that protects from mistakes, and
from programs that check, but the owner can give the bits back. `ctime` tells whether that happened.

Everything may run twice: what is locked is not changed again, so its ctime stays; what is given back is passed over.
"""

from __future__ import annotations

import errno
import fcntl
import os
import signal
import stat
from collections.abc import Iterable

import msgspec

from waybill.apps.archive.files.entries import FileEntry, FileFailure, FileSet, ReportFailure, to_printable
from waybill.apps.archive.files.errors import FileRefused
from waybill.apps.archive.files.listing import find_data_pieces
from waybill.apps.archive.files.source_tree import PATH_FLAGS, READ_FLAGS, FolderDescriptors, SourceTree, kind_of

CAPABILITY_XATTR = "security.capability"  # the kernel removes it with every new owner
_WRITE_BITS = 0o222
_SETUID_BITS = stat.S_ISUID | stat.S_ISGID


def open_for_lock(folders: FolderDescriptors, entry: FileEntry) -> int:
    """Open a file or a directory for `lock_file`, with the rights of whoever may read it. Raises OSError."""
    folder, name = folders.locate(entry.path)
    return os.open(name, READ_FLAGS, dir_fd=folder)


def lock_file(file: int, entry: FileEntry) -> FileEntry:
    """Lock what a descriptor is open on; return the entry with size, times and holes as they are after that.

    Raises FileRefused; nothing was changed then, except that a file which is open for writing stays locked until
    `unlock_files`.
    """
    found = os.fstat(file)
    if kind_of(found.st_mode) != ("file" if entry.kind == "hardlink" else entry.kind) or (
        found.st_dev,
        found.st_ino,
    ) != (entry.device, entry.inode):
        raise FileRefused("It was replaced after it was listed.")
    is_root = os.geteuid() == 0
    is_directory = entry.kind == "directory"
    if (found.st_uid, found.st_gid) != (entry.uid, entry.gid) and not (
        # locked already, by an earlier run: then the content is as it was, too
        is_root
        and (found.st_uid, found.st_gid) == (0, entry.gid)
        and (entry.kind != "file" or (found.st_size, found.st_mtime_ns) == (entry.size, entry.mtime_ns))
    ):
        raise FileRefused("Its owner changed after it was listed.")
    if is_root or found.st_uid == os.geteuid():
        mode = stat.S_IMODE(found.st_mode)
        locked_mode = locked_mode_of(entry.kind, mode)
        if mode != locked_mode:
            os.fchmod(file, locked_mode)  # before the owner: never a program of root that was the user's
        if is_root and found.st_uid != 0:
            os.fchown(file, 0, -1)
        if not is_directory and is_open_for_writing(file):
            raise FileRefused("A program has it open for writing.")
        found = os.fstat(file)
    if is_directory:
        return msgspec.structs.replace(entry, ctime_ns=found.st_ctime_ns, mtime_ns=found.st_mtime_ns)
    if entry.kind == "hardlink":
        return msgspec.structs.replace(entry, ctime_ns=found.st_ctime_ns, mtime_ns=found.st_mtime_ns)
    data = entry.data
    if (found.st_size, found.st_mtime_ns) != (entry.size, entry.mtime_ns):
        data = find_data_pieces(file, found.st_size) if found.st_blocks * 512 < found.st_size else None
    return msgspec.structs.replace(
        entry, size=found.st_size, mtime_ns=found.st_mtime_ns, ctime_ns=found.st_ctime_ns, data=data
    )


def locked_mode_of(kind: str, mode: int) -> int:
    return mode & ~_WRITE_BITS if kind == "directory" else mode & ~(_WRITE_BITS | _SETUID_BITS)


def is_open_for_writing(file: int) -> bool:
    """Whether any process has the file open for writing, as far as the kernel and the file system can say."""
    # who opens it while we have the lease makes the kernel send a signal: one that is ignored, instead of one that kills
    fcntl.fcntl(file, fcntl.F_SETSIG, signal.SIGURG)
    try:
        fcntl.fcntl(file, fcntl.F_SETLEASE, fcntl.F_RDLCK)
    except OSError as error:
        return error.errno == errno.EAGAIN
    fcntl.fcntl(file, fcntl.F_SETLEASE, fcntl.F_UNLCK)
    return False


def unlock_files(file_set: FileSet, entries: Iterable[FileEntry], report: ReportFailure) -> int:
    """Give owner and mode back as the entries have them, to the recorded device and inode only; returns to how many.

    `entries` are those that `list_files` found, in their order. What is gone is passed over. A directory is given back
    after all that is in it. Safe to repeat.
    """
    given_back = 0
    left_behind: list[FileEntry] = []  # directories that the listing is in
    with SourceTree(file_set) as tree:

        def give_back(entry: FileEntry) -> int:
            try:
                return _give_back(tree, entry)
            except (FileNotFoundError, NotADirectoryError):
                return 0  # its owner, or MIGRATE, has removed it
            except FileRefused as refused:
                report(FileFailure(to_printable(entry.path), str(refused)))
            except OSError as error:
                report(
                    FileFailure(to_printable(entry.path), f"Its owner and mode are not given back: {error.strerror}.")
                )
            return 0

        for entry in entries:
            while left_behind and not lies_below(entry.path, left_behind[-1].path):
                given_back += give_back(left_behind.pop())
            if entry.kind == "directory":
                left_behind.append(entry)
            elif entry.kind != "symlink":
                given_back += give_back(entry)
        while left_behind:
            given_back += give_back(left_behind.pop())
    return given_back


def lies_below(path: str, directory: str) -> bool:
    return directory == "." or path.startswith(directory + "/")


def _give_back(tree: SourceTree, entry: FileEntry) -> int:
    try:
        file = tree.open_entry(entry.path)
    except PermissionError:
        file = tree.open_entry(entry.path, PATH_FLAGS)  # one that its owner may not read
        by_descriptor: int | str = f"/proc/self/fd/{file}"
    else:
        by_descriptor = file
    try:
        found = os.fstat(file)
        if (found.st_dev, found.st_ino) != (entry.device, entry.inode):
            raise FileRefused("It is not the one that was locked: its owner and mode stay as they are.")
        mode = stat.S_IMODE(found.st_mode)
        if (found.st_uid, found.st_gid, mode) == (entry.uid, entry.gid, entry.mode):
            return 0
        if os.geteuid() == 0:
            if found.st_uid not in (0, entry.uid):
                raise FileRefused("It was given to somebody else since: its owner and mode stay as they are.")
            if (found.st_uid, found.st_gid) != (entry.uid, entry.gid):
                os.chown(by_descriptor, entry.uid, entry.gid)
        elif found.st_uid != os.geteuid():
            return 0  # it was never locked
        os.chmod(by_descriptor, entry.mode)  # after the owner, which takes setuid and capabilities away
        if entry.xattrs and CAPABILITY_XATTR in entry.xattrs and os.geteuid() == 0:
            os.setxattr(by_descriptor, CAPABILITY_XATTR, entry.xattrs[CAPABILITY_XATTR])
        return 1
    finally:
        os.close(file)
