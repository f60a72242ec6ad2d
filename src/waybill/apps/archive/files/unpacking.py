"""An archive to files of a target.

Nothing in the bytes of an archive decides anything. What an archive holds is known from its entries: where each member
begins, its headers, its size, its digest. The headers that arrive are compared with those that were written, and never
parsed; so an archive that somebody has made up cannot name a path, and one that is damaged gives the members that are
whole, and a sentence for each other one. The paths of the entries are checked all the same, for a catalogue that was read
back from a storage.

A file is written under a name of ours beside its place, with content, mode, attributes and mtime; its digest is compared;
a batch of files is brought to the disk in one flush; then each gets its name, never over another file unless that was
asked for. So what has its name is whole and durable.

A second run finds what the first one has restored: a file with the size, mtime and digest of its entry is left as it is.
"""

from __future__ import annotations

import errno
import hashlib
import os
import stat
from collections.abc import Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import dataclass

from waybill.apps.archive.files.entries import FileEntry, FileFailure, FileSet, ReportFailure, to_printable
from waybill.apps.archive.files.errors import AccessRefused, ArchiveInvalid, FileRefused
from waybill.apps.archive.files.packing import digest_zeros
from waybill.apps.archive.files.restoring import UNFINISHED_MODE, RestoreOptions, UnpackedCounts, set_acls
from waybill.apps.archive.files.source_tree import MAX_DEPTH, READ_FLAGS, FolderDescriptors, check_name, open_file_set
from waybill.apps.archive.files.system_calls import rename_without_replacing, sync_file_system
from waybill.apps.archive.files.tar_headers import make_headers

_BATCH_FILES = 2000
_BATCH_BYTES = 512 * 1024 * 1024
_SMALL = 128 * 1024
_NOT_ITS_FAULT = {
    errno.ENOSPC,
    errno.EDQUOT,
    errno.EIO,
    errno.EROFS,
    errno.EMFILE,
    errno.ENFILE,
    errno.ESTALE,
}  # tried again
_WRITE_FLAGS = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC


class ChunkReader:
    """The bytes of an archive in pieces of any size. Raises ArchiveInvalid where they end too early."""

    def __init__(self, chunks: Iterable[bytes | memoryview]) -> None:
        self._chunks = iter(chunks)
        self._rest = memoryview(b"")
        self.at = 0

    def iter_pieces(self, count: int) -> Iterator[memoryview]:
        """Yield the next `count` bytes. A piece is valid until the next one."""
        while count:
            if not self._rest:
                chunk = next(self._chunks, None)
                if chunk is None:
                    raise ArchiveInvalid(f"The archive ends after {self.at} bytes; more were stored.")
                self._rest = memoryview(chunk).cast("B")
                continue
            piece, self._rest = self._rest[:count], self._rest[count:]
            self.at += len(piece)
            count -= len(piece)
            yield piece

    def read(self, count: int) -> bytes | memoryview:
        if len(self._rest) >= count:
            piece, self._rest = self._rest[:count], self._rest[count:]
            self.at += count
            return piece
        return b"".join(bytes(piece) for piece in self.iter_pieces(count))

    def skip_to(self, offset: int) -> None:
        if offset < self.at:
            raise ArchiveInvalid("The catalogue has the members of the archive in another order.")
        for _ in self.iter_pieces(offset - self.at):
            pass


@dataclass(slots=True)
class _Unpublished:
    """A file that is written and has not got its name yet."""

    entry: FileEntry
    path: str  # where it belongs
    name: str  # its own name there
    temporary: str


def unpack_archive(
    chunks: Iterable[bytes | memoryview],
    entries: Sequence[FileEntry],
    target: FileSet,
    options: RestoreOptions,
    report: ReportFailure,
) -> UnpackedCounts:
    """Restore the selected members of one archive. With the rights of this process."""
    root = open_file_set(target)
    unpacking = _Unpacking(root, options, report)
    try:
        reader = ChunkReader(chunks)
        try:
            for entry in entries:
                unpacking.take(entry, reader)
        finally:
            unpacking.publish()  # what was whole before the archive ended too early, too
    finally:
        unpacking.close()
    return UnpackedCounts(unpacking.files, unpacking.bytes, unpacking.failed)


class _Unpacking:
    def __init__(self, root: int, options: RestoreOptions, report: ReportFailure) -> None:
        self._folders = FolderDescriptors(root)
        self._sources = FolderDescriptors(os.dup(root))  # where the content of hard links lies
        self._options, self._selection, self._report = options, options.make_selection(), report
        self._unpublished: dict[str, _Unpublished] = {}  # by where they belong
        self._unpublished_bytes = 0
        self._made_directories: set[str] = set()  # by this run
        self._digesting = ThreadPoolExecutor(1, "archive-digest")  # its thread starts with the first large file
        self.files = self.bytes = self.failed = 0

    def close(self) -> None:
        self._digesting.shutdown()
        self._folders.close()
        self._sources.close()

    def take(self, entry: FileEntry, reader: ChunkReader) -> None:
        path = self._find_place(entry)
        if path is None:
            return
        try:
            check_path(path)
            check_path(entry.path)
        except AccessRefused as error:
            self._fail(entry, str(error))
            return
        reader.skip_to(entry.offset)
        expected = make_headers(entry)
        if reader.read(len(expected)) != expected:
            self._fail(entry, "It is damaged in the archive: what describes it is not what was packed.")
            return
        try:
            self._restore(entry, path, reader)
        except FileRefused as failed:
            self._fail(entry, str(failed))
        except (AccessRefused, ValueError) as error:
            self._fail(entry, str(error))
        except OSError as error:
            if error.errno in _NOT_ITS_FAULT:
                raise
            self._fail(entry, _describe_error(error))

    def _find_place(self, entry: FileEntry) -> str | None:
        """Where an entry is restored; None if it is not selected."""
        if place := self._options.link_sources.get(entry.path):
            return place
        return entry.path if self._selection.has_path(entry.path) else None

    def _fail(self, entry: FileEntry, reason: str) -> None:
        self.failed += 1
        self._report(FileFailure(to_printable(entry.path), reason))

    def _restore(self, entry: FileEntry, path: str, reader: ChunkReader) -> None:
        if entry.kind == "directory":
            self._make_directory(path)
            return
        folder, name = self._enter_folder(path)
        if entry.kind == "file":
            self._restore_file(entry, path, folder, name, reader)
        elif entry.kind == "symlink":
            self._restore_symlink(entry, folder, name)
        elif entry.kind == "hardlink":
            self._restore_hardlink(entry, path, name)

    def _enter_folder(self, path: str) -> tuple[int, str]:
        """Return where a path lies, making the directories above it that are missing."""
        try:
            return self._folders.locate(path)
        except FileNotFoundError:
            self._make_directory(path.rpartition("/")[0])
            return self._folders.locate(path)
        except NotADirectoryError:
            raise FileRefused("On the way to its place lies something that is no directory.") from None

    def _make_directory(self, path: str) -> None:
        if path in ("", "."):
            return
        folder, name = self._enter_folder(path)
        try:
            os.mkdir(name, UNFINISHED_MODE, dir_fd=folder)
            self._made_directories.add(path)
        except FileExistsError:
            if not stat.S_ISDIR(os.stat(name, dir_fd=folder, follow_symlinks=False).st_mode):
                raise FileRefused("Where it belongs lies something that is no directory.") from None

    def _restore_file(self, entry: FileEntry, path: str, folder: int, name: str, reader: ChunkReader) -> None:
        is_new = path.rpartition("/")[0] in self._made_directories  # then nothing can be there
        found = None if is_new else stat_if_there(folder, name)
        if found is not None and not self._may_replace(entry, folder, name, found):
            self.files += 1
            return
        temporary = self._name_temporary(entry) if is_new else self._clear_temporary(entry, folder)
        file = os.open(temporary, _WRITE_FLAGS, 0o600, dir_fd=folder)
        is_whole = False
        try:
            digest = self._write_content(entry, file, reader)
            if digest != entry.sha256:
                raise FileRefused("It is damaged in the archive: its content is not what was packed.")
            if entry.xattrs:
                set_acls(file, entry)
            os.fchmod(file, entry.mode & 0o1777)  # also sets what the mode says of an ACL
            os.utime(file, ns=(entry.mtime_ns, entry.mtime_ns))
            is_whole = True
        finally:
            os.close(file)
            if not is_whole:
                os.unlink(temporary, dir_fd=folder)
        self._unpublished[path] = _Unpublished(entry, path, name, temporary)
        self._unpublished_bytes += entry.size
        if len(self._unpublished) >= _BATCH_FILES or self._unpublished_bytes >= _BATCH_BYTES:
            self.publish()

    def _clear_temporary(self, entry: FileEntry, folder: int) -> str:
        """The name of an unfinished file, which is free: a run that was killed may have left one."""
        name = self._name_temporary(entry)
        with suppress(FileNotFoundError):
            os.unlink(name, dir_fd=folder)
        return name

    def _name_temporary(self, entry: FileEntry) -> str:
        return f".waybill-{self._options.token[:60]}-{entry.archive:x}-{entry.offset:x}.part"

    def _write_content(self, entry: FileEntry, file: int, reader: ChunkReader) -> str:
        if entry.size <= _SMALL and entry.data is None:
            content = reader.read(entry.size)
            written = 0
            while written < len(content):
                written += os.write(file, content[written:])
            return hashlib.sha256(content).hexdigest()
        digest, at = hashlib.sha256(), 0
        if entry.data is not None:
            os.truncate(file, entry.size)
        for start, length in entry.data if entry.data is not None else ((0, entry.size),):
            if start < at or length < 0 or start + length > entry.size:
                raise FileRefused("The catalogue describes its holes wrongly.")
            digest_zeros(digest, start - at)
            at = start
            for piece in reader.iter_pieces(length):
                digested = self._digesting.submit(digest.update, piece)  # on another core, while it is written
                try:
                    rest = piece
                    while rest:
                        count = os.pwrite(file, rest, at)
                        rest, at = rest[count:], at + count
                finally:
                    digested.result()
        digest_zeros(digest, entry.size - at)
        return digest.hexdigest()

    def _may_replace(self, entry: FileEntry, folder: int, name: str, found: os.stat_result) -> bool:
        """Whether a file that exists is replaced: not if it is what would be restored. Raises FileRefused."""
        if stat.S_ISDIR(found.st_mode):
            raise FileRefused("Where it belongs lies a directory.")
        if (
            stat.S_ISREG(found.st_mode)
            and (found.st_size, found.st_mtime_ns) == (entry.size, entry.mtime_ns)
            and _digest_file(folder, name) == entry.sha256
        ):
            return False
        if not self._options.overwrite:
            raise FileRefused(
                "It exists already, with another content, and is not overwritten unless that is asked for."
            )
        return True

    def _restore_symlink(self, entry: FileEntry, folder: int, name: str) -> None:
        found = stat_if_there(folder, name)
        if found is not None:
            if stat.S_ISLNK(found.st_mode) and os.readlink(name, dir_fd=folder) == entry.target:
                self.files += 1
                return
            if stat.S_ISDIR(found.st_mode) or not self._options.overwrite:
                raise FileRefused("It exists already, and is not overwritten unless that is asked for.")
        temporary = self._clear_temporary(entry, folder)
        os.symlink(entry.target, temporary, dir_fd=folder)
        os.utime(temporary, ns=(entry.mtime_ns, entry.mtime_ns), dir_fd=folder, follow_symlinks=False)
        self._give_name(folder, temporary, name)
        self.files += 1

    def _restore_hardlink(self, entry: FileEntry, path: str, name: str) -> None:
        source = self._options.link_sources.get(entry.target, entry.target)
        if source == path:
            return  # it got the content
        check_path(source)
        if source in self._unpublished:
            self.publish()
        try:
            source_folder, source_name = self._sources.locate(source)
            content = os.stat(source_name, dir_fd=source_folder, follow_symlinks=False)
        except (FileNotFoundError, NotADirectoryError):
            return  # in an archive that is still to come: made when all are unpacked
        folder, name = self._folders.locate(path)
        found = stat_if_there(folder, name)
        if found is not None:
            if (found.st_dev, found.st_ino) == (content.st_dev, content.st_ino):
                self.files += 1
                return
            if stat.S_ISDIR(found.st_mode) or not self._options.overwrite:
                raise FileRefused("It exists already, and is not overwritten unless that is asked for.")
        if not stat.S_ISREG(content.st_mode):
            raise FileRefused("What it is a further link of is another kind of file now.")
        temporary = self._clear_temporary(entry, folder)
        os.link(source_name, temporary, src_dir_fd=source_folder, dst_dir_fd=folder, follow_symlinks=False)
        self._give_name(folder, temporary, name)
        self.files += 1

    def publish(self) -> None:
        """Bring what was written to the disk, then give each file its name."""
        if not self._unpublished:
            return
        self._sync()
        for each in self._unpublished.values():
            try:
                folder, name = self._folders.locate(each.path)
                self._give_name(folder, each.temporary, name)
            except FileRefused as failed:
                self._fail(each.entry, str(failed))
                continue
            except OSError as error:
                self._fail(each.entry, _describe_error(error))
                continue
            self.files += 1
            self.bytes += each.entry.size
        self._sync()  # the names too
        self._unpublished.clear()
        self._unpublished_bytes = 0

    def _give_name(self, folder: int, temporary: str, name: str) -> None:
        try:
            if self._options.overwrite:
                os.rename(temporary, name, src_dir_fd=folder, dst_dir_fd=folder)
            else:
                rename_without_replacing(folder, temporary, folder, name)
        except OSError as error:
            with suppress(OSError):
                os.unlink(temporary, dir_fd=folder)
            if error.errno in (errno.EEXIST, errno.EISDIR, errno.ENOTEMPTY):
                raise FileRefused("Somebody has made another file in its place meanwhile.") from None
            raise

    def _sync(self) -> None:
        root = os.open(".", os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC, dir_fd=self._folders.root)
        try:
            sync_file_system(root)
        finally:
            os.close(root)


def check_path(path: str) -> None:
    """Refuse a path that is absolute, or leads upwards. Raises AccessRefused."""
    if path == ".":
        return
    names = path.split("/")
    if len(names) > MAX_DEPTH + 1:
        raise AccessRefused(f"It lies more than {MAX_DEPTH} directories deep.")
    for name in names:
        check_name(name)


def stat_if_there(folder: int, name: str) -> os.stat_result | None:
    try:
        return os.stat(name, dir_fd=folder, follow_symlinks=False)
    except FileNotFoundError:
        return None


def _digest_file(folder: int, name: str) -> str:
    with os.fdopen(os.open(name, READ_FLAGS, dir_fd=folder), "rb", buffering=0) as stream:
        return hashlib.file_digest(stream, "sha256").hexdigest()


def _describe_error(error: OSError) -> str:
    if error.errno in (errno.EACCES, errno.EPERM):
        return "The user may not write it there."
    return f"It cannot be written: {error.strerror}."
