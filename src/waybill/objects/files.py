"""Files: one object as a file of a directory: what is known of it, its bytes, and the trouble that a file system can
make.

Beside its bytes a file keeps the SHA-256 of them, as the extended attribute `user.waybill`: digest, size and time of
last change, with spaces between. It counts only while size and time are still those of the file: whoever edits a file
by hand ends it. Where a file system has no extended attributes nothing is kept, and the etag is made of what `stat`
says.
"""

from __future__ import annotations

import errno
import os
import stat
from collections.abc import Generator, Iterator
from contextlib import contextmanager, suppress
from datetime import UTC, datetime

from waybill.objects.escape import SELF
from waybill.objects.protocol import NoSpace, NotAllowed, ObjectInfo, ObjectsError, Refused, Unavailable
from waybill.objects.reading import Reading
from waybill.objects.streams import PORTION

_KEPT = "user.waybill"
OPEN_FOLDER = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
_NOTHING = {errno.ENOENT, errno.ENOTDIR, errno.ELOOP, errno.ENXIO, errno.ENODEV}
_NO_SPACE = {errno.ENOSPC, errno.EDQUOT, errno.EFBIG}
_NOT_ALLOWED = {errno.EACCES, errno.EPERM, errno.EROFS}


def keep_digest(fd: int, sha256: str) -> None:
    """Write the digest beside the bytes, where the file system can."""
    found = os.fstat(fd)
    try:
        os.setxattr(fd, _KEPT, f"{sha256} {found.st_size} {found.st_mtime_ns}".encode())
    except OSError as error:
        # Not every file system has attributes, and a digest that is not kept is only read again.
        if error.errno not in (errno.ENOTSUP, errno.EPERM, errno.ENOSPC, errno.ENOSYS):
            raise


def describe(name: str, fd: int) -> ObjectInfo:
    found = os.fstat(fd)
    sha256 = _kept_digest(fd, found)
    return ObjectInfo(
        name=name,
        size=found.st_size,
        etag=sha256[:32]
        if sha256
        else f"{found.st_ino:x}-{found.st_mtime_ns:x}-{found.st_ctime_ns:x}-{found.st_size:x}",
        modified=datetime.fromtimestamp(found.st_mtime_ns / 1e9, UTC),
        sha256=sha256,
    )


def _kept_digest(fd: int, found: os.stat_result) -> str | None:
    with suppress(OSError):  # no attribute, or no attributes at all
        sha256, size, changed = os.getxattr(fd, _KEPT).decode("ascii", "replace").split(" ")
        if (size, changed) == (str(found.st_size), str(found.st_mtime_ns)):
            return sha256
    return None


def open_object(entry: str, folder: int) -> int | None:
    """A descriptor of the object at this entry: the file, or the file inside the folder of the same name; None if
    there is none.
    """
    fd = _open_file(entry, folder)
    if fd is not None:
        return fd
    try:
        inside = os.open(entry, OPEN_FOLDER, dir_fd=folder)
    except OSError as error:
        if error.errno in _NOTHING:
            return None
        raise
    try:
        return _open_file(SELF, inside)
    finally:
        os.close(inside)


def _open_file(entry: str, folder: int) -> int | None:
    """A descriptor of the regular file at this entry; None for anything else, a symbolic link or nothing included."""
    try:
        # O_NONBLOCK: opening a pipe that someone left here must not wait for its other end.
        fd = os.open(entry, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC, dir_fd=folder)
    except OSError as error:
        if error.errno in _NOTHING:
            return None
        raise
    if stat.S_ISREG(os.fstat(fd).st_mode):
        return fd
    os.close(fd)
    return None


def write_all(fd: int, portion: bytes) -> None:
    view = memoryview(portion)
    while view:
        view = view[os.write(fd, view) :]


def read_file(info: ObjectInfo, fd: int, start: int, end: int | None) -> Reading:
    """A range of an open file, which is closed with the reading."""
    stop = info.size if end is None else min(end, info.size)

    def portions() -> Generator[bytes]:
        at = start
        while at < stop:
            with explained(f"read {info.name!r}"):
                portion = os.pread(fd, min(PORTION, stop - at), at)
            if not portion:
                raise Unavailable(
                    f"{info.name!r} became shorter while it was read: someone changes files in the directory."
                )
            at += len(portion)
            yield portion

    return Reading(info, portions(), lambda: os.close(fd))


@contextmanager
def explained(what: str) -> Iterator[None]:
    """Turn what the operating system says into an error of ours, with a sentence."""
    try:
        yield
    except OSError as error:
        raise _ours(error, what) from error


def _ours(error: OSError, what: str) -> ObjectsError:
    reason = error.strerror or str(error)
    if error.errno in _NO_SPACE:
        return NoSpace(f"Could not {what}: there is no space left in the directory ({reason}). Nothing of it was kept.")
    if error.errno in _NOT_ALLOWED:
        return NotAllowed(
            f"Could not {what}: the operating system does not allow it ({reason}). Check the directory's owner and mode."
        )
    if error.errno == errno.EXDEV:
        return Refused(
            f"Could not {what}: another file system is mounted inside the directory, and a file cannot move there in one step."
        )
    if error.errno == errno.ENAMETOOLONG:
        return Refused(f"Could not {what}: the file system allows only shorter names.")
    return Unavailable(f"Could not {what}: {reason}.")
