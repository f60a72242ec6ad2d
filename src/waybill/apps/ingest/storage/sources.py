"""Sources: where the content of a deposit is read from, in the process of ingest.

    file:queue/bid-1/jid-2/producer/a.txt      a working file, by its path below the working root
    waybill:ingest/payloads/.../a.zip          an object of ingest
    memory:1f2e.../mrt-erc.txt                 bytes that a caller lends for the time of a write

Nothing else is opened. A path is opened below the root without following links, whether they come from a container or
were created meanwhile.
"""

from __future__ import annotations

import os
import secrets
import stat
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import BinaryIO

from waybill.apps.ingest.storage.protocol import InvalidDeposit
from waybill.errors import WaybillError
from waybill.objects import ObjectData, Objects, open_beneath

FILE_SCHEME = "file:"
OBJECT_SCHEME = "waybill:"
MEMORY_SCHEME = "memory:"
_INGEST_PREFIX = "ingest/"  # of object names: other objects do not belong to ingest
_READ_FLAGS = (
    os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC
)  # non-blocking: a pipe must not wait for its other end


class SourceMissing(WaybillError):
    """A working file does not exist, or is not a file."""

    code = "source-missing"


class WorkingSources:
    """Opens the sources of deposits."""

    def __init__(self, root: Path, objects: Objects) -> None:
        self._root, self._objects = root, objects
        self._lent_files: dict[str, Mapping[str, bytes]] = {}

    @contextmanager
    def lend_files(self, files: Mapping[str, bytes]) -> Iterator[str]:
        """Lend bytes by name; yield the prefix of their sources.

        Safe for several threads, each with bytes of its own.
        """
        token = secrets.token_hex(8)
        self._lent_files[token] = files
        try:
            yield f"{MEMORY_SCHEME}{token}/"
        finally:
            del self._lent_files[token]

    @contextmanager
    def __call__(self, source: str) -> Iterator[ObjectData]:
        if source.startswith(FILE_SCHEME):
            with open_working_file(self._root, source.removeprefix(FILE_SCHEME)) as file:
                yield file
        elif source.startswith(OBJECT_SCHEME + _INGEST_PREFIX):
            with self._objects.get(source.removeprefix(OBJECT_SCHEME)) as body:
                yield body
        elif (
            source.startswith(MEMORY_SCHEME)
            and (lent := self._lent_files.get(source.removeprefix(MEMORY_SCHEME).partition("/")[0])) is not None
        ):
            yield lent[source.partition("/")[2]]
        else:
            raise InvalidDeposit(
                f"{source[:100]!r} cannot be read: a source is a working file, an object of ingest, or lent bytes."
            )


@contextmanager
def open_working_file(root: Path, path: str) -> Iterator[BinaryIO]:
    """Open the regular file at a path below the root. Raises SourceMissing if there is none, or a link on the path."""
    if any(part in ("", ".", "..") for part in path.split("/")) or "\0" in path:
        raise InvalidDeposit(f"{path[:100]!r} is not the path of a working file.")
    try:
        at = os.open(root, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        try:
            # closed below, or by the caller's block
            file = open(open_beneath(at, path, _READ_FLAGS), "rb", buffering=0)  # noqa: SIM115
        finally:
            os.close(at)
    except OSError as error:
        raise SourceMissing(f"The working file {path} cannot be read: {os.strerror(error.errno or 0)}.") from error
    with file:
        if not stat.S_ISREG(os.fstat(file.fileno()).st_mode):
            raise SourceMissing(f"The working file {path} is not a regular file.")
        yield file
