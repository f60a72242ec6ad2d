"""Tar archives as a stream, plain or gzipped.

Long names, names in any script and files of any size are in the POSIX form (pax).
"""

from __future__ import annotations

import tarfile
import zlib
from collections.abc import Iterable, Iterator

from waybill.apps.ingest.access.members import Member

_BLOCK = 512
_END = 2 * _BLOCK


def tar(members: Iterable[Member]) -> Iterator[bytes]:
    for member in members:
        head = tarfile.TarInfo(member.name)
        head.size, head.mtime, head.mode = member.size, int(member.modified), 0o644
        yield head.tobuf(tarfile.PAX_FORMAT, "utf-8", "strict")
        yield from member.portions()
        yield bytes(-member.size % _BLOCK)
    yield bytes(_END)


def gzip(portions: Iterable[bytes]) -> Iterator[bytes]:
    """The same bytes, gzipped; without a time, so that the same content gives the same archive."""
    squeezer = zlib.compressobj(6, zlib.DEFLATED, 31)
    for portion in portions:
        if sent := squeezer.compress(portion):
            yield sent
    yield squeezer.flush()
