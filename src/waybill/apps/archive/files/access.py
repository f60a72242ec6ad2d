"""stub"""

from __future__ import annotations
from collections.abc import Callable, Iterable, Iterator, Sequence
from types import TracebackType
from typing import Protocol, Self
import msgspec
from waybill.apps.archive.files.entries import FileEntry, FileSet, ReportFailure
from waybill.apps.archive.files.restoring import RestoreOptions, UnpackedCounts


class UserIdentity(msgspec.Struct, frozen=True):
    """Whom the files belong to."""

    name: str
    uid: int
    gid: int
    groups: tuple[int, ...]


def find_user(name: str) -> UserIdentity:
    """Look the user up in the system. Raises AccessRefused if there is none."""
    raise NotImplementedError


class FileAccess(Protocol):
    """What is done with a user's rights. A context manager; for one thread."""

    def find_file_set(self, paths: Iterable[str]) -> tuple[FileSet, list[str]]:
        """Find the common folder of absolute paths, and the paths relative to it, without duplicates and without those
        that lie below another one. One directory is itself the folder, with the path ".". Raises AccessRefused.
        """
        ...

    def list_files(self, file_set: FileSet, paths: Sequence[str], report: ReportFailure) -> Iterator[FileEntry]:
        """Yield what is there, streaming, and report what cannot be archived. Changes nothing."""
        ...

    def lock_files(self, file_set: FileSet, entries: Iterable[FileEntry], report: ReportFailure) -> Iterator[FileEntry]:
        """Take write bits, and as root the owner, from files and directories that the user can read. Yields the entries
        with size, mtime and ctime as they are after that, and with mode and owner as they were before: `entries` must
        be stored durably first. Safe to repeat.
        """
        ...

    def make_target(self, path: str) -> FileSet:
        """Make the folder to restore into, whose parent must exist, or find it. Raises AccessRefused if the user cannot
        write there. Safe to repeat."""
        ...

    def unpack_archive(
        self,
        chunks: Iterable[bytes | memoryview],
        entries: Sequence[FileEntry],
        target: FileSet,
        options: RestoreOptions,
        report: ReportFailure,
    ) -> UnpackedCounts:
        """Restore the selected members of one archive from its bytes, each checked by its digest and visible only when
        whole and durable. `entries` are all members, as packed. Safe to repeat: what is there already, and is what the
        entry says, is left.
        """
        ...

    def finish_restore(
        self, target: FileSet, entries: Iterable[FileEntry], options: RestoreOptions, report: ReportFailure
    ) -> int:
        """When all archives are unpacked: hard links across archives, owners, modes, and the times of directories.
        `entries` in the order of the listing. Returns how many. Safe to repeat."""
        ...

    def __enter__(self) -> Self: ...

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None: ...


def open_access(user: UserIdentity | None) -> FileAccess:
    """As root: a process that has become the user. Otherwise, or for None, as this process itself."""
    raise NotImplementedError
