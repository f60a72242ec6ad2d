"""Sources: where the bytes of a deposit are read from, by whoever runs in the same process as the ingest.

    file:queue/bid-1/jid-2/producer/a.txt      a working file, by its path below the working root
    waybill:ingest/payloads/.../a.zip          an object of the ingest
    memory:1f2e.../mrt-erc.txt                 bytes that someone lends for the time of a write

Nothing else is opened. A path is walked folder by folder from the root, and no link is followed, neither one that a
container brought along nor one that somebody put there meanwhile.
"""

from __future__ import annotations

import os
import secrets
import stat
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import BinaryIO

from waybill.apps.ingest.storage.protocol import NotStorable
from waybill.objects import Data, Objects
from waybill.objects.beneath import open_beneath

FILE = "file:"
OBJECT = "waybill:"
MEMORY = "memory:"
_OWN = "ingest/"  # among the objects: what lies elsewhere is not the ingest's to give away
_READ = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC  # not to wait for the other end of a pipe


class SourceGone(Exception):
    """A working file is not there, or is no file."""


class WorkingSources:
    def __init__(self, root: Path, objects: Objects) -> None:
        self._root, self._objects = root, objects
        self._lent: dict[str, Mapping[str, bytes]] = {}

    @contextmanager
    def lending(self, files: Mapping[str, bytes]) -> Iterator[str]:
        """Lend bytes by their names; what their sources begin with.

        May be used from many threads, each with bytes of its own.
        """
        token = secrets.token_hex(8)
        self._lent[token] = files
        try:
            yield f"{MEMORY}{token}/"
        finally:
            del self._lent[token]

    @contextmanager
    def __call__(self, source: str) -> Iterator[Data]:
        if source.startswith(FILE):
            with open_inside(self._root, source.removeprefix(FILE)) as file:
                yield file
        elif source.startswith(OBJECT + _OWN):
            with self._objects.get(source.removeprefix(OBJECT)) as body:
                yield body
        elif (
            source.startswith(MEMORY)
            and (lent := self._lent.get(source.removeprefix(MEMORY).partition("/")[0])) is not None
        ):
            yield lent[source.partition("/")[2]]
        else:
            raise NotStorable(
                f"{source[:100]!r} cannot be read: a source is a working file, an object of the ingest, or lent."
            )


@contextmanager
def open_inside(root: Path, path: str) -> Iterator[BinaryIO]:
    """The regular file at a path below the root; SourceGone if there is none, or a link on the way."""
    if any(part in ("", ".", "..") for part in path.split("/")) or "\0" in path:
        raise NotStorable(f"{path[:100]!r} is no path of a working file.")
    try:
        at = os.open(root, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        try:
            # closed below, or by the caller's block
            file = open(open_beneath(at, path, _READ), "rb", buffering=0)  # noqa: SIM115
        finally:
            os.close(at)
    except OSError as error:
        raise SourceGone(f"The working file {path} cannot be read: {os.strerror(error.errno or 0)}.") from error
    with file:
        if not stat.S_ISREG(os.fstat(file.fileno()).st_mode):
            raise SourceGone(f"The working file {path} is no file.")
        yield file
