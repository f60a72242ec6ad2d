"""Lists and unpacks a container, the same for both formats.

1. Each entry is checked: its type, its name, its name beside the others, and the limits on number and size.
2. As long as nothing was refused, it is written: exactly as many bytes as the container declares.
3. After a refusal nothing is written any more, but all entries are checked, so that all complaints are reported together.

`TargetFolder` creates files below one folder: it opens each folder relative to its parent and follows no link.
"""

from __future__ import annotations

import bz2
import errno
import gzip
import hashlib
import os
import zlib
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from types import TracebackType
from typing import BinaryIO, Self

from waybill.files import names
from waybill.files.containers import tars, zips
from waybill.files.containers.entries import (
    BadContainer,
    BadContainerFile,
    ContainerComplaint,
    ContainerEntry,
    ContainerKind,
    ContainerLimits,
    ContainerMember,
    UnpackedFile,
)

MAX_COMPLAINTS = 1000

_FOLDER_FLAGS = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
_NEW_FILE_FLAGS = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
_NAME_ERRNOS = {errno.EEXIST, errno.ENOTDIR, errno.ELOOP, errno.EISDIR, errno.ENAMETOOLONG, errno.EINVAL, errno.EILSEQ}


def kind_of(head: bytes) -> ContainerKind | None:
    """Return the kind of a file by its first 512 bytes; None if it is not a container of a known kind."""
    if head.startswith((b"PK\x03\x04", b"PK\x05\x06")):
        return ContainerKind.ZIP
    if head.startswith(b"\x1f\x8b\x08"):
        return ContainerKind.TAR_GZ
    if head.startswith(b"BZh"):
        return ContainerKind.TAR_BZ2
    return ContainerKind.TAR if head[257:262] == b"ustar" or tars.is_header(head[: tars.BLOCK]) else None


def list_members(
    path: Path, limits: ContainerLimits | None = None, *, on_bytes: Callable[[int], None] = lambda count: None
) -> Iterator[ContainerMember]:
    """Yield every file of the container; raise BadContainer at the end if anything would be refused.

    `on_bytes` is called for every chunk that is read of a tar, and may raise to stop.
    """
    with _ContainerReader(path, limits or ContainerLimits(), on_bytes) as reader, reader.raise_complaints():
        for name, entry in reader.iter_files():
            yield ContainerMember(name, entry.size)


def unpack(
    path: Path,
    into: Path,
    limits: ContainerLimits | None = None,
    *,
    on_bytes: Callable[[int], None] = lambda count: None,
) -> Iterator[UnpackedFile]:
    """Unpack into an existing folder and yield each file; raise BadContainer at the end if anything was refused: then
    none of the files may be used.

    `on_bytes` is called for every chunk, and may raise to stop.
    """
    with (
        _ContainerReader(path, limits or ContainerLimits()) as reader,
        TargetFolder(into) as folder,
        reader.raise_complaints(),
    ):
        for name, entry in reader.iter_files():
            if reader.complaints:
                continue
            try:
                written = _write(folder, name, entry, on_bytes)
            except BadContainerFile as error:
                reader.complain(name, f"{names.quote_text(name)} {error}.")
            else:
                yield written


def _write(folder: TargetFolder, name: str, entry: ContainerEntry, on_bytes: Callable[[int], None]) -> UnpackedFile:
    digest, size = hashlib.sha256(), 0
    with folder.create(name) as file:
        for chunk in entry.chunks():
            view = memoryview(chunk)
            while view:
                view = view[file.write(view) :]
            digest.update(chunk)
            size += len(chunk)
            on_bytes(len(chunk))
    return UnpackedFile(name, size, digest.hexdigest())


class _ContainerReader:
    """Reads and checks the entries of one container."""

    def __init__(
        self, path: Path, limits: ContainerLimits, on_bytes: Callable[[int], None] = lambda count: None
    ) -> None:
        self._limits, self._on_bytes = limits, on_bytes
        self._file = open(path, "rb")  # noqa: SIM115 - closed by __exit__
        self._packed = os.fstat(self._file.fileno()).st_size
        self._names = names.FileNames(ignoring_case=limits.ignoring_case)
        self._count = 0
        self._unpacked = 0
        self.complaints: list[ContainerComplaint] = []

    def __enter__(self) -> _ContainerReader:
        return self

    def __exit__(self, *raised: object) -> None:
        self._file.close()

    def iter_files(self) -> Iterator[tuple[str, ContainerEntry]]:
        """Yield every accepted file with its name."""
        for entry in self._open_entries():
            name = self._check_entry(entry)
            if name:
                yield name, entry

    @contextmanager
    def raise_complaints(self) -> Iterator[None]:
        """Raise BadContainer with all complaints at the end, if there are any."""
        try:
            with _translate_errors():
                yield
        except BadContainer as error:
            self.complaints.extend(error.complaints)
        if self.complaints:
            raise BadContainer(self.complaints)
        if not self._names:
            raise BadContainer("There are no files in the container.")

    def complain(self, name: str, text: str) -> None:
        self.complaints.append(ContainerComplaint(name, text))
        if len(self.complaints) == MAX_COMPLAINTS:
            raise BadContainer(f"Checking stopped after {MAX_COMPLAINTS} complaints.")

    def _open_entries(self) -> Iterator[ContainerEntry]:
        head = self._file.read(tars.BLOCK)
        kind = kind_of(head)
        self._file.seek(0)
        if kind is ContainerKind.ZIP:
            return zips.iter_zip_entries(self._file)
        if kind is None:
            raise BadContainer("The file is empty." if not head else "This is neither a zip nor a tar file.")
        return tars.iter_tar_entries(
            _LimitedSource(_open_decompressed(self._file, kind), self._packed, self._limits, self._on_bytes)
        )

    def _check_entry(self, entry: ContainerEntry) -> str:
        self._count += 1
        self._unpacked += entry.size
        if self._count > self._limits.count:
            raise BadContainer(f"There are more than {self._limits.count:,} files and folders in the container.")
        fault = self._limits.find_fault(self._packed, self._unpacked)
        if fault:
            raise BadContainer(fault)
        # names in tars may begin with ./, those of folders end with /
        name = "/".join(part for part in entry.name.split("/") if part not in ("", "."))
        if entry.is_folder and not name and not entry.name.startswith("/"):
            return ""  # the folder itself
        fault = names.find_fault("/" + name if entry.name.startswith("/") else name)
        if not fault and name.count("/") > self._limits.depth:
            fault = f"{names.quote_text(name)} is more than {self._limits.depth} folders deep."
        if not fault and (entry.refusal or (entry.is_folder and entry.size)):
            fault = f"{names.quote_text(name)} {entry.refusal or 'is a folder with content'}."
        if not fault:
            fault = self._names.add_folder(name) if entry.is_folder else self._names.add_file(name)
        if fault:
            self.complain(name or entry.name, fault)
            return ""
        return "" if entry.is_folder else name


class _LimitedSource:
    """A decompressed tar that is read only up to the limits, including what belongs to no file."""

    def __init__(
        self, source: tars.ByteSource, packed: int, limits: ContainerLimits, on_bytes: Callable[[int], None]
    ) -> None:
        self._source, self._packed, self._limits, self._on_bytes = source, packed, limits, on_bytes
        self._read_bytes = 0

    def read(self, size: int, /) -> bytes:
        data = self._source.read(size)
        self._read_bytes += len(data)
        self._on_bytes(len(data))
        fault = self._limits.find_fault(self._packed, self._read_bytes)
        if fault:
            raise BadContainer(fault)
        return data


def _open_decompressed(file: BinaryIO, kind: ContainerKind) -> tars.ByteSource:
    if kind is ContainerKind.TAR_GZ:
        return gzip.GzipFile(fileobj=file, mode="rb")
    return bz2.BZ2File(file) if kind is ContainerKind.TAR_BZ2 else file


@contextmanager
def _translate_errors() -> Iterator[None]:
    """Translate the errors of decompressors into BadContainer."""
    try:
        yield
    except EOFError:
        raise BadContainer("The container ends too early: it is incomplete.") from None
    except (zlib.error, gzip.BadGzipFile):
        raise BadContainer("The container is damaged: it cannot be decompressed.") from None
    except OSError as error:
        if error.errno is None:  # damaged data of bz2
            raise BadContainer("The container is damaged: it cannot be decompressed.") from None
        raise


class TargetFolder:
    """An existing folder. The folders of the last file stay open, since the next file is often in the same one."""

    def __init__(self, path: Path) -> None:
        self._open_folders: list[tuple[str, int]] = [("", os.open(path, _FOLDER_FLAGS & ~os.O_NOFOLLOW))]

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._leave(0)

    def create(self, name: str) -> BinaryIO:
        """Create a file for writing; raise BadContainerFile if the name exists or is not possible."""
        *folders, last = name.split("/")
        try:
            return open(os.open(last, _NEW_FILE_FLAGS, 0o666, dir_fd=self._enter(folders)), "wb", buffering=0)
        except OSError as error:
            if error.errno in _NAME_ERRNOS:
                raise BadContainerFile(f"cannot be stored under this name: {error.strerror}") from error
            raise

    def _enter(self, folders: list[str]) -> int:
        same = 0
        while (
            same < len(folders)
            and same + 1 < len(self._open_folders)
            and self._open_folders[same + 1][0] == folders[same]
        ):
            same += 1
        self._leave(same + 1)
        for folder in folders[same:]:
            above = self._open_folders[-1][1]
            with suppress(FileExistsError):  # if it is not a folder, opening it fails
                os.mkdir(folder, dir_fd=above)
            self._open_folders.append((folder, os.open(folder, _FOLDER_FLAGS, dir_fd=above)))
        return self._open_folders[-1][1]

    def _leave(self, keep: int) -> None:
        while len(self._open_folders) > keep:
            os.close(self._open_folders.pop()[1])
