"""Listing: the objects of a directory in the byte order of their names, in bounded memory.

A folder's entries come in no order, so the smallest PAGE of them are picked, and then the next; a folder of ten million
costs more looks at it, not more memory. An entry stands for up to two things: for the object of its name and, if it is
a folder, for what lies below. Since `a!` sorts before `a/b`, what lies below the folder `a` begins at `a/` and not at
`a`. What lies below a folder that continues a long segment may fall between its neighbours, so it is merged with them.
"""

from __future__ import annotations

import heapq
import os
from collections.abc import Iterator
from typing import NamedTuple, TypeAlias

from waybill.objects.escape import components, text_of
from waybill.objects.files import describe, open_object
from waybill.objects.folders import Folders
from waybill.objects.names import RESERVED
from waybill.objects.protocol import NotFound, ObjectInfo

PAGE = 100_000


class _Item(NamedTuple):
    lowest: bytes  # no name that this stands for sorts before it
    below: bool  # stands for what lies below the folder, not for an object
    entry: str
    text: str  # of the name, up to and with this entry


# What lies below folders that have been entered: the next name, a number to break ties, the object, the rest.
_Running: TypeAlias = list[tuple[bytes, int, ObjectInfo, Iterator[ObjectInfo]]]


class Listing:
    """One walk over the objects after a name."""

    def __init__(self, folders: Folders, after: str, page: int, folding: bool) -> None:
        self._folders = folders
        self._after = after.encode()
        self._page = min(PAGE, max(page, 1))
        self._folding = folding

    def below(self, path: list[str], text: str, chained: bool = False) -> Iterator[ObjectInfo]:
        """What lies in the folder at `path`, whose entries continue `text`; `chained` if a long segment goes on in
        it.
        """
        try:
            with self._folders.find(path) as fd:
                running: _Running = []
                for number, item in enumerate(self._items(fd, text, root=not path)):
                    while running and running[0][0] < item.lowest:
                        yield _next(running)
                    if item.below:
                        inner = self.below([*path, item.entry], item.text, chained or not item.text.endswith("/"))
                        _start(running, number, inner)
                    elif not chained or components(item.text, folding=self._folding) == [*path, item.entry]:
                        info = _describe(fd, item)
                        if info is not None:
                            yield info
                while running:
                    yield _next(running)
        except NotFound:  # the folder is gone
            return

    def _items(self, fd: int, text: str, *, root: bool) -> Iterator[_Item]:
        last: _Item | None = None
        while True:
            items = heapq.nsmallest(
                self._page, (item for item in self._entries(fd, text, root=root) if last is None or item > last)
            )
            yield from items
            if len(items) < self._page:
                return
            last = items[-1]

    def _entries(self, fd: int, text: str, *, root: bool) -> Iterator[_Item]:
        with os.scandir(fd) as entries:
            for entry in entries:
                decoded = text_of(entry.name, folding=self._folding)
                if decoded is None or (root and entry.name == RESERVED):
                    continue
                piece, goes_on = decoded
                name = text + piece
                folder = entry.is_dir(follow_symlinks=False)
                if not goes_on and name.encode() > self._after and (folder or entry.is_file(follow_symlinks=False)):
                    yield _Item(name.encode(), False, entry.name, name)
                if folder:
                    start = name if goes_on else name + "/"
                    lowest = start.encode()
                    if lowest > self._after or self._after.startswith(lowest):
                        yield _Item(lowest, True, entry.name, start)


def _describe(fd: int, item: _Item) -> ObjectInfo | None:
    file = open_object(item.entry, fd)
    if file is None:
        return None
    try:
        return describe(item.text, file)
    finally:
        os.close(file)


def _start(running: _Running, number: int, names: Iterator[ObjectInfo]) -> None:
    info = next(names, None)
    if info is not None:
        heapq.heappush(running, (info.name.encode(), number, info, names))


def _next(running: _Running) -> ObjectInfo:
    _, number, info, names = heapq.heappop(running)
    _start(running, number, names)
    return info
