"""The process that is the user: started by access.py as root, it becomes the user and serves one conversation.

    python -m waybill.apps.archive.files.user_process SOCKET UID GID GROUP,GROUP,...

Everything is imported before it becomes the user, who need not be able to read our code. It holds no descriptor but the
socket, and ends when the other end is closed.
"""

from __future__ import annotations

import os
import socket
import sys
from collections.abc import Callable, Iterator
from typing import Any

import msgspec

from waybill.apps.archive.files import listing, locking, restoring, unpacking
from waybill.apps.archive.files.access import Frames, decode_options, describe_open_error, encode_file_for_root
from waybill.apps.archive.files.entries import FileEntry, FileFailure, FileSet, decode_entries, encode_entries
from waybill.apps.archive.files.restoring import FileForRoot, RestoreFinisher, iter_blocks
from waybill.apps.archive.files.source_tree import FolderDescriptors, open_file_set
from waybill.errors import WaybillError

_FAILURE_BLOCK = 1000
_SHORT_CALLS = ("find_file_set", "make_target")  # a request, an answer


def become_user(uid: int, gid: int, groups: list[int]) -> None:
    """Take the user's rights, and lose all others, for good."""
    os.setgroups(groups)
    os.setresgid(gid, gid, gid)
    os.setresuid(uid, uid, uid)
    if uid == 0 or os.getresuid() != (uid, uid, uid) or os.getresgid() != (gid, gid, gid):
        raise SystemExit("The process did not become the user.")
    os.umask(0o077)


class _Conversation:
    def __init__(self, frames: Frames) -> None:
        self._frames = frames
        self._failures: list[FileFailure] = []

    def serve(self) -> None:
        calls: dict[str, Callable[..., None]] = {
            "find_file_set": self._find_file_set,
            "list_files": self._list_files,
            "open_files": self._open_files,
            "make_target": self._make_target,
            "unpack_archive": self._unpack_archive,
            "finish_restore": self._finish_restore,
        }
        while True:
            try:
                letter, content, _ = self._frames.receive()
            except (EOFError, ConnectionError):
                return
            if letter != b"Q":
                return
            arguments = msgspec.json.decode(content, type=dict[str, Any])
            name = arguments.pop("call")
            try:
                calls[name](**arguments)
            except (WaybillError, OSError) as error:
                self._send_failures()
                self._frames.send_json(
                    b"X",
                    {
                        "type": type(error).__name__,
                        "message": (error.strerror or str(error)) if isinstance(error, OSError) else str(error),
                        "code": getattr(error, "code", ""),
                        "errno": error.errno if isinstance(error, OSError) else None,
                    },
                )
                if name not in _SHORT_CALLS:
                    return  # what the other end still sends belongs to the call that has failed

    def _report(self, failure: FileFailure) -> None:
        self._failures.append(failure)

    def _send_failures(self) -> None:
        for at in range(0, len(self._failures), _FAILURE_BLOCK):
            self._frames.send_json(b"F", self._failures[at : at + _FAILURE_BLOCK])
        self._failures = []

    def _answer(self, value: object) -> None:
        self._send_failures()
        self._frames.send_json(b"R", value)

    def _iter_entry_blocks(self) -> Iterator[list[FileEntry]]:
        while True:
            letter, content, _ = self._frames.receive()
            if letter == b"Z":
                return
            yield decode_entries(bytes(content))

    def _find_file_set(self, paths: list[str]) -> None:
        file_set, names = listing.find_file_set(map(os.fsdecode, msgspec.convert(paths, list[bytes])))
        self._answer((file_set, [os.fsencode(name) for name in names]))

    def _list_files(self, file_set: dict[str, Any], paths: list[str]) -> None:
        names = [os.fsdecode(path) for path in msgspec.convert(paths, list[bytes])]
        found = listing.list_files(msgspec.convert(file_set, FileSet), names, self._report)
        for block in iter_blocks(found, 1000):
            self._send_failures()
            self._frames.send(b"E", encode_entries(block))
        self._send_failures()
        self._frames.send(b"Z")

    def _open_files(self, file_set: dict[str, Any]) -> None:
        folders = FolderDescriptors(open_file_set(msgspec.convert(file_set, FileSet)))
        try:
            for block in self._iter_entry_blocks():
                numbers, descriptors = [], []
                try:
                    for number, entry in enumerate(block):
                        try:
                            descriptors.append(locking.open_for_lock(folders, entry))
                            numbers.append(number)
                        except OSError as error:
                            self._report(describe_open_error(entry, error))
                    self._send_failures()
                    self._frames.send_json(b"D", numbers, descriptors)
                finally:
                    for descriptor in descriptors:
                        os.close(descriptor)
        finally:
            folders.close()
        self._answer(None)

    def _make_target(self, path: str) -> None:
        self._answer(restoring.make_target(os.fsdecode(msgspec.convert(path, bytes))))

    def _unpack_archive(self, file_set: dict[str, Any], options: dict[str, Any]) -> None:
        entries = [entry for block in self._iter_entry_blocks() for entry in block]
        is_at_end = False

        def iter_chunks() -> Iterator[bytearray]:
            nonlocal is_at_end
            while not is_at_end:
                letter, content, _ = self._frames.receive()
                if letter == b"Z":
                    is_at_end = True
                else:
                    yield content

        chunks = iter_chunks()
        counts = unpacking.unpack_archive(
            chunks,  # type: ignore[arg-type] # a bytearray serves
            entries,
            msgspec.convert(file_set, FileSet),
            decode_options(options),
            self._report,
        )
        for _ in chunks:  # the end of the archive holds nothing
            pass
        self._answer(counts)

    def _finish_restore(self, file_set: dict[str, Any], options: dict[str, Any]) -> None:
        def give_to_root(work: FileForRoot, file: int) -> None:
            try:
                self._frames.send(b"D", encode_file_for_root(work), [file])
                self._frames.receive()
            finally:
                os.close(file)

        finisher = RestoreFinisher(
            msgspec.convert(file_set, FileSet), decode_options(options), self._report, give_to_root
        )
        try:
            for block in self._iter_entry_blocks():
                for entry in block:
                    finisher.take(entry)
                self._answer(None)
            self._answer(finisher.finish())
        finally:
            finisher.close()


def main(arguments: list[str]) -> None:
    descriptor, uid, gid, groups = arguments
    connection = socket.socket(fileno=int(descriptor))
    become_user(int(uid), int(gid), [int(group) for group in groups.split(",") if group])
    _Conversation(Frames(connection)).serve()


if __name__ == "__main__":
    main(sys.argv[1:])
