"""Writes to a directory: publishing a file as an object in one system call, and uploads in parts.

A put starts with `open_temp` (a new file in `.waybill/tmp`, locked while it is written, removed if the writer fails) and
ends with `publish`: digest stored, file synced, `link` or `rename`, folder synced. If the object's place changes at that
moment (a folder is created or removed, a file becomes a folder), publishing is retried.

An upload is a folder of `.waybill/uploads` with one file per part, and a file that holds the object's name. `complete`
joins the parts into a new file and publishes that.
"""

from __future__ import annotations

import errno
import fcntl
import os
import re
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import replace
from types import TracebackType
from typing import Self

from waybill.objects.directory_files import (
    OPEN_FOLDER_FLAGS,
    SELF_ENTRY,
    describe_file,
    open_object,
    translate_os_errors,
    write_all,
    write_digest,
)
from waybill.objects.directory_folders import OWN_FOLDER, FolderTree, SideEffectHook, remove_tree
from waybill.objects.protocol import (
    ObjectExists,
    ObjectInfo,
    ObjectNotFound,
    ObjectStoreUnavailable,
    PartInfo,
    PreconditionFailed,
    check_part,
    check_parts,
)
from waybill.objects.streams import CHUNK_SIZE, CheckedStream, check_conditions

NEW_FILE_FLAGS = os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
RETRY_ERRNOS = {errno.ENOENT, errno.EISDIR, errno.ENOTDIR, errno.ENOTEMPTY}


class FilePublisher:
    """Writes a file in tmp and makes it an object."""

    def __init__(self, folders: FolderTree, *, on_side_effect: SideEffectHook, token: Callable[[], str]) -> None:
        self._folders = folders
        self._on_side_effect = on_side_effect
        self._token = token

    @contextmanager
    def open_temp(self, subject: str) -> Iterator[tuple[int, str]]:
        """Create a file in tmp and yield its descriptor and entry. It is removed if an Exception passes; after a crash
        `sweep` removes it.
        """
        entry = self._token()
        with translate_os_errors(f"write {subject}"), self._folders.open_tmp() as tmp:
            fd = os.open(entry, NEW_FILE_FLAGS, 0o666, dir_fd=tmp)
            fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)  # sweep skips locked files
            self._on_side_effect("temp made")
        try:
            yield fd, entry
        except Exception:
            with self._folders.open_tmp() as tmp, suppress(FileNotFoundError):
                os.unlink(entry, dir_fd=tmp)
            raise
        finally:
            os.close(fd)

    def publish(
        self, name: str, path: list[str], fd: int, temp: str, sha256: str, *, if_absent: bool, if_match: str | None
    ) -> ObjectInfo:
        """Make the written file the object, and return its metadata."""
        self._on_side_effect("temp written")
        write_digest(fd, sha256)
        self._folders.sync(fd)
        self._on_side_effect("temp synced")
        for _ in range(100):
            try:
                with (
                    self._folders.make_folder(path[:-1]) as folder,
                    self.open_place(folder, path[-1]) as (place, entry),
                ):
                    with self._folders.lock_path(path), self._folders.open_tmp() as tmp:
                        if if_match is not None:
                            check_etag(name, entry, place, if_match)
                        if if_absent:
                            os.link(temp, entry, src_dir_fd=tmp, dst_dir_fd=place, follow_symlinks=False)
                            self._on_side_effect("linked")
                            os.unlink(temp, dir_fd=tmp)
                            self._on_side_effect("temp dropped")
                        else:
                            os.rename(temp, entry, src_dir_fd=tmp, dst_dir_fd=place)
                            self._on_side_effect("renamed")
                    self._folders.sync(place)
                    self._on_side_effect("published")
                    return replace(describe_file(name, fd), sha256=sha256)  # known even if it cannot be stored
            except FileExistsError:
                if self._has_entry(path):
                    raise ObjectExists(f"An object named {name!r} exists already.") from None
            except OSError as error:
                if error.errno not in RETRY_ERRNOS:
                    raise
                self._check_temp_exists(temp, name)
        raise ObjectStoreUnavailable(f"The place of {name!r} changed a hundred times while it was being published.")

    @contextmanager
    def open_place(self, folder: int, entry: str) -> Iterator[tuple[int, str]]:
        """Yield the folder and entry of the object: this entry, or `%o` inside the folder of the same name."""
        try:
            inside = os.open(entry, OPEN_FOLDER_FLAGS, dir_fd=folder)
        except OSError as error:
            if error.errno not in (errno.ENOENT, errno.ENOTDIR, errno.ELOOP):
                raise
            yield folder, entry
            return
        try:
            yield inside, SELF_ENTRY
        finally:
            os.close(inside)

    def _has_entry(self, path: list[str]) -> bool:
        """Whether the existing entry is an object (or a link, a pipe ...) rather than a folder created at that moment."""
        with (
            suppress(ObjectNotFound),
            self._folders.open_folder(path[:-1]) as folder,
            self.open_place(folder, path[-1]) as (place, entry),
        ):
            with suppress(FileNotFoundError):
                os.stat(entry, dir_fd=place, follow_symlinks=False)
                return True
        return False

    def _check_temp_exists(self, temp: str, name: str) -> None:
        with self._folders.open_tmp() as tmp:
            try:
                os.stat(temp, dir_fd=tmp, follow_symlinks=False)
            except FileNotFoundError:
                raise ObjectStoreUnavailable(
                    f"The unfinished file of {name!r} was removed by another process."
                ) from None


def check_etag(name: str, entry: str, place: int, etag: str) -> None:
    fd = open_object(entry, place)
    if fd is None:
        raise PreconditionFailed(f"{name!r} is gone: only version {etag} of it was to be replaced.")
    try:
        current = describe_file(name, fd).etag
    finally:
        os.close(fd)
    if current != etag:
        raise PreconditionFailed(f"{name!r} is now version {current}: only version {etag} was to be replaced.")


class DirectoryUpload:
    """An ObjectUpload whose parts are files of one folder."""

    def __init__(
        self,
        folders: FolderTree,
        publisher: FilePublisher,
        name: str,
        path: list[str],
        *,
        token: Callable[[], str],
        on_side_effect: SideEffectHook,
        resume: str | None,
        keep: bool,
    ) -> None:
        self._folders, self._publisher, self._on_side_effect = folders, publisher, on_side_effect
        self.name = name
        self._path = path
        self._keep = keep
        self._is_open = True
        if resume is None:
            self.id = token()
            self._start()
        else:
            self.id = resume
            self._resume()

    def list_parts(self) -> Mapping[int, PartInfo]:
        found: dict[int, PartInfo] = {}
        with translate_os_errors(f"read the upload of {self.name!r}"), self._open_folder() as folder:
            for entry in sorted(os.listdir(folder)):
                if re.fullmatch("[0-9]{5}", entry):
                    status = os.stat(entry, dir_fd=folder, follow_symlinks=False)
                    found[int(entry)] = PartInfo(
                        int(entry), status.st_size, f"{status.st_mtime_ns:x}-{status.st_size:x}"
                    )
        return found

    def put_part(self, number: int, data: bytes) -> PartInfo:
        check_part(number, data)
        with (
            self._publisher.open_temp(f"part {number} of {self.name!r}") as (fd, temp),
            translate_os_errors(f"write part {number} of {self.name!r}"),
        ):
            write_all(fd, data)
            self._folders.sync(fd)
            with self._open_folder() as folder, self._folders.open_tmp() as tmp:
                os.rename(temp, f"{number:05d}", src_dir_fd=tmp, dst_dir_fd=folder)
                self._on_side_effect("renamed")
                self._folders.sync(folder)
            status = os.fstat(fd)
        return PartInfo(number, status.st_size, f"{status.st_mtime_ns:x}-{status.st_size:x}")

    def complete(
        self, *, if_absent: bool = False, if_match: str | None = None, sha256: str | None = None
    ) -> ObjectInfo:
        check_conditions(if_absent, if_match)
        parts = self.list_parts()
        check_parts(self.name, parts)
        stream = CheckedStream(
            self._read_parts(list(parts)), size=sum(part.size for part in parts.values()), sha256=sha256
        )
        with (
            self._publisher.open_temp(repr(self.name)) as (fd, temp),
            translate_os_errors(f"join the parts of {self.name!r}"),
        ):
            for chunk in stream:
                write_all(fd, chunk)
            info = self._publisher.publish(
                self.name, self._path, fd, temp, stream.sha256, if_absent=if_absent, if_match=if_match
            )
        self._is_open = False
        self._drop()
        return info

    def abort(self) -> None:
        self._is_open = False
        self._drop()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        # A simulated crash is not an Exception, and a dead process removes nothing.
        if self._is_open and not self._keep and (kind is None or issubclass(kind, Exception)):
            self.abort()

    def _start(self) -> None:
        with (
            translate_os_errors(f"start the upload of {self.name!r}"),
            self._folders.make_folder([*OWN_FOLDER, "uploads", self.id]) as folder,
        ):
            with (
                self._publisher.open_temp(f"the upload of {self.name!r}") as (fd, temp),
                self._folders.open_tmp() as tmp,
            ):
                write_all(fd, self.name.encode())
                self._folders.sync(fd)
                os.rename(temp, "name", src_dir_fd=tmp, dst_dir_fd=folder)
                self._folders.sync(folder)
                self._on_side_effect("upload made")

    def _resume(self) -> None:
        stored_name = b""
        if re.fullmatch("[0-9A-Za-z_-]+", self.id):
            with translate_os_errors(f"resume the upload of {self.name!r}"), self._open_folder() as folder:
                fd = open_object("name", folder)
                if fd is not None:
                    with os.fdopen(fd, "rb") as file:
                        stored_name = file.read()
        if stored_name != self.name.encode():
            raise ObjectNotFound(
                f"There is no upload {self.id!r} of {self.name!r}: it was completed, aborted or swept."
            )

    @contextmanager
    def _open_folder(self) -> Iterator[int]:
        try:
            with self._folders.open_folder([*OWN_FOLDER, "uploads", self.id]) as folder:
                yield folder
        except ObjectNotFound:
            raise ObjectNotFound(
                f"There is no upload {self.id!r} of {self.name!r}: it was completed, aborted or swept."
            ) from None

    def _read_parts(self, numbers: list[int]) -> Iterator[bytes]:
        with self._open_folder() as folder:
            for number in numbers:
                fd = open_object(f"{number:05d}", folder)
                if fd is None:
                    raise ObjectNotFound(f"Part {number} of the upload of {self.name!r} is gone.")
                with os.fdopen(fd, "rb", buffering=0) as file:
                    while chunk := file.read(CHUNK_SIZE):
                        yield chunk

    def _drop(self) -> None:
        with (
            translate_os_errors(f"drop the upload of {self.name!r}"),
            self._folders.open_folder([*OWN_FOLDER, "uploads"]) as uploads,
        ):
            remove_tree(uploads, self.id)
            self._on_side_effect("upload dropped")
