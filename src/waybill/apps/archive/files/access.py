"""Acting for users: everything that depends on what a user may read or write is done by a process that is the user.

As root, `open_access(user)` starts a process that becomes the user (groups, group, user: for good) and does what it is
asked: list files, open them for the lock, make a target, unpack archives into it, finish them. Results come back over a
socket, and descriptors with them, so that root can lock a file that the user could open, and can do nothing else: a path
that a user may not read is never read, and where a user may not write nothing is written. user_process.py is that
process.

As any other user, or for None, everything is done by this process itself, with its own rights.

The conversation is made of frames: a letter, a length, the content, and the descriptors that belong to it. One request is
answered before the next. Nobody waits for the other in the middle of what he sends: entries go out in blocks that are
answered one by one, and what is reported while an archive is unpacked comes at its end.
"""

from __future__ import annotations

import os
import pwd
import socket
import struct
import subprocess
import sys
from collections.abc import Generator, Iterable, Sequence
from contextlib import closing, suppress
from types import TracebackType
from typing import Any, Protocol, Self

import msgspec

from waybill.apps.archive.files import listing, locking, restoring, unpacking
from waybill.apps.archive.files.entries import (
    FileEntry,
    FileFailure,
    FileSet,
    ReportFailure,
    decode_entries,
    encode_entries,
    to_printable,
)
from waybill.apps.archive.files.errors import AccessRefused, ArchiveInvalid, FileRefused, FileSetChanged
from waybill.apps.archive.files.restoring import FileForRoot, RestoreOptions, UnpackedCounts
from waybill.apps.archive.files.source_tree import FolderDescriptors, open_file_set
from waybill.errors import WaybillError

LOCK_BLOCK = 100  # entries whose descriptors are under way at once
_LIST_BLOCK = 1000
_HEADER = struct.Struct("!cI")
_MAX_FRAME = 512 * 1024 * 1024
_MAX_DESCRIPTORS = 128


class UserIdentity(msgspec.Struct, frozen=True):
    """Whom the files belong to."""

    name: str
    uid: int
    gid: int
    groups: tuple[int, ...]


def find_user(name: str) -> UserIdentity:
    """Look the user up in the system. Raises AccessRefused if there is none."""
    try:
        found = pwd.getpwnam(name)
    except (KeyError, ValueError):
        raise AccessRefused(f"This system has no user {to_printable(name)!r}.") from None
    return UserIdentity(name, found.pw_uid, found.pw_gid, tuple(os.getgrouplist(name, found.pw_gid)))


class FileAccess(Protocol):
    """What is done with a user's rights. A context manager; for one thread, and one call at a time: an iterator that a
    method returned is read to its end or closed before the next call.
    """

    def find_file_set(self, paths: Iterable[str]) -> tuple[FileSet, list[str]]:
        """Find the common folder of absolute paths, and the paths relative to it, without duplicates and without those
        that lie below another one. One directory is itself the folder, with the path ".". Raises AccessRefused.
        """
        ...

    def list_files(
        self, file_set: FileSet, paths: Sequence[str], report: ReportFailure
    ) -> Generator[FileEntry, None, None]:
        """Yield what is there, streaming, and report what cannot be archived. Changes nothing."""
        ...

    def lock_files(
        self, file_set: FileSet, entries: Iterable[FileEntry], report: ReportFailure
    ) -> Generator[FileEntry, None, None]:
        """Take write bits, and as root the owner, from files and directories that the user can read. Yields the entries
        with size, mtime and ctime as they are after that, and with mode and owner as they were before: `entries` must
        be stored durably first. Safe to repeat.
        """
        ...

    def make_target(self, path: str) -> FileSet:
        """Make the folder to restore into, whose parent must exist, or find it. Raises AccessRefused if the user cannot
        write there. Safe to repeat.
        """
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
        `entries` in the order of the listing. Returns how many. Safe to repeat.
        """
        ...

    def __enter__(self) -> Self: ...

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None: ...


def open_access(user: UserIdentity | None) -> FileAccess:
    """As root: a process that has become the user. Otherwise, or for None, as this process itself."""
    if user is None or os.geteuid() != 0 or user.uid == 0:
        return OwnAccess()
    return UserAccess(user)


class OwnAccess:
    """As this process itself."""

    def find_file_set(self, paths: Iterable[str]) -> tuple[FileSet, list[str]]:
        return listing.find_file_set(paths)

    def list_files(
        self, file_set: FileSet, paths: Sequence[str], report: ReportFailure
    ) -> Generator[FileEntry, None, None]:
        return listing.list_files(file_set, paths, report)

    def lock_files(
        self, file_set: FileSet, entries: Iterable[FileEntry], report: ReportFailure
    ) -> Generator[FileEntry, None, None]:
        folders = FolderDescriptors(open_file_set(file_set))
        try:
            for entry in entries:
                if entry.kind == "symlink":
                    yield entry  # its directory is locked
                    continue
                try:
                    file = locking.open_for_lock(folders, entry)
                except OSError as error:
                    report(describe_open_error(entry, error))
                    continue
                if locked := lock_opened_file(file, entry, report):
                    yield locked
        finally:
            folders.close()

    def make_target(self, path: str) -> FileSet:
        return restoring.make_target(path)

    def unpack_archive(
        self,
        chunks: Iterable[bytes | memoryview],
        entries: Sequence[FileEntry],
        target: FileSet,
        options: RestoreOptions,
        report: ReportFailure,
    ) -> UnpackedCounts:
        return unpacking.unpack_archive(chunks, entries, target, options, report)

    def finish_restore(
        self, target: FileSet, entries: Iterable[FileEntry], options: RestoreOptions, report: ReportFailure
    ) -> int:
        return restoring.finish_restore(target, entries, options, report)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Nothing is open between calls."""


def lock_opened_file(file: int, entry: FileEntry, report: ReportFailure) -> FileEntry | None:
    """Lock through a descriptor, which is closed."""
    try:
        return locking.lock_file(file, entry)
    except FileRefused as refused:
        report(FileFailure(to_printable(entry.path), str(refused)))
    except OSError as error:
        report(FileFailure(to_printable(entry.path), f"It cannot be locked: {error.strerror}."))
    finally:
        os.close(file)
    return None


def describe_open_error(entry: FileEntry, error: OSError) -> FileFailure:
    reason = "It vanished after it was listed." if isinstance(error, FileNotFoundError) else "The user cannot read it."
    if not isinstance(error, FileNotFoundError | PermissionError):
        reason = f"It cannot be opened: {error.strerror}."
    return FileFailure(to_printable(entry.path), reason)


class Frames:
    """One end of the conversation."""

    def __init__(self, connection: socket.socket) -> None:
        self._connection = connection

    def send(self, letter: bytes, content: bytes | memoryview = b"", descriptors: Sequence[int] = ()) -> None:
        header = _HEADER.pack(letter, len(content))
        if descriptors:
            socket.send_fds(self._connection, [header], list(descriptors))
        else:
            self._connection.sendall(header)
        if content:
            self._connection.sendall(content)

    def receive(self) -> tuple[bytes, bytearray, list[int]]:
        """Return a frame. Raises EOFError at the end of the conversation."""
        header, descriptors, _, _ = socket.recv_fds(self._connection, _HEADER.size, _MAX_DESCRIPTORS)
        try:
            while len(header) < _HEADER.size:
                more = self._connection.recv(_HEADER.size - len(header))
                if not more:
                    raise EOFError
                header += more
            letter, length = _HEADER.unpack(header)
            if length > _MAX_FRAME:
                raise EOFError
            content = bytearray(length)
            view = memoryview(content)
            while view:
                count = self._connection.recv_into(view)
                if not count:
                    raise EOFError
                view = view[count:]
        except BaseException:
            for descriptor in descriptors:
                os.close(descriptor)
            raise
        return letter, content, list(descriptors)

    def send_json(self, letter: bytes, value: object, descriptors: Sequence[int] = ()) -> None:
        self.send(letter, msgspec.json.encode(value), descriptors)

    def close(self) -> None:
        self._connection.close()


_decode_failures = msgspec.json.Decoder(list[FileFailure]).decode
_RAISED_HERE = {kind.__name__: kind for kind in (AccessRefused, ArchiveInvalid, FileSetChanged)}


class UserAccess:
    """As root: with the rights of a user."""

    def __init__(self, user: UserIdentity) -> None:
        self._user = user
        ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_STREAM)
        for end in (ours, theirs):
            end.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, 4 * 1024 * 1024)
        with closing(theirs):
            self._process = subprocess.Popen(
                [
                    *(sys.executable, "-I", "-X", "utf8", "-m", "waybill.apps.archive.files.user_process"),
                    *(str(theirs.fileno()), str(user.uid), str(user.gid), ",".join(map(str, user.groups))),
                ],
                stdin=subprocess.DEVNULL,
                stdout=subprocess.DEVNULL,
                pass_fds=(theirs.fileno(),),
                cwd="/",
                env={"LANG": "C.UTF-8", "PATH": "/usr/bin:/bin"},
            )
        self._frames = Frames(ours)

    def find_file_set(self, paths: Iterable[str]) -> tuple[FileSet, list[str]]:
        found, names = self._call("find_file_set", paths=[os.fsencode(path) for path in paths])
        return msgspec.convert(found, FileSet), [os.fsdecode(name) for name in msgspec.convert(names, list[bytes])]

    def list_files(
        self, file_set: FileSet, paths: Sequence[str], report: ReportFailure
    ) -> Generator[FileEntry, None, None]:
        self._request("list_files", file_set=file_set, paths=[os.fsencode(path) for path in paths])
        try:
            while True:
                letter, content, _ = self._receive(report)
                if letter == b"Z":
                    return
                yield from decode_entries(bytes(content))
        except GeneratorExit:
            self.__exit__(None, None, None)  # the rest of the answer is not read: the conversation is over
            raise

    def lock_files(
        self, file_set: FileSet, entries: Iterable[FileEntry], report: ReportFailure
    ) -> Generator[FileEntry, None, None]:
        self._request("open_files", file_set=file_set)
        opened: dict[int, int] = {}
        try:
            for block in restoring.iter_blocks(entries, LOCK_BLOCK):
                self._frames.send(b"E", encode_entries([entry for entry in block if entry.kind != "symlink"]))
                _, content, descriptors = self._receive(report)
                opened = dict(zip(msgspec.json.decode(content, type=list[int]), descriptors, strict=True))
                number = 0
                for entry in block:
                    if entry.kind == "symlink":
                        yield entry  # its directory is locked
                        continue
                    if number in opened and (locked := lock_opened_file(opened.pop(number), entry, report)):
                        yield locked
                    number += 1
            self._frames.send(b"Z")
            self._receive(report)
        except GeneratorExit:
            self.__exit__(None, None, None)
            raise
        finally:
            for descriptor in opened.values():
                os.close(descriptor)

    def make_target(self, path: str) -> FileSet:
        return msgspec.convert(self._call("make_target", path=os.fsencode(path)), FileSet)

    def unpack_archive(
        self,
        chunks: Iterable[bytes | memoryview],
        entries: Sequence[FileEntry],
        target: FileSet,
        options: RestoreOptions,
        report: ReportFailure,
    ) -> UnpackedCounts:
        self._request("unpack_archive", file_set=target, options=encode_options(options))
        for block in restoring.iter_blocks(entries, _LIST_BLOCK):
            self._frames.send(b"E", encode_entries(block))
        self._frames.send(b"Z")
        try:
            for chunk in chunks:
                self._frames.send(b"C", chunk)
            self._frames.send(b"Z")
        except (BrokenPipeError, ConnectionResetError):
            pass  # it has ended with an error, which is read now
        _, content, _ = self._receive(report)
        return msgspec.json.decode(content, type=UnpackedCounts)

    def finish_restore(
        self, target: FileSet, entries: Iterable[FileEntry], options: RestoreOptions, report: ReportFailure
    ) -> int:
        self._request("finish_restore", file_set=target, options=encode_options(options))
        for block in restoring.iter_blocks(entries, _LIST_BLOCK):
            self._frames.send(b"E", encode_entries(block))
            self._finish_opened_files(report)
        self._frames.send(b"Z")
        return msgspec.json.decode(self._finish_opened_files(report), type=int)

    def _finish_opened_files(self, report: ReportFailure) -> bytearray:
        """Do root's part for the files that come, until the block is answered."""
        while True:
            letter, content, descriptors = self._receive(report)
            if letter != b"D":
                return content
            try:
                work = decode_file_for_root(bytes(content))
                if reason := restoring.finish_as_root(work, descriptors[0], self._user.uid):
                    report(FileFailure(to_printable(work.entry.path), reason))
            except OSError as error:
                report(FileFailure(to_printable(work.entry.path), f"Its owner is not restored: {error.strerror}."))
            finally:
                for descriptor in descriptors:
                    os.close(descriptor)
            self._frames.send(b"A")

    def _request(self, name: str, **arguments: Any) -> None:
        try:
            self._frames.send_json(b"Q", {"call": name, **arguments})
        except OSError as error:
            raise self._describe_end() from error

    def _call(self, name: str, **arguments: Any) -> Any:
        self._request(name, **arguments)
        return msgspec.json.decode(self._receive(lambda _: None)[1])

    def _receive(self, report: ReportFailure) -> tuple[bytes, bytearray, list[int]]:
        while True:
            try:
                letter, content, descriptors = self._frames.receive()
            except (EOFError, OSError) as error:
                raise self._describe_end() from error
            if letter == b"F":
                for failure in _decode_failures(content):
                    report(failure)
            elif letter == b"X":
                raised = msgspec.json.decode(content, type=dict[str, Any])
                if raised["errno"]:
                    raise OSError(raised["errno"], raised["message"])
                kind = _RAISED_HERE.get(raised["type"])
                raise kind(raised["message"]) if kind else WaybillError(raised["message"], code=raised["code"])
            else:
                return letter, content, descriptors

    def _describe_end(self) -> Exception:
        status = self._process.wait()
        return RuntimeError(f"The process that acts for {self._user.name} ended in the middle, with status {status}.")

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._frames.close()  # it ends when nobody talks to it any more
        with suppress(subprocess.TimeoutExpired):
            self._process.wait(timeout=10)
            return
        self._process.kill()
        self._process.wait()


def encode_options(options: RestoreOptions) -> dict[str, Any]:
    """Options whose paths are bytes: JSON has no others."""
    fields = msgspec.structs.asdict(options)
    fields["paths"] = [os.fsencode(path) for path in options.paths]
    fields["link_sources"] = [(os.fsencode(a), os.fsencode(b)) for a, b in options.link_sources.items()]
    fields["globs"] = [os.fsencode(glob) for glob in options.globs]
    return fields


def decode_options(fields: dict[str, Any]) -> RestoreOptions:
    fields = dict(fields)
    for name in ("paths", "globs"):
        fields[name] = [os.fsdecode(each) for each in msgspec.convert(fields[name], list[bytes])]
    pairs = msgspec.convert(fields["link_sources"], list[tuple[bytes, bytes]])
    fields["link_sources"] = {os.fsdecode(a): os.fsdecode(b) for a, b in pairs}
    return msgspec.convert(fields, RestoreOptions)


def encode_file_for_root(work: FileForRoot) -> bytes:
    flags = b"%d%d" % (work.is_setuid_kept, work.is_owner_kept)
    return flags + encode_entries([work.entry])


def decode_file_for_root(content: bytes) -> FileForRoot:
    return FileForRoot(decode_entries(content[2:])[0], content[:1] == b"1", content[1:2] == b"1")
