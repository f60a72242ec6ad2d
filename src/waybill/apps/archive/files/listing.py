"""A file set as it is found: one entry for each file, directory and link.

Run with the rights of the user whose files they are (access.py). Every directory is opened relative to the one above it,
without following links; a link is an entry, and never entered. What cannot be archived is reported by name and passed
over: named pipes, sockets, devices, what the user cannot read, and a directory that lies inside itself by a mount.

Memory is bounded by the largest directory, plus one name for each file with further hard links that were not met yet.
"""

from __future__ import annotations

import errno
import os
import stat
from collections.abc import Generator, Iterable, Iterator, Sequence
from functools import lru_cache

from waybill.apps.archive.files.entries import FileEntry, FileFailure, FileSet, ReportFailure, to_printable
from waybill.apps.archive.files.errors import AccessRefused
from waybill.apps.archive.files.source_tree import (
    MAX_DEPTH,
    READ_FLAGS,
    FolderDescriptors,
    kind_of,
    open_absolute_folder,
    open_file_set,
)

MAX_DATA_PIECES = 1000  # of a sparse file; more are joined by storing the smallest holes
MAX_XATTR_BYTES = 256 * 1024
_KEPT_XATTRS = ("user.", "system.posix_acl_", "security.capability", "trusted.")
_DIRECTORY_FLAGS = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
_NO_XATTRS = {errno.ENOTSUP, errno.ENODATA, errno.ENOENT, errno.EPERM, errno.EACCES}


def find_file_set(paths: Iterable[str]) -> tuple[FileSet, list[str]]:
    """Find the common folder of absolute paths, and the paths relative to it, sorted, each once, without those below
    another one. A single directory is itself the folder, with the path ".".

    Links on the way to a path are followed here, once; a path that is a link itself is a link to be archived.
    """
    found: set[bytes] = set()
    resolve_folder = lru_cache(maxsize=10_000)(os.path.realpath)
    for path in paths:
        raw = os.fsencode(path)
        if not raw.startswith(b"/"):
            raise AccessRefused(f"{to_printable(path)} is not an absolute path.")
        if b"\0" in raw:
            raise AccessRefused(f"{to_printable(path)} is not a path.")
        above, name = os.path.split(raw.rstrip(b"/"))
        is_named = name not in (b"", b".", b"..")
        resolved = os.path.join(resolve_folder(above), name) if is_named else os.path.realpath(raw)
        try:
            os.lstat(resolved)
        except OSError as error:
            raise AccessRefused(f"{to_printable(path)}: {error.strerror}.") from None
        found.add(resolved)
    if not found:
        raise AccessRefused("No path was given.")
    tops = _drop_covered(sorted(found, key=lambda path: path.split(b"/")))
    folder = os.path.commonpath(tops)
    if len(tops) == 1 and not stat.S_ISDIR(os.lstat(folder).st_mode):
        folder = os.path.dirname(folder)
    if folder == b"/":
        raise AccessRefused("The paths have no folder in common but the root of the system.")
    try:
        descriptor = open_absolute_folder(folder)
    except OSError as error:
        raise AccessRefused(f"{to_printable(os.fsdecode(folder))}: {error.strerror}.") from None
    known = os.fstat(descriptor)
    os.close(descriptor)
    relative = [os.fsdecode(path[len(folder) + 1 :]) or "." for path in tops]
    return FileSet(folder, known.st_dev, known.st_ino), relative


def _drop_covered(paths: list[bytes]) -> list[bytes]:
    """Leave out what lies below another path; `paths` are sorted by their components."""
    kept: list[bytes] = []
    for path in paths:
        if not (kept and path.startswith(kept[-1] + b"/") and stat.S_ISDIR(os.lstat(kept[-1]).st_mode)):
            kept.append(path)
    return kept


def list_files(file_set: FileSet, paths: Sequence[str], report: ReportFailure) -> Generator[FileEntry, None, None]:
    """Yield what lies at the paths and below. Changes nothing."""
    listing = _Listing(report)
    folders = FolderDescriptors(open_file_set(file_set))
    try:
        for path in paths:
            try:
                folder, name = folders.locate(path)
                found = os.stat(name, dir_fd=folder, follow_symlinks=False)
            except OSError as error:
                listing.report_error(path, error)
                continue
            if stat.S_ISDIR(found.st_mode):
                yield from listing.walk(folder, name, path, found)
            elif entry := listing.make_entry(folder, name, path, found):
                yield entry
    finally:
        folders.close()


class _Listing:
    def __init__(self, report: ReportFailure) -> None:
        self._report = report
        self._links: dict[tuple[int, int], tuple[str, int]] = {}  # inode: its first path, and how many were not met yet

    def report_error(self, path: str, error: OSError) -> None:
        if error.errno == errno.ENOENT:
            self.refuse(path, "It vanished while the files were listed.")
        elif error.errno in (errno.EACCES, errno.EPERM):
            self.refuse(path, "The user cannot read it.")
        else:
            self.refuse(path, f"It cannot be read: {error.strerror}.")

    def refuse(self, path: str, reason: str) -> None:
        self._report(FileFailure(to_printable(path), reason))

    def walk(self, folder: int, name: str, path: str, found: os.stat_result) -> Iterator[FileEntry]:
        """Yield a directory and all in it, depth first."""
        opened: list[tuple[int, str, list[tuple[str, os.stat_result]], tuple[int, int]]] = []
        try:
            yield from self._enter(folder, name, path, found, opened)
            while opened:
                descriptor, prefix, directories, _ = opened[-1]
                if not directories:
                    os.close(opened.pop()[0])
                    continue
                name, found = directories.pop()
                yield from self._enter(descriptor, name, prefix + name, found, opened)
        finally:
            for descriptor, *_ in opened:
                os.close(descriptor)

    def _enter(
        self,
        folder: int,
        name: str,
        path: str,
        found: os.stat_result,
        opened: list[tuple[int, str, list[tuple[str, os.stat_result]], tuple[int, int]]],
    ) -> Iterator[FileEntry]:
        identity = (found.st_dev, found.st_ino)
        if any(identity == above for *_, above in opened):
            self.refuse(path, "It is a directory that lies inside itself, by a mount.")
            return
        if len(opened) >= MAX_DEPTH:
            self.refuse(path, f"It lies more than {MAX_DEPTH} directories deep.")
            return
        try:
            descriptor = os.open(name, _DIRECTORY_FLAGS, dir_fd=folder)
        except OSError as error:
            self.report_error(path, error)
            return
        now = os.fstat(descriptor)
        opened.append((descriptor, "" if path == "." else path + "/", [], (now.st_dev, now.st_ino)))
        if identity != opened[-1][3]:
            self.refuse(path, "It was replaced while the files were listed.")
            return
        entry = self.make_entry(folder, name, path, now)
        if entry is None:
            return
        yield entry
        yield from self._list_directory(*opened[-1][:3])

    def _list_directory(
        self, descriptor: int, prefix: str, directories: list[tuple[str, os.stat_result]]
    ) -> Iterator[FileEntry]:
        try:
            with os.scandir(descriptor) as entries:
                names = sorted(entry.name for entry in entries)
        except OSError as error:
            self.report_error(prefix.rstrip("/") or ".", error)
            return
        for name in names:
            path = prefix + name
            try:
                found = os.stat(name, dir_fd=descriptor, follow_symlinks=False)
            except OSError as error:
                self.report_error(path, error)
                continue
            if stat.S_ISDIR(found.st_mode):
                directories.append((name, found))
            elif entry := self.make_entry(descriptor, name, path, found):
                yield entry
        directories.reverse()  # taken from the end

    def make_entry(self, folder: int, name: str, path: str, found: os.stat_result) -> FileEntry | None:
        mode, target, data, xattrs = found.st_mode, "", None, None
        kind = kind_of(mode)
        size = 0
        try:
            if kind == "file":
                if not os.access(name, os.R_OK, dir_fd=folder):
                    raise PermissionError(errno.EACCES, "")
                if found.st_nlink > 1 and (first := self._find_first_link(path, found)):
                    kind, target = "hardlink", first
                else:
                    size = found.st_size
                    if found.st_blocks * 512 < size:
                        data = self._find_data(folder, name, found)
                    xattrs = read_xattrs(f"/proc/self/fd/{folder}/{name}")
            elif kind == "directory":
                xattrs = read_xattrs(f"/proc/self/fd/{folder}/{name}")
            elif kind == "symlink":
                target = os.readlink(name, dir_fd=folder)
            else:
                self.refuse(path, f"It is {kind}, which cannot be archived.")
                return None
        except OSError as error:
            self.report_error(path, error)
            return None
        except ValueError as error:
            self.refuse(path, str(error))
            return None
        return FileEntry(
            path,
            kind,  # type: ignore[arg-type] # one of the four
            mode & 0o7777,
            found.st_uid,
            found.st_gid,
            size,
            found.st_mtime_ns,
            found.st_dev,
            found.st_ino,
            found.st_ctime_ns,
            target,
            data,
            xattrs,
        )

    def _find_first_link(self, path: str, found: os.stat_result) -> str | None:
        identity = (found.st_dev, found.st_ino)
        first, left = self._links.get(identity, (path, found.st_nlink))
        if left > 1:
            self._links[identity] = (first, left - 1)
        else:
            self._links.pop(identity, None)
        return None if first == path else first

    def _find_data(self, folder: int, name: str, found: os.stat_result) -> tuple[tuple[int, int], ...] | None:
        file = os.open(name, READ_FLAGS, dir_fd=folder)
        try:
            now = os.fstat(file)
            if (now.st_dev, now.st_ino, now.st_size) != (found.st_dev, found.st_ino, found.st_size):
                raise ValueError("It changed while the files were listed.")
            return find_data_pieces(file, found.st_size)
        finally:
            os.close(file)


def find_data_pieces(file: int, size: int) -> tuple[tuple[int, int], ...] | None:
    """Return start and length of the pieces of a file that hold data; None if it has no holes."""
    pieces: list[tuple[int, int]] = []
    at = 0
    while at < size:
        try:
            start = os.lseek(file, at, os.SEEK_DATA)
        except OSError as error:
            if error.errno == errno.ENXIO:  # nothing but a hole follows
                break
            if error.errno == errno.EINVAL:  # a file system that knows no holes
                return None
            raise
        if start >= size:
            break
        at = min(os.lseek(file, start, os.SEEK_HOLE), size)
        pieces.append((start, at - start))
        if len(pieces) > 2 * MAX_DATA_PIECES:
            pieces = _join_pieces(pieces)
    if pieces == [(0, size)]:
        return None
    return tuple(_join_pieces(pieces))


def _join_pieces(pieces: list[tuple[int, int]]) -> list[tuple[int, int]]:
    """Join pieces across the smallest holes until few are left: these holes are stored as zeros."""
    surplus = len(pieces) - MAX_DATA_PIECES
    if surplus <= 0:
        return pieces
    holes = sorted(range(1, len(pieces)), key=lambda n: pieces[n][0] - sum(pieces[n - 1]))
    joined = set(holes[:surplus])
    kept: list[tuple[int, int]] = []
    for number, (start, length) in enumerate(pieces):
        if number in joined:
            kept[-1] = (kept[-1][0], start + length - kept[-1][0])
        else:
            kept.append((start, length))
    return kept


def read_xattrs(file: int | str) -> dict[str, bytes] | None:
    """Return the extended attributes that are kept: those of users, ACLs, capabilities, and as root the trusted ones."""
    try:
        names = os.listxattr(file, follow_symlinks=False) if isinstance(file, str) else os.listxattr(file)
    except OSError as error:
        if error.errno in _NO_XATTRS:
            return None
        raise
    if not names:
        return None
    found: dict[str, bytes] = {}
    for name in sorted(names):
        if name.startswith(_KEPT_XATTRS):
            if not name.isprintable() or "=" in name:
                raise ValueError(f"Its extended attribute {name!r} has a name that an archive cannot hold.")
            try:
                found[name] = (
                    os.getxattr(file, name, follow_symlinks=False) if isinstance(file, str) else os.getxattr(file, name)
                )
            except OSError as error:
                if error.errno not in _NO_XATTRS:
                    raise
    if sum(map(len, found.values())) > MAX_XATTR_BYTES:
        raise ValueError(f"It has more than {MAX_XATTR_BYTES} bytes of extended attributes.")
    return found or None
