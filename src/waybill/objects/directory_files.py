"""One object as a file of a directory: its path, its metadata, its content, and the errors of a file system.

**Path.** A name becomes a path segment by segment. An ordinary segment is its own file name; `%` is escaped as `%25`, a
segment of more than MAX_COMPONENT_BYTES bytes continues in a folder whose name ends with `%+`, and on a file system that
folds names capitals and non-ASCII characters are escaped too. The object `a` lies in `a/%o` when there are also objects
below `a/`.

**Digest.** A file has the SHA-256 of its content in the extended attribute `user.waybill`: digest, size and modification
time, separated by spaces. The digest is valid only while size and time are those of the file, so editing a file by hand
invalidates it. On a file system without extended attributes there is no digest, and the etag is derived from `stat`.
"""

from __future__ import annotations

import errno
import os
import re
import stat
from collections.abc import Generator, Iterator
from contextlib import contextmanager, suppress
from datetime import UTC, datetime
from typing import TypeAlias

from waybill.objects.protocol import ObjectInfo, ObjectRequestRefused, ObjectsError, ObjectStoreUnavailable
from waybill.objects.streams import CHUNK_SIZE, StreamedBody

PathComponents: TypeAlias = list[str]  # a path, entry by entry

MAX_COMPONENT_BYTES = 240  # file systems allow 255, and `%+` needs two
CONTINUATION_SUFFIX = "%+"
SELF_ENTRY = "%o"
OPEN_FOLDER_FLAGS = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC

_ESCAPE_PATTERN = re.compile("%")
_FOLDING_ESCAPE_PATTERN = re.compile("[%A-Z]|[^\x00-\x7f]")
_ESCAPE_SEQUENCE = re.compile(rb"%([0-9A-F]{2})")
_DIGEST_ATTRIBUTE = "user.waybill"
_NO_OBJECT_ERRNOS = {errno.ENOENT, errno.ENOTDIR, errno.ELOOP, errno.ENXIO, errno.ENODEV}
_NO_SPACE_ERRNOS = {errno.ENOSPC, errno.EDQUOT, errno.EFBIG}
_NOT_ALLOWED_ERRNOS = {errno.EACCES, errno.EPERM, errno.EROFS}


def components_of(name: str, *, folding: bool = False) -> PathComponents:
    """Return the path of a name, as the entries to walk through."""
    path: PathComponents = []
    for segment in name.split("/"):
        escaped = _escape(segment, folding)
        # a character has at most four bytes
        if len(escaped) <= MAX_COMPONENT_BYTES // 4 or len(escaped.encode()) <= MAX_COMPONENT_BYTES:
            path.append(escaped)
        else:
            path.extend(_split_segment(segment, folding))
    return path


def text_of(component: str, *, folding: bool = False) -> tuple[str, bool] | None:
    """Return the text of an entry and whether the segment continues inside it; None for an entry that this scheme
    would not write.
    """
    is_continued = component.endswith(CONTINUATION_SUFFIX)
    escaped = component.removesuffix(CONTINUATION_SUFFIX)
    try:
        text = _ESCAPE_SEQUENCE.sub(lambda found: bytes([int(found[1], 16)]), escaped.encode()).decode()
    except UnicodeError:
        return None
    if not text or _escape(text, folding) != escaped:
        return None
    if len(escaped.encode()) > MAX_COMPONENT_BYTES or (
        is_continued and len(escaped.encode()) <= MAX_COMPONENT_BYTES - 12
    ):
        return None
    return text, is_continued


def _split_segment(segment: str, folding: bool) -> list[str]:
    pieces: list[str] = []
    piece, length = "", 0
    for character in segment:
        escaped = _escape(character, folding)
        size = len(escaped.encode())
        if length + size > MAX_COMPONENT_BYTES:
            pieces.append(piece + CONTINUATION_SUFFIX)
            piece, length = "", 0
        piece += escaped
        length += size
    return [*pieces, piece]


def _escape(text: str, folding: bool) -> str:
    pattern = _FOLDING_ESCAPE_PATTERN if folding else _ESCAPE_PATTERN
    return pattern.sub(lambda found: "".join(f"%{byte:02X}" for byte in found[0].encode()), text)


def write_digest(fd: int, sha256: str) -> None:
    """Store the digest with the file, if the file system can."""
    found = os.fstat(fd)
    try:
        os.setxattr(fd, _DIGEST_ATTRIBUTE, f"{sha256} {found.st_size} {found.st_mtime_ns}".encode())
    except OSError as error:
        # Not every file system has attributes; a digest that is not stored is computed when needed.
        if error.errno not in (errno.ENOTSUP, errno.EPERM, errno.ENOSPC, errno.ENOSYS):
            raise


def describe_file(name: str, fd: int) -> ObjectInfo:
    found = os.fstat(fd)
    sha256 = _read_digest(fd, found)
    return ObjectInfo(
        name=name,
        size=found.st_size,
        etag=sha256[:32]
        if sha256
        else f"{found.st_ino:x}-{found.st_mtime_ns:x}-{found.st_ctime_ns:x}-{found.st_size:x}",
        modified=datetime.fromtimestamp(found.st_mtime_ns / 1e9, UTC),
        sha256=sha256,
    )


def _read_digest(fd: int, found: os.stat_result) -> str | None:
    with suppress(OSError):  # no attribute, or no attributes at all
        sha256, size, changed = os.getxattr(fd, _DIGEST_ATTRIBUTE).decode("ascii", "replace").split(" ")
        if (size, changed) == (str(found.st_size), str(found.st_mtime_ns)):
            return sha256
    return None


def open_object(entry: str, folder: int) -> int | None:
    """Open the object at this entry: the file, or the file inside the folder of the same name; None if there is
    none.
    """
    fd = _open_file(entry, folder)
    if fd is not None:
        return fd
    try:
        inside = os.open(entry, OPEN_FOLDER_FLAGS, dir_fd=folder)
    except OSError as error:
        if error.errno in _NO_OBJECT_ERRNOS:
            return None
        raise
    try:
        return _open_file(SELF_ENTRY, inside)
    finally:
        os.close(inside)


def _open_file(entry: str, folder: int) -> int | None:
    """Open the regular file at this entry; None if there is none, or something else such as a symbolic link."""
    try:
        # O_NONBLOCK: opening a pipe that someone left here must not wait for its other end.
        fd = os.open(entry, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC, dir_fd=folder)
    except OSError as error:
        if error.errno in _NO_OBJECT_ERRNOS:
            return None
        raise
    if stat.S_ISREG(os.fstat(fd).st_mode):
        return fd
    os.close(fd)
    return None


def write_all(fd: int, chunk: bytes) -> None:
    view = memoryview(chunk)
    while view:
        view = view[os.write(fd, view) :]


def open_range(info: ObjectInfo, fd: int, start: int, end: int | None) -> StreamedBody:
    """Return the body of a range of an open file; closing the body closes the file."""
    stop = info.size if end is None else min(end, info.size)

    def read_chunks() -> Generator[bytes]:
        at = start
        while at < stop:
            with translate_os_errors(f"read {info.name!r}"):
                chunk = os.pread(fd, min(CHUNK_SIZE, stop - at), at)
            if not chunk:
                raise ObjectStoreUnavailable(
                    f"{info.name!r} became shorter while it was read: another program changes files in the directory."
                )
            at += len(chunk)
            yield chunk

    return StreamedBody(info, read_chunks(), lambda: os.close(fd))


@contextmanager
def translate_os_errors(attempt: str) -> Iterator[None]:
    """Turn an error of the operating system into an ObjectsError that says what failed."""
    try:
        yield
    except OSError as error:
        raise _to_objects_error(error, attempt) from error


def _to_objects_error(error: OSError, attempt: str) -> ObjectsError:
    reason = error.strerror or str(error)
    if error.errno in _NO_SPACE_ERRNOS:
        return ObjectsError(
            f"Could not {attempt}: there is no space left in the directory ({reason}). Nothing was stored.",
            code="objects-full",
        )
    if error.errno in _NOT_ALLOWED_ERRNOS:
        return ObjectsError(
            f"Could not {attempt}: the operating system does not allow it ({reason}). Check the directory's owner and mode.",
            code="objects-denied",
        )
    if error.errno == errno.EXDEV:
        return ObjectRequestRefused(
            f"Could not {attempt}: another file system is mounted inside the directory, and a file cannot move there in one step."
        )
    if error.errno == errno.ENAMETOOLONG:
        return ObjectRequestRefused(f"Could not {attempt}: the file system allows only shorter names.")
    return ObjectStoreUnavailable(f"Could not {attempt}: {reason}.")
