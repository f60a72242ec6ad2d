"""Archives as files of a folder: written durably, and read from the disk rather than from memory.

An archive is written to `<name>.unfinished` and renamed when all of it is on the disk, so a file under an archive's name
is whole. After each part the file is synced and the caller's checkpoint counts the part; a put that is resumed cuts the
file at its checkpoint and goes on there.

Reading back proves something only if it reads the disk. So what was written is dropped from the page cache when it has
been synced, and again before it is read.
"""

from __future__ import annotations

import ctypes
import errno
import os
import shutil
from collections.abc import Callable, Generator, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from waybill.apps.archive.storages.errors import (
    ArchiveNotFound,
    ExternalStorageDamaged,
    ExternalStorageError,
    StorageFull,
    StorageRefused,
    StorageUnavailable,
)
from waybill.apps.archive.storages.protocol import (
    UNFINISHED_SUFFIX,
    ArchiveSource,
    SaveCheckpoint,
    StoredArchive,
    UploadCheckpoint,
)
from waybill.apps.archive.storages.sources import PartStream, read_whole, resume_stream

_libc = ctypes.CDLL(None)
_int64 = ctypes.c_int64
_SYNC_FILE_RANGE_WRITE = 2
_WRITE_BEHIND = 8 * 1024 * 1024

SideEffectHook = Callable[[str], None]

_FULL = {errno.ENOSPC, errno.EDQUOT}
_REFUSED = {errno.EFBIG, errno.EACCES, errno.EPERM, errno.ENAMETOOLONG, errno.ELOOP, errno.ENOTDIR, errno.EISDIR}
_OPEN_FLAGS = os.O_CLOEXEC | os.O_NOFOLLOW


@contextmanager
def translate_os_errors(subject: str) -> Iterator[None]:
    try:
        yield
    except OSError as error:
        raise to_storage_error(error, subject) from error


def to_storage_error(error: OSError, subject: str) -> ExternalStorageError:
    text = f"{subject}: {error.strerror or error}."
    if error.errno in _FULL:
        return StorageFull(text)
    if error.errno == errno.EIO:
        return ExternalStorageDamaged(text)
    return StorageRefused(text) if error.errno in _REFUSED else StorageUnavailable(text)


def write_archive(
    folder: Path,
    name: str,
    source: ArchiveSource,
    *,
    part_size: int,
    resume: UploadCheckpoint | None,
    save: SaveCheckpoint,
    on_side_effect: SideEffectHook = lambda _: None,
) -> StoredArchive:
    """Write an archive into an existing folder.

    A second run replaces what the first wrote, or goes on at the checkpoint: both end with the same bytes.
    """
    unfinished = folder / (name + UNFINISHED_SUFFIX)
    with translate_os_errors(f"writing {name}"):
        file = os.open(unfinished, os.O_RDWR | os.O_CREAT | _OPEN_FLAGS, 0o640)
    try:
        stored = os.fstat(file).st_size
        stream, goes_on = resume_stream(source, part_size, resume, stored)
        with translate_os_errors(f"writing {name}"):
            os.ftruncate(file, stream.size if goes_on else 0)
            os.lseek(file, 0, os.SEEK_END)
        while not stream.is_finished:
            _write_part(file, name, stream)
            if not stream.is_finished:
                save(stream.make_checkpoint(name))
                on_side_effect("part written")
        with translate_os_errors(f"writing {name}"):
            os.fsync(file)
            os.posix_fadvise(file, 0, 0, os.POSIX_FADV_DONTNEED)
            on_side_effect("archive synced")
            os.rename(unfinished, folder / name)
            on_side_effect("archive renamed")
            sync_folder(folder)
    finally:
        os.close(file)
    on_side_effect("archive written")
    return stream.to_archive(name)


def _write_part(file: int, name: str, stream: PartStream) -> None:
    started = stream.size
    for chunk in stream.iter_part():  # what the source raises passes as it is
        with translate_os_errors(f"writing {name}"):
            write_all(file, chunk)
        if stream.size - started >= _WRITE_BEHIND:
            # the disk begins at once, so that the sync at the end has little left to do; what fails is found there
            _libc.sync_file_range(file, _int64(started), _int64(stream.size - started), _SYNC_FILE_RANGE_WRITE)
            started = stream.size
    with translate_os_errors(f"writing {name}"):
        os.fdatasync(file)


def write_all(file: int, data: bytes | memoryview) -> None:
    view = memoryview(data)
    while view:
        view = view[os.write(file, view) :]


def read_archive(folder: Path, name: str, start: int, end: int | None) -> Generator[bytes | memoryview, None, None]:
    """Yield bytes of an archive from the disk."""
    with translate_os_errors(f"reading {name}"):
        try:
            file = os.open(folder / name, os.O_RDONLY | _OPEN_FLAGS)
        except FileNotFoundError:
            raise ArchiveNotFound(f"There is no archive {name} in {folder.name}.") from None
    try:
        with translate_os_errors(f"reading {name}"):
            size = os.fstat(file).st_size
            stop = size if end is None else min(end, size)
            if start >= stop:
                return
            os.posix_fadvise(file, start, stop - start, os.POSIX_FADV_DONTNEED)
            os.posix_fadvise(file, start, stop - start, os.POSIX_FADV_SEQUENTIAL)
            os.lseek(file, start, os.SEEK_SET)
        chunks = read_whole(file, stop - start)
        while True:
            with translate_os_errors(f"reading {name}"):
                chunk = next(chunks, None)
            if chunk is None:
                return
            yield chunk
    except EOFError:
        raise ExternalStorageDamaged(f"{name} became shorter while it was read.") from None
    finally:
        os.posix_fadvise(file, 0, 0, os.POSIX_FADV_DONTNEED)
        os.close(file)


def list_folder(folder: Path) -> list[StoredArchive]:
    with translate_os_errors(f"listing {folder.name}"):
        try:
            with os.scandir(folder) as entries:
                found = [
                    StoredArchive(entry.name, entry.stat(follow_symlinks=False).st_size)
                    for entry in entries
                    if entry.is_file(follow_symlinks=False) and not entry.name.endswith(UNFINISHED_SUFFIX)
                ]
        except FileNotFoundError:
            return []
    return sorted(found, key=lambda archive: archive.name)


def has_archive(folder: Path, name: str) -> bool:
    with translate_os_errors(f"looking for {name}"):
        return (folder / name).is_file()


def remove_archive(folder: Path, name: str) -> None:
    """Remove an archive and what an unfinished put left of it; nothing if there is none."""
    with translate_os_errors(f"removing {name}"):
        if not folder.is_dir():
            return
        for entry in (name, name + UNFINISHED_SUFFIX):
            with suppress(FileNotFoundError):
                (folder / entry).unlink()
        sync_folder(folder)


def make_folder(folder: Path) -> None:
    """Make a folder whose parent exists, durably."""
    with translate_os_errors(f"making {folder.name}"):
        with suppress(FileExistsError):
            folder.mkdir(mode=0o750)
        sync_folder(folder.parent)


def remove_folder(folder: Path) -> None:
    with translate_os_errors(f"removing {folder.name}"):
        with suppress(FileNotFoundError):
            shutil.rmtree(folder)
        sync_folder(folder.parent)


def sync_folder(folder: Path) -> None:
    descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
